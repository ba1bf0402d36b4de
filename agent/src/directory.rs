//! Reads directories entry by entry, into one buffer: no allocation for each name, and none at all when a caller brings the buffer.

use std::ffi::CStr;
use std::os::unix::io::{AsRawFd, OwnedFd};

use crate::sys::{self, Errno};

const BUFFER: usize = 16 << 10;
/// Offsets in `struct linux_dirent64`.
const RECORD_LENGTH: usize = 16;
const KIND: usize = 18;
const NAME: usize = 19;

pub struct Directory {
    fd: OwnedFd,
    buffer: Vec<u8>,
    filled: usize,
    next: usize,
}

pub struct Item<'a> {
    pub name: &'a CStr,
    /// a DT_ constant; DT_UNKNOWN on some file systems
    pub kind: u8,
}

impl Directory {
    pub fn open(path: &CStr) -> Result<Directory, Errno> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        Ok(Directory::over(sys::open(path, flags, 0)?, vec![0; BUFFER]))
    }

    pub fn from_fd(fd: OwnedFd) -> Directory {
        Directory::over(fd, vec![0; BUFFER])
    }

    /// With a buffer made earlier, for when memory is short.
    pub fn over(fd: OwnedFd, buffer: Vec<u8>) -> Directory {
        Directory { fd, buffer, filled: 0, next: 0 }
    }

    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    /// The next entry but `.` and `..`.
    pub fn next(&mut self) -> Result<Option<Item<'_>>, Errno> {
        loop {
            if self.next >= self.filled {
                self.filled = self.fill()?;
                self.next = 0;
                if self.filled == 0 {
                    return Ok(None);
                }
            }
            let start = self.next;
            let record = &self.buffer[start..self.filled];
            let length = u16::from_ne_bytes([record[RECORD_LENGTH], record[RECORD_LENGTH + 1]]) as usize;
            self.next = start + length;
            let text = &record[NAME..length];
            let end = text.iter().position(|&b| b == 0).ok_or(libc::EIO)?;
            if !matches!(&text[..end], b"." | b"..") {
                let record = &self.buffer[start..start + length];
                let name = CStr::from_bytes_with_nul(&record[NAME..=NAME + end]).map_err(|_| libc::EIO)?;
                return Ok(Some(Item { name, kind: record[KIND] }));
            }
        }
    }

    fn fill(&mut self) -> Result<usize, Errno> {
        let (start, size) = (self.buffer.as_mut_ptr(), self.buffer.len());
        // SAFETY: the buffer is valid for writes of `size` bytes.
        let read = unsafe { libc::syscall(libc::SYS_getdents64, self.fd.as_raw_fd(), start, size) };
        sys::check_size(read as isize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn lists_what_the_standard_library_lists() {
        let mut found = BTreeSet::new();
        let path = sys::c_path(b"/etc").unwrap();
        let mut directory = Directory::open(&path).unwrap();
        while let Some(item) = directory.next().unwrap() {
            found.insert(item.name.to_str().unwrap().to_owned());
        }
        let expected: BTreeSet<String> =
            std::fs::read_dir("/etc").unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(found, expected);
    }
}
