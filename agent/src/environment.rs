//! What a process is started with: its environment and the places where its command may be. Pure.

use std::collections::HashMap;

use crate::errors::{Error, Outcome};
use crate::paths;
use crate::users::User;

pub const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The variables as `NAME=value`; of several with one name the last wins.
#[derive(Debug, Default, Clone)]
pub struct Environment {
    pairs: Vec<Vec<u8>>,
    /// where the variable of a name is: a request may bring hundreds of thousands
    places: HashMap<Vec<u8>, usize>,
}

impl Environment {
    /// Nothing is inherited from the agent.
    pub fn compose<'a>(
        user: &User,
        global: &Environment,
        requested: impl Iterator<Item = &'a [u8]>,
    ) -> Outcome<Environment> {
        let mut environment = Environment::default();
        let own =
            [(&b"PATH"[..], DEFAULT_PATH), (b"HOME", &user.home), (b"USER", &user.name), (b"LOGNAME", &user.name)];
        for (name, value) in own {
            environment.set(&[name, b"=", value].concat())?;
        }
        for pair in &global.pairs {
            environment.set(pair)?;
        }
        for pair in requested {
            environment.set(pair)?;
        }
        Ok(environment)
    }

    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let pair = &self.pairs[*self.places.get(name)?];
        Some(&pair[name.len() + 1..])
    }

    pub fn set(&mut self, pair: &[u8]) -> Outcome<()> {
        let name = check_pair(pair)?;
        match self.places.get(name) {
            Some(&place) => self.pairs[place] = pair.to_vec(),
            None => {
                self.places.insert(name.to_vec(), self.pairs.len());
                self.pairs.push(pair.to_vec());
            }
        }
        Ok(())
    }

    pub fn into_pairs(self) -> Vec<Vec<u8>> {
        self.pairs
    }
}

/// The name in a well-formed pair.
pub fn check_pair(pair: &[u8]) -> Outcome<&[u8]> {
    let end = pair.iter().position(|&b| b == b'=').filter(|&end| end > 0 && !pair.contains(&0));
    let end = end.ok_or_else(|| Error::invalid("an environment variable must be NAME=value"))?;
    Ok(&pair[..end])
}

/// The files to try for a command, in order.
pub fn candidates(command: &[u8], path: &[u8]) -> Vec<Vec<u8>> {
    if command.contains(&b'/') {
        return vec![command.to_vec()];
    }
    // An empty part of PATH is the working directory.
    path.split(|&b| b == b':').map(|part| paths::join(if part.is_empty() { b"." } else { part }, command)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> User {
        User { name: b"user".to_vec(), uid: 1, gid: 1, home: b"/home/user".to_vec() }
    }

    #[test]
    fn later_variables_win() {
        let mut global = Environment::default();
        for pair in [&b"A=global"[..], b"B=global", b"HOME=/elsewhere"] {
            global.set(pair).unwrap();
        }
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
            assert!(Environment::compose(&user(), &Environment::default(), [bad].into_iter()).is_err());
        }
    }

    #[test]
    fn commands_are_looked_up_in_the_path_unless_they_have_a_slash() {
        assert_eq!(candidates(b"./run", b"/bin"), [b"./run".to_vec()]);
        assert_eq!(candidates(b"ls", b"/usr/bin:/bin"), [b"/usr/bin/ls".to_vec(), b"/bin/ls".to_vec()]);
        assert_eq!(candidates(b"ls", b""), [b"./ls".to_vec()]);
    }
}
