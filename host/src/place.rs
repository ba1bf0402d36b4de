//! Putting entries of an archive into a tree. Everything happens below the process's own root, which by then is the tree itself
//! (`enter_root`): no name in an archive and no link in the tree can lead out of it.

use crate::sys::{c_bytes, c_string, check, Outcome};
use crate::tar::{Entry, Kind};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const CHUNK: usize = 1 << 16;

/// Devices that any system may have; of all others no node is made, since the machine's own kernel would serve it.
const HARMLESS_DEVICES: [(u32, u32); 7] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)];

pub const OPAQUE: &str = "trusted.overlay.opaque";

/// Makes a directory the root of this process.
pub fn enter_root(directory: &str) -> Outcome<()> {
    let path = c_string(directory)?;
    let root = c_string("/")?;
    // SAFETY: both are zero-terminated strings that outlive the calls.
    unsafe {
        check(
            libc::chroot(path.as_ptr()).into(),
            &format!("enter {directory}"),
        )?;
        check(libc::chdir(root.as_ptr()).into(), "enter the root")?;
        libc::umask(0);
    }
    Ok(())
}

/// Parts of a relative name; `..` is refused, a leading slash only passed over where `absolute_ok`.
pub fn parts_of(name: &[u8], absolute_ok: bool) -> Outcome<Vec<Vec<u8>>> {
    let shown = || String::from_utf8_lossy(name).into_owned();
    if name.starts_with(b"/") && !absolute_ok {
        return Err(format!("the archive holds the absolute path '{}'", shown()));
    }
    let parts: Vec<Vec<u8>> = name
        .split(|&byte| byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
        .collect();
    if parts.iter().any(|part| part == b"..") {
        return Err(format!(
            "the archive holds the path '{}', which leads outwards",
            shown()
        ));
    }
    Ok(parts)
}

pub fn path_of(parts: &[Vec<u8>]) -> PathBuf {
    let mut path = PathBuf::from("/");
    for part in parts {
        path.push(std::ffi::OsStr::from_bytes(part));
    }
    path
}

/// Files put into the tree, with a limit on the sum of their sizes.
pub struct Placer {
    /// Bytes that may still be written.
    pub room: u64,
    /// Directories whose times are set at the end, when nothing is put into them any more.
    directories: Vec<(PathBuf, i64)>,
}

impl Placer {
    pub fn new(room: u64) -> Self {
        Placer {
            room,
            directories: Vec::new(),
        }
    }

    /// Puts an entry (not a hard link) at a path whose parent is there. What is there already gives way, except a directory for a directory.
    pub fn put(&mut self, entry: &Entry, path: &Path, content: &mut dyn Read) -> Outcome<()> {
        let there = fs::symlink_metadata(path).ok();
        let merge =
            entry.kind == Kind::Directory && there.as_ref().map_or(false, |found| found.is_dir());
        if there.is_some() && !merge {
            remove(path)?;
        }
        match entry.kind {
            Kind::File => self.write_file(entry, path, content)?,
            Kind::Directory if merge => (),
            Kind::Directory => fs::create_dir(path).map_err(|error| said("make", path, &error))?,
            Kind::Symlink => {
                let target = std::ffi::OsStr::from_bytes(&entry.link);
                std::os::unix::fs::symlink(target, path)
                    .map_err(|error| said("link", path, &error))?
            }
            Kind::Fifo => make_node(path, libc::S_IFIFO, 0)?,
            Kind::Char if HARMLESS_DEVICES.contains(&(entry.major, entry.minor)) => {
                make_node(path, libc::S_IFCHR, libc::makedev(entry.major, entry.minor))?
            }
            Kind::Char | Kind::Block => return Ok(()),
            Kind::HardLink => return Err(format!("'{}' is a hard link", entry.name())),
        }
        self.dress(entry, path)
    }

    /// Owner first: a change of owner takes set-id bits and capabilities away.
    fn dress(&mut self, entry: &Entry, path: &Path) -> Outcome<()> {
        chown(path, entry.uid, entry.gid)?;
        if entry.kind != Kind::Symlink {
            chmod(path, entry.mode)?;
        }
        for (name, value) in &entry.xattrs {
            if name.starts_with(b"user.") || name == b"security.capability" {
                // A file system that cannot hold it makes the file no less a file.
                let _ = set_xattr(path, name, value);
            }
        }
        match entry.kind {
            Kind::Directory => self.directories.push((path.to_path_buf(), entry.mtime)),
            _ => set_time(path, entry.mtime)?,
        }
        Ok(())
    }

    pub fn finish(self) -> Outcome<()> {
        for (path, mtime) in self.directories.iter().rev() {
            if path
                .symlink_metadata()
                .map_or(false, |found| found.is_dir())
            {
                set_time(path, *mtime)?;
            }
        }
        Ok(())
    }

    /// Runs of zeros become holes.
    fn write_file(&mut self, entry: &Entry, path: &Path, content: &mut dyn Read) -> Outcome<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .custom_flags(libc::O_NOFOLLOW)
            .mode(0o600)
            .open(path)
            .map_err(|error| said("write", path, &error))?;
        let mut buffer = [0u8; CHUNK];
        let mut written = 0u64;
        let mut hole = false;
        while written < entry.size {
            let wanted = (entry.size - written).min(CHUNK as u64) as usize;
            content
                .read_exact(&mut buffer[..wanted])
                .map_err(|error| error.to_string())?;
            hole = buffer[..wanted].iter().all(|&byte| byte == 0);
            if hole {
                file.seek(SeekFrom::Current(wanted as i64))
                    .map_err(|error| said("write", path, &error))?;
            } else {
                self.room = self
                    .room
                    .checked_sub(wanted as u64)
                    .ok_or("the files are larger than the disk of a sandbox")?;
                file.write_all(&buffer[..wanted])
                    .map_err(|error| said("write", path, &error))?;
            }
            written += wanted as u64;
        }
        if hole {
            file.set_len(entry.size)
                .map_err(|error| said("write", path, &error))?;
        }
        Ok(())
    }
}

