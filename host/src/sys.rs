//! System calls with Rust's manners: a message that names the call and the file.

use std::ffi::CString;
use std::io;

pub type Outcome<T> = Result<T, String>;

pub fn c_string(text: &str) -> Outcome<CString> {
    CString::new(text).map_err(|_| format!("'{text}' holds a zero byte"))
}

pub fn c_bytes(bytes: &[u8]) -> Outcome<CString> {
    CString::new(bytes)
        .map_err(|_| format!("'{}' holds a zero byte", String::from_utf8_lossy(bytes)))
}

/// The last system error, with what was tried.
pub fn failure(what: &str) -> String {
    format!("{what}: {}", io::Error::last_os_error())
}

/// Turns a call's -1 into an error.
pub fn check(result: libc::c_long, what: &str) -> Outcome<libc::c_long> {
    if result < 0 {
        Err(failure(what))
    } else {
        Ok(result)
    }
}

/// A descriptor that is closed when it goes.
pub struct Fd(pub libc::c_int);

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is owned by this value alone and closed once.
        unsafe { libc::close(self.0) };
    }
}

pub fn open(path: &str, flags: libc::c_int) -> Outcome<Fd> {
    let name = c_string(path)?;
    // SAFETY: `name` is a zero-terminated string that outlives the call.
    let fd = unsafe { libc::open(name.as_ptr(), flags | libc::O_CLOEXEC) };
    check(fd.into(), &format!("open {path}"))?;
    Ok(Fd(fd))
}
