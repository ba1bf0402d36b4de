//! Start-up: configuration from the environment, limits, signals, what a runtime may have left out, the listening socket.

use std::ffi::CStr;
use std::os::raw::{c_char, c_int};
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use crate::agent::Agent;
use crate::cgroup::PidsGroup;
use crate::context::{Context, Settings};
use crate::environment::Environment;
use crate::handles::Handles;
use crate::mounts;
use crate::sys::{self, Errno};
use crate::users::AccountsCache;
use crate::watch::Watches;
use crate::workers::Workers;

const DEFAULT_PORT: u16 = 49_981;
const BACKLOG: c_int = 256;
/// From sysexits.h.
const EX_USAGE: i32 = 64;
const EX_SOFTWARE: i32 = 70;
const EX_OSERR: i32 = 71;

extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Runs the agent; returns only when it cannot start.
pub fn main() -> i32 {
    let secret = take_variable(b"SANDBAR_SECRET").and_then(|text| parse_secret(&text));
    let port = match take_variable(b"SANDBAR_PORT") {
        None => Some(DEFAULT_PORT),
        Some(text) => std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()),
    };
    let (secret, port) = match (secret, port) {
        (Some(secret), Some(port)) => (secret, port),
        _ => return complain("SANDBAR_SECRET must be 64 hex digits, SANDBAR_PORT a port", EX_USAGE),
    };
    let listener = match listen(port) {
        Ok(listener) => listener,
        Err(libc::EADDRINUSE) => return complain("the port is taken", EX_SOFTWARE),
        Err(errno) => return complain(&sys::describe(errno), EX_OSERR),
    };
    match start(secret, listener) {
        Ok(agent) => agent.run(),
        Err(errno) => complain(&sys::describe(errno), EX_OSERR),
    }
}

fn start(secret: [u8; 32], listener: OwnedFd) -> Result<Agent, Errno> {
    // SAFETY: takes no pointer.
    let is_init = unsafe { libc::getpid() } == 1;
    if is_init {
        mounts::complete();
    }
    tame_allocator();
    let signals = take_signals()?;
    protect();
    let null_device = sys::open(CStr::from_bytes_with_nul(b"/dev/null\0").expect("a constant"), libc::O_RDWR, 0)?;
    let settings =
        Settings { secret, env: Environment::default(), default_user: b"root".to_vec(), default_workdir: Vec::new() };
    let context = Arc::new(Context {
        settings: Mutex::new(settings),
        accounts: AccountsCache::default(),
        handles: Handles::default(),
        watches: Watches::default(),
        pids_group: PidsGroup::default(),
        null_device,
        files_limit: raise_files_limit()?,
        processes_limit: AtomicU64::new(0),
        resets_oom_score: has_oom_score(),
        is_init,
    });
    let workers = Workers::start(context.clone())?;
    Agent::new(context, workers, listener, signals)
}

/// Takes a variable out of the block that /proc/1/environ shows: the copy is ours, the original becomes zeros.
fn take_variable(name: &[u8]) -> Option<Vec<u8>> {
    // SAFETY: no other thread runs yet, so nobody else reads or changes the environment; its strings are writable memory
    // of the process, each ended by a zero byte, and the list by a null pointer.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            if text.len() > name.len() && text.starts_with(name) && text[name.len()] == b'=' {
                let value = text[name.len() + 1..].to_vec();
                std::ptr::write_bytes(*entry, 0, text.len());
                return Some(value);
            }
            entry = entry.add(1);
        }
    }
    None
}

fn parse_secret(text: &[u8]) -> Option<[u8; 32]> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let mut secret = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, pair) in secret.iter_mut().zip(text.chunks(2)) {
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(secret)
}

fn listen(port: u16) -> Result<OwnedFd, Errno> {
    let flags = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointer.
    let socket = sys::own(unsafe { libc::socket(libc::AF_INET, flags, 0) })?;
    let fd = socket.as_raw_fd();
    let on: c_int = 1;
    // SAFETY: plain integers, for which zero is valid.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as u16;
    address.sin_port = port.to_be();
    let length = std::mem::size_of_val(&address) as libc::socklen_t;
    let option = (&on as *const c_int).cast();
    let option_length = std::mem::size_of_val(&on) as libc::socklen_t;
    // SAFETY: the option is one int, the address has the type and length of its family.
    unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, option, option_length);
        sys::check(libc::bind(fd, (&address as *const libc::sockaddr_in).cast(), length))?;
        sys::check(libc::listen(fd, BACKLOG))?;
    }
    Ok(socket)
}

/// Every signal is blocked, in this thread and so in all it makes; the two that matter come through a descriptor. Their
/// dispositions are the default ones, so that a child only has to clear its mask.
fn take_signals() -> Result<OwnedFd, Errno> {
    // SAFETY: the sets are initialised before use; no handler is installed.
    unsafe {
        // By the bare call: the C library hides two signals that a runtime may have left ignored all the same.
        let default = [0u64; 8];
        for number in 1..=64 {
            libc::syscall(libc::SYS_rt_sigaction, number, default.as_ptr(), 0, 8);
        }
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(set.as_mut_ptr());
        sys::check(libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut()))?;
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        sys::own(libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))
    }
}

fn protect() {
    // SAFETY: none takes a pointer but open, whose path is a constant. Failures leave things as they were.
    unsafe {
        // Not to be looked into by processes of the sandbox.
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        // Orphans come here even when the agent is not PID 1.
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        libc::umask(0o022);
        // 0, 1 and 2 must be taken: a pipe on one of them would be overwritten when a child sets up its own.
        loop {
            let fd = libc::open(b"/dev/null\0".as_ptr().cast(), libc::O_RDWR);
            if !(0..3).contains(&fd) {
                libc::close(fd);
                break;
            }
        }
        // Whatever the runtime has left open is not for the processes.
        const CLOSE_RANGE_CLOEXEC: c_int = 4;
        libc::syscall(libc::SYS_close_range, 3, c_int::MAX, CLOSE_RANGE_CLOEXEC);
        libc::chdir(b"/\0".as_ptr().cast());
    }
}

/// The agent serves many connections; its processes get the limit it was given.
fn raise_files_limit() -> Result<libc::rlimit, Errno> {
    let mut original = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is valid for both calls.
    unsafe {
        sys::check(libc::getrlimit(libc::RLIMIT_NOFILE, &mut original))?;
        let raised = libc::rlimit { rlim_cur: original.rlim_max, rlim_max: original.rlim_max };
        libc::setrlimit(libc::RLIMIT_NOFILE, &raised);
    }
    Ok(original)
}

fn has_oom_score() -> bool {
    let path = CStr::from_bytes_with_nul(b"/proc/self/oom_score_adj\0").expect("a constant");
    sys::read_small_file(path, 32).map_or(true, |score| score != b"0\n")
}

/// One heap for all threads. The buffers of large frames come from it too and stay in it for the next: memory fresh from the kernel costs a fault for
/// every page, which is slow in gVisor. What is free is given back a moment later (`Agent::trim`).
fn tame_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 8 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 16 << 20);
    }
}

fn complain(message: &str, status: i32) -> i32 {
    // Without a place to complain to, the status still tells.
    let _ = sys::write(2, format!("sandbar-agent: {message}\n").as_bytes());
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_64_hex_digits() {
        assert_eq!(parse_secret(&[b'f'; 64]), Some([255; 32]));
        assert_eq!(parse_secret(&[b'f'; 63]), None);
        assert_eq!(parse_secret(&[b'g'; 64]), None);
    }
}
