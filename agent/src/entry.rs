//! The record that describes one entry of the file system.

use std::ffi::CStr;
use std::os::raw::c_char;

use crate::errors::{AtPath, Outcome};
use crate::fields::{field, Writer};
use crate::paths;
use crate::sys::{self, Errno};
use crate::users::Accounts;
use crate::xattrs;

/// Values of the field `type`: what the entry is after following links.
pub const TYPE_OTHER: u64 = 0;
pub const TYPE_FILE: u64 = 1;
pub const TYPE_DIRECTORY: u64 = 2;

/// Appends the entry at `path`; returns the mode of the entry itself (links not followed).
pub fn write_entry(out: &mut Writer, path: &[u8], accounts: &Accounts) -> Outcome<u32> {
    let c_path = sys::c_path(path).at_path(path)?;
    let own = sys::lstat(&c_path).at_path(path)?;
    let is_link = sys::is_kind(own.st_mode, libc::S_IFLNK);
    // A broken or endless link has no target: it keeps its own mode and the type "other".
    let target = if is_link { sys::stat(&c_path).ok() } else { Some(own) };
    out.record(field::ENTRY, |entry| {
        entry.bytes(field::PATH, path);
        entry.bytes(field::NAME, paths::base_name(path));
        entry.number(field::TYPE, target.map_or(TYPE_OTHER, |found| type_of(found.st_mode)));
        entry.number(field::SIZE, own.st_size as u64);
        entry.number(field::MODE, own.st_mode.into());
        entry.number(field::TARGET_MODE, target.unwrap_or(own).st_mode.into());
        entry.number(field::UID, own.st_uid.into());
        entry.number(field::GID, own.st_gid.into());
        entry.bytes(field::OWNER, &accounts.owner_name(own.st_uid));
        entry.bytes(field::GROUP, &accounts.group_name(own.st_gid));
        entry.number(field::MTIME_NS, mtime_ns(&own));
        if is_link {
            // Unresolvable: the link's own path, as upstream answers.
            let resolved = real_path(&c_path).unwrap_or_else(|_| path.to_vec());
            entry.bytes(field::LINK_TARGET, &resolved);
        }
        if target.map_or(false, |found| type_of(found.st_mode) != TYPE_OTHER) {
            xattrs::read_path(&c_path, |name, value| {
                entry.pieces(field::XATTR, &[name, b"="].concat(), value);
            });
        }
    });
    Ok(own.st_mode)
}

pub fn type_of(mode: u32) -> u64 {
    match mode & libc::S_IFMT {
        libc::S_IFREG => TYPE_FILE,
        libc::S_IFDIR => TYPE_DIRECTORY,
        _ => TYPE_OTHER,
    }
}

/// Nanoseconds since 1970, in two's complement where earlier.
pub fn mtime_ns(found: &libc::stat) -> u64 {
    found.st_mtime.wrapping_mul(1_000_000_000).wrapping_add(found.st_mtime_nsec) as u64
}

/// The absolute path with every link resolved.
fn real_path(path: &CStr) -> Result<Vec<u8>, Errno> {
    let mut resolved = [0 as c_char; libc::PATH_MAX as usize];
    // SAFETY: the buffer has the PATH_MAX bytes that realpath may fill.
    let found = unsafe { libc::realpath(path.as_ptr(), resolved.as_mut_ptr()) };
    if found.is_null() {
        return Err(sys::errno());
    }
    // SAFETY: on success the buffer holds a NUL-terminated path.
    Ok(unsafe { CStr::from_ptr(resolved.as_ptr()) }.to_bytes().to_vec())
}
