//! Pseudo-terminals.

use std::ffi::CStr;
use std::os::raw::c_int;
use std::os::unix::io::{AsRawFd, OwnedFd};

use crate::sys::{self, Errno};

const DEFAULT_COLS: u64 = 80;
const DEFAULT_ROWS: u64 = 24;

pub struct Terminal {
    /// the agent's side
    pub master: OwnedFd,
    /// the process's side
    pub slave: OwnedFd,
}

/// Opens a terminal that belongs to the user, so that its processes can open it again by name (tmux, ssh).
pub fn open(cols: u64, rows: u64, uid: u32, gid: u32) -> Result<Terminal, Errno> {
    let path = CStr::from_bytes_with_nul(b"/dev/ptmx\0").expect("a constant");
    let master = sys::open(path, libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK, 0)?;
    let unlock: c_int = 0;
    // SAFETY: TIOCSPTLCK reads one int.
    sys::check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &unlock) })?;
    let slave = open_slave(&master)?;
    resize(&master, cols, rows)?;
    // SAFETY: take no pointers. Best effort: the process has the terminal open in any case.
    unsafe {
        libc::fchown(slave.as_raw_fd(), uid, gid);
        libc::fchmod(slave.as_raw_fd(), 0o620);
    }
    Ok(Terminal { master, slave })
}

/// Linux tells the processes in the foreground itself (SIGWINCH); on gVisor the caller has to.
pub fn tells_of_resizing(master: &OwnedFd) -> bool {
    let mut group: libc::pid_t = 0;
    // SAFETY: TIOCGPGRP writes one pid. gVisor answers it only to those whose own terminal it is, which sets the two apart.
    unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPGRP, &mut group) == 0 }
}

pub fn resize(master: &OwnedFd, cols: u64, rows: u64) -> Result<(), Errno> {
    let clamp = |value: u64, default| if value == 0 { default } else { value.min(u16::MAX.into()) } as u16;
    let size = libc::winsize {
        ws_row: clamp(rows, DEFAULT_ROWS),
        ws_col: clamp(cols, DEFAULT_COLS),
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCSWINSZ reads one winsize.
    sys::check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &size) })?;
    Ok(())
}

/// By name: TIOCGPTPEER would not need /dev/pts, but gVisor does not have it.
fn open_slave(master: &OwnedFd) -> Result<OwnedFd, Errno> {
    let mut number: c_int = 0;
    // SAFETY: TIOCGPTN writes one int.
    sys::check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &mut number) })?;
    let path = sys::c_path(format!("/dev/pts/{number}").as_bytes())?;
    sys::open(&path, libc::O_RDWR | libc::O_NOCTTY, 0)
}
