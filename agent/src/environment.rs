//! What a process is started with: its environment and the places where its command may be. Pure.

use crate::errors::{Error, Outcome};
use crate::paths;
use crate::users::User;

pub const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The variables as `NAME=value`; of several with one name the last wins.
#[derive(Debug, Default)]
pub struct Environment {
    pairs: Vec<Vec<u8>>,
}

impl Environment {
    /// Nothing is inherited from the agent.
    pub fn compose<'a>(
        user: &User,
        global: &[Vec<u8>],
        requested: impl Iterator<Item = &'a [u8]>,
    ) -> Outcome<Environment> {
        let mut environment = Environment::default();
        environment.set_value(b"PATH", DEFAULT_PATH);
        environment.set_value(b"HOME", &user.home);
        environment.set_value(b"USER", &user.name);
        environment.set_value(b"LOGNAME", &user.name);
        for pair in global {
            environment.set(pair)?;
        }
        for pair in requested {
            environment.set(pair)?;
        }
        Ok(environment)
    }

    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let pair = self.pairs.iter().find(|pair| name_of(pair) == Some(name))?;
        Some(&pair[name.len() + 1..])
    }

    pub fn into_pairs(self) -> Vec<Vec<u8>> {
        self.pairs
    }

    fn set_value(&mut self, name: &[u8], value: &[u8]) {
        self.replace([name, b"=", value].concat());
    }

    fn set(&mut self, pair: &[u8]) -> Outcome<()> {
        check_pair(pair)?;
        self.replace(pair.to_vec());
        Ok(())
    }

    fn replace(&mut self, pair: Vec<u8>) {
        match self.pairs.iter_mut().find(|known| name_of(known) == name_of(&pair)) {
            Some(known) => *known = pair,
            None => self.pairs.push(pair),
        }
    }
}

pub fn check_pair(pair: &[u8]) -> Outcome<()> {
    if name_of(pair).map_or(true, <[u8]>::is_empty) || pair.contains(&0) {
        return Err(Error::invalid("an environment variable must be NAME=value"));
    }
    Ok(())
}

/// Puts `pair` in place of the variable with its name, or at the end.
pub fn merge(pairs: &mut Vec<Vec<u8>>, pair: &[u8]) {
    match pairs.iter_mut().find(|known| name_of(known) == name_of(pair)) {
        Some(known) => *known = pair.to_vec(),
        None => pairs.push(pair.to_vec()),
    }
}

/// The files to try for a command, in order.
pub fn candidates(command: &[u8], path: &[u8]) -> Vec<Vec<u8>> {
    if command.contains(&b'/') {
        return vec![command.to_vec()];
    }
    // An empty part of PATH is the working directory.
    path.split(|&b| b == b':').map(|part| paths::join(if part.is_empty() { b"." } else { part }, command)).collect()
}

fn name_of(pair: &[u8]) -> Option<&[u8]> {
    pair.iter().position(|&b| b == b'=').map(|at| &pair[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> User {
        User { name: b"user".to_vec(), uid: 1, gid: 1, home: b"/home/user".to_vec() }
    }

    #[test]
    fn later_variables_win() {
        let global = [b"A=global".to_vec(), b"B=global".to_vec(), b"HOME=/elsewhere".to_vec()];
        let requested = [&b"B=request=1"[..], b"C="];
        let environment = Environment::compose(&user(), &global, requested.into_iter()).unwrap();
        assert_eq!(environment.get(b"PATH"), Some(DEFAULT_PATH));
        assert_eq!(environment.get(b"HOME"), Some(&b"/elsewhere"[..]));
        assert_eq!(environment.get(b"A"), Some(&b"global"[..]));
        assert_eq!(environment.get(b"B"), Some(&b"request=1"[..]));
        assert_eq!(environment.get(b"C"), Some(&b""[..]));
        assert_eq!(environment.into_pairs().len(), 7);
    }

    #[test]
    fn what_is_not_a_variable_is_refused() {
        for bad in [&b"NAME"[..], b"=value", b"A=b\0c", b""] {
            assert!(Environment::compose(&user(), &[], [bad].into_iter()).is_err());
        }
    }

    #[test]
    fn commands_are_looked_up_in_the_path_unless_they_have_a_slash() {
        assert_eq!(candidates(b"./run", b"/bin"), [b"./run".to_vec()]);
        assert_eq!(candidates(b"ls", b"/usr/bin:/bin"), [b"/usr/bin/ls".to_vec(), b"/bin/ls".to_vec()]);
        assert_eq!(candidates(b"ls", b""), [b"./ls".to_vec()]);
    }
}
