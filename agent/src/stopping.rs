//! Signals to the agent, and its end.

use std::os::unix::io::AsRawFd;
use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::relieve;
use crate::sys;
use crate::timers::Timer;

/// Rounds of killing what is left, each a moment long, when the agent is not PID 1 and nobody else would do it.
const MAX_KILLS: usize = 200;
const STOP_TIME: Duration = Duration::from_secs(2);
/// `struct signalfd_siginfo`; the signal is its first word.
const SIGNAL_INFO: usize = 128;

impl Agent {
    pub fn take_signals(&mut self) {
        let mut info = [0; SIGNAL_INFO];
        while let Ok(SIGNAL_INFO) = sys::read(self.signals.as_raw_fd(), &mut info) {
            match i32::from_ne_bytes([info[0], info[1], info[2], info[3]]) {
                libc::SIGTERM => self.stop(),
                libc::SIGCHLD => self.has_more_children = true,
                _ => (),
            }
        }
        if self.has_more_children {
            self.reap();
        }
    }

    fn stop(&mut self) {
        if self.is_stopping {
            return;
        }
        self.is_stopping = true;
        self.signal_all(libc::SIGTERM);
        self.timers.set(Instant::now() + STOP_TIME, Timer::Stop);
        self.reap();
    }

    fn signal_all(&mut self, number: i32) {
        if self.context.is_init {
            // SAFETY: takes no pointer. As PID 1 this is every process of the sandbox and nothing else.
            unsafe { libc::kill(-1, number) };
            return;
        }
        self.relief.signal_all(number);
    }

    /// With PID 1 everything else in the sandbox ends too.
    pub fn exit(&mut self) -> ! {
        for _ in 0..if self.context.is_init { 0 } else { MAX_KILLS } {
            self.signal_all(libc::SIGKILL);
            let reaped = loop {
                // SAFETY: null means that the status is not wanted.
                match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
                    pid if pid > 0 => continue,
                    result => break result,
                }
            };
            if reaped < 0 {
                break;
            }
            relieve::pause_briefly();
        }
        // SAFETY: ends the process at once; nothing is left to be written.
        unsafe { libc::_exit(0) }
    }
}
