//! RELIEVE: makes room when memory or pids run out. Needs neither, for that is when it is called: no process is made, and
//! all buffers exist from the start.

use std::ffi::CStr;
use std::io::Write;
use std::os::unix::io::AsRawFd;

use crate::directory::Directory;
use crate::sys;

/// Sessions counted at once; further ones are not considered.
const MAX_SESSIONS: usize = 1024;
/// A session that forks faster than it is stopped is given up after this many rounds.
const MAX_ROUNDS: u32 = 64;
/// With fewer processes than this, or half of what is allowed, there is no storm: the count outside lags behind one that is over, and nobody is to
/// be killed for it.
const MIN_CROWD: u64 = 64;
/// Parents followed to see whether a process descends from the agent.
const MAX_ANCESTORS: u32 = 64;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Killed {
    /// 0: nothing could be
    pub pid: i32,
    pub name: Vec<u8>,
    /// bytes of memory, or number of processes
    pub used: u64,
}

pub struct Relief {
    directory: Vec<u8>,
    /// session and number of its processes
    sessions: Vec<(i32, u32)>,
    /// processes that the last look around met, dead ones that nobody has reaped included
    crowd: u32,
    own_pid: i32,
    own_session: i32,
    page_size: u64,
}

/// The part of /proc/<pid>/stat that matters here.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    parent: i32,
    session: i32,
}

impl Relief {
    pub fn new() -> Relief {
        // SAFETY: none of these takes a pointer.
        let (own_pid, own_session, page_size) =
            unsafe { (libc::getpid(), libc::getsid(0), libc::sysconf(libc::_SC_PAGESIZE)) };
        Relief {
            directory: vec![0; 8 << 10],
            sessions: Vec::with_capacity(MAX_SESSIONS),
            crowd: 0,
            own_pid,
            own_session,
            page_size: page_size.max(1) as u64,
        }
    }

    /// Kills the process that holds the most memory.
    pub fn relieve_memory(&mut self) -> Killed {
        let page_size = self.page_size;
        let mut biggest = (0, 0);
        self.scan(|pid, _| {
            let used = resident_pages(pid).unwrap_or(0) * page_size;
            if used > biggest.1 {
                biggest = (pid, used);
            }
        });
        let (pid, used) = biggest;
        if pid == 0 {
            return Killed::default();
        }
        let name = name_of(pid);
        if !signal(pid, libc::SIGKILL) {
            return Killed::default();
        }
        Killed { pid, name, used }
    }

    /// Kills the session with the most processes, where there is a crowd for `allowed` ones. They are stopped first: while one is killed the others
    /// would fork again.
    pub fn relieve_processes(&mut self, allowed: u64) -> Killed {
        let (session, used) = match self.largest_session() {
            Some((session, count)) => (session, count.into()),
            None => return Killed::default(),
        };
        if self.own_pid == 1 && u64::from(self.crowd) < MIN_CROWD.max(allowed / 2) {
            return Killed::default();
        }
        let mut killed = Killed { pid: session, name: name_of(session), used };
        for _ in 0..MAX_ROUNDS {
            // Those that are stopped may die before they are killed: the kernel hangs up on a stopped group that is orphaned.
            if self.signal_session(session, libc::SIGSTOP) == 0 {
                break;
            }
            killed.used = killed.used.max(self.signal_session(session, libc::SIGKILL));
            pause_briefly();
        }
        killed
    }

    /// Sends a signal to every process of a session; returns how many there were.
    pub fn signal_session(&mut self, session: i32, number: i32) -> u64 {
        let mut count = 0;
        self.scan(|pid, stat| {
            if stat.session == session {
                count += u64::from(signal(pid, number));
            }
        });
        count
    }

    /// Sends a signal to every process that the agent may signal.
    pub fn signal_all(&mut self, number: i32) {
        self.scan(|pid, _| {
            signal(pid, number);
        });
    }

