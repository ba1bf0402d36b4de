//! CONFIGURE and SET_TIME: what the service tells the sandbox about itself.

use std::os::unix::io::AsRawFd;
use std::sync::atomic::Ordering;

use crate::context::Context;
use crate::environment::{self, Environment};
use crate::errors::{AtPath, Error, Outcome};
use crate::fields::{field, Message};
use crate::files;
use crate::frame;
use crate::paths;
use crate::sys::{self, Errno};
use crate::users::User;

/// `kind` of a CONFIGURE whose variables replace all earlier ones.
const REPLACE: u64 = 1;

pub fn configure(context: &Context, request: &Message) -> Outcome<Vec<u8>> {
    let secret = match request.find(field::SECRET) {
        None => None,
        Some(bytes) => {
            let secret = <[u8; 32]>::try_from(bytes);
            Some(secret.map_err(|_| Error::invalid("a secret has 32 bytes"))?)
        }
    };
    for pair in request.all(field::ENV) {
        environment::check_pair(pair)?;
    }
    for file in request.all(field::FILE) {
        let file = Message::parse(file).map_err(|_| Error::invalid("malformed file"))?;
        write_file(&file)?;
    }
    if let Some(name) = request.find(field::HOSTNAME) {
        set_hostname(context, name)?;
    }
    let pids_max = request.number(field::PIDS_MAX);
    // Best effort: an ordinary container has its limit from outside and cannot make one.
    let is_limited = pids_max > 0 && context.is_init && context.pids_group.limit(pids_max).is_ok();
    if pids_max > 0 && context.is_init {
        context.processes_limit.store(pids_max, Ordering::Relaxed);
    }
    apply(context, request, secret)?;
    Ok(frame::ok(|out| {
        if pids_max > 0 {
            out.number(field::USED, is_limited.into());
        }
    }))
}

/// Best effort: a sandbox has no clock of its own on every runtime.
pub fn set_time(context: &Context, request: &Message) -> Outcome<Vec<u8>> {
    let nanoseconds = request.number(field::MTIME_NS) as i64;
    if context.is_init && nanoseconds > 0 {
        let time = libc::timespec { tv_sec: nanoseconds / 1_000_000_000, tv_nsec: nanoseconds % 1_000_000_000 };
        // SAFETY: the time is valid for the call.
        unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &time) };
    }
    Ok(frame::empty_ok())
}

fn apply(context: &Context, request: &Message, secret: Option<[u8; 32]>) -> Outcome<()> {
    let mut settings = context.settings.lock().unwrap();
    if let Some(secret) = secret {
        settings.secret = secret;
    }
    if request.number(field::KIND) == REPLACE {
        settings.env = Environment::default();
    }
    for pair in request.all(field::ENV) {
        settings.env.set(pair)?;
    }
    if let Some(user) = request.find(field::DEFAULT_USER).filter(|user| !user.is_empty()) {
        settings.default_user = user.to_vec();
    }
    if let Some(workdir) = request.find(field::DEFAULT_WORKDIR) {
        settings.default_workdir = workdir.to_vec();
    }
    Ok(())
}

fn set_hostname(context: &Context, name: &[u8]) -> Outcome<()> {
    if name.is_empty() || name.len() > 64 || name.contains(&0) {
        return Err(Error::invalid("a host name has 1 to 64 bytes"));
    }
    if context.is_init {
        // SAFETY: the name is valid for reads of its length. Not every runtime allows it; nothing depends on it.
        unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) };
    }
    Ok(())
}

fn write_file(file: &Message) -> Outcome<()> {
    let path = paths::resolve(file.bytes(field::PATH), b"/root", b"")?;
    let root = User { name: b"root".to_vec(), uid: 0, gid: 0, home: b"/root".to_vec() };
    files::make_parents(&path, &root)?;
    let mode = match file.number(field::MODE) as u32 & 0o7777 {
        0 => 0o644,
        mode => mode,
    };
    write_content(&path, file.bytes(field::DATA), mode).at_path(&path)
}

/// In place, not by rename: a runtime may have mounted something over the file (/etc/hosts, /etc/resolv.conf).
fn write_content(path: &[u8], content: &[u8], mode: u32) -> Result<(), Errno> {
    let path = sys::c_path(path)?;
    let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CREAT;
    let file = match sys::open(&path, flags & !libc::O_CREAT, 0) {
        Err(libc::ENOENT) => match sys::open(&path, flags, mode) {
            Err(libc::ENOENT) => {
                // A link into a directory that does not exist, such as a template's resolv.conf.
                // SAFETY: the path is NUL-terminated.
                unsafe { libc::unlink(path.as_ptr()) };
                sys::open(&path, flags, mode)
            }
            opened => opened,
        },
        opened => opened,
    }?;
    // SAFETY: take no pointers.
    unsafe {
        sys::check(libc::ftruncate(file.as_raw_fd(), 0))?;
        sys::check(libc::fchmod(file.as_raw_fd(), mode))?;
    }
    sys::write_all(file.as_raw_fd(), content)
}
