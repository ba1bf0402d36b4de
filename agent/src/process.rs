//! One process and the table of them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::unix::io::OwnedFd;
use std::time::Instant;

use crate::errors::{Error, Outcome};
use crate::fields::{field, Message, Writer};
use crate::frame;
use crate::input::Input;
use crate::output::Output;
use crate::poller::Interest;
use crate::serve_process::gone;
use crate::timers::TimerKey;

/// Ended processes remembered at once, however many end within the 30 s.
const MAX_ENDED: usize = 4096;
/// Runs of one stream in a response: each costs 23 bytes more than its data.
const MAX_RUNS: usize = 16 << 10;

/// An output of a process that is still open.
pub struct Source {
    pub stream: u8,
    pub fd: OwnedFd,
    pub interest: Interest,
    /// bytes still to be read before it is closed without waiting for those who hold it open
    pub drain: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// -1 for a death by signal
    pub code: i64,
    pub signal: u64,
}

/// What a client asked for, as PROCESSES repeats it.
#[derive(Default)]
pub struct Config {
    pub tag: Vec<u8>,
    pub cmd: Vec<u8>,
    pub args: Vec<Vec<u8>>,
    pub env: Vec<Vec<u8>>,
    pub cwd: Vec<u8>,
    pub has_pty: bool,
}

pub struct Process {
    pub pid: i32,
    pub config: Config,
    pub operation: Vec<u8>,
    pub output: Output,
    pub sources: Vec<Source>,
    pub input: Input,
    pub exit: Option<Exit>,
    /// SIGKILL was sent through the agent: the end does not wait for other holders of the pipes
    pub is_killed: bool,
    pub deadline_hit: bool,
    pub has_ended: bool,
    /// connections whose READ_OUTPUT waits
    pub readers: Vec<u64>,
    pub deadline: Option<TimerKey>,
    pub drain_timer: Option<TimerKey>,
}

impl Config {
    pub fn of(request: &Message) -> Config {
        let all = |number| request.all(number).map(<[u8]>::to_vec).collect();
        Config {
            tag: request.bytes(field::TAG).to_vec(),
            cmd: request.bytes(field::CMD).to_vec(),
            args: all(field::ARG),
            env: all(field::ENV),
            cwd: request.bytes(field::CWD).to_vec(),
            has_pty: request.flag(field::PTY),
        }
    }
}

impl Process {
    /// The response to a READ_OUTPUT at `offset`; none when there is nothing to tell and `is_final` is not set.
    pub fn read_output(&self, offset: u64, lost: u64, limit: usize, is_final: bool) -> Option<Vec<u8>> {
        let ring = &self.output.ring;
        let start = offset.max(ring.start());
        if start == ring.end() && !self.has_ended && !is_final {
            return None;
        }
        Some(frame::ok(|out| {
            out.number(field::PID, self.pid as u64);
            out.number(field::OFFSET, start);
            out.number(field::LOST, lost + (start - offset));
            let end = ring.read(start, limit, MAX_RUNS, |stream, bytes| {
                out.record(field::CHUNK, |chunk| {
                    chunk.number(field::STREAM, stream.into());
                    chunk.bytes(field::DATA, bytes);
                });
            });
            if self.has_ended && end == ring.end() {
                self.write_end(out);
            }
        }))
    }

    fn write_end(&self, out: &mut Writer) {
        let exit = self.exit.unwrap_or(Exit { code: -1, signal: 0 });
        out.number(field::ENDED, 1);
        out.number(field::EXIT_CODE, exit.code as u64);
        out.number(field::SIGNAL, exit.signal);
        out.number(field::DEADLINE_HIT, self.deadline_hit.into());
    }

    pub fn write_record(&self, out: &mut Writer) {
        let config = &self.config;
        out.record(field::PROCESS, |record| {
            record.number(field::PID, self.pid as u64);
            record.bytes(field::TAG, &config.tag);
            record.bytes(field::CMD, &config.cmd);
            config.args.iter().for_each(|arg| record.bytes(field::ARG, arg));
            config.env.iter().for_each(|pair| record.bytes(field::ENV, pair));
            record.bytes(field::CWD, &config.cwd);
            record.number(field::PTY, config.has_pty.into());
        });
    }
}

