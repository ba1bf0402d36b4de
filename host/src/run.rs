//! Runs other programs for the service. A process as large as the service takes milliseconds to fork, and stands still meanwhile; this one does not.

use crate::sys::{check, Fd, Outcome};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::io::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const OUTPUT_LIMIT: usize = 16 << 20;

pub struct Request {
    pub program: String,
    pub args: Vec<String>,
    pub input: String,
    /// Gives the program /dev/null for its output: for one that leaves a process behind, which would hold the pipes open.
    pub discard_output: bool,
    pub limit: Duration,
}

pub struct Ended {
    /// The exit status, minus the number of the signal that ended it, or nothing when it took too long.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The programs that run or are about to, by the request that started them.
#[derive(Clone, Default)]
pub struct Runs {
    running: Arc<Mutex<HashMap<String, Stage>>>,
}

enum Stage {
    Expected,
    StoppedEarly,
    Running(libc::pid_t),
}

impl Runs {
    /// Takes note of a request, so that it can be stopped from now on.
    pub fn expect(&self, id: &str) {
        self.running
            .lock()
            .unwrap()
            .insert(id.to_string(), Stage::Expected);
    }

    /// Runs a program to its end.
    pub fn run(&self, id: &str, request: Request) -> Outcome<Ended> {
        let output = || {
            if request.discard_output {
                Stdio::null()
            } else {
                Stdio::piped()
            }
        };
        let input = if request.input.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        };
        let mut child = Command::new(&request.program)
            .args(&request.args)
            .stdin(input)
            .stdout(output())
            .stderr(output())
            .spawn()
            .map_err(|error| {
                self.running.lock().unwrap().remove(id);
                format!("{}: {error}", request.program)
            })?;
        let pid = child.id() as libc::pid_t;
        self.began(id, pid);
        if let Some(mut pipe) = child.stdin.take() {
            let input = request.input;
            // A program that ends without reading its input closes the pipe: its status tells the story.
            thread::spawn(move || pipe.write_all(input.as_bytes()));
        }
        let outcome = follow(&mut child, request.limit);
        // Before it is reaped: until then it can be stopped by its number.
        self.running.lock().unwrap().remove(id);
        let status = child.wait().map_err(|error| error.to_string())?;
        let (in_time, stdout, stderr) = outcome?;
        Ok(Ended {
            status: if in_time {
                Some(number_of(status))
            } else {
                None
            },
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        })
    }

    /// Ends a program early; one that has ended is success.
    pub fn stop(&self, id: &str) {
        if let Some(stage) = self.running.lock().unwrap().get_mut(id) {
            match stage {
                Stage::Running(pid) => kill(*pid),
                _ => *stage = Stage::StoppedEarly,
            }
        }
    }

    fn began(&self, id: &str, pid: libc::pid_t) {
        let before = self
            .running
            .lock()
            .unwrap()
            .insert(id.to_string(), Stage::Running(pid));
        if let Some(Stage::StoppedEarly) = before {
            kill(pid);
        }
    }
}

/// Ends a child that is not reaped yet, so that its number is nobody else's.
fn kill(pid: libc::pid_t) {
    // SAFETY: no pointers are passed.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Collects what a child says until it has ended and both its outputs have, or until it is killed for taking too long.
fn follow(child: &mut Child, limit: Duration) -> Outcome<(bool, Vec<u8>, Vec<u8>)> {
    let pid = child.id() as libc::pid_t;
    // SAFETY: no pointers are passed.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let process = Fd(check(process, "watch a program")? as libc::c_int);
    let mut outputs = [
        Collected::new(child.stdout.take().map(IntoRawFd::into_raw_fd)),
        Collected::new(child.stderr.take().map(IntoRawFd::into_raw_fd)),
    ];
    let deadline = Instant::now() + limit;
    let (mut ended, mut in_time) = (false, true);
    while !(ended && (!in_time || outputs.iter().all(|output| output.pipe.is_none()))) {
        let entry = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut entries = [
            entry(if ended { -1 } else { process.0 }),
            entry(outputs[0].fd()),
            entry(outputs[1].fd()),
        ];
        let left = if in_time {
            deadline
                .saturating_duration_since(Instant::now())
                .as_millis() as libc::c_int
                + 1
        } else {
            -1
        };
        // SAFETY: `entries` is valid for its length.
        let ready =
            unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, left) };
        if ready == 0 && Instant::now() >= deadline {
            in_time = false;
            kill(pid);
            continue;
        }
        if ready <= 0 {
            continue;
        }
        ended |= entries[0].revents != 0;
        for (output, entry) in outputs.iter_mut().zip(&entries[1..]) {
            if entry.revents != 0 {
                output.take();
            }
        }
    }
    let [stdout, stderr] = outputs;
    Ok((in_time, stdout.bytes, stderr.bytes))
}

struct Collected {
    pipe: Option<std::fs::File>,
    bytes: Vec<u8>,
}

impl Collected {
    fn new(fd: Option<libc::c_int>) -> Collected {
        Collected {
            // SAFETY: the descriptor was given up by its owner, so that it is this value's alone.
            pipe: fd.map(|fd| unsafe { std::fs::File::from_raw_fd(fd) }),
            bytes: Vec::new(),
        }
    }

    /// -1, which poll passes over, once it has ended.
    fn fd(&self) -> libc::c_int {
        self.pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    fn take(&mut self) {
        let mut chunk = [0u8; 65536];
        match self.pipe.as_mut().map(|pipe| pipe.read(&mut chunk)) {
            Some(Ok(count)) if count > 0 => {
                let room = OUTPUT_LIMIT - self.bytes.len().min(OUTPUT_LIMIT);
                self.bytes.extend_from_slice(&chunk[..count.min(room)]);
            }
            _ => self.pipe = None,
        }
    }
}

fn number_of(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| -status.signal().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, input: &str, limit: u64) -> Request {
        Request {
            program: "/bin/sh".to_string(),
            args: vec!["-c".to_string(), script.to_string()],
            input: input.to_string(),
            discard_output: false,
            limit: Duration::from_millis(limit),
        }
    }

    #[test]
    fn gives_input_and_collects_both_outputs_and_the_status() {
        let text = "line\n".repeat(50_000);
        let ended = Runs::default()
            .run("1", shell("cat; echo bad >&2; exit 3", &text, 10_000))
            .unwrap();
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(3), "bad\n"));
        assert_eq!(ended.stdout, text);
    }

    #[test]
    fn ends_what_takes_too_long_also_when_somebody_else_holds_its_output() {
        let ended = Runs::default()
            .run("1", shell("sleep 5 & sleep 5", "", 50))
            .unwrap();
        assert_eq!(ended.status, None);
    }

    #[test]
    fn can_be_stopped() {
        let runs = Runs::default();
        runs.expect("7");
        let other = runs.clone();
        let stopper = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            other.stop("7");
            other.stop("unknown");
        });
        let ended = runs.run("7", shell("exec sleep 5", "", 10_000)).unwrap();
        stopper.join().unwrap();
        assert_eq!(ended.status, Some(-libc::SIGKILL));
        runs.expect("8");
        runs.stop("8");
        let ended = runs.run("8", shell("exec sleep 5", "", 10_000)).unwrap();
        assert_eq!(ended.status, Some(-libc::SIGKILL));
        assert!(runs.running.lock().unwrap().is_empty());
    }

    #[test]
    fn names_a_program_that_is_not_there() {
        let mut request = shell("", "", 1000);
        request.program = "/not/there".to_string();
        assert!(Runs::default()
            .run("1", request)
            .err()
            .unwrap()
            .contains("/not/there"));
    }
}
