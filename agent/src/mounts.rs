//! Makes what every program expects where a runtime has not made it: /proc, /dev/pts, /dev/shm, a few devices. Best effort, and
//! only for PID 1.

use std::ffi::CString;

use crate::sys;

struct Mount {
    /// present when this is
    sign: &'static str,
    source: &'static str,
    target: &'static str,
    kind: &'static str,
    flags: libc::c_ulong,
    options: &'static str,
}

const SAFE: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;

const MOUNTS: [Mount; 3] = [
    Mount { sign: "/proc/self", source: "proc", target: "/proc", kind: "proc", flags: SAFE, options: "" },
    Mount {
        sign: "/dev/pts/ptmx",
        source: "devpts",
        target: "/dev/pts",
        kind: "devpts",
        flags: libc::MS_NOSUID | libc::MS_NOEXEC,
        options: "newinstance,ptmxmode=0666,mode=620",
    },
    Mount { sign: "/dev/shm", source: "shm", target: "/dev/shm", kind: "tmpfs", flags: SAFE, options: "mode=1777" },
];

/// Name, major and minor number.
const DEVICES: [(&str, u32, u32); 5] =
    [("/dev/null", 1, 3), ("/dev/zero", 1, 5), ("/dev/full", 1, 7), ("/dev/random", 1, 8), ("/dev/urandom", 1, 9)];

const LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];

pub fn complete() {
    make_directory("/dev");
    for mount in MOUNTS.iter().filter(|mount| !exists(mount.sign)) {
        make_directory(mount.target);
        let source = text(mount.source);
        let (target, kind, options) = (text(mount.target), text(mount.kind), text(mount.options));
        // SAFETY: all strings are NUL-terminated.
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), mount.flags, options.as_ptr().cast()) };
    }
    for (name, major, minor) in DEVICES.iter().filter(|(name, ..)| !exists(name)) {
        let name = text(name);
        // SAFETY: the name is NUL-terminated.
        unsafe {
            libc::mknod(name.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(*major, *minor));
            libc::chmod(name.as_ptr(), 0o666);
        }
    }
    for (name, target) in LINKS.iter().filter(|(name, _)| !exists(name)) {
        let (name, target) = (text(name), text(target));
        // SAFETY: both are NUL-terminated.
        unsafe { libc::symlink(target.as_ptr(), name.as_ptr()) };
    }
}

fn exists(path: &str) -> bool {
    sys::lstat(&text(path)).is_ok()
}

fn make_directory(path: &str) {
    let path = text(path);
    // SAFETY: the path is NUL-terminated. What exists already is fine.
    unsafe { libc::mkdir(path.as_ptr(), 0o755) };
}

fn text(value: &str) -> CString {
    CString::new(value).expect("no zero byte in the constants of this file")
}
