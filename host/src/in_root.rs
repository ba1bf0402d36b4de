//! `in-root DIRECTORY OPERATION`: reading and changing a tree of files without running anything of it.
//!
//! The process makes the directory its root first, so that links and names in the tree lead nowhere else. What an operation finds out is
//! printed, one word a line.

use crate::copy::Request;
use crate::place::{chmod, enter_root, make_directories};
use crate::sys::Outcome;
use crate::{accounts, archive, copy};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

pub const USAGE: &str = "in-root DIRECTORY copy SOURCE DESTINATION OWNER MODE LIMIT | directory PATH OWNER | user NAME [sudo] | \
                         has PATH... | open-up PATH... | archive SOURCE";

pub fn in_root(args: &[String]) -> Outcome<()> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (directory, words) = words.split_first().ok_or(USAGE)?;
    enter_root(directory)?;
    match words {
        ["copy", source, destination, owner, mode, limit] => copy::copy(&Request {
            source: (*source).to_string(),
            destination: clean(destination),
            owner: (*owner).to_string(),
            mode: octal(mode)?,
            limit: limit
                .parse()
                .map_err(|_| format!("'{limit}' is not a number"))?,
        }),
        ["directory", path, owner] => {
            let owner = accounts::owner(owner)?;
            let made = make_directories(Path::new(&clean(path)), Some(owner))?;
            say(if made.is_empty() {
                "unchanged"
            } else {
                "changed"
            });
            Ok(())
        }
        ["user", name, rest @ ..] => {
            let changed = accounts::ensure(name, rest == ["sudo"])?;
            say(if changed { "changed" } else { "unchanged" });
            Ok(())
        }
        ["has", paths @ ..] => {
            paths
                .iter()
                .filter(|path| Path::new(path).exists())
                .for_each(|path| say(path));
            Ok(())
        }
        ["open-up", paths @ ..] => paths.iter().try_for_each(|path| open_up(Path::new(path))),
        ["archive", source] => archive::archive(source),
        _ => Err(format!("usage: sandbar-host {USAGE}")),
    }
}

/// Lets every user write into a directory and those below it. Files keep their mode: in an overlay a change of it would copy them.
fn open_up(path: &Path) -> Outcome<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => found,
        _ => return Ok(()),
    };
    if found.mode() & 0o777 != 0o777 {
        chmod(path, found.mode() & 0o7777 | 0o777)?;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().map_or(false, |kind| kind.is_dir()) {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

/// An absolute path without `.` and `..`; a slash at its end stays.
fn clean(path: &str) -> String {
    let mut cleaned = PathBuf::from("/");
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => cleaned.push(part),
            Component::ParentDir => {
                cleaned.pop();
            }
            _ => (),
        }
    }
    let text = cleaned.to_string_lossy().into_owned();
    let directory = path.ends_with('/') || path.ends_with("/.") || path == ".";
    if directory && text != "/" {
        format!("{text}/")
    } else {
        text
    }
}

fn octal(text: &str) -> Outcome<Option<u32>> {
    if text.is_empty() {
        return Ok(None);
    }
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(Some(mode)),
        _ => Err(format!(
            "'{text}' is not a file mode: it takes up to four octal digits"
        )),
    }
}

fn say(word: &str) {
    println!("{word}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleans_paths() {
        assert_eq!(clean("/a/../../b/./c/"), "/b/c/");
        assert_eq!(clean("/"), "/");
        assert_eq!(clean("/a/."), "/a/");
    }

    #[test]
    fn reads_modes() {
        assert_eq!(octal("0755").unwrap(), Some(0o755));
        assert_eq!(octal("").unwrap(), None);
        assert!(octal("999").is_err());
        assert!(octal("77777").is_err());
    }
}
