//! The one registry of failures: every error response is made from an `Error`.

use crate::fields::{field, Writer};
use crate::sys::{self, Errno};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    NotFound = 1,
    Exists = 2,
    NotDirectory = 3,
    IsDirectory = 4,
    Invalid = 5,
    UnknownUser = 6,
    NoSpace = 7,
    Permission = 8,
    Loop = 9,
    Cwd = 10,
    Spawn = 11,
    StdinClosed = 12,
    NotATty = 13,
    Exhausted = 14,
    NetworkMount = 15,
    Unsupported = 16,
    NotRegular = 17,
    Refused = 18,
    Internal = 19,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub code: Code,
    /// 0 when no system call failed
    pub errno: Errno,
    pub message: String,
    /// resolved; empty when no path was involved
    pub path: Vec<u8>,
}

pub type Outcome<T> = Result<T, Error>;

impl Error {
    pub fn new(code: Code, message: &str) -> Error {
        Error { code, errno: 0, message: message.to_owned(), path: Vec::new() }
    }

    pub fn invalid(message: &str) -> Error {
        Error::new(Code::Invalid, message)
    }

    /// An errno whose meaning here is known better than its number tells.
    pub fn with_errno(code: Code, errno: Errno) -> Error {
        Error { code, errno, message: sys::describe(errno), path: Vec::new() }
    }

    pub fn at(mut self, path: &[u8]) -> Error {
        self.path = path.to_vec();
        self
    }

    pub fn write(&self, out: &mut Writer) {
        out.number(field::CODE, self.code as u64);
        out.number(field::ERRNO, self.errno as u64);
        out.bytes(field::MESSAGE, self.message.as_bytes());
        if !self.path.is_empty() {
            out.bytes(field::PATH, &self.path);
        }
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::with_errno(code_of(errno), errno)
    }
}

/// Puts the path into an error of a system call.
pub trait AtPath<T> {
    fn at_path(self, path: &[u8]) -> Outcome<T>;
}

impl<T> AtPath<T> for Result<T, Errno> {
    fn at_path(self, path: &[u8]) -> Outcome<T> {
        self.map_err(|errno| Error::from(errno).at(path))
    }
}

fn code_of(errno: Errno) -> Code {
    match errno {
        libc::ENOENT => Code::NotFound,
        libc::EEXIST => Code::Exists,
        libc::ENOTDIR => Code::NotDirectory,
        libc::EISDIR => Code::IsDirectory,
        libc::ENOSPC | libc::EDQUOT => Code::NoSpace,
        libc::EPERM | libc::EACCES | libc::EROFS => Code::Permission,
        libc::ELOOP => Code::Loop,
        libc::EMFILE | libc::ENFILE => Code::Exhausted,
        _ => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_gets_its_code_and_the_text_of_the_c_library_in_lower_case() {
        let error = Error::from(libc::ENOENT).at(b"/nowhere");
        assert_eq!(error.code, Code::NotFound);
        assert_eq!(error.message, "no such file or directory");
        assert_eq!(error.path, b"/nowhere");
    }
}
