//! Input on its way to a process: written in order, each piece exactly once even when its request is repeated.

use std::collections::VecDeque;
use std::os::unix::io::{AsRawFd, OwnedFd};

use crate::errors::{Code, Error, Outcome};
use crate::poller::Interest;
use crate::sys;

/// Input that may wait for one process.
const MAX_WAITING: usize = 8 << 20;
/// Operations remembered for each process, to know a repeated one.
const MAX_REMEMBERED: usize = 64;
pub const MAX_OPERATION_ID: usize = 256;

#[derive(Default)]
pub struct Input {
    pub fd: Option<OwnedFd>,
    pub interest: Interest,
    queue: VecDeque<Piece>,
    /// the end of input comes behind the queue
    is_closing: bool,
    /// the descriptor is to be closed, which its owner does: it has to leave the poller first
    pub is_over: bool,
    remembered: VecDeque<Progress>,
}

struct Piece {
    data: Vec<u8>,
    written: usize,
    operation: Vec<u8>,
    /// the connections that wait for it: more than one when the request was repeated
    connections: Vec<u64>,
}

/// How far an operation had come.
struct Progress {
    operation: Vec<u8>,
    written: usize,
    is_done: bool,
}

/// What a call has settled: connections to answer.
#[derive(Default)]
pub struct Settled {
    pub done: Vec<u64>,
    pub failed: Vec<u64>,
}

impl Input {
    pub fn new(fd: Option<OwnedFd>) -> Input {
        Input { fd, ..Input::default() }
    }

    /// Takes the input of a request. True when all of it had been written before.
    pub fn add(&mut self, connection: u64, operation: &[u8], data: &[u8]) -> Outcome<bool> {
        if !operation.is_empty() {
            if let Some(known) = self.remembered.iter().find(|known| known.operation == operation) {
                if known.is_done {
                    return Ok(true);
                }
            }
            if let Some(piece) = self.queue.iter_mut().find(|piece| piece.operation == operation) {
                piece.connections.push(connection);
                return Ok(false);
            }
        }
        if self.fd.is_none() || self.is_closing || self.is_over {
            return Err(Error::new(Code::StdinClosed, "stdin not enabled or closed"));
        }
        let waiting: usize = self.queue.iter().map(|piece| piece.data.len()).sum();
        if waiting > 0 && waiting + data.len() > MAX_WAITING {
            return Err(Error::new(Code::Exhausted, "too much input is waiting"));
        }
        let written = self.forget(operation).min(data.len());
        self.queue.push_back(Piece {
            data: data.to_vec(),
            written,
            operation: operation.to_vec(),
            connections: vec![connection],
        });
        Ok(false)
    }

    /// Writes as much as the process takes.
    pub fn write(&mut self) -> Settled {
        let mut settled = Settled::default();
        while let (Some(fd), Some(piece)) = (&self.fd, self.queue.front_mut()) {
            let rest = &piece.data[piece.written..];
            let result = if rest.is_empty() { Ok(0) } else { sys::write(fd.as_raw_fd(), rest) };
            match result {
                Ok(count) => piece.written += count,
                Err(libc::EAGAIN) => break,
                Err(_) => {
                    settled.failed = self.shut();
                    return settled;
                }
            }
            if piece.written == piece.data.len() {
                if let Some(piece) = self.queue.pop_front() {
                    self.remember(piece.operation, piece.written, true);
                    settled.done.extend(piece.connections);
                }
            }
        }
        self.is_over |= self.is_closing && self.queue.is_empty();
        settled
    }

    pub fn is_waiting(&self) -> bool {
        !self.is_over && !self.queue.is_empty()
    }

    /// End of input, behind what is still to be written. Harmless when repeated.
    pub fn close(&mut self) {
        self.is_closing = true;
        self.is_over |= self.queue.is_empty();
    }

    /// Nobody reads any more: what waits has failed.
    pub fn shut(&mut self) -> Vec<u64> {
        self.is_over = true;
        let failed = self.queue.drain(..).flat_map(|piece| piece.connections).collect();
        self.queue = VecDeque::new();
        failed
    }

    /// A connection is gone: its input is not written any further, but how far it came is remembered.
    pub fn cancel(&mut self, connection: u64) {
        for piece in &mut self.queue {
            piece.connections.retain(|&waiting| waiting != connection);
        }
        let mut at = 0;
        while at < self.queue.len() {
            if !self.queue[at].connections.is_empty() {
                at += 1;
            } else if let Some(piece) = self.queue.remove(at) {
                self.remember(piece.operation, piece.written, false);
            }
        }
    }

    fn remember(&mut self, operation: Vec<u8>, written: usize, is_done: bool) {
        if operation.is_empty() || (written == 0 && !is_done) {
            return;
        }
        if self.remembered.len() == MAX_REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back(Progress { operation, written, is_done });
    }

    /// Takes back how far an operation had come; it is under way again.
    fn forget(&mut self, operation: &[u8]) -> usize {
        match self.remembered.iter().position(|known| known.operation == operation) {
            Some(at) if !operation.is_empty() => self.remembered.remove(at).map_or(0, |known| known.written),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A non-blocking pipe: its read end, and an input that writes to it.
    fn pipe() -> (OwnedFd, Input) {
        let (read, write) = sys::pipe().unwrap();
        sys::set_nonblocking(&read).unwrap();
        sys::set_nonblocking(&write).unwrap();
        (read, Input::new(Some(write)))
    }

    fn drain(fd: &OwnedFd) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Ok(count) = sys::read_onto(fd.as_raw_fd(), &mut bytes, 64 << 10) {
            if count == 0 {
                break;
            }
        }
        bytes
    }

    #[test]
    fn a_repeated_operation_is_written_once() {
        let (reader, mut input) = pipe();
        assert!(!input.add(1, b"op", b"hello").unwrap());
        assert_eq!(input.write().done, [1]);
        assert!(input.add(2, b"op", b"hello").unwrap());
        assert_eq!(drain(&reader), b"hello");
    }

    #[test]
    fn an_operation_cut_off_half_way_goes_on_where_it_was() {
        let (reader, mut input) = pipe();
        let data: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
        input.add(1, b"op", &data).unwrap();
        assert!(input.write().done.is_empty());
        input.cancel(1);
        assert!(!input.is_waiting());
        let mut received = drain(&reader);
        input.add(2, b"op", &data).unwrap();
        while input.is_waiting() {
            input.write();
            received.extend(drain(&reader));
        }
        assert!(received == data);
    }

    #[test]
    fn closing_waits_for_what_is_queued_and_refuses_more() {
        let (reader, mut input) = pipe();
        let data = vec![7; 100_000];
        input.add(1, b"", &data).unwrap();
        input.write();
        input.close();
        assert_eq!(input.add(2, b"", b"x").unwrap_err().code, Code::StdinClosed);
        let mut received = drain(&reader);
        assert_eq!(input.write().done, [1]);
        received.extend(drain(&reader));
        assert_eq!(received.len(), data.len());
        assert!(input.is_over);
    }

    #[test]
    fn a_reader_that_is_gone_fails_what_waits() {
        // SAFETY: only this test's process is concerned; writing to a closed pipe must not kill it.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        let (reader, mut input) = pipe();
        drop(reader);
        input.add(1, b"", b"x").unwrap();
        assert_eq!(input.write().failed, [1]);
        assert_eq!(input.add(2, b"", b"x").unwrap_err().code, Code::StdinClosed);
    }
}
