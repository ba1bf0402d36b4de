//! The operations on processes that the event loop answers at once or lets wait.

use crate::agent::Agent;
use crate::connection::{OutputWait, Wait};
use crate::errors::{Code, Error, Outcome};
use crate::fields::{field, Message};
use crate::frame;
use crate::input::{Settled, MAX_OPERATION_ID};
use crate::poller::{Token, WRITABLE};
use crate::pty;
use crate::ring::RING_BYTES;
use crate::start::PTY;

use std::os::unix::io::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

const DEFAULT_READ: usize = 256 << 10;
/// PROCESSES is split into frames about this long.
const LIST_FRAME: usize = 1 << 20;
const SIGNALS: std::ops::RangeInclusive<u64> = 0..=64;

impl Agent {
    pub fn read_output(&mut self, id: u64, request: &Message) {
        let now = Instant::now();
        let subscriber = request.number(field::SUBSCRIBER);
        let located = self.processes.find_started(request).and_then(|key| {
            let process = self.processes.get(key).ok_or_else(gone)?;
            let offset = request.number(field::OFFSET);
            let place = process.output.locate(subscriber, offset, request.flag(field::REPLAY), now)?;
            Ok((key, place))
        });
        let (process, place) = match located {
            Ok(located) => located,
            Err(error) => return self.respond_error(id, &error),
        };
        let limit = match request.number(field::LENGTH) {
            0 => DEFAULT_READ,
            length => length.min(RING_BYTES as u64) as usize,
        };
        // What was just confirmed has made room.
        self.resume_sources(process);
        self.watch_subscribers();
        let wait = OutputWait { process, subscriber, offset: place.offset, lost: place.lost, limit };
        let wait_ms = request.number(field::WAIT_MS);
        let found = self.processes.get(process);
        let response = found.and_then(|p| p.read_output(wait.offset, wait.lost, limit, wait_ms == 0));
        if let Some(response) = response {
            return self.respond(id, response);
        }
        if let Some(found) = self.processes.get(process) {
            found.readers.push(id);
            found.output.waiting(subscriber, 1, now);
            self.wait(id, Wait::Output(wait), wait_ms);
        }
    }

    /// Answers everyone who waits for output of a process and can be answered.
    pub fn serve_readers(&mut self, key: u64) {
        let readers = match self.processes.get(key) {
            Some(process) if !process.readers.is_empty() => process.readers.clone(),
            _ => return,
        };
        for id in readers {
            if let Some(&Wait::Output(wait)) = self.wait_of(id) {
                self.serve_reader(id, wait, false);
            }
        }
    }

    pub fn serve_reader(&mut self, id: u64, wait: OutputWait, is_final: bool) {
        let response = match self.processes.get(wait.process) {
            Some(process) => match process.read_output(wait.offset, wait.lost, wait.limit, is_final) {
                Some(response) => response,
                None => return,
            },
            None => frame::error(&gone()),
        };
        self.leave_readers(id, wait);
        self.respond(id, response);
    }

    pub fn leave_readers(&mut self, id: u64, wait: OutputWait) {
        if let Some(process) = self.processes.get(wait.process) {
            process.readers.retain(|&reader| reader != id);
            process.output.waiting(wait.subscriber, -1, Instant::now());
        }
    }

    pub fn unsubscribe(&mut self, request: &Message) -> Outcome<Vec<u8>> {
        let key = self.processes.find(request)?;
        if let Some(process) = self.processes.get(key) {
            process.output.unsubscribe(request.number(field::SUBSCRIBER));
        }
        self.resume_sources(key);
        self.shed_more_history();
        Ok(frame::empty_ok())
    }

    pub fn take_input(&mut self, id: u64, request: &Message) {
        match self.queue_input(id, request) {
            Ok((_, true)) => self.respond(id, frame::empty_ok()),
            Ok((key, false)) => {
                self.wait(id, Wait::Input(key), 0);
                self.write_input(key);
            }
            Err(error) => self.respond_error(id, &error),
        }
    }

    fn queue_input(&mut self, id: u64, request: &Message) -> Outcome<(u64, bool)> {
        let operation = request.bytes(field::OPERATION_ID);
        if operation.len() > MAX_OPERATION_ID {
            return Err(Error::invalid("operationId is too long"));
        }
        let key = self.processes.find(request)?;
        let process = self.processes.get(key).ok_or_else(gone)?;
        let is_for_terminal = request.number(field::STREAM) == u64::from(PTY);
        if is_for_terminal != process.config.has_pty {
            let message = if is_for_terminal { "process has no terminal" } else { "process has a terminal" };
            return Err(Error::new(Code::NotATty, message));
        }
        match process.input.add(id, operation, request.bytes(field::DATA)) {
            // What was written before the end is still known to have been written.
            Err(_) if process.has_ended => Err(gone()),
            added => Ok((key, added?)),
        }
    }

