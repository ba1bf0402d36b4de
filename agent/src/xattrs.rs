//! The metadata of a file: its extended attributes `user.e2b.*`, named on the wire without that prefix.

use std::ffi::{CStr, CString};
use std::os::raw::c_char;
use std::os::unix::io::RawFd;

use crate::errors::{Error, Outcome};
use crate::sys::{self, Errno};

const PREFIX: &[u8] = b"user.e2b.";
/// The kernel's own limit for a list and for a value.
const MAX: usize = 64 << 10;

/// Calls `give(name, value)` for each attribute. Best effort: many file systems have none.
pub fn read_path(path: &CStr, mut give: impl FnMut(&[u8], &[u8])) {
    // SAFETY: size 0 asks for the length only.
    let length = unsafe { libc::listxattr(path.as_ptr(), std::ptr::null_mut(), 0) };
    if length <= 0 {
        return;
    }
    let names = with_buffer(|start, size| {
        // SAFETY: `start` is valid for writes of `size` bytes.
        unsafe { libc::listxattr(path.as_ptr(), start.cast::<c_char>(), size) }
    });
    for name in ours(&names.unwrap_or_default()) {
        let value = with_buffer(|start, size| {
            // SAFETY: both strings are NUL-terminated, `start` is valid for writes of `size` bytes.
            unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), start.cast(), size) }
        });
        if let Ok(value) = value {
            give(&name.to_bytes()[PREFIX.len()..], &value);
        }
    }
}

/// Makes the attributes of an open file exactly the given `name=value` ones.
pub fn replace(fd: RawFd, wanted: &[&[u8]]) -> Outcome<()> {
    let names = with_buffer(|start, size| {
        // SAFETY: `start` is valid for writes of `size` bytes.
        unsafe { libc::flistxattr(fd, start.cast::<c_char>(), size) }
    });
    for name in ours(&names.unwrap_or_default()) {
        // SAFETY: the name is NUL-terminated.
        sys::check(unsafe { libc::fremovexattr(fd, name.as_ptr()) })?;
    }
    for pair in wanted {
        let (name, value) = split_pair(pair)?;
        // SAFETY: the name is NUL-terminated, the value valid for reads of its length.
        sys::check(unsafe { libc::fsetxattr(fd, name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })?;
    }
    Ok(())
}

fn split_pair(pair: &[u8]) -> Outcome<(CString, &[u8])> {
    let at = pair.iter().position(|&b| b == b'=').filter(|&at| at > 0);
    let at = at.ok_or_else(|| Error::invalid("an attribute needs a name"))?;
    let name = CString::new([PREFIX, &pair[..at]].concat());
    let name = name.map_err(|_| Error::invalid("an attribute's name contains a zero byte"))?;
    Ok((name, &pair[at + 1..]))
}

fn ours(names: &[u8]) -> impl Iterator<Item = CString> + '_ {
    let names = names.split(|&b| b == 0).filter(|name| name.starts_with(PREFIX));
    names.filter_map(|name| CString::new(name).ok())
}

/// Runs a call that fills a buffer and answers its length; a small buffer first, the largest when it does not fit.
fn with_buffer(mut call: impl FnMut(*mut u8, usize) -> isize) -> Result<Vec<u8>, Errno> {
    for size in [4 << 10, MAX] {
        let mut buffer = vec![0u8; size];
        match sys::check_size(call(buffer.as_mut_ptr(), size)) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(libc::ERANGE) => continue,
            Err(errno) => return Err(errno),
        }
    }
    Err(libc::ERANGE)
}
