//! Tells when processes end that are not our children, by their descriptors.

use crate::sys::{check, Fd, Outcome};
use std::collections::HashMap;

pub struct Watch {
    epoll: Fd,
    /// Descriptor of each watched process, by the key the service gave it.
    watched: HashMap<u64, (String, Fd)>,
    next: u64,
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
        let token = self.next;
        self.next += 1;
        self.add(fd.0, token)?;
        self.watched.insert(token, (key.to_string(), fd));
        Ok(())
    }

    pub fn forget(&mut self, key: &str) {
        self.watched.retain(|_, (watched, _)| watched != key);
    }

    /// Waits for something to happen: whether there is input, and the keys of processes that ended.
    pub fn wait(&mut self) -> Outcome<(bool, Vec<String>)> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: `events` has room for the number of entries given.
        let count =
            unsafe { libc::epoll_wait(self.epoll.0, events.as_mut_ptr(), events.len() as i32, -1) };
        if count < 0 {
            return Ok((false, Vec::new()));
        }
        let mut input = false;
        let mut ended = Vec::new();
        for event in &events[..count as usize] {
            let token = event.u64;
            if token == INPUT {
                input = true;
            } else if let Some((key, _)) = self.watched.remove(&token) {
                ended.push(key);
            }
        }
        Ok((input, ended))
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
