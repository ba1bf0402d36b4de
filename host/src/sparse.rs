//! Copies of disk images that take as little room as the original.

use crate::sys::{c_string, check, open, Fd, Outcome};
use std::io;

const FICLONE: libc::c_ulong = 0x4004_9409;

/// Copies a file, holes kept: shared blocks where the file system can, else only what holds data.
pub fn copy(source: &str, target: &str) -> Outcome<()> {
    let from = open(source, libc::O_RDONLY)?;
    let to = create(target)?;
    // SAFETY: both descriptors are open; the call takes a plain number.
    if unsafe { libc::ioctl(to.0, FICLONE as _, from.0) } == 0 {
        return Ok(());
    }
    // SAFETY: as above; no pointers.
    let size = check(
        unsafe { libc::lseek(from.0, 0, libc::SEEK_END) } as libc::c_long,
        "size of the disk",
    )? as i64;
    check(
        unsafe { libc::ftruncate(to.0, size) }.into(),
        "size of the copy",
    )?;
    let mut position = 0;
    while let Some((start, end)) = next_data(&from, position, size)? {
        copy_range(&from, &to, start, end)?;
        position = end;
    }
    Ok(())
}

fn create(path: &str) -> Outcome<Fd> {
    let name = c_string(path)?;
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    // SAFETY: `name` is a zero-terminated string that outlives the call.
    let fd = unsafe { libc::open(name.as_ptr(), flags, 0o600) };
    check(fd.into(), &format!("create {path}"))?;
    Ok(Fd(fd))
}

/// The next stretch that holds data at or after `position`.
fn next_data(from: &Fd, position: i64, size: i64) -> Outcome<Option<(i64, i64)>> {
    // SAFETY: the descriptor is open; no pointers.
    let start = unsafe { libc::lseek(from.0, position, libc::SEEK_DATA) };
    if start < 0 {
        return match io::Error::last_os_error().raw_os_error() {
            Some(libc::ENXIO) => Ok(None),
            _ => Err(crate::sys::failure("find data")),
        };
    }
    // SAFETY: as above.
    let end = unsafe { libc::lseek(from.0, start, libc::SEEK_HOLE) };
    Ok(Some((start, if end < 0 { size } else { end })))
}

fn copy_range(from: &Fd, to: &Fd, start: i64, end: i64) -> Outcome<()> {
    let (mut read_at, mut write_at) = (start, start);
    while read_at < end {
        // SAFETY: both offsets are valid for writing and outlive the call.
        let count = unsafe {
            libc::copy_file_range(
                from.0,
                &mut read_at,
                to.0,
                &mut write_at,
                (end - read_at) as usize,
                0,
            )
        };
        if count == 0 {
            break;
        }
        check(count as libc::c_long, "copy the disk")?;
    }
    Ok(())
}
