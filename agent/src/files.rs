//! File operations that are done in one go: STAT, MAKE_DIR, MOVE, the handles, DISK, SYNC. They run as root; what they
//! create belongs to the user.

use std::ffi::CStr;
use std::os::unix::io::{AsRawFd, OwnedFd};

use crate::context::{Actor, Context};
use crate::entry;
use crate::errors::{AtPath, Code, Error, Outcome};
use crate::fields::{field, Message};
use crate::frame;
use crate::paths;
use crate::sys::{self, Errno};
use crate::users::User;
use crate::xattrs;

pub fn stat(context: &Context, request: &Message) -> Outcome<Vec<u8>> {
    let actor = context.actor(request)?;
    let path = actor.resolve(request.bytes(field::PATH))?;
    entry_frame(&actor, &path)
}

pub fn make_dir(context: &Context, request: &Message) -> Outcome<Vec<u8>> {
    let actor = context.actor(request)?;
    let path = actor.resolve(request.bytes(field::PATH))?;
    let c_path = sys::c_path(&path).at_path(&path)?;
    if let Ok(found) = sys::stat(&c_path).or_else(|_| sys::lstat(&c_path)) {
        return Err(if sys::is_kind(found.st_mode, libc::S_IFDIR) {
            Error::with_errno(Code::Exists, libc::EEXIST).at(&path)
        } else {
            Error::new(Code::NotDirectory, "path exists and is not a directory").at(&path)
        });
    }
    make_directories(&path, &actor.user).at_path(&path)?;
    entry_frame(&actor, &path)
}

pub fn move_entry(context: &Context, request: &Message) -> Outcome<Vec<u8>> {
    let actor = context.actor(request)?;
    let from = actor.resolve(request.bytes(field::PATH))?;
    let to = actor.resolve(request.bytes(field::DESTINATION))?;
    make_parents(&to, &actor.user)?;
    rename(&from, &to).at_path(&from)?;
    entry_frame(&actor, &to)
}

pub fn open_read(context: &Context, request: &Message) -> Outcome<Vec<u8>> {
    let actor = context.actor(request)?;
    let path = actor.resolve(request.bytes(field::PATH))?;
    let c_path = sys::c_path(&path).at_path(&path)?;
    // Not to wait for a writer of a FIFO.
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = sys::open(&c_path, flags, 0).at_path(&path)?;
    let found = sys::fstat(file.as_raw_fd()).at_path(&path)?;
    if sys::is_kind(found.st_mode, libc::S_IFDIR) {
        return Err(Error::with_errno(Code::IsDirectory, libc::EISDIR).at(&path));
    }
    let handle = context.handles.insert(file, path.clone())?;
    Ok(frame::ok(|out| {
        out.number(field::HANDLE, handle);
        out.bytes(field::PATH, &path);
        out.number(field::SIZE, found.st_size as u64);
        out.number(field::MODE, found.st_mode.into());
        out.number(field::MTIME_NS, entry::mtime_ns(&found));
        out.number(field::TYPE, entry::type_of(found.st_mode));
    }))
}

pub fn open_write(context: &Context, request: &Message) -> Outcome<Vec<u8>> {
    let actor = context.actor(request)?;
    let path = actor.resolve(request.bytes(field::PATH))?;
    let attributes: Vec<&[u8]> = request.all(field::XATTR).collect();
    make_parents(&path, &actor.user)?;
    let c_path = sys::c_path(&path).at_path(&path)?;
    let (file, created) = open_for_writing(&c_path).at_path(&path)?;
    let prepared = prepare(&file, &actor.user, request.flag(field::TRUNCATE), &attributes);
    let handle = prepared.and_then(|()| context.handles.insert(file, path.clone()));
    if handle.is_err() && created {
        // SAFETY: `c_path` is NUL-terminated.
        unsafe { libc::unlink(c_path.as_ptr()) };
    }
    let handle = handle.map_err(|error| error.at(&path))?;
    Ok(frame::ok(|out| {
        out.number(field::HANDLE, handle);
        out.bytes(field::PATH, &path);
        out.number(field::CREATED, created.into());
    }))
}

pub fn write_at(context: &Context, request: &Message) -> Outcome<Vec<u8>> {
    let handle = context.handles.get(request.number(field::HANDLE))?;
    let mut offset = request.number(field::OFFSET);
    let mut data = request.bytes(field::DATA);
    while !data.is_empty() {
        let at = i64::try_from(offset).map_err(|_| Error::invalid("offset out of range"))?;
        // SAFETY: `data` is valid for reads of its whole length.
        let written = sys::retry(|| {
            sys::check_size(unsafe { libc::pwrite(handle.file.as_raw_fd(), data.as_ptr().cast(), data.len(), at) })
        });
        let written = written.at_path(&handle.path)?;
        data = &data[written..];
        offset += written as u64;
    }
    Ok(frame::empty_ok())
}

