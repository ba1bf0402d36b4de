//! What every operation may use, on the event loop and on the workers alike.

use std::os::unix::io::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use crate::cgroup::PidsGroup;
use crate::environment::Environment;
use crate::errors::Outcome;
use crate::fields::{field, Message};
use crate::handles::Handles;
use crate::paths;
use crate::users::{Accounts, AccountsCache, User};
use crate::watch::Watches;

/// What CONFIGURE changes.
pub struct Settings {
    pub secret: [u8; 32],
    /// given to every process
    pub env: Environment,
    pub default_user: Vec<u8>,
    pub default_workdir: Vec<u8>,
}

pub struct Context {
    pub settings: Mutex<Settings>,
    pub accounts: AccountsCache,
    pub handles: Handles,
    pub watches: Watches,
    pub pids_group: PidsGroup,
    pub null_device: OwnedFd,
    /// descriptors a process may have: what the agent itself was given before it raised its own limit
    pub files_limit: libc::rlimit,
    /// processes a user may have; 0 for no limit. Stops a fork storm at its source: gVisor's control group does so only after
    /// half of the fork is done, which a storm turns into a standstill
    pub processes_limit: AtomicU64,
    /// the agent was given a score of the memory killer that its processes shall not have
    pub resets_oom_score: bool,
    /// PID 1 of the sandbox; an ordinary process (as in tests) must never touch what is not its own
    pub is_init: bool,
}

/// The user a request acts for, with the accounts it was found in.
pub struct Actor {
    pub accounts: Arc<Accounts>,
    pub user: User,
    pub workdir: Vec<u8>,
}

impl Context {
    pub fn actor(&self, request: &Message) -> Outcome<Actor> {
        let accounts = self.accounts.get();
        let settings = self.settings.lock().unwrap();
        let name = match request.bytes(field::USER) {
            b"" => &settings.default_user,
            name => name,
        };
        let user = accounts.user(name)?.clone();
        let workdir = settings.default_workdir.clone();
        drop(settings);
        Ok(Actor { accounts, user, workdir })
    }
}

impl Actor {
    pub fn resolve(&self, path: &[u8]) -> Outcome<Vec<u8>> {
        paths::resolve(path, &self.user.home, &self.workdir)
    }
}
