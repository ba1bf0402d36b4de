//! A limit on the number of processes, for sandboxes whose runtime sets none: gVisor has a cgroup file system of its own inside.

use std::ffi::CString;
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use crate::sys::{self, Errno};

const MOUNT_POINT: &str = "/run/.sandbar-cgroup";

#[derive(Default)]
pub struct PidsGroup {
    group: Mutex<Option<Group>>,
}

struct Group {
    directory: OwnedFd,
    /// `cgroup.procs`: a process that writes "0" here is in the group
    processes: Arc<OwnedFd>,
}

impl PidsGroup {
    /// Makes the group when there is none yet, and sets its limit.
    pub fn limit(&self, max: u64) -> Result<(), Errno> {
        let mut group = self.group.lock().unwrap();
        if group.is_none() {
            *group = Some(make_group()?);
        }
        let directory = &group.as_ref().expect("made above").directory;
        write_file(directory, "pids.max", max.to_string().as_bytes())
    }

    /// Where a new process is to sign in; none without a group.
    pub fn processes(&self) -> Option<Arc<OwnedFd>> {
        self.group.lock().unwrap().as_ref().map(|group| group.processes.clone())
    }
}

fn make_group() -> Result<Group, Errno> {
    let mount_point = text("/run/.sandbar-cgroup");
    for place in [text("/run"), mount_point.clone()] {
        // SAFETY: the path is NUL-terminated. What exists already is fine; what cannot be made shows below.
        unsafe { libc::mkdir(place.as_ptr(), 0o700) };
    }
    let (source, kind, options) = (text("sandbar"), text("cgroup"), text("pids"));
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: all strings are NUL-terminated.
    let mounted =
        unsafe { libc::mount(source.as_ptr(), mount_point.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    if let Err(errno) = sys::check(mounted) {
        // SAFETY: the path is NUL-terminated.
        unsafe { libc::rmdir(mount_point.as_ptr()) };
        return Err(errno);
    }
    let path = text(&format!("{MOUNT_POINT}/sandbar"));
    // SAFETY: the path is NUL-terminated.
    match sys::check(unsafe { libc::mkdir(path.as_ptr(), 0o755) }) {
        Ok(_) | Err(libc::EEXIST) => (),
        Err(errno) => return Err(errno),
    }
    let directory = sys::open(&path, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let processes = sys::open_at(directory.as_raw_fd(), &text("cgroup.procs"), libc::O_WRONLY)?;
    Ok(Group { directory, processes: Arc::new(processes) })
}

fn write_file(directory: &OwnedFd, name: &str, content: &[u8]) -> Result<(), Errno> {
    let file = sys::open_at(directory.as_raw_fd(), &text(name), libc::O_WRONLY)?;
    sys::write_all(file.as_raw_fd(), content)
}

fn text(value: &str) -> CString {
    CString::new(value).expect("no zero byte in the constants of this file")
}
