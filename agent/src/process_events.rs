//! What happens to processes: output, exit, deadline, the end and being forgotten.

use std::os::unix::io::AsRawFd;
use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::poller::{Token, READABLE};
use crate::process::{Exit, Process};
use crate::start::PTY;
use crate::sys;
use crate::timers::Timer;

/// How long an ended process is remembered.
const REMEMBERED: Duration = Duration::from_secs(30);
/// A terminal tells that nobody has it open any more; should it not, its end comes after this silence.
const TERMINAL_GRACE: Duration = Duration::from_millis(500);
const KILLED_TERMINAL_GRACE: Duration = Duration::from_millis(50);
const SUBSCRIBERS_INTERVAL: Duration = Duration::from_secs(1);
/// Output of all processes together. Past it, what no subscriber needs is given up.
const MAX_HELD: usize = 16 << 20;
const HELD_AFTER_SHEDDING: usize = 8 << 20;
/// What subscribers need stays; it is looked at again when this much more is held.
const SHEDDING_STEP: usize = 4 << 20;
/// Memory freed in small pieces is given back to the system when it has become this much.
const TRIM_AFTER: usize = 1 << 20;
const TRIM_PAUSE: Duration = Duration::from_secs(1);
/// Reads from one process before others get their turn.
const MAX_READS: usize = 4;
const MAX_REAPED: usize = 1024;

impl Agent {
    /// Something can be read from a process.
    pub fn output_event(&mut self, key: u64, stream: u8) {
        for _ in 0..MAX_READS {
            let process = match self.processes.get(key) {
                Some(process) => process,
                None => return,
            };
            let at = match process.sources.iter().position(|source| source.stream == stream) {
                Some(at) => at,
                None => return,
            };
            let source = &mut process.sources[at];
            let limit = self.scratch.len().min(process.output.room());
            let limit = source.drain.map_or(limit, |left| limit.min(left));
            if limit == 0 {
                // The slowest subscriber is a whole ring behind: the process waits.
                let fd = source.fd.as_raw_fd();
                self.poller.update(fd, Token::Output(key, stream), &mut source.interest, None);
                return;
            }
            let count = match sys::read(source.fd.as_raw_fd(), &mut self.scratch[..limit]) {
                Err(libc::EAGAIN) if source.drain.is_none() => return,
                // EIO is the end of a terminal.
                Ok(0) | Err(_) => return self.close_source(key, stream),
                Ok(count) => count,
            };
            let before = process.output.ring.len();
            process.output.ring.push(stream, &self.scratch[..count]);
            // A push may drop more than it adds.
            self.held_bytes = self.held_bytes + process.output.ring.len() - before;
            let is_drained = match &mut source.drain {
                Some(left) => {
                    *left -= count;
                    *left == 0
                }
                None => false,
            };
            if is_drained {
                self.close_source(key, stream);
            }
            self.shed_history();
            self.serve_readers(key);
            if count < limit {
                return;
            }
        }
    }

    /// Reads again from outputs that were held back, when there is room.
    pub fn resume_sources(&mut self, key: u64) {
        if let Some(process) = self.processes.get(key) {
            if process.output.room() == 0 {
                return;
            }
            for source in &mut process.sources {
                let (fd, token) = (source.fd.as_raw_fd(), Token::Output(key, source.stream));
                self.poller.update(fd, token, &mut source.interest, Some(READABLE));
            }
        }
    }

    fn close_source(&mut self, key: u64, stream: u8) {
        if let Some(process) = self.processes.get(key) {
            if let Some(at) = process.sources.iter().position(|source| source.stream == stream) {
                let mut source = process.sources.remove(at);
                let fd = source.fd.as_raw_fd();
                self.poller.update(fd, Token::Output(key, stream), &mut source.interest, None);
            }
        }
        self.end_if_over(key);
    }

    /// Reaps children of the agent and whatever was orphaned to it.
    pub fn reap(&mut self) {
        self.has_more_children = false;
        for _ in 0..MAX_REAPED {
            let mut status = 0;
            // SAFETY: the status is writable.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
            if pid <= 0 {
                if pid < 0 && self.is_stopping {
                    self.exit();
                }
                return;
            }
            let known = self.processes.by_pid(pid);
            let is_ours = |process: &mut Process| process.exit.is_none();
            match known.filter(|&key| self.processes.get(key).map_or(false, is_ours)) {
                Some(key) => self.process_exited(key, status),
                None if self.starting.is_busy() => drop(self.starting.early_exits.insert(pid, status)),
                None => (),
            }
        }
        self.has_more_children = true;
    }

    pub fn process_exited(&mut self, key: u64, status: i32) {
        let process = match self.processes.get(key) {
            Some(process) => process,
            None => return,
        };
        process.exit = Some(if libc::WIFSIGNALED(status) {
            Exit { code: -1, signal: libc::WTERMSIG(status) as u64 }
        } else {
            Exit { code: libc::WEXITSTATUS(status).into(), signal: 0 }
        });
        if process.is_killed {
            self.drain(key);
        } else if process.config.has_pty {
            self.set_drain_timer(key, TERMINAL_GRACE);
        }
        self.end_if_over(key);
    }

    pub fn deadline(&mut self, key: u64) {
        if let Some(process) = self.processes.get(key) {
            process.deadline = None;
            if !process.has_ended {
                process.deadline_hit = true;
                self.kill(key);
            }
        }
    }