pub fn close(context: &Context, request: &Message) -> Outcome<Vec<u8>> {
    let handle = context.handles.remove(request.number(field::HANDLE))?;
    if request.flag(field::TRUNCATE) {
        let length = i64::try_from(request.number(field::OFFSET));
        let length = length.map_err(|_| Error::invalid("offset out of range"))?;
        // SAFETY: takes no pointer.
        sys::check(unsafe { libc::ftruncate(handle.file.as_raw_fd(), length) }).at_path(&handle.path)?;
    }
    Ok(frame::empty_ok())
}

pub fn disk(request: &Message) -> Outcome<Vec<u8>> {
    let path = paths::resolve(request.bytes(field::PATH), b"/", b"/")?;
    let c_path = sys::c_path(&path).at_path(&path)?;
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `c_path` is NUL-terminated and `found` writable.
    sys::check(unsafe { libc::statfs(c_path.as_ptr(), found.as_mut_ptr()) }).at_path(&path)?;
    // SAFETY: filled in by the successful call.
    let found = unsafe { found.assume_init() };
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_bsize as u64);
    Ok(frame::ok(|out| {
        out.number(field::TOTAL, bytes(found.f_blocks));
        out.number(field::USED, bytes(found.f_blocks.saturating_sub(found.f_bfree)));
    }))
}

pub fn sync() -> Outcome<Vec<u8>> {
    // SAFETY: takes nothing, returns nothing.
    unsafe { libc::sync() };
    Ok(frame::empty_ok())
}

pub fn entry_frame(actor: &Actor, path: &[u8]) -> Outcome<Vec<u8>> {
    let mut written = Ok(0);
    let response = frame::ok(|out| written = entry::write_entry(out, path, &actor.accounts));
    written.map(|_| response)
}

/// Makes the missing directories above `path`, 0755 and owned by the user.
pub fn make_parents(path: &[u8], user: &User) -> Outcome<()> {
    make_directories(paths::parent(path), user).at_path(path)
}

pub fn rename(from: &[u8], to: &[u8]) -> Result<(), Errno> {
    let (from, to) = (sys::c_path(from)?, sys::c_path(to)?);
    // SAFETY: both are NUL-terminated.
    sys::check(unsafe { libc::rename(from.as_ptr(), to.as_ptr()) })?;
    Ok(())
}

fn make_directories(path: &[u8], user: &User) -> Result<(), Errno> {
    let mut missing = Vec::new();
    let mut place = path;
    loop {
        match sys::stat(&sys::c_path(place)?) {
            Ok(found) if sys::is_kind(found.st_mode, libc::S_IFDIR) => break,
            Ok(_) => return Err(libc::ENOTDIR),
            Err(libc::ENOENT) if place != b"/" => {
                missing.push(place);
                place = paths::parent(place);
            }
            Err(errno) => return Err(errno),
        }
    }
    for place in missing.into_iter().rev() {
        let c_place = sys::c_path(place)?;
        // SAFETY: `c_place` is NUL-terminated.
        match sys::check(unsafe { libc::mkdir(c_place.as_ptr(), 0o755) }) {
            // SAFETY: as above.
            Ok(_) => sys::check(unsafe { libc::lchown(c_place.as_ptr(), user.uid, user.gid) })?,
            // Another request made it at the same time; a dangling link shows on the next step.
            Err(libc::EEXIST) => 0,
            Err(errno) => return Err(errno),
        };
    }
    Ok(())
}

/// First without O_CREAT: with it the kernel refuses files of others in sticky directories, even to root.
fn open_for_writing(path: &CStr) -> Result<(OwnedFd, bool), Errno> {
    let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
    match sys::open(path, flags, 0) {
        Err(libc::ENOENT) => Ok((sys::open(path, flags | libc::O_CREAT, 0o644)?, true)),
        opened => Ok((opened?, false)),
    }
}

fn prepare(file: &OwnedFd, user: &User, truncate: bool, attributes: &[&[u8]]) -> Outcome<()> {
    let fd = file.as_raw_fd();
    let mode = sys::fstat(fd)?.st_mode;
    if sys::is_kind(mode, libc::S_IFCHR) && attributes.is_empty() {
        // /dev/null and its like can be written to, but stay what they are.
        return Ok(());
    }
    if !sys::is_kind(mode, libc::S_IFREG) {
        return Err(Error::new(Code::NotRegular, "not a regular file"));
    }
    if truncate {
        // SAFETY: takes no pointer.
        sys::check(unsafe { libc::ftruncate(fd, 0) })?;
    }
    // SAFETY: takes no pointer.
    sys::check(unsafe { libc::fchown(fd, user.uid, user.gid) })?;
    xattrs::replace(fd, attributes)
}
