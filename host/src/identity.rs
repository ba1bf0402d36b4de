//! Acting on files as another owner, with all of root's rights.
//!
//! An overlay does its own work (its work directory, its copies) with the identity of whoever mounted it. Where the upper directory is
//! id-mapped, id 0 of the machine does not exist in it, so the mount is made as the owner that does.

use crate::sys::{check, Outcome};

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Runs `work` with the file-system ids of `owner`. Only the calling thread changes, and it changes back.
pub fn as_owner<T>(owner: u32, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    set_ids(owner)?;
    let result = work();
    set_ids(0)?;
    result
}

fn set_ids(id: u32) -> Outcome<()> {
    // SAFETY: the calls take plain numbers and change the calling thread only.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, id);
        libc::syscall(libc::SYS_setfsuid, id);
    }
    // Leaving id 0 takes the rights over files from the effective set; they stay permitted and are raised again.
    let mut header = CapHeader {
        version: CAPABILITY_VERSION_3,
        pid: 0,
    };
    let mut data = [CapData::default(); 2];
    // SAFETY: header and data are valid for version 3, which has two data blocks, and outlive the calls.
    unsafe {
        check(
            libc::syscall(
                libc::SYS_capget,
                &mut header as *mut CapHeader,
                data.as_mut_ptr(),
            ),
            "capget",
        )?;
        for block in &mut data {
            block.effective = block.permitted;
        }
        check(
            libc::syscall(
                libc::SYS_capset,
                &mut header as *mut CapHeader,
                data.as_ptr(),
            ),
            "capset",
        )?;
    }
    Ok(())
}