    /// Writes waiting input, answers who waited for it, and waits for room when there is more.
    pub fn write_input(&mut self, key: u64) {
        if let Some(process) = self.processes.get(key) {
            let settled = process.input.write();
            self.watch_input(key);
            self.answer_input(settled);
        }
    }

    pub fn answer_input(&mut self, settled: Settled) {
        for id in settled.done {
            self.respond(id, frame::empty_ok());
        }
        for id in settled.failed {
            self.respond_error(id, &Error::with_errno(Code::StdinClosed, libc::EPIPE));
        }
    }

    pub fn watch_input(&mut self, key: u64) {
        if let Some(process) = self.processes.get(key) {
            let input = &mut process.input;
            if let Some(fd) = &input.fd {
                let wanted = if input.is_waiting() { Some(WRITABLE) } else { None };
                self.poller.update(fd.as_raw_fd(), Token::Input(key), &mut input.interest, wanted);
            }
            if input.is_over {
                input.fd = None;
            }
        }
    }

    pub fn cancel_input(&mut self, id: u64, key: u64) {
        if let Some(process) = self.processes.get(key) {
            process.input.cancel(id);
        }
        // What waited behind it may go on.
        self.write_input(key);
    }

    pub fn close_stdin(&mut self, request: &Message) -> Outcome<Vec<u8>> {
        let key = self.processes.find(request)?;
        let process = self.processes.get(key).ok_or_else(gone)?;
        if process.config.has_pty {
            return Err(Error::new(Code::NotATty, "process has a terminal"));
        }
        if process.has_ended {
            return Err(gone());
        }
        process.input.close();
        self.watch_input(key);
        Ok(frame::empty_ok())
    }

    pub fn signal(&mut self, request: &Message) -> Outcome<Vec<u8>> {
        let number = request.number(field::SIGNAL);
        if !SIGNALS.contains(&number) {
            return Err(Error::invalid("no such signal"));
        }
        let key = self.processes.find(request)?;
        let is_kill = number == libc::SIGKILL as u64;
        let process = self.processes.get(key).ok_or_else(gone)?;
        if process.has_ended || (process.exit.is_some() && !is_kill) {
            return Err(gone());
        }
        if is_kill {
            self.kill(key);
        } else {
            // SAFETY: takes no pointer. The process has not been reaped, so the pid is still its own.
            crate::sys::check(unsafe { libc::kill(process.pid, number as i32) })?;
        }
        Ok(frame::empty_ok())
    }

    pub fn resize(&mut self, request: &Message) -> Outcome<Vec<u8>> {
        let key = self.processes.find(request)?;
        let process = self.processes.get(key).ok_or_else(gone)?;
        if !process.config.has_pty {
            return Err(Error::new(Code::NotATty, "process has no terminal"));
        }
        let terminal = process.input.fd.as_ref().ok_or_else(gone)?;
        pty::resize(terminal, request.number(field::COLS), request.number(field::ROWS))?;
        if !pty::tells_of_resizing(terminal) {
            self.relief.signal_session(process.pid, libc::SIGWINCH);
        }
        Ok(frame::empty_ok())
    }

    pub fn list_processes(&mut self) -> Vec<u8> {
        let mut response = Vec::new();
        let mut living = self.processes.iter().filter(|(_, process)| !process.has_ended).peekable();
        loop {
            let mut part = frame::build(frame::MORE, |out| {
                while let Some((_, process)) = living.next_if(|_| out.len() < LIST_FRAME) {
                    process.write_record(out);
                }
            });
            if living.peek().is_none() {
                part[0] = frame::OK;
                response.extend(part);
                return response;
            }
            response.extend(part);
        }
    }

    pub fn relieve(&mut self, request: &Message) -> Outcome<Vec<u8>> {
        let killed = match request.number(field::KIND) {
            1 => self.relief.relieve_memory(),
            2 => {
                let allowed = self.context.processes_limit.load(Ordering::Relaxed);
                self.relief.relieve_processes(allowed)
            }
            _ => return Err(Error::invalid("kind is 1 for memory or 2 for processes")),
        };
        if let Some(process) = self.processes.by_pid(killed.pid).and_then(|key| self.processes.get(key)) {
            // Its end shall not wait for others who hold its pipes.
            process.is_killed = true;
        }
        Ok(frame::ok(|out| {
            out.number(field::PID, killed.pid as u64);
            out.bytes(field::NAME, &killed.name);
            out.number(field::USED, killed.used);
        }))
    }
}

pub fn gone() -> Error {
    Error::new(Code::NotFound, "no such process")
}