/// Makes what is missing of a directory's path, each part as `owner` if given. Gives the parts that were made, outermost first.
pub fn make_directories(path: &Path, owner: Option<(u32, u32)>) -> Outcome<Vec<PathBuf>> {
    let mut missing = Vec::new();
    let mut at = path;
    loop {
        match fs::metadata(at) {
            Ok(found) if found.is_dir() => break,
            Ok(_) => return Err(format!("'{}' is not a directory", at.display())),
            Err(_) if fs::symlink_metadata(at).is_ok() => {
                return Err(format!("'{}' is a link that leads nowhere", at.display()))
            }
            Err(_) => missing.push(at.to_path_buf()),
        }
        match at.parent() {
            Some(parent) => at = parent,
            None => break,
        }
    }
    missing.reverse();
    for directory in &missing {
        fs::create_dir(directory).map_err(|error| said("make", directory, &error))?;
        chmod(directory, 0o755)?;
        if let Some((uid, gid)) = owner {
            chown(directory, uid, gid)?;
        }
    }
    Ok(missing)
}

/// Takes away whatever is at a path. Links are not followed.
pub fn remove(path: &Path) -> Outcome<()> {
    let found = fs::symlink_metadata(path).map_err(|error| said("look at", path, &error))?;
    let removed = if found.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    removed.map_err(|error| said("replace", path, &error))
}

/// An overlay's sign that what lies below is gone: a character device 0:0.
pub fn make_whiteout(path: &Path) -> Outcome<()> {
    make_node(path, libc::S_IFCHR, 0)
}

pub fn is_whiteout(found: &fs::Metadata) -> bool {
    found.file_type().is_char_device() && found.rdev() == 0
}

pub fn set_opaque(path: &Path) -> Outcome<()> {
    set_xattr(path, OPAQUE.as_bytes(), b"y").map_err(|error| said("mark", path, &error))
}

pub fn make_node(path: &Path, kind: libc::mode_t, device: libc::dev_t) -> Outcome<()> {
    let name = c_bytes(path.as_os_str().as_bytes())?;
    // SAFETY: `name` is a zero-terminated string that outlives the call.
    check(
        unsafe { libc::mknod(name.as_ptr(), kind | 0o600, device) }.into(),
        &format!("make {}", path.display()),
    )?;
    Ok(())
}

pub fn chown(path: &Path, uid: u32, gid: u32) -> Outcome<()> {
    let name = c_bytes(path.as_os_str().as_bytes())?;
    // SAFETY: `name` is a zero-terminated string that outlives the call.
    check(
        unsafe { libc::lchown(name.as_ptr(), uid, gid) }.into(),
        &format!("change the owner of {}", path.display()),
    )?;
    Ok(())
}

/// Not for links, which have no mode of their own.
pub fn chmod(path: &Path, mode: u32) -> Outcome<()> {
    let name = c_bytes(path.as_os_str().as_bytes())?;
    // SAFETY: `name` is a zero-terminated string that outlives the call.
    check(
        unsafe { libc::chmod(name.as_ptr(), mode) }.into(),
        &format!("change the mode of {}", path.display()),
    )?;
    Ok(())
}

fn set_xattr(path: &Path, name: &[u8], value: &[u8]) -> std::io::Result<()> {
    let wrong = || std::io::Error::from(std::io::ErrorKind::InvalidInput);
    let path = c_bytes(path.as_os_str().as_bytes()).map_err(|_| wrong())?;
    let name = c_bytes(name).map_err(|_| wrong())?;
    // SAFETY: both names are zero-terminated and `value` is as long as said; all outlive the call.
    let done = unsafe {
        libc::lsetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr() as *const libc::c_void,
            value.len(),
            0,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

fn set_time(path: &Path, mtime: i64) -> Outcome<()> {
    let name = c_bytes(path.as_os_str().as_bytes())?;
    let time = libc::timespec {
        tv_sec: mtime,
        tv_nsec: 0,
    };
    // SAFETY: `name` is a zero-terminated string, the array holds the two times the call reads; both outlive it.
    let done = unsafe {
        libc::utimensat(
            libc::AT_FDCWD,
            name.as_ptr(),
            [time, time].as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
        )
    };
    check(done.into(), &format!("set the time of {}", path.display()))?;
    Ok(())
}

/// A file of the tree, whole, if it is an ordinary one: opening a pipe or a device could wait for ever.
pub fn read_file(path: &str, most: u64) -> Option<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || found.len() > most {
        return None;
    }
    let mut content = Vec::new();
    File::take(file, most).read_to_end(&mut content).ok()?;
    Some(content)
}

pub fn said(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} '{}': {error}", path.display())
}
