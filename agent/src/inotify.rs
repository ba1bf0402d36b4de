//! The kernel's file events, and what they are called in the protocol.

use std::ffi::CStr;
use std::os::unix::io::{AsRawFd, OwnedFd};

use crate::sys::{self, Errno};
use crate::watch_queue::{CHMOD, CREATE, REMOVE, RENAME, WRITE};

/// Which bits give which kind, in the order in which kinds of one event are reported.
pub const KINDS: [(u32, u64); 5] = [
    (libc::IN_CREATE | libc::IN_MOVED_TO, CREATE),
    (libc::IN_MOVED_FROM, RENAME),
    (libc::IN_ATTRIB, CHMOD),
    (libc::IN_MODIFY, WRITE),
    (libc::IN_DELETE, REMOVE),
];

const MASK: u32 = libc::IN_CREATE
    | libc::IN_MOVED_TO
    | libc::IN_MOVED_FROM
    | libc::IN_ATTRIB
    | libc::IN_MODIFY
    | libc::IN_DELETE
    | libc::IN_DELETE_SELF
    | libc::IN_MOVE_SELF
    | libc::IN_ONLYDIR;

/// `struct inotify_event` without the name.
const HEADER: usize = 16;
const BUFFER: usize = 16 << 10;
/// Buffers read in one go, so that a storm of events does not keep a worker for good.
const MAX_READS: usize = 16;

pub struct Event<'a> {
    pub descriptor: i32,
    pub mask: u32,
    pub name: &'a [u8],
}

pub fn open() -> Result<OwnedFd, Errno> {
    // SAFETY: takes no pointer.
    sys::own(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) })
}

pub fn add(inotify: &OwnedFd, path: &CStr, follows_link: bool) -> Result<i32, Errno> {
    let mask = if follows_link { MASK } else { MASK | libc::IN_DONT_FOLLOW };
    // SAFETY: `path` is NUL-terminated.
    sys::check(unsafe { libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), mask) })
}

pub fn remove(inotify: &OwnedFd, descriptor: i32) {
    // SAFETY: takes no pointer. It fails when the directory is gone, and the watch with it.
    unsafe { libc::inotify_rm_watch(inotify.as_raw_fd(), descriptor) };
}

/// Gives each waiting event to `take`; true when there may be more.
pub fn read(inotify: &OwnedFd, mut take: impl FnMut(Event)) -> bool {
    let mut buffer = vec![0; BUFFER];
    for _ in 0..MAX_READS {
        let filled = match sys::read(inotify.as_raw_fd(), &mut buffer) {
            Ok(filled) if filled > 0 => filled,
            _ => return false,
        };
        let mut rest = &buffer[..filled];
        while rest.len() >= HEADER {
            let word = |at: usize| [rest[at], rest[at + 1], rest[at + 2], rest[at + 3]];
            let length = u32::from_ne_bytes(word(12)) as usize;
            let end = rest.len().min(HEADER + length);
            let name = &rest[HEADER..end];
            let name = &name[..name.iter().position(|&b| b == 0).unwrap_or(name.len())];
            take(Event { descriptor: i32::from_ne_bytes(word(0)), mask: u32::from_ne_bytes(word(4)), name });
            rest = &rest[end..];
        }
    }
    true
}

/// NFS, CIFS, SMB and FUSE do not tell of changes made elsewhere.
pub fn is_on_network(path: &CStr) -> Result<bool, Errno> {
    const NETWORK: [u32; 5] = [0x6969, 0xff53_4d42, 0x517b, 0xfe53_4d42, 0x6573_5546];
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `path` is NUL-terminated and `found` writable.
    sys::check(unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) })?;
    // SAFETY: filled in by the successful call.
    let kind = unsafe { found.assume_init() }.f_type;
    Ok(NETWORK.contains(&(kind as u32)))
}
