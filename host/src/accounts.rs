//! Users and groups of a tree, by its own files: no program of the tree is run.

use crate::place::{self, chmod, chown, make_directories, said};
use crate::sys::Outcome;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const MOST: u64 = 4 << 20;
const FIRST_ID: u32 = 1000;

struct Account {
    name: String,
    uid: u32,
    gid: u32,
}

fn lines(path: &str) -> Vec<Vec<String>> {
    let content = place::read_file(path, MOST).unwrap_or_default();
    let text = String::from_utf8_lossy(&content).into_owned();
    text.lines()
        .map(|line| line.split(':').map(str::to_string).collect())
        .collect()
}

fn accounts() -> Vec<Account> {
    lines("/etc/passwd")
        .into_iter()
        .filter_map(|fields| match fields.as_slice() {
            [name, _, uid, gid, ..] => Some(Account {
                name: name.clone(),
                uid: uid.parse().ok()?,
                gid: gid.parse().ok()?,
            }),
            _ => None,
        })
        .collect()
}

fn groups() -> Vec<(String, u32)> {
    lines("/etc/group")
        .into_iter()
        .filter_map(|fields| match fields.as_slice() {
            [name, _, gid, ..] => Some((name.clone(), gid.parse().ok()?)),
            _ => None,
        })
        .collect()
}

fn find(user: &str) -> Option<Account> {
    let number: Option<u32> = user.parse().ok();
    let mut by_number = None;
    for account in accounts() {
        if account.name == user {
            return Some(account);
        }
        if Some(account.uid) == number && by_number.is_none() {
            by_number = Some(account);
        }
    }
    by_number
}

/// Ids of `user`, `user:group` or numbers in their place.
pub fn owner(text: &str) -> Outcome<(u32, u32)> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let account = find(user);
    let uid = account
        .as_ref()
        .map(|found| found.uid)
        .or_else(|| user.parse().ok());
    let uid = uid.ok_or_else(|| format!("invalid username: '{user}'"))?;
    let gid = match group {
        None => account.map_or(uid, |found| found.gid),
        Some(group) => {
            let named = groups()
                .into_iter()
                .find(|(name, _)| name == group)
                .map(|(_, gid)| gid);
            named
                .or_else(|| group.parse().ok())
                .ok_or_else(|| format!("invalid group: '{group}'"))?
        }
    };
    Ok((uid, gid))
}

/// Makes sure that a user is there; true when it had to be made. A user that is a number gets that number.
pub fn ensure(user: &str, sudo: bool) -> Outcome<bool> {
    let made = find(user).is_none();
    if made {
        create(user)?;
    }
    let rule = format!("/etc/sudoers.d/{user}");
    if sudo && place::read_file(&rule, MOST).is_none() {
        make_directories(Path::new("/etc/sudoers.d"), Some((0, 0)))?;
        write_new(
            &rule,
            &format!("{user} ALL=(ALL:ALL) NOPASSWD: ALL\n"),
            0o440,
        )?;
        return Ok(true);
    }
    Ok(made)
}

fn create(user: &str) -> Outcome<()> {
    let number: Option<u32> = user.parse().ok();
    let plain =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.');
    let beginning =
        user.starts_with(|character: char| character.is_ascii_alphabetic() || character == '_');
    if number.is_none() && !(beginning && user.len() <= 32 && user.chars().all(plain)) {
        return Err(format!("invalid username: '{user}'"));
    }
    let name = if number.is_some() {
        format!("u{user}")
    } else {
        user.to_string()
    };
    let taken: Vec<u32> = accounts()
        .iter()
        .map(|account| account.uid)
        .chain(groups().iter().map(|(_, gid)| *gid))
        .collect();
    let id = match number {
        Some(id) => id,
        None => (FIRST_ID..60_000)
            .find(|id| !taken.contains(id))
            .ok_or("no user id is free")?,
    };
    let group = groups().into_iter().find(|(group, _)| *group == name);
    let gid = group.as_ref().map_or(id, |(_, gid)| *gid);
    let home = format!("/home/{name}");
    let shell = if Path::new("/bin/bash").exists() {
        "/bin/bash"
    } else {
        "/bin/sh"
    };
    make_directories(Path::new("/etc"), Some((0, 0)))?;
    append(
        "/etc/passwd",
        &format!("{name}:x:{id}:{gid}::{home}:{shell}\n"),
        0o644,
    )?;
    if group.is_none() {
        append("/etc/group", &format!("{name}:x:{gid}:\n"), 0o644)?;
    }
    for (file, line) in [
        ("/etc/shadow", format!("{name}:!:19000:0:99999:7:::\n")),
        ("/etc/gshadow", format!("{name}:!::\n")),
    ] {
        if Path::new(file).exists() {
            append(file, &line, 0o640)?;
        }
    }
    make_home(Path::new(&home), id, gid)
}

fn make_home(home: &Path, uid: u32, gid: u32) -> Outcome<()> {
    if home.exists() {
        return Ok(());
    }
    if let Some(parent) = home.parent() {
        make_directories(parent, Some((0, 0)))?;
    }
    make_directories(home, Some((uid, gid)))?;
    for entry in fs::read_dir("/etc/skel").into_iter().flatten().flatten() {
        let source = entry.path();
        let content = source
            .to_str()
            .and_then(|path| place::read_file(path, MOST));
        if let (Some(content), Ok(found)) = (content, entry.metadata()) {
            let target = home.join(entry.file_name());
            fs::write(&target, content).map_err(|error| said("write", &target, &error))?;
            chown(&target, uid, gid)?;
            chmod(&target, found.mode() & 0o777)?;
        }
    }
    Ok(())
}

/// Adds a line, after a line feed where the last line has none.
fn append(path: &str, line: &str, mode: u32) -> Outcome<()> {
    let before = place::read_file(path, MOST).unwrap_or_default();
    let feed = if before.last().map_or(false, |&byte| byte != b'\n') {
        "\n"
    } else {
        ""
    };
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(mode)
        .custom_flags(libc::O_NONBLOCK)
        .open(path);
    let mut file = opened.map_err(|error| said("write", Path::new(path), &error))?;
    file.write_all(format!("{feed}{line}").as_bytes())
        .map_err(|error| said("write", Path::new(path), &error))
}

fn write_new(path: &str, content: &str, mode: u32) -> Outcome<()> {
    let path = Path::new(path);
    if fs::symlink_metadata(path).is_ok() {
        place::remove(path)?;
    }
    fs::write(path, content).map_err(|error| said("write", path, &error))?;
    chown(path, 0, 0)?;
    chmod(path, mode)
}
