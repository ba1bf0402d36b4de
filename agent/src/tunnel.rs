//! DIAL: a connection that has become a raw tunnel to a port inside the sandbox.

use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::poller::{Interest, READABLE, WRITABLE};
use crate::sys::{self, Errno};

/// Turns of reading and writing before others get theirs.
const MAX_TURNS: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loopback {
    V4,
    V6,
}

/// Begins to connect; the socket becomes writable when it is connected or has failed.
pub fn connect(loopback: Loopback, port: u16) -> Result<OwnedFd, Errno> {
    let family = if loopback == Loopback::V4 { libc::AF_INET } else { libc::AF_INET6 };
    let flags = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointer.
    let socket = sys::own(unsafe { libc::socket(family, flags, 0) })?;
    set_no_delay(socket.as_raw_fd());
    let fd = socket.as_raw_fd();
    // SAFETY: both structures are plain integers, for which zero is valid.
    let (mut v4, mut v6): (libc::sockaddr_in, libc::sockaddr_in6) = unsafe { std::mem::zeroed() };
    v4.sin_family = libc::AF_INET as u16;
    v4.sin_port = port.to_be();
    v4.sin_addr.s_addr = u32::from(std::net::Ipv4Addr::LOCALHOST).to_be();
    v6.sin6_family = libc::AF_INET6 as u16;
    v6.sin6_port = port.to_be();
    v6.sin6_addr.s6_addr = std::net::Ipv6Addr::LOCALHOST.octets();
    // SAFETY: the address has the type and the length of the family.
    let result = unsafe {
        match loopback {
            Loopback::V4 => libc::connect(fd, (&v4 as *const libc::sockaddr_in).cast(), size_of(&v4)),
            Loopback::V6 => libc::connect(fd, (&v6 as *const libc::sockaddr_in6).cast(), size_of(&v6)),
        }
    };
    match sys::check(result) {
        Ok(_) | Err(libc::EINPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// Whether a connect has succeeded, once the socket is writable.
pub fn connect_outcome(socket: &OwnedFd) -> Result<(), Errno> {
    let mut errno: libc::c_int = 0;
    let mut length = size_of(&errno);
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ERROR);
    let value = (&mut errno as *mut libc::c_int).cast();
    // SAFETY: the option is one int.
    sys::check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value, &mut length) })?;
    if errno == 0 {
        Ok(())
    } else {
        Err(errno)
    }
}

pub fn set_no_delay(socket: RawFd) {
    let on: libc::c_int = 1;
    let value = (&on as *const libc::c_int).cast();
    // SAFETY: the option is one int. It only costs time where it fails.
    unsafe { libc::setsockopt(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, value, size_of(&on)) };
}

fn size_of<T>(value: &T) -> libc::socklen_t {
    std::mem::size_of_val(value) as libc::socklen_t
}

pub struct Tunnel {
    client: Arc<OwnedFd>,
    target: OwnedFd,
    up: Flow,
    down: Flow,
    pub target_interest: Interest,
}

/// One direction. At most one buffer of bytes waits in it; while it does, nothing more is read.
#[derive(Default)]
struct Flow {
    waiting: Vec<u8>,
    written: usize,
    has_ended: bool,
}

pub struct Broken;

impl Tunnel {
    /// `first` are bytes of the client that came before the tunnel was there.
    pub fn new(client: Arc<OwnedFd>, target: OwnedFd, target_interest: Interest, first: Vec<u8>) -> Tunnel {
        let up = Flow { waiting: first, ..Flow::default() };
        Tunnel { client, target, up, down: Flow::default(), target_interest }
    }

    /// Moves what can be moved; true when both directions have ended.
    pub fn pump(&mut self, scratch: &mut [u8]) -> Result<bool, Broken> {
        let (client, target) = (self.client.as_raw_fd(), self.target.as_raw_fd());
        self.up.pump(client, target, scratch)?;
        self.down.pump(target, client, scratch)?;
        Ok(self.up.is_over() && self.down.is_over())
    }

    pub fn target(&self) -> RawFd {
        self.target.as_raw_fd()
    }

    /// What to wait for: on the client's socket, and on the target's.
    pub fn interests(&self) -> (Interest, Interest) {
        (combine(&self.up, &self.down), combine(&self.down, &self.up))
    }
}

fn combine(incoming: &Flow, outgoing: &Flow) -> Interest {
    let read = if incoming.has_ended || incoming.is_waiting() { 0 } else { READABLE };
    let write = if outgoing.is_waiting() { WRITABLE } else { 0 };
    // With nothing to do for a socket it leaves the set: a hang-up would be reported again and again.
    Some(read | write).filter(|&mask| mask != 0)
}

impl Flow {
    fn is_waiting(&self) -> bool {
        self.written < self.waiting.len()
    }

    fn is_over(&self) -> bool {
        self.has_ended && !self.is_waiting()
    }

    fn pump(&mut self, from: RawFd, to: RawFd, scratch: &mut [u8]) -> Result<(), Broken> {
        for _ in 0..MAX_TURNS {
            if self.is_waiting() {
                match sys::send(to, &self.waiting[self.written..], 0) {
                    Ok(count) => self.written += count,
                    Err(libc::EAGAIN) => return Ok(()),
                    Err(_) => return Err(Broken),
                }
                if self.is_waiting() {
                    continue;
                }
                *self = Flow { has_ended: self.has_ended, ..Flow::default() };
                self.pass_end(to);
            }
            if self.has_ended {
                return Ok(());
            }
            let count = match sys::read(from, scratch) {
                Ok(0) => {
                    self.has_ended = true;
                    self.pass_end(to);
                    return Ok(());
                }
                Ok(count) => count,
                Err(libc::EAGAIN) => return Ok(()),
                Err(_) => return Err(Broken),
            };
            let sent = match sys::send(to, &scratch[..count], 0) {
                Ok(sent) => sent,
                Err(libc::EAGAIN) => 0,
                Err(_) => return Err(Broken),
            };
            if sent < count {
                self.waiting = scratch[sent..count].to_vec();
            }
        }
        Ok(())
    }

    fn pass_end(&self, to: RawFd) {
        if self.has_ended {
            // SAFETY: takes no pointer. Fails when the other side is gone, which shows on its own.
            unsafe { libc::shutdown(to, libc::SHUT_WR) };
        }
    }
}
