//! System calls with errno as a value, for the calls that the standard library lacks or wraps too heavily.

use std::ffi::{CStr, CString};
use std::os::raw::{c_int, c_void};
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub type Errno = i32;

pub fn errno() -> Errno {
    // SAFETY: always returns a valid pointer to this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// The result of a call that answers -1 for failure.
pub fn check(result: c_int) -> Result<c_int, Errno> {
    if result < 0 {
        Err(errno())
    } else {
        Ok(result)
    }
}

/// The same for calls that answer a number of bytes.
pub fn check_size(result: isize) -> Result<usize, Errno> {
    if result < 0 {
        Err(errno())
    } else {
        Ok(result as usize)
    }
}

/// Repeats a call that a signal interrupted.
pub fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(libc::EINTR) => continue,
            other => return other,
        }
    }
}

/// The C library's text for an errno, in lower case.
pub fn describe(errno: Errno) -> String {
    let mut text = [0u8; 128];
    // SAFETY: the buffer is ours and its length is passed; the XSI variant always terminates it.
    unsafe { libc::strerror_r(errno, text.as_mut_ptr().cast(), text.len()) };
    let end = text.iter().position(|&b| b == 0).unwrap_or(0);
    String::from_utf8_lossy(&text[..end]).to_lowercase()
}

/// A path for the kernel. Paths with a NUL never get here: they are refused when resolved.
pub fn c_path(path: &[u8]) -> Result<CString, Errno> {
    CString::new(path).map_err(|_| libc::EINVAL)
}

/// Takes a descriptor that a system call has just made.
pub fn own(result: c_int) -> Result<OwnedFd, Errno> {
    let fd = check(result)?;
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub fn open(path: &CStr, flags: c_int, mode: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    retry(|| own(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode) }))
}

pub fn open_at(dir: RawFd, path: &CStr, flags: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    retry(|| own(unsafe { libc::openat(dir, path.as_ptr(), flags | libc::O_CLOEXEC) }))
}

pub fn read(fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the buffer is valid for writes of its whole length.
    retry(|| check_size(unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) }))
}

pub fn write(fd: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: `bytes` is valid for reads of its whole length.
    retry(|| check_size(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) }))
}

pub fn write_all(fd: RawFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = write(fd, bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Sends on a socket; a peer that is gone is an error, never a SIGPIPE.
pub fn send(fd: RawFd, bytes: &[u8], flags: c_int) -> Result<usize, Errno> {
    let flags = flags | libc::MSG_NOSIGNAL;
    // SAFETY: `bytes` is valid for reads of its whole length.
    retry(|| check_size(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) }))
}

/// Reads at most `limit` bytes onto the end of `buffer`, without zeroing the space first.
pub fn read_onto(fd: RawFd, buffer: &mut Vec<u8>, limit: usize) -> Result<usize, Errno> {
    buffer.reserve(limit);
    let spare = buffer.spare_capacity_mut();
    let room = spare.len().min(limit);
    let start = spare.as_mut_ptr().cast::<c_void>();
    // SAFETY: `start` is valid for writes of `room` bytes.
    let count = retry(|| check_size(unsafe { libc::read(fd, start, room) }))?;
    // SAFETY: the kernel has initialised `count` bytes after the old length.
    unsafe { buffer.set_len(buffer.len() + count) };
    Ok(count)
}

pub fn lstat(path: &CStr) -> Result<libc::stat, Errno> {
    stat_at(path, libc::AT_SYMLINK_NOFOLLOW)
}

pub fn stat(path: &CStr) -> Result<libc::stat, Errno> {
    stat_at(path, 0)
}

fn stat_at(path: &CStr, flags: c_int) -> Result<libc::stat, Errno> {
    let mut found = std::mem::MaybeUninit::uninit();
    // SAFETY: `path` is NUL-terminated and `found` is writable.
    let result = unsafe { libc::fstatat(libc::AT_FDCWD, path.as_ptr(), found.as_mut_ptr(), flags) };
    check(result)?;
    // SAFETY: filled in by the successful call.
    Ok(unsafe { found.assume_init() })
}

pub fn fstat(fd: RawFd) -> Result<libc::stat, Errno> {
    let mut found = std::mem::MaybeUninit::uninit();
    // SAFETY: `found` is writable.
    check(unsafe { libc::fstat(fd, found.as_mut_ptr()) })?;
    // SAFETY: filled in by the successful call.
    Ok(unsafe { found.assume_init() })
}

pub fn is_kind(mode: u32, kind: u32) -> bool {
    mode & libc::S_IFMT == kind
}

pub fn set_nonblocking(fd: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: F_GETFL and F_SETFL take no pointers.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    Ok(())
}

/// A second descriptor for the same open file.
pub fn duplicate(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    // SAFETY: F_DUPFD_CLOEXEC takes no pointer.
    own(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) })
}

/// A pipe: (read end, write end), both blocking.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both were just made and are owned by nobody else.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// How many bytes could be read at once.
pub fn readable_bytes(fd: RawFd) -> Result<usize, Errno> {
    let mut count: c_int = 0;
    // SAFETY: FIONREAD writes one int.
    check(unsafe { libc::ioctl(fd, libc::FIONREAD, &mut count) })?;
    Ok(count.max(0) as usize)
}

/// Reads a small regular file whole. Never blocks on a FIFO that a user put in its place.
pub fn read_small_file(path: &CStr, limit: usize) -> Result<Vec<u8>, Errno> {
    let file = open(path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY, 0)?;
    if !is_kind(fstat(file.as_raw_fd())?.st_mode, libc::S_IFREG) {
        return Err(libc::EINVAL);
    }
    let mut content = Vec::new();
    while content.len() < limit {
        let step = (limit - content.len()).min(16 << 10);
        if read_onto(file.as_raw_fd(), &mut content, step)? == 0 {
            break;
        }
    }
    Ok(content)
}
