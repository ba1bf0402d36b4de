//! Users and groups of the sandbox, read from its own files: the agent is linked statically, and the C library's
//! lookups would load modules of another C library into it.

use std::ffi::CStr;
use std::sync::{Arc, Mutex};

use crate::errors::{Code, Error, Outcome};
use crate::sys;

/// More than any real file has; a hostile one must not fill the agent's memory.
const MAX_FILE: usize = 2 << 20;
const PASSWD: &[u8] = b"/etc/passwd\0";
const GROUP: &[u8] = b"/etc/group\0";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: Vec<u8>,
    pub uid: u32,
    pub gid: u32,
    pub home: Vec<u8>,
}

#[derive(Debug)]
struct Group {
    name: Vec<u8>,
    gid: u32,
    members: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
pub struct Accounts {
    users: Vec<User>,
    groups: Vec<Group>,
}

impl Accounts {
    pub fn parse(passwd: &[u8], group: &[u8]) -> Accounts {
        Accounts {
            users: lines(passwd).filter_map(parse_user).collect(),
            groups: lines(group).filter_map(parse_group).collect(),
        }
    }

    /// By name; a number is a uid where no user has it for a name.
    pub fn user(&self, name: &[u8]) -> Outcome<&User> {
        let by_name = self.users.iter().find(|user| user.name == name);
        let by_uid = || {
            let uid = number(name)?;
            self.users.iter().find(|user| user.uid == uid)
        };
        by_name.or_else(by_uid).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Error::new(Code::UnknownUser, &format!("unknown user {name}"))
        })
    }

    /// Name of the owner of a file; its number when nobody has it.
    pub fn owner_name(&self, uid: u32) -> Vec<u8> {
        match self.users.iter().find(|user| user.uid == uid) {
            Some(user) => user.name.clone(),
            None => uid.to_string().into_bytes(),
        }
    }

    pub fn group_name(&self, gid: u32) -> Vec<u8> {
        match self.groups.iter().find(|group| group.gid == gid) {
            Some(group) => group.name.clone(),
            None => gid.to_string().into_bytes(),
        }
    }

    /// The groups a process of the user is in, its own first.
    pub fn groups_of(&self, user: &User) -> Vec<u32> {
        let mut gids = vec![user.gid];
        for group in &self.groups {
            if group.members.contains(&user.name) && !gids.contains(&group.gid) {
                gids.push(group.gid);
            }
        }
        gids
    }
}

/// Keeps the parsed files until one of them changes.
#[derive(Default)]
pub struct AccountsCache {
    latest: Mutex<Option<(Stamp, Stamp, Arc<Accounts>)>>,
}

/// Inode, size and time of change.
type Stamp = Option<(u64, i64, i64, i64)>;

impl AccountsCache {
    pub fn get(&self) -> Arc<Accounts> {
        let (passwd, group) = (stamp(PASSWD), stamp(GROUP));
        let mut latest = self.latest.lock().unwrap();
        if let Some((old_passwd, old_group, accounts)) = &*latest {
            if *old_passwd == passwd && *old_group == group {
                return accounts.clone();
            }
        }
        let accounts = Arc::new(Accounts::parse(&content(PASSWD), &content(GROUP)));
        *latest = Some((passwd, group, accounts.clone()));
        accounts
    }
}

fn stamp(path: &'static [u8]) -> Stamp {
    let found = sys::stat(c_path(path)).ok()?;
    Some((found.st_ino, found.st_size, found.st_ctime, found.st_ctime_nsec))
}

fn content(path: &'static [u8]) -> Vec<u8> {
    // A missing file is a sandbox without users: every lookup then says so.
    sys::read_small_file(c_path(path), MAX_FILE).unwrap_or_default()
}

fn c_path(path: &'static [u8]) -> &'static CStr {
    CStr::from_bytes_with_nul(path).expect("the constants above end with a zero byte")
}

fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split(|&b| b == b'\n')
}

fn parse_user(line: &[u8]) -> Option<User> {
    let mut parts = line.split(|&b| b == b':');
    let name = parts.next().filter(|name| !name.is_empty())?.to_vec();
    let uid = number(parts.nth(1)?)?;
    let gid = number(parts.next()?)?;
    let home = match parts.nth(1) {
        None | Some(b"") => b"/".to_vec(),
        Some(home) => home.to_vec(),
    };
    Some(User { name, uid, gid, home })
}

fn parse_group(line: &[u8]) -> Option<Group> {
    let mut parts = line.split(|&b| b == b':');
    let name = parts.next().filter(|name| !name.is_empty())?.to_vec();
    let gid = number(parts.nth(1)?)?;
    let members = parts.next().unwrap_or(b"");
    let members = members.split(|&b| b == b',').filter(|name| !name.is_empty());
    Some(Group { name, gid, members: members.map(<[u8]>::to_vec).collect() })
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/bash\n# a comment\nuser:x:1000:1000::/home/user:/bin/bash\n\
        bare:x:7:7\nbroken:x:seven:7::/:\n1001:x:9:9::/nine:\n";
    const GROUP: &[u8] = b"root:x:0:\nuser:x:1000:\nsudo:x:27:someone,user\ndocker:x:99:user\n";

    fn accounts() -> Accounts {
        Accounts::parse(PASSWD, GROUP)
    }

    #[test]
    fn users_are_found_by_name_or_number() {
        let accounts = accounts();
        assert_eq!(accounts.user(b"user").unwrap().uid, 1000);
        assert_eq!(accounts.user(b"1000").unwrap().name, b"user");
        assert_eq!(accounts.user(b"1001").unwrap().uid, 9, "a name of digits is a name first");
        assert_eq!(accounts.user(b"bare").unwrap().home, b"/");
        assert_eq!(accounts.user(b"broken").unwrap_err().code, Code::UnknownUser);
        assert_eq!(accounts.user(b"4711").unwrap_err().code, Code::UnknownUser);
        assert_eq!(accounts.user(b"").unwrap_err().code, Code::UnknownUser);
    }

    #[test]
    fn a_user_has_its_own_group_first_and_all_it_is_a_member_of() {
        let accounts = accounts();
        assert_eq!(accounts.groups_of(accounts.user(b"user").unwrap()), [1000, 27, 99]);
    }

    #[test]
    fn unknown_owners_are_numbers() {
        let accounts = accounts();
        assert_eq!(accounts.owner_name(1000), b"user");
        assert_eq!(accounts.owner_name(12345), b"12345");
        assert_eq!(accounts.group_name(27), b"sudo");
        assert_eq!(accounts.group_name(12345), b"12345");
    }
}
