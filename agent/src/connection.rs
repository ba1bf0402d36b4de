//! One connection of the service: what it is doing now.

use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::frame::FrameBuffer;
use crate::poller::{Interest, PEER_CLOSED, READABLE};
use crate::sys::{self, Errno};
use crate::timers::TimerKey;
use crate::tunnel::{Loopback, Tunnel};
use crate::workers::Task;

/// `SBA1` and the secret.
pub const GREETING: usize = 36;
pub const MAGIC: &[u8; 4] = b"SBA1";

/// While a request is expected or under way: a peer that goes away is noticed.
pub const LISTENING: Interest = Some(READABLE | PEER_CLOSED);

pub struct Connection {
    /// shared with a worker that sends a file
    pub socket: Arc<OwnedFd>,
    pub interest: Interest,
    pub state: State,
    pub input: FrameBuffer,
    pub output: Outgoing,
    pub timer: Option<TimerKey>,
    /// part of the budget for long frames
    pub reserved: usize,
}

pub enum State {
    /// not yet authenticated
    Greeting(Vec<u8>),
    Idle,
    /// the frame under way waits for memory
    Parked,
    /// a worker has the request
    Working,
    /// a worker's task goes on when the socket takes more
    Blocked(Box<dyn Task>),
    /// the request waits for something to happen
    Waiting(Wait),
    Sending(After),
    Dialing(Dial),
    Tunnel(Box<Tunnel>),
    /// a last answer is on its way: what the peer still sends is thrown away, so that the answer is not reset
    Lingering,
}

pub enum Wait {
    Output(OutputWait),
    Watch {
        watcher: u64,
        sequence: u64,
    },
    /// WRITE_INPUT, by the key of the process
    Input(u64),
    Start,
}

#[derive(Clone, Copy)]
pub struct OutputWait {
    pub process: u64,
    pub subscriber: u64,
    pub offset: u64,
    pub lost: u64,
    pub limit: usize,
}

/// What comes when everything is sent.
pub enum After {
    Idle,
    Resume(Box<dyn Task>),
    Tunnel(OwnedFd, Interest),
    Close,
    /// closes once the peer has had time to read
    Linger,
}

pub struct Dial {
    pub target: OwnedFd,
    pub interest: Interest,
    pub loopback: Loopback,
    pub port: u16,
}

impl Connection {
    pub fn new(socket: OwnedFd) -> Connection {
        Connection {
            socket: Arc::new(socket),
            interest: None,
            state: State::Greeting(Vec::with_capacity(GREETING)),
            input: FrameBuffer::new(),
            output: Outgoing::default(),
            timer: None,
            reserved: 0,
        }
    }

    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// A response on its way.
#[derive(Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    pub fn new(bytes: Vec<u8>) -> Outgoing {
        Outgoing { bytes, sent: 0 }
    }

    /// True when everything has been sent.
    pub fn send(&mut self, socket: RawFd) -> Result<bool, Errno> {
        while self.sent < self.bytes.len() {
            match sys::send(socket, &self.bytes[self.sent..], 0) {
                Ok(count) => self.sent += count,
                Err(libc::EAGAIN) => return Ok(false),
                Err(errno) => return Err(errno),
            }
        }
        *self = Outgoing::default();
        Ok(true)
    }
}

/// Takes the same time wherever the first difference is.
pub fn is_secret(given: &[u8], secret: &[u8; 32]) -> bool {
    if given.len() != secret.len() {
        return false;
    }
    let mut difference = 0;
    for (a, b) in given.iter().zip(secret) {
        // SAFETY: a reference is valid to read. Volatile, so that the compiler does not turn the loop into an early exit.
        difference |= unsafe { std::ptr::read_volatile(a) ^ std::ptr::read_volatile(b) };
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_secret_is_the_secret() {
        let secret = [7; 32];
        assert!(is_secret(&[7; 32], &secret));
        assert!(!is_secret(&[7; 31], &secret));
        let mut close = secret;
        close[31] ^= 1;
        assert!(!is_secret(&close, &secret));
    }
}
