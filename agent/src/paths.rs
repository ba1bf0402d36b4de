//! How a path of a request becomes a path of the sandbox (docs/agent-protocol.md, "Paths and users"). Pure.

use crate::errors::{Error, Outcome};

/// The absolute, lexically clean path that a user means.
pub fn resolve(path: &[u8], home: &[u8], workdir: &[u8]) -> Outcome<Vec<u8>> {
    if path.contains(&0) {
        return Err(Error::invalid("path contains a zero byte"));
    }
    if path.is_empty() {
        // A default workdir of "~" or "project" means the same as it would in a request.
        let place = if workdir.is_empty() { home } else { workdir };
        return expand(place, home);
    }
    expand(path, home)
}

fn expand(path: &[u8], home: &[u8]) -> Outcome<Vec<u8>> {
    match path {
        [b'~'] => Ok(clean(home)),
        [b'~', b'/', rest @ ..] => Ok(clean(&join(home, rest))),
        [b'~', ..] => Err(Error::invalid("cannot expand user-specific home dir").at(path)),
        [b'/', ..] => Ok(clean(path)),
        _ => Ok(clean(&join(home, path))),
    }
}

pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(directory.len() + name.len() + 1);
    joined.extend_from_slice(directory);
    if !directory.is_empty() && !directory.ends_with(b"/") {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}

/// Removes `.`, `..` and `//`; the result is absolute, without a slash at the end.
pub fn clean(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => (),
            b".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    let mut cleaned = Vec::with_capacity(path.len() + 1);
    for part in &parts {
        cleaned.push(b'/');
        cleaned.extend_from_slice(part);
    }
    if cleaned.is_empty() {
        cleaned.push(b'/');
    }
    cleaned
}

/// The last part of a clean path; `/` for the root.
pub fn base_name(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&b| b == b'/') {
        Some(at) if at + 1 < path.len() => &path[at + 1..],
        Some(_) => b"/",
        None => path,
    }
}

/// The directory above a clean path; `/` for the root itself.
pub fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&b| b == b'/') {
        Some(0) | None => b"/",
        Some(at) => &path[..at],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(path: &str, workdir: &str) -> String {
        let path = resolve(path.as_bytes(), b"/home/user", workdir.as_bytes()).unwrap();
        String::from_utf8(path).unwrap()
    }

    #[test]
    fn paths_are_taken_as_the_user_means_them() {
        assert_eq!(resolved("", ""), "/home/user");
        assert_eq!(resolved("", "/code"), "/code");
        assert_eq!(resolved("", "app"), "/home/user/app");
        assert_eq!(resolved("~", "/code"), "/home/user");
        assert_eq!(resolved("~/x", ""), "/home/user/x");
        assert_eq!(resolved("a/b", "/code"), "/home/user/a/b");
        assert_eq!(resolved("/tmp//x/./y/..", ""), "/tmp/x");
        assert_eq!(resolved("/../..", ""), "/");
        assert_eq!(resolved("../../../etc", ""), "/etc");
    }

    #[test]
    fn homes_of_others_and_zero_bytes_are_refused() {
        assert!(resolve(b"~root/x", b"/home/user", b"").is_err());
        assert!(resolve(b"/a\0b", b"/home/user", b"").is_err());
    }

    #[test]
    fn a_name_may_begin_with_dots_or_hold_any_byte() {
        assert_eq!(clean(b"/a/...b/\xff"), b"/a/...b/\xff");
    }

    #[test]
    fn base_name_and_parent() {
        assert_eq!((base_name(b"/a/b"), parent(b"/a/b")), (&b"b"[..], &b"/a"[..]));
        assert_eq!((base_name(b"/a"), parent(b"/a")), (&b"a"[..], &b"/"[..]));
        assert_eq!((base_name(b"/"), parent(b"/")), (&b"/"[..], &b"/"[..]));
    }
}
