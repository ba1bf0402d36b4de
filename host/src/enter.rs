//! `enter`: join control groups, show crun a cgroup tree it accepts, become the program.

use crate::sys::{c_string, check, failure, Outcome};
use std::ptr;

/// Never returns when it succeeds.
pub fn enter(args: &[String]) -> Outcome<()> {
    let mut rest = args.iter();
    let mut cgroup2_view = false;
    loop {
        match rest.next().map(String::as_str) {
            Some("--cgroup") => {
                let file = rest.next().ok_or("--cgroup needs a file")?;
                std::fs::write(file, "0").map_err(|error| format!("join {file}: {error}"))?;
            }
            Some("--cgroup2-view") => cgroup2_view = true,
            Some("--") => break,
            other => return Err(format!("unknown option {}", other.unwrap_or("(none)"))),
        }
    }
    if cgroup2_view {
        show_cgroup2()?;
    }
    let words: Vec<_> = rest.map(|word| c_string(word)).collect::<Outcome<_>>()?;
    if words.is_empty() {
        return Err("no program to run".to_string());
    }
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(ptr::null());
    // SAFETY: `pointers` is a null-terminated array of zero-terminated strings that live until the image is replaced.
    unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
    Err(failure("exec"))
}

/// crun refuses a host that mixes cgroup v1 and v2. In a mount namespace of its own it is shown the v2 tree in place of both; the host's is
/// not touched, and the groups of the sandbox were joined above, so crun has nothing to do with either. It is bound, not mounted: a mount of
/// cgroups waits for a grace period of the kernel.
fn show_cgroup2() -> Outcome<()> {
    // SAFETY: no pointers are passed.
    check(
        unsafe { libc::unshare(libc::CLONE_NEWNS) }.into(),
        "unshare mount namespace",
    )?;
    let root = c_string("/")?;
    let none = c_string("none")?;
    let unified = c_string("/sys/fs/cgroup/unified")?;
    let target = c_string("/sys/fs/cgroup")?;
    // SAFETY: all strings are zero-terminated and outlive the calls; unused pointers are null as mount(2) allows.
    unsafe {
        let slave = libc::MS_REC | libc::MS_SLAVE;
        check(
            libc::mount(
                none.as_ptr(),
                root.as_ptr(),
                ptr::null(),
                slave,
                ptr::null(),
            )
            .into(),
            "make mounts private",
        )?;
        check(
            libc::mount(
                unified.as_ptr(),
                target.as_ptr(),
                ptr::null(),
                libc::MS_BIND,
                ptr::null(),
            )
            .into(),
            "bind the cgroup2 tree",
        )?;
    }
    Ok(())
}