    fn largest_session(&mut self) -> Option<(i32, u32)> {
        let own_session = self.own_session;
        let mut sessions = std::mem::take(&mut self.sessions);
        sessions.clear();
        self.scan(|_, stat| {
            if stat.session == own_session || stat.session <= 0 {
                return;
            }
            if let Some((_, count)) = sessions.iter_mut().find(|(session, _)| *session == stat.session) {
                *count += 1;
            } else if sessions.len() < MAX_SESSIONS {
                sessions.push((stat.session, 1));
            }
        });
        let largest = sessions.iter().max_by_key(|(_, count)| *count).copied();
        self.sessions = sessions;
        largest
    }

    /// Visits every living process that the agent may kill: all but itself when it is PID 1, else its descendants only.
    fn scan(&mut self, mut visit: impl FnMut(i32, &Stat)) {
        let proc = CStr::from_bytes_with_nul(b"/proc\0").expect("a constant");
        let fd = match sys::open(proc, libc::O_RDONLY | libc::O_DIRECTORY, 0) {
            Ok(fd) => fd,
            Err(_) => return,
        };
        let mut directory = Directory::over(fd, std::mem::take(&mut self.directory));
        self.crowd = 0;
        while let Ok(Some(item)) = directory.next() {
            let pid = item.name.to_str().ok().and_then(|name| name.parse::<i32>().ok()).unwrap_or(0);
            if pid <= 1 || pid == self.own_pid {
                continue;
            }
            if let Some(stat) = read_stat(pid) {
                self.crowd += 1;
                if stat.state != b'Z' && (self.own_pid == 1 || self.descends(&stat)) {
                    visit(pid, &stat);
                }
            }
        }
        self.directory = directory.into_buffer();
    }

    fn descends(&self, stat: &Stat) -> bool {
        let mut parent = stat.parent;
        for _ in 0..MAX_ANCESTORS {
            if parent == self.own_pid {
                return true;
            }
            match read_stat(parent) {
                Some(stat) if parent > 1 => parent = stat.parent,
                _ => return false,
            }
        }
        false
    }
}

impl Default for Relief {
    fn default() -> Relief {
        Relief::new()
    }
}

/// Lets what was killed go before the next look at it.
pub fn pause_briefly() {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: the time is valid for the call; the remainder is not wanted.
    unsafe { libc::nanosleep(&pause, std::ptr::null_mut()) };
}

fn signal(pid: i32, number: i32) -> bool {
    // SAFETY: takes no pointer; `pid` is above 1, so no group is meant.
    unsafe { libc::kill(pid, number) == 0 }
}

fn read_stat(pid: i32) -> Option<Stat> {
    let mut buffer = [0; 512];
    parse_stat(read_proc(pid, "stat", &mut buffer)?)
}

/// The name in the middle may hold anything, so fields are counted from the last closing parenthesis.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let end = text.iter().rposition(|&b| b == b')')?;
    let rest = std::str::from_utf8(&text[end + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Stat { state, parent, session })
}

fn resident_pages(pid: i32) -> Option<u64> {
    let mut buffer = [0; 128];
    let text = std::str::from_utf8(read_proc(pid, "statm", &mut buffer)?).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn name_of(pid: i32) -> Vec<u8> {
    let mut buffer = [0; 64];
    let name = read_proc(pid, "comm", &mut buffer).unwrap_or(b"");
    name.strip_suffix(b"\n").unwrap_or(name).to_vec()
}

fn read_proc<'a>(pid: i32, file: &str, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0u8; 32];
    write!(&mut path[..31], "/proc/{pid}/{file}").ok()?;
    let length = path.iter().position(|&b| b == 0)?;
    let path = CStr::from_bytes_with_nul(&path[..=length]).ok()?;
    let fd = sys::open(path, libc::O_RDONLY, 0).ok()?;
    let count = sys::read(fd.as_raw_fd(), buffer).ok()?;
    Some(&buffer[..count])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = parse_stat(b"42 (a) R 1 (b) S 7 40 39 0 -1 4194560");
        assert_eq!(stat, Some(Stat { state: b'S', parent: 7, session: 39 }));
        assert_eq!(parse_stat(b"42 (x"), None);
    }

    #[test]
    fn reads_itself() {
        let pid = std::process::id() as i32;
        assert!(resident_pages(pid).unwrap() > 0);
        assert!(!name_of(pid).is_empty());
        assert!(read_stat(pid).unwrap().parent > 0);
    }
}
