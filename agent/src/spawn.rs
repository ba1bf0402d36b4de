//! Starts a process the way posix_spawn does: a child that shares the agent's memory until it executes, while the
//! thread that made it waits. Nothing is copied, so it takes the same time however much output the agent holds.

use std::ffi::CString;
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::io::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::sys::{self, Errno};

/// The child calls a few system calls only.
const CHILD_STACK: usize = 32 << 10;
const OOM_SCORE: &[u8] = b"/proc/self/oom_score_adj\0";

/// Everything the child needs, made before it exists.
pub struct Plan {
    /// files to try, in order
    pub candidates: Vec<CString>,
    pub argv: Vec<CString>,
    pub envp: Vec<CString>,
    pub cwd: CString,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub stdio: [RawFd; 3],
    /// stdin is a terminal that the process shall control
    pub has_terminal: bool,
    pub files_limit: libc::rlimit,
    /// processes the user may have; 0 for no limit
    pub processes_limit: u64,
    /// the agent is protected from the kernel's memory killer; its processes are not
    pub resets_oom_score: bool,
    /// `cgroup.procs` of the group the process belongs to
    pub pids_group: Option<RawFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// no process could be made
    Fork(Errno),
    /// the working directory could not be entered
    Cwd(Errno),
    /// anything else the child could not do
    Setup(Errno),
}

/// Where the child failed; written by the child into memory it shares.
const AT_NOTHING: i32 = 0;
const AT_CWD: i32 = 1;
const AT_SETUP: i32 = 2;

struct Child<'a> {
    plan: &'a Plan,
    candidates: Vec<*const c_char>,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    /// `/bin/sh`, a place for the file, and the arguments: for a script without an interpreter line
    shell_argv: Vec<*const c_char>,
    failed_at: AtomicI32,
    errno: AtomicI32,
}

/// Returns the pid once the process has executed its command, or has ended because it could not find it.
pub fn spawn(plan: &Plan) -> Result<i32, Failure> {
    let shell = CString::new("/bin/sh").expect("a constant");
    let mut shell_argv = vec![shell.as_ptr(), ptr::null()];
    shell_argv.extend(plan.argv.iter().skip(1).map(|arg| arg.as_ptr()));
    shell_argv.push(ptr::null());
    let mut child = Child {
        plan,
        candidates: plan.candidates.iter().map(|path| path.as_ptr()).collect(),
        argv: terminated(&plan.argv),
        envp: terminated(&plan.envp),
        shell_argv,
        failed_at: AtomicI32::new(AT_NOTHING),
        errno: AtomicI32::new(0),
    };
    let mut stack = vec![0u128; CHILD_STACK / 16];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let argument = (&mut child as *mut Child).cast::<c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: CLONE_VFORK keeps this thread, whose stack owns `child` and `stack`, waiting until the child has executed or
    // exited. The child runs on its own aligned stack, makes raw system calls only and never returns. All signals are
    // blocked in every thread of the agent, so no handler can run in it.
    let pid = unsafe { libc::clone(run_child, top, flags, argument) };
    if pid < 0 {
        return Err(Failure::Fork(sys::errno()));
    }
    let errno = child.errno.load(Ordering::SeqCst);
    match child.failed_at.load(Ordering::SeqCst) {
        AT_NOTHING => Ok(pid),
        AT_CWD => Err(Failure::Cwd(errno)),
        _ => Err(Failure::Setup(errno)),
    }
}

