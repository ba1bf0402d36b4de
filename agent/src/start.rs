//! START, the part that may block: finds the user, opens the pipes or the terminal and spawns.

use std::ffi::CString;
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;

use crate::context::{Actor, Context};
use crate::environment::{self, Environment};
use crate::errors::{Code, Error, Outcome};
use crate::fields::{field, Message};
use crate::frame::Request;
use crate::pty;
use crate::spawn::{self, Failure, Plan};
use crate::sys::{self, Errno};
use crate::workers::{Reply, Step, Task};

pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;
pub const PTY: u8 = 3;

/// A process that runs, with the agent's ends of its pipes, all non-blocking.
pub struct Started {
    pub pid: i32,
    pub input: Option<OwnedFd>,
    /// with the number of the stream each one is
    pub outputs: Vec<(u8, OwnedFd)>,
}

pub struct Start {
    request: Arc<Request>,
}

impl Start {
    pub fn new(request: Arc<Request>) -> Start {
        Start { request }
    }
}

impl Task for Start {
    fn step(&mut self, context: &Context) -> Step {
        let outcome = match Message::parse(self.request.payload()) {
            Ok(request) => start(context, &request),
            Err(_) => Err(Error::invalid("malformed request")),
        };
        Step::Done(Reply::Started(outcome))
    }
}

fn start(context: &Context, request: &Message) -> Outcome<Started> {
    let actor = context.actor(request)?;
    let command = request.bytes(field::CMD);
    if command.is_empty() {
        return Err(Error::invalid("a command is needed"));
    }
    let global = context.settings.lock().unwrap().env.clone();
    let environment = Environment::compose(&actor.user, &global, request.all(field::ENV))?;
    let path = environment.get(b"PATH").unwrap_or(b"");
    let cwd = actor.resolve(request.bytes(field::CWD))?;
    let pids_group = context.pids_group.processes();
    let candidates = c_strings(environment::candidates(command, path))?;
    let mut channels = Channels::open(context, request, &actor).map_err(spawn_error)?;
    let plan = Plan {
        candidates,
        argv: c_strings([command].into_iter().chain(request.all(field::ARG)))?,
        envp: c_strings(environment.into_pairs())?,
        cwd: c_string(&cwd[..])?,
        uid: actor.user.uid,
        gid: actor.user.gid,
        groups: actor.accounts.groups_of(&actor.user),
        stdio: channels.stdio(context),
        has_terminal: request.flag(field::PTY),
        files_limit: context.files_limit,
        processes_limit: context.processes_limit.load(Ordering::Relaxed),
        resets_oom_score: context.resets_oom_score,
        pids_group: pids_group.as_ref().map(|processes| processes.as_raw_fd()),
    };
    let pid = spawn::spawn(&plan).map_err(|failure| match failure {
        Failure::Cwd(errno) => Error::with_errno(Code::Cwd, errno).at(&cwd),
        Failure::Fork(errno) | Failure::Setup(errno) => spawn_error(errno),
    })?;
    channels.theirs.clear();
    Ok(Started { pid, input: channels.input.take(), outputs: channels.outputs })
}

/// Both ends of everything the process reads from and writes to.
struct Channels {
    input: Option<OwnedFd>,
    outputs: Vec<(u8, OwnedFd)>,
    /// the process's ends: stdin where it has one, then stdout and stderr; or one terminal
    theirs: Vec<OwnedFd>,
}

impl Channels {
    fn open(context: &Context, request: &Message, actor: &Actor) -> Result<Channels, Errno> {
        if request.flag(field::PTY) {
            let size = (request.number(field::COLS), request.number(field::ROWS));
            let terminal = pty::open(size.0, size.1, actor.user.uid, actor.user.gid)?;
            // A descriptor of its own for the input, so that the two directions wait independently of each other.
            let input = sys::duplicate(&terminal.master)?;
            return Ok(Channels {
                input: Some(input),
                outputs: vec![(PTY, terminal.master)],
                theirs: vec![terminal.slave],
            });
        }
        let (input, their_input) = if request.flag(field::STDIN) {
            let (read, write) = sys::pipe()?;
            sys::set_nonblocking(&write)?;
            (Some(write), read)
        } else {
            (None, sys::duplicate(&context.null_device)?)
        };
        let (out, their_out) = sys::pipe()?;
        let (err, their_err) = sys::pipe()?;
        sys::set_nonblocking(&out)?;
        sys::set_nonblocking(&err)?;
        Ok(Channels {
            input,
            outputs: vec![(STDOUT, out), (STDERR, err)],
            theirs: vec![their_input, their_out, their_err],
        })
    }

    fn stdio(&self, context: &Context) -> [i32; 3] {
        match &self.theirs[..] {
            [terminal] => [terminal.as_raw_fd(); 3],
            [input, out, err] => [input.as_raw_fd(), out.as_raw_fd(), err.as_raw_fd()],
            _ => [context.null_device.as_raw_fd(); 3],
        }
    }
}

fn spawn_error(errno: Errno) -> Error {
    let is_limit = matches!(errno, libc::EAGAIN | libc::EMFILE | libc::ENFILE);
    Error::with_errno(if is_limit { Code::Exhausted } else { Code::Spawn }, errno)
}

fn c_strings<T: Into<Vec<u8>>>(texts: impl IntoIterator<Item = T>) -> Outcome<Vec<CString>> {
    texts.into_iter().map(c_string).collect()
}

fn c_string(text: impl Into<Vec<u8>>) -> Outcome<CString> {
    CString::new(text).map_err(|_| Error::invalid("a string contains a zero byte"))
}
