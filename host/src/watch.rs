//! Tells when processes end that are not our children, by their descriptors, and when control groups run short of memory.

use crate::sys::{check, open, Fd, Outcome};
use std::collections::HashMap;
use std::fs;
use std::os::raw::c_int;
use std::sync::Arc;

pub struct Watch {
    epoll: Fd,
    /// What is watched, by its token in the epoll set.
    watched: HashMap<u64, Watched>,
    next: u64,
}

struct Watched {
    /// The one the service gave it.
    key: String,
    kind: Kind,
    fd: Arc<Fd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A process has ended. Told once.
    Exit,
    /// A control group has come to where it is short of memory, or has left it. Told each time.
    Memory,
}

/// The token of standard input in the epoll set.
pub const INPUT: u64 = 0;

impl Watch {
    pub fn new() -> Outcome<Watch> {
        // SAFETY: no pointers are passed.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        check(epoll.into(), "epoll")?;
        let watch = Watch {
            epoll: Fd(epoll),
            watched: HashMap::new(),
            next: 1,
        };
        watch.add(libc::STDIN_FILENO, INPUT)?;
        Ok(watch)
    }

    /// Watches a process. One that is gone already is told like one that ends later.
    pub fn watch(&mut self, key: &str, pid: libc::pid_t) -> Outcome<()> {
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = Fd(check(fd, &format!("watch process {pid}"))? as libc::c_int);
        self.insert(key, Kind::Exit, Arc::new(fd))
    }

    /// Watches a control group of version 1: its use passing `threshold` bytes, and its standing still at its limit. The kernel takes
    /// milliseconds to note that, so the last step is left to the caller, who may do it elsewhere.
    pub fn watch_memory(
        &mut self,
        key: &str,
        group: &str,
        threshold: &str,
    ) -> Outcome<impl FnOnce() -> Outcome<()> + Send> {
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        check(fd.into(), "eventfd")?;
        // Shared, so that the number of the descriptor is not another's before the kernel has it.
        let fd = Arc::new(Fd(fd));
        self.insert(key, Kind::Memory, Arc::clone(&fd))?;
        let (group, threshold) = (group.to_string(), threshold.to_string());
        Ok(move || {
            let control = format!("{group}/cgroup.event_control");
            for (file, argument) in [
                ("memory.usage_in_bytes", threshold.as_str()),
                ("memory.oom_control", ""),
            ] {
                let source = open(&format!("{group}/{file}"), libc::O_RDONLY)?;
                fs::write(&control, format!("{} {} {argument}", fd.0, source.0))
                    .map_err(|error| format!("{control}: {error}"))?;
            }
            Ok(())
        })
    }

    pub fn forget(&mut self, key: &str) {
        self.watched.retain(|_, watched| watched.key != key);
    }

    /// Waits for something to happen: whether there is input, and what became of what is watched.
    pub fn wait(&mut self) -> Outcome<(bool, Vec<(Kind, String)>)> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: `events` has room for the number of entries given.
        let count =
            unsafe { libc::epoll_wait(self.epoll.0, events.as_mut_ptr(), events.len() as i32, -1) };
        if count < 0 {
            return Ok((false, Vec::new()));
        }
        let mut input = false;
        let mut told = Vec::new();
        for event in &events[..count as usize] {
            let token = event.u64;
            if token == INPUT {
                input = true;
            } else if let Some(watched) = self.watched.get(&token) {
                told.push((watched.kind, watched.key.clone()));
                match watched.kind {
                    Kind::Exit => drop(self.watched.remove(&token)),
                    Kind::Memory => drain(watched.fd.0),
                }
            }
        }
        Ok((input, told))
    }

    fn insert(&mut self, key: &str, kind: Kind, fd: Arc<Fd>) -> Outcome<()> {
        let token = self.next;
        self.next += 1;
        self.add(fd.0, token)?;
        let key = key.to_string();
        self.watched.insert(token, Watched { key, kind, fd });
        Ok(())
    }

    fn add(&self, fd: libc::c_int, token: u64) -> Outcome<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: token,
        };
        // SAFETY: `event` is valid and outlives the call.
        let added = unsafe { libc::epoll_ctl(self.epoll.0, libc::EPOLL_CTL_ADD, fd, &mut event) };
        check(added.into(), "epoll add")?;
        Ok(())
    }
}

/// Takes the count from an eventfd, so that it is quiet until the next event.
fn drain(fd: c_int) {
    let mut count = 0u64;
    // SAFETY: `count` has room for the eight bytes that an eventfd gives. Nothing to read is no harm.
    unsafe { libc::read(fd, (&mut count as *mut u64).cast(), 8) };
}