    /// SIGKILL. When the process itself has exited and only others hold its pipes, its end comes now.
    pub fn kill(&mut self, key: u64) {
        if let Some(process) = self.processes.get(key) {
            process.is_killed = true;
            if process.exit.is_some() {
                return self.drain(key);
            }
            // SAFETY: takes no pointer. The process has not been reaped, so the pid is still its own.
            unsafe { libc::kill(process.pid, libc::SIGKILL) };
        }
    }

    /// Takes what is in the pipes now and closes them, whoever else holds them.
    fn drain(&mut self, key: u64) {
        let process = match self.processes.get(key) {
            Some(process) => process,
            None => return,
        };
        let mut empty = Vec::new();
        for source in process.sources.iter_mut().filter(|source| source.stream != PTY) {
            let left = sys::readable_bytes(source.fd.as_raw_fd()).unwrap_or(0);
            source.drain = Some(left);
            if left == 0 {
                empty.push(source.stream);
            }
        }
        if process.config.has_pty {
            // What a terminal was given may take a moment to come out at the other side.
            self.set_drain_timer(key, KILLED_TERMINAL_GRACE);
        }
        for stream in empty {
            self.close_source(key, stream);
        }
    }

    fn set_drain_timer(&mut self, key: u64, grace: Duration) {
        if let Some(process) = self.processes.get(key) {
            self.timers.cancel(&mut process.drain_timer);
            process.drain_timer = Some(self.timers.set(Instant::now() + grace, Timer::Drain(key)));
        }
    }

    /// The terminal of an exited process has been given time to empty itself.
    pub fn drain_timeout(&mut self, key: u64) {
        if let Some(process) = self.processes.get(key) {
            process.drain_timer = None;
            let is_held_back = process.output.room() == 0;
            let has_more = |fd| sys::readable_bytes(fd).unwrap_or(0) > 0;
            if is_held_back || process.sources.iter().any(|source| has_more(source.fd.as_raw_fd())) {
                return self.set_drain_timer(key, KILLED_TERMINAL_GRACE);
            }
            self.close_source(key, PTY);
        }
    }

    /// The end: the process has exited and its outputs are closed.
    fn end_if_over(&mut self, key: u64) {
        let process = match self.processes.get(key) {
            Some(process) => process,
            None => return,
        };
        if process.has_ended || process.exit.is_none() || !process.sources.is_empty() {
            return;
        }
        process.has_ended = true;
        let failed = process.input.shut();
        self.timers.cancel(&mut process.deadline);
        self.timers.cancel(&mut process.drain_timer);
        self.watch_input(key);
        self.answer_input(crate::input::Settled { done: Vec::new(), failed });
        self.timers.set(Instant::now() + REMEMBERED, Timer::Forget(key));
        if let Some(oldest) = self.processes.note_end(key) {
            self.remove_process(oldest);
        }
        self.serve_readers(key);
    }

    pub fn forget(&mut self, key: u64) {
        match self.processes.get(key) {
            // Someone is still reading; silence ends that too.
            Some(process) if process.output.is_unread() => {
                self.timers.set(Instant::now() + SUBSCRIBERS_INTERVAL, Timer::Forget(key));
            }
            _ => self.remove_process(key),
        }
    }

    fn remove_process(&mut self, key: u64) {
        if let Some(process) = self.processes.remove(key) {
            self.held_bytes -= process.output.ring.len();
            self.note_freed(process.output.ring.len());
            for id in process.readers {
                self.respond_error(id, &crate::serve_process::gone());
            }
        }
    }

    /// While there are subscribers, they are looked at once a second.
    pub fn watch_subscribers(&mut self) {
        if !self.watches_subscribers {
            self.watches_subscribers = true;
            self.timers.set(Instant::now() + SUBSCRIBERS_INTERVAL, Timer::Subscribers);
        }
    }

    pub fn check_subscribers(&mut self, now: Instant) {
        for key in self.processes.release_silent_subscribers(now) {
            self.resume_sources(key);
        }
        self.shed_more_history();
        self.watches_subscribers = false;
        if self.processes.iter().any(|(_, process)| process.output.has_subscribers()) {
            self.watch_subscribers();
        }
    }

    pub fn shed_history(&mut self) {
        if self.held_bytes > MAX_HELD.max(self.shed_above) {
            self.processes.forget_history(HELD_AFTER_SHEDDING);
            let held = self.processes.held_bytes();
            self.note_freed(self.held_bytes - held);
            self.held_bytes = held;
            self.shed_above = held + SHEDDING_STEP;
        }
    }

    /// Subscribers have gone: what was kept for them may be given up.
    pub fn shed_more_history(&mut self) {
        self.shed_above = 0;
        self.shed_history();
    }

    pub fn note_freed(&mut self, bytes: usize) {
        self.freed_bytes += bytes;
        if self.freed_bytes > TRIM_AFTER && !self.is_trim_due {
            self.is_trim_due = true;
            self.timers.set(Instant::now() + TRIM_PAUSE, Timer::Trim);
        }
    }

    /// The allocator keeps freed blocks that have others in use behind them.
    pub fn trim(&mut self) {
        self.is_trim_due = false;
        self.freed_bytes = 0;
        #[cfg(target_env = "gnu")]
        // SAFETY: takes no pointer, and may be called by any thread at any time.
        unsafe {
            libc::malloc_trim(0)
        };
    }
}
