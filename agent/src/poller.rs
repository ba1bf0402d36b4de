//! epoll, and the names of what it watches.

use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

use crate::sys::{self, Errno};

pub const READABLE: u32 = libc::EPOLLIN as u32;
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
pub const PEER_CLOSED: u32 = libc::EPOLLRDHUP as u32;
/// Always reported, asked for or not.
pub const BROKEN: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

const BATCH: usize = 128;

/// What an event is about. Numbers are never used twice, so an event that was on its way when its object went finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    Listener,
    Signals,
    Workers,
    Inotify,
    Connection(u64),
    /// the far side of a tunnel, by its connection
    DialTarget(u64),
    /// an output of a process: its key and the number of the stream
    Output(u64, u8),
    Input(u64),
}

/// What a descriptor is registered for; none when it is not in the set.
pub type Interest = Option<u32>;

pub struct Poller {
    epoll: OwnedFd,
    batch: Vec<libc::epoll_event>,
}

impl Poller {
    pub fn new() -> Result<Poller, Errno> {
        // SAFETY: takes no pointer.
        let epoll = sys::own(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Poller { epoll, batch: vec![libc::epoll_event { events: 0, u64: 0 }; BATCH] })
    }

    /// Changes what a descriptor is registered for. A descriptor that waits for nothing is taken out of the set: the kernel
    /// would go on to report that its peer has hung up.
    pub fn update(&self, fd: RawFd, token: Token, current: &mut Interest, wanted: Interest) {
        let operation = match (*current, wanted) {
            (now, then) if now == then => return,
            (None, _) => libc::EPOLL_CTL_ADD,
            (_, None) => libc::EPOLL_CTL_DEL,
            _ => libc::EPOLL_CTL_MOD,
        };
        let mut event = libc::epoll_event { events: wanted.unwrap_or(0), u64: encode(token) };
        // SAFETY: the event is valid for the call.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &mut event) };
        // Fails for regular files (never registered here) or without memory: then the agent cannot go on.
        assert!(result == 0, "epoll_ctl failed");
        *current = wanted;
    }

    /// Waits, at most `timeout_ms` (-1: without limit), and returns what has happened.
    pub fn wait(&mut self, timeout_ms: i32) -> Vec<(Token, u32)> {
        let (start, size) = (self.batch.as_mut_ptr(), BATCH as i32);
        // SAFETY: the batch has room for `size` events.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), start, size, timeout_ms) };
        let count = count.max(0) as usize;
        self.batch[..count].iter().map(|event| (decode(event.u64), event.events)).collect()
    }
}

fn encode(token: Token) -> u64 {
    let (kind, number) = match token {
        Token::Listener => (0, 0),
        Token::Signals => (1, 0),
        Token::Workers => (2, 0),
        Token::Inotify => (3, 0),
        Token::Connection(number) => (4, number),
        Token::DialTarget(number) => (5, number),
        Token::Output(key, stream) => (6, key << 2 | u64::from(stream)),
        Token::Input(key) => (7, key),
    };
    kind << 56 | number
}

fn decode(code: u64) -> Token {
    let number = code & ((1 << 56) - 1);
    match code >> 56 {
        0 => Token::Listener,
        1 => Token::Signals,
        2 => Token::Workers,
        3 => Token::Inotify,
        4 => Token::Connection(number),
        5 => Token::DialTarget(number),
        6 => Token::Output(number >> 2, (number & 3) as u8),
        _ => Token::Input(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_kernel() {
        let tokens = [
            Token::Listener,
            Token::Signals,
            Token::Workers,
            Token::Inotify,
            Token::Connection(77),
            Token::DialTarget(1 << 40),
            Token::Output(123_456, 3),
            Token::Input(9),
        ];
        for token in tokens {
            assert_eq!(decode(encode(token)), token);
        }
    }
}
