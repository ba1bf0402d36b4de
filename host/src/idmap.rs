//! Id-mapped bind mounts: the same read-only layer, seen with the owners of one sandbox's user namespace.

use crate::sys::{c_string, check, open, Fd, Outcome};
use std::cell::RefCell;
use std::fs;
use std::mem;

const OPEN_TREE_CLONE: libc::c_uint = 1;
const AT_RECURSIVE: libc::c_uint = 0x8000;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Mounts `source` at `target`, with id 0 of the files shown as `base`, 1 as `base + 1` and so on for `count` ids.
pub fn idmap(source: &str, target: &str, base: u32, count: u32, read_only: bool) -> Outcome<()> {
    NAMESPACE.with(|kept| {
        let mut kept = kept.borrow_mut();
        match &*kept {
            Some((ids, namespace)) if *ids == (base, count) => {
                idmap_by(namespace, source, target, read_only)
            }
            _ => {
                let (_, namespace) = kept.insert(((base, count), user_namespace(base, count)?));
                idmap_by(namespace, source, target, read_only)
            }
        }
    })
}

thread_local! {
    /// The last one made by this thread: a sandbox has several mounts with the same ids, one after the other.
    static NAMESPACE: RefCell<Option<((u32, u32), Fd)>> = const { RefCell::new(None) };
}

fn idmap_by(namespace: &Fd, source: &str, target: &str, read_only: bool) -> Outcome<()> {
    let from = c_string(source)?;
    let to = c_string(target)?;
    let empty = c_string("")?;
    // SAFETY: open_tree takes a zero-terminated path and returns a new descriptor.
    let tree = unsafe {
        libc::syscall(
            libc::SYS_open_tree,
            libc::AT_FDCWD,
            from.as_ptr(),
            OPEN_TREE_CLONE | AT_RECURSIVE | libc::O_CLOEXEC as libc::c_uint,
        )
    };
    let tree = Fd(check(tree, &format!("open_tree {source}"))? as libc::c_int);
    let attr = MountAttr {
        attr_set: MOUNT_ATTR_IDMAP | if read_only { MOUNT_ATTR_RDONLY } else { 0 },
        attr_clr: 0,
        propagation: 0,
        userns_fd: namespace.0 as u64,
    };
    // SAFETY: `attr` is a valid mount_attr of the size given, `empty` a zero-terminated string; both outlive the call.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.0,
            empty.as_ptr(),
            libc::AT_EMPTY_PATH as libc::c_uint | AT_RECURSIVE,
            &attr as *const MountAttr,
            mem::size_of::<MountAttr>(),
        )
    };
    check(set, &format!("id-map {source}"))?;
    // SAFETY: both paths are zero-terminated and outlive the call.
    let moved = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.0,
            empty.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    check(moved, &format!("mount at {target}"))?;
    Ok(())
}

/// A user namespace that maps 0.. to base.., held open by its descriptor; the process that made it is gone on return.
fn user_namespace(base: u32, count: u32) -> Outcome<Fd> {
    // SAFETY: takes nothing, cannot fail.
    let parent = unsafe { libc::getpid() };
    // clone without shared memory, like fork, but born in a new user namespace.
    // SAFETY: no stack, tid or tls pointers are passed; the child only makes async-signal-safe calls before it exits.
    let child = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::CLONE_NEWUSER | libc::SIGCHLD,
            0usize,
            0usize,
            0usize,
            0usize,
        )
    };
    let child = check(child, "clone user namespace")? as libc::pid_t;
    if child == 0 {
        // It waits to be killed. A pipe that ends would not do: a child that another thread makes meanwhile holds a copy of it open.
        // SAFETY: in the child; each call takes plain numbers. It ends with the parent, also with one that is gone already.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            while libc::getppid() == parent {
                libc::pause();
            }
            libc::_exit(0);
        }
    }
    let mapped = (|| {
        let map = format!("0 {base} {count}\n");
        for file in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{child}/{file}"), &map)
                .map_err(|error| format!("write {file}: {error}"))?;
        }
        open(&format!("/proc/{child}/ns/user"), libc::O_RDONLY)
    })();
    // SAFETY: ends our own child, not yet reaped, and waits for it; no status is asked for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    mapped
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn namespaces_are_made_side_by_side() {
        // SAFETY: takes nothing, cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let threads: Vec<_> = (0..8u32)
            .map(|thread| {
                thread::spawn(move || {
                    for round in 0..50 {
                        user_namespace((1 << 28) + thread * 65_536, 65_536)
                            .map_err(|error| format!("round {round}: {error}"))
                            .unwrap();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