#[derive(Default)]
pub struct Processes {
    /// in the order of their start
    table: BTreeMap<u64, Process>,
    last: u64,
    by_pid: HashMap<i32, u64>,
    by_operation: HashMap<Vec<u8>, u64>,
    ended: VecDeque<u64>,
}

impl Processes {
    pub fn insert(&mut self, process: Process) -> u64 {
        self.last += 1;
        let key = self.last;
        // A pid that is used again belongs to the new process; the old one can still be found by tag and operation.
        self.by_pid.insert(process.pid, key);
        if !process.operation.is_empty() {
            self.by_operation.insert(process.operation.clone(), key);
        }
        self.table.insert(key, process);
        key
    }

    pub fn get(&mut self, key: u64) -> Option<&mut Process> {
        self.table.get_mut(&key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &Process)> {
        self.table.iter().map(|(&key, process)| (key, process))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Process)> {
        self.table.iter_mut().map(|(&key, process)| (key, process))
    }

    pub fn by_pid(&self, pid: i32) -> Option<u64> {
        self.by_pid.get(&pid).copied()
    }

    pub fn by_operation(&self, operation: &[u8]) -> Option<u64> {
        self.by_operation.get(operation).copied()
    }

    /// The process a request names by pid or tag: of several with one tag the newest, living ones first.
    pub fn find(&self, request: &Message) -> Outcome<u64> {
        let pid = request.number(field::PID);
        let tag = request.bytes(field::TAG);
        let found = if pid != 0 {
            i32::try_from(pid).ok().and_then(|pid| self.by_pid(pid))
        } else if !tag.is_empty() {
            let tagged = || self.table.iter().rev().filter(|(_, process)| process.config.tag == tag);
            let newest = tagged().find(|(_, process)| !process.has_ended).or_else(|| tagged().next());
            newest.map(|(&key, _)| key)
        } else {
            return Err(Error::invalid("a pid or a tag is needed"));
        };
        found.ok_or_else(gone)
    }

    /// As `find`; also by the operationId of its START, for who has not heard the pid yet.
    pub fn find_started(&self, request: &Message) -> Outcome<u64> {
        let operation = request.bytes(field::OPERATION_ID);
        if operation.is_empty() {
            return self.find(request);
        }
        self.by_operation(operation).ok_or_else(gone)
    }

    /// Notes an end. Returns the process to forget because too many are remembered.
    pub fn note_end(&mut self, key: u64) -> Option<u64> {
        self.ended.push_back(key);
        if self.ended.len() > MAX_ENDED {
            return self.ended.pop_front();
        }
        None
    }

    pub fn remove(&mut self, key: u64) -> Option<Process> {
        let process = self.table.remove(&key)?;
        if self.by_pid.get(&process.pid) == Some(&key) {
            self.by_pid.remove(&process.pid);
        }
        if self.by_operation.get(&process.operation) == Some(&key) {
            self.by_operation.remove(&process.operation);
        }
        if self.ended.front() == Some(&key) {
            self.ended.pop_front();
        } else {
            self.ended.retain(|&ended| ended != key);
        }
        Some(process)
    }

    /// Bytes of output held by all of them.
    pub fn held_bytes(&self) -> usize {
        self.table.values().map(|process| process.output.ring.len()).sum()
    }

    /// Gives up output that nobody has asked for, that of ended processes first, until at most `target` bytes are held.
    pub fn forget_history(&mut self, target: usize) {
        let mut held = self.held_bytes();
        for wants_ended in [true, false] {
            for process in self.table.values_mut().filter(|process| process.has_ended == wants_ended) {
                if held <= target {
                    return;
                }
                let before = process.output.ring.len();
                process.output.forget_history();
                held -= before - process.output.ring.len();
            }
        }
    }

    /// Nothing is held back any more for subscribers that went silent; returns whose processes may go on.
    pub fn release_silent_subscribers(&mut self, now: Instant) -> Vec<u64> {
        let silent = |process: &mut Process| process.output.release_silent(now);
        self.iter_mut().filter_map(|(key, process)| silent(process).then_some(key)).collect()
    }
}
