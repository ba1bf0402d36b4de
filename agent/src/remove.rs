//! REMOVE: takes a tree away without following a link and without recursion, however deep it is.

use std::ffi::{CStr, CString};
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

use crate::context::Context;
use crate::directory::Directory;
use crate::errors::{AtPath, Error, Outcome};
use crate::fields::{field, Message};
use crate::frame;
use crate::paths;
use crate::sys::{self, Errno};
use crate::workers::{Reply, Step, Task};

/// Directories kept open at once. Above them a parent is opened again by `..` and checked to be the one we came from.
const MAX_OPEN: usize = 64;
/// A directory that is refilled while it is removed is emptied this many times before giving up.
const MAX_PASSES: u32 = 16;
/// Directories emptied in one step.
const STEP: usize = 64;

pub struct Remove {
    path: Vec<u8>,
    levels: Vec<Level>,
}

struct Level {
    /// in the directory above; the last part of the path for the first level
    name: CString,
    fd: Option<OwnedFd>,
    /// device and inode, to know it again
    identity: (u64, u64),
    /// still to be removed
    subdirectories: Vec<CString>,
    passes: u32,
}

impl Remove {
    /// None when there was no directory: the path is gone already.
    pub fn begin(context: &Context, request: &Message) -> Outcome<Option<Remove>> {
        let path = context.actor(request)?.resolve(request.bytes(field::PATH))?;
        if path == b"/" {
            return Err(Error::invalid("the root directory cannot be removed").at(&path));
        }
        let c_path = sys::c_path(&path).at_path(&path)?;
        // SAFETY: `c_path` is NUL-terminated.
        match sys::check(unsafe { libc::unlink(c_path.as_ptr()) }) {
            Ok(_) | Err(libc::ENOENT) => return Ok(None),
            Err(libc::EISDIR) | Err(libc::EPERM) => (),
            Err(errno) => return Err(Error::from(errno).at(&path)),
        }
        let name = sys::c_path(paths::base_name(&path)).at_path(&path)?;
        match open_directory(libc::AT_FDCWD, &c_path) {
            Ok(fd) => {
                let levels = vec![Level::enter(name, fd).at_path(&path)?];
                Ok(Some(Remove { path, levels }))
            }
            Err(libc::ENOENT) => Ok(None),
            Err(errno) => Err(Error::from(errno).at(&path)),
        }
    }

    /// Empties one directory or removes an empty one; true when all is gone.
    fn advance(&mut self) -> Result<bool, Errno> {
        let depth = self.levels.len();
        let level = self.levels.last_mut().expect("there is a level until the last is removed");
        if let Some(name) = level.subdirectories.pop() {
            let parent = level.fd.as_ref().expect("the deepest level is open").as_raw_fd();
            match open_directory(parent, &name) {
                Ok(fd) => {
                    let below = Level::enter(name, fd)?;
                    self.levels.push(below);
                    if depth > MAX_OPEN {
                        self.levels[depth - MAX_OPEN].fd = None;
                    }
                }
                // Replaced by something else meanwhile: the next pass sees what.
                Err(libc::ENOENT) | Err(libc::ENOTDIR) | Err(libc::ELOOP) => (),
                Err(errno) => return Err(errno),
            }
            return Ok(false);
        }
        self.leave()
    }

    fn leave(&mut self) -> Result<bool, Errno> {
        let mut level = self.levels.pop().expect("called with a level");
        let fd = level.fd.take().expect("the deepest level is open");
        let removed = match self.levels.last_mut() {
            None => remove_directory(libc::AT_FDCWD, &sys::c_path(&self.path)?),
            Some(above) => remove_directory(above.reopen(&fd)?, &level.name),
        };
        match removed {
            Err(libc::ENOTEMPTY) | Err(libc::EEXIST) if level.passes < MAX_PASSES => {
                let mut again = Level::enter(level.name, reopen_here(&fd)?)?;
                again.passes = level.passes + 1;
                self.levels.push(again);
                Ok(false)
            }
            Ok(()) | Err(libc::ENOENT) => Ok(self.levels.is_empty()),
            Err(errno) => Err(errno),
        }
    }
}

impl Task for Remove {
    fn step(&mut self, _: &Context) -> Step {
        for _ in 0..STEP {
            match self.advance() {
                Ok(false) => (),
                Ok(true) => return Step::Done(Reply::Frame(frame::empty_ok())),
                Err(errno) => {
                    let error = Error::from(errno).at(&self.path);
                    return Step::Done(Reply::Frame(frame::error(&error)));
                }
            }
        }
        Step::Again
    }
}

impl Level {
    /// Unlinks everything in a directory that is not a directory itself.
    fn enter(name: CString, fd: OwnedFd) -> Result<Level, Errno> {
        let found = sys::fstat(fd.as_raw_fd())?;
        let mut subdirectories = Vec::new();
        let mut directory = Directory::from_fd(sys::duplicate(&fd)?);
        let here = fd.as_raw_fd();
        while let Some(item) = directory.next()? {
            if item.kind == libc::DT_DIR {
                subdirectories.push(item.name.to_owned());
                continue;
            }
            // SAFETY: the name is NUL-terminated.
            match sys::check(unsafe { libc::unlinkat(here, item.name.as_ptr(), 0) }) {
                Ok(_) | Err(libc::ENOENT) => (),
                Err(libc::EISDIR) | Err(libc::EPERM) if item.kind == libc::DT_UNKNOWN => {
                    subdirectories.push(item.name.to_owned());
                }
                Err(errno) => return Err(errno),
            }
        }
        let identity = (found.st_dev, found.st_ino);
        Ok(Level { name, fd: Some(fd), identity, subdirectories, passes: 0 })
    }

    /// Opens the level again from the directory below it. Where that was moved away meanwhile, `..` is another directory,
    /// which we were not asked to touch.
    fn reopen(&mut self, below: &OwnedFd) -> Result<RawFd, Errno> {
        if self.fd.is_none() {
            let up = CStr::from_bytes_with_nul(b"..\0").expect("a constant");
            let fd = open_directory(below.as_raw_fd(), up)?;
            let found = sys::fstat(fd.as_raw_fd())?;
            if (found.st_dev, found.st_ino) != self.identity {
                return Err(libc::EBUSY);
            }
            self.fd = Some(fd);
        }
        Ok(self.fd.as_ref().expect("opened above").as_raw_fd())
    }
}

fn open_directory(at: RawFd, name: &CStr) -> Result<OwnedFd, Errno> {
    sys::open_at(at, name, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW)
}

/// A fresh descriptor, which lists from the beginning.
fn reopen_here(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    open_directory(fd.as_raw_fd(), CStr::from_bytes_with_nul(b".\0").expect("a constant"))
}

fn remove_directory(at: RawFd, name: &CStr) -> Result<(), Errno> {
    // SAFETY: the name is NUL-terminated.
    sys::check(unsafe { libc::unlinkat(at, name.as_ptr(), libc::AT_REMOVEDIR) })?;
    Ok(())
}
