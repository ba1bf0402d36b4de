//! Small things done to directories and files: each takes microseconds here, and in the service a turn through its threads.

use crate::sys::Outcome;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// After the last process of a control group has gone, the kernel refuses for a moment to remove it.
const GROUP_ATTEMPTS: u64 = 50;

/// Makes a directory and those above it; one that is there is success.
pub fn make_directory(path: &str) -> Outcome<()> {
    fs::create_dir_all(path).map_err(|error| format!("make {path}: {error}"))
}

/// Writes a whole file that only its owner may read or write.
pub fn write(path: &str, text: &str) -> Outcome<()> {
    let mut options = OpenOptions::new();
    let written = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| {
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(text.as_bytes())
        });
    written.map_err(|error| format!("write {path}: {error}"))
}

pub fn rename(from: &str, to: &str) -> Outcome<()> {
    fs::rename(from, to).map_err(|error| format!("rename {from} to {to}: {error}"))
}

/// Removes a file, or a directory with all that is in it; what is not there is success.
pub fn remove(path: &str) -> Outcome<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    gone(removed).map_err(|error| format!("remove {path}: {error}"))
}

/// Removes a control group and those below it, whose processes have ended; what is not there is success.
pub fn remove_group(path: &str) -> Outcome<()> {
    remove_group_at(Path::new(path)).map_err(|error| format!("remove {path}: {error}"))
}

fn remove_group_at(group: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(group) {
        Err(error) => return gone(Err(error)),
        Ok(entries) => entries,
    };
    for entry in entries.flatten() {
        if entry.file_type().map_or(false, |kind| kind.is_dir()) {
            remove_group_at(&entry.path())?;
        }
    }
    let mut attempt = 0;
    loop {
        match gone(fs::remove_dir(group)) {
            Err(_) if attempt < GROUP_ATTEMPTS => attempt += 1,
            done => return done,
        }
        thread::sleep(Duration::from_millis((5 * attempt).min(50)));
    }
}

fn gone(removed: std::io::Result<()>) -> std::io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_there_and_goes_whole() {
        let place = std::env::temp_dir().join(format!("sandbar-files-{}", std::process::id()));
        let at = |name: &str| place.join(name).to_str().unwrap().to_string();
        make_directory(&at("a/b")).unwrap();
        make_directory(&at("a/b")).unwrap();
        write(&at("a/b/one"), "long before").unwrap();
        write(&at("a/b/one"), "text\n").unwrap();
        rename(&at("a/b/one"), &at("a/two")).unwrap();
        assert_eq!(fs::read_to_string(at("a/two")).unwrap(), "text\n");
        let mode = fs::metadata(at("a/two")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::os::unix::fs::symlink("/etc", place.join("a/link")).unwrap();
        remove(&at("a/two")).unwrap();
        remove(&at("a/two")).unwrap();
        remove(&at("a")).unwrap();
        assert!(!place.join("a").exists() && Path::new("/etc/passwd").exists());
        assert!(rename(&at("none"), &at("other")).is_err());
        make_directory(&at("group/below")).unwrap();
        remove_group(&at("group")).unwrap();
        remove_group(&at("group")).unwrap();
        remove(place.to_str().unwrap()).unwrap();
    }
}
