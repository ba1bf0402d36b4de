//! COMPOSE: joins files into a temporary one beside the destination, then renames it over.

use std::ffi::CString;
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::{Actor, Context};
use crate::errors::{AtPath, Code, Error, Outcome};
use crate::fields::{field, Message};
use crate::files;
use crate::frame;
use crate::paths;
use crate::sys::{self, Errno};
use crate::workers::{Reply, Step, Task};

/// Copied in one step.
const STEP: usize = 32 << 20;
const BUFFER: usize = 128 << 10;

pub struct Compose {
    actor: Actor,
    sources: Vec<(Vec<u8>, OwnedFd)>,
    /// index of the source being copied
    current: usize,
    destination: Vec<u8>,
    temporary: Temporary,
    /// the kernel cannot copy between these files by itself
    by_hand: bool,
}

impl Compose {
    pub fn begin(context: &Context, request: &Message) -> Outcome<Compose> {
        let actor = context.actor(request)?;
        if request.bytes(field::DESTINATION).is_empty() {
            return Err(Error::invalid("a destination is needed"));
        }
        let destination = actor.resolve(request.bytes(field::DESTINATION))?;
        let mut sources = Vec::new();
        for source in request.all(field::SOURCE) {
            let path = actor.resolve(source)?;
            if path == destination {
                return Err(Error::invalid("the destination is one of the sources").at(&path));
            }
            let file = open_source(&path)?;
            sources.push((path, file));
        }
        if sources.is_empty() {
            return Err(Error::invalid("at least one source is needed"));
        }
        files::make_parents(&destination, &actor.user)?;
        let temporary = Temporary::beside(&destination).at_path(&destination)?;
        Ok(Compose { actor, sources, current: 0, destination, temporary, by_hand: false })
    }

    fn copy_some(&mut self) -> Result<usize, Errno> {
        let from = self.sources[self.current].1.as_raw_fd();
        let to = self.temporary.file.as_raw_fd();
        if self.by_hand {
            return copy_by_hand(from, to);
        }
        let null = std::ptr::null_mut::<i64>();
        // SAFETY: null offsets mean the positions of the files themselves.
        let copied = unsafe { libc::syscall(libc::SYS_copy_file_range, from, null, to, null, STEP, 0) };
        match sys::check_size(copied as isize) {
            Err(libc::EXDEV | libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP | libc::EPERM) => {
                self.by_hand = true;
                copy_by_hand(from, to)
            }
            // Some file systems copy nothing, without an error, from files they make up as they are read.
            Ok(0) => copy_by_hand(from, to),
            other => other,
        }
    }

    fn finish(&mut self) -> Outcome<Vec<u8>> {
        let user = &self.actor.user;
        // SAFETY: takes no pointer.
        sys::check(unsafe { libc::fchown(self.temporary.file.as_raw_fd(), user.uid, user.gid) })
            .at_path(&self.destination)?;
        self.temporary.rename_to(&self.destination).at_path(&self.destination)?;
        for (path, _) in &self.sources {
            let c_path = sys::c_path(path).at_path(path)?;
            // SAFETY: `c_path` is NUL-terminated.
            match sys::check(unsafe { libc::unlink(c_path.as_ptr()) }) {
                // The same source may have been given twice.
                Ok(_) | Err(libc::ENOENT) => (),
                Err(errno) => return Err(Error::from(errno).at(path)),
            }
        }
        files::entry_frame(&self.actor, &self.destination)
    }
}

impl Task for Compose {
    fn step(&mut self, _: &Context) -> Step {
        let outcome = match self.copy_some() {
            Ok(0) => {
                self.current += 1;
                if self.current < self.sources.len() {
                    return Step::Again;
                }
                self.finish()
            }
            Ok(_) => return Step::Again,
            Err(errno) => Err(Error::from(errno).at(&self.destination)),
        };
        Step::Done(Reply::Frame(outcome.unwrap_or_else(|error| frame::error(&error))))
    }
}

/// Removed when it is dropped before it got its final name.
struct Temporary {
    path: CString,
    file: OwnedFd,
    is_renamed: bool,
}

impl Temporary {
    fn beside(destination: &[u8]) -> Result<Temporary, Errno> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let name = format!(".sandbar-compose-{}", COUNT.fetch_add(1, Ordering::Relaxed));
            let path = sys::c_path(&paths::join(paths::parent(destination), name.as_bytes()))?;
            match sys::open(&path, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o644) {
                Ok(file) => return Ok(Temporary { path, file, is_renamed: false }),
                // Left by a copy of this sandbox that was taken while it composed.
                Err(libc::EEXIST) => continue,
                Err(errno) => return Err(errno),
            }
        }
    }

    fn rename_to(&mut self, destination: &[u8]) -> Result<(), Errno> {
        files::rename(self.path.to_bytes(), destination)?;
        self.is_renamed = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_renamed {
            // SAFETY: the path is NUL-terminated.
            unsafe { libc::unlink(self.path.as_ptr()) };
        }
    }
}

fn open_source(path: &[u8]) -> Outcome<OwnedFd> {
    let c_path = sys::c_path(path).at_path(path)?;
    let file = sys::open(&c_path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY, 0).at_path(path)?;
    if !sys::is_kind(sys::fstat(file.as_raw_fd()).at_path(path)?.st_mode, libc::S_IFREG) {
        return Err(Error::new(Code::NotRegular, "not a regular file").at(path));
    }
    Ok(file)
}

fn copy_by_hand(from: i32, to: i32) -> Result<usize, Errno> {
    let mut buffer = vec![0; BUFFER];
    let mut copied = 0;
    while copied < STEP {
        let count = sys::read(from, &mut buffer)?;
        if count == 0 {
            break;
        }
        sys::write_all(to, &buffer[..count])?;
        copied += count;
    }
    Ok(copied)
}