fn terminated(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

extern "C" fn run_child(argument: *mut c_void) -> c_int {
    // SAFETY: the pointer is the `Child` of the waiting parent, which does not touch it meanwhile.
    let child = unsafe { &mut *argument.cast::<Child>() };
    if let Err((place, errno)) = child.set_up() {
        child.failed_at.store(place, Ordering::SeqCst);
        child.errno.store(errno, Ordering::SeqCst);
        exit(126);
    }
    let errno = child.execute();
    match errno {
        libc::ENOENT
        | libc::ENOTDIR
        | libc::EACCES
        | libc::EPERM
        | libc::ENOEXEC
        | libc::ELOOP
        | libc::EISDIR
        | libc::ENAMETOOLONG
        | libc::ETXTBSY
        | libc::EINVAL => {
            child.complain(errno);
            exit(if matches!(errno, libc::ENOENT | libc::ENOTDIR) { 127 } else { 126 })
        }
        // Arguments too long, no memory, no descriptors: not the command's fault.
        _ => {
            child.failed_at.store(AT_SETUP, Ordering::SeqCst);
            child.errno.store(errno, Ordering::SeqCst);
            exit(126)
        }
    }
}

/// Only the process itself, without the C library's handlers, which belong to the agent.
fn exit(status: c_int) -> ! {
    // SAFETY: ends this process, which is not the agent.
    unsafe { libc::_exit(status) }
}

/// Only system calls from here on: this runs between clone and execve, in the agent's memory. Credentials are changed by
/// bare system calls, because the C library's functions would change them in the agent's threads too.
impl Child<'_> {
    fn set_up(&self) -> Result<(), (i32, Errno)> {
        let plan = self.plan;
        let setup = |errno| (AT_SETUP, errno);
        // SAFETY: every pointer passed below is to memory that the waiting parent keeps alive.
        unsafe {
            libc::setsid();
            if let Some(group) = plan.pids_group {
                libc::write(group, b"0".as_ptr().cast(), 1);
            }
            if plan.resets_oom_score {
                let score = libc::open(OOM_SCORE.as_ptr().cast(), libc::O_WRONLY);
                libc::write(score, b"0".as_ptr().cast(), 1);
                libc::close(score);
            }
            if plan.has_terminal {
                sys::check(libc::ioctl(plan.stdio[0], libc::TIOCSCTTY, 0)).map_err(setup)?;
            }
            for (target, source) in plan.stdio.iter().enumerate() {
                sys::check(libc::dup2(*source, target as c_int)).map_err(setup)?;
            }
            // A kernel without it still closes them at execve: all are marked so.
            libc::syscall(libc::SYS_close_range, 3, c_int::MAX, 0);
            libc::setrlimit(libc::RLIMIT_NOFILE, &plan.files_limit);
            if plan.processes_limit > 0 {
                let limit = libc::rlimit { rlim_cur: plan.processes_limit, rlim_max: plan.processes_limit };
                libc::setrlimit(libc::RLIMIT_NPROC, &limit);
            }
            libc::umask(0o022);
            let (uid, gid) = (plan.uid, plan.gid);
            check_call(libc::syscall(libc::SYS_setgroups, plan.groups.len(), plan.groups.as_ptr())).map_err(setup)?;
            check_call(libc::syscall(libc::SYS_setresgid, gid, gid, gid)).map_err(setup)?;
            check_call(libc::syscall(libc::SYS_setresuid, uid, uid, uid)).map_err(setup)?;
            // As the user: a directory that the user may not enter is not one to start in.
            sys::check(libc::chdir(plan.cwd.as_ptr())).map_err(|errno| (AT_CWD, errno))?;
            let none = [0u64; 1];
            let null = ptr::null_mut::<c_void>();
            let how = libc::SIG_SETMASK;
            check_call(libc::syscall(libc::SYS_rt_sigprocmask, how, none.as_ptr(), null, 8)).map_err(setup)?;
        }
        Ok(())
    }

    /// Tries each candidate as execvp would; returns why the last one worth naming failed.
    fn execute(&mut self) -> Errno {
        let mut reason = libc::ENOENT;
        for &path in &self.candidates {
            // SAFETY: all are arrays of NUL-terminated strings ended by a null pointer.
            unsafe { libc::execve(path, self.argv.as_ptr(), self.envp.as_ptr()) };
            match sys::errno() {
                libc::ENOENT | libc::ENOTDIR => (),
                libc::EACCES => reason = libc::EACCES,
                libc::ENOEXEC => {
                    self.shell_argv[1] = path;
                    // SAFETY: as above.
                    unsafe { libc::execve(self.shell_argv[0], self.shell_argv.as_ptr(), self.envp.as_ptr()) };
                    return libc::ENOEXEC;
                }
                errno => return errno,
            }
        }
        reason
    }

    fn complain(&self, errno: Errno) {
        let command = self.plan.argv[0].to_bytes();
        let reason: &[u8] = match errno {
            libc::ENOENT if !command.contains(&b'/') => b": command not found\n",
            libc::ENOENT => b": no such file or directory\n",
            libc::ENOTDIR => b": not a directory\n",
            libc::EACCES | libc::EPERM => b": permission denied\n",
            libc::ENOEXEC => b": exec format error\n",
            libc::ELOOP => b": too many levels of symbolic links\n",
            libc::ENAMETOOLONG => b": file name too long\n",
            libc::ETXTBSY => b": text file busy\n",
            _ => b": cannot execute\n",
        };
        let part = |text: &[u8]| libc::iovec { iov_base: text.as_ptr() as *mut c_void, iov_len: text.len() };
        let line = [part(b"sandbar: "), part(command), part(reason)];
        // SAFETY: the three parts are valid for reads; writev does not write to them.
        unsafe { libc::writev(2, line.as_ptr(), line.len() as c_int) };
    }
}

fn check_call(result: libc::c_long) -> Result<(), Errno> {
    if result < 0 {
        Err(sys::errno())
    } else {
        Ok(())
    }
}
