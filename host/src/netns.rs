//! Settings inside a network namespace.

use crate::sys::{check, open, Outcome};
use std::fs;

/// Sets a network sysctl (dotted name) in the namespace of a file. The calling thread visits the namespace and comes back.
pub fn sysctl(netns_file: &str, name: &str, value: &str) -> Outcome<()> {
    if !name.starts_with("net.") || name.contains('/') {
        return Err(format!("{name} is not a network setting"));
    }
    let home = open("/proc/thread-self/ns/net", libc::O_RDONLY)?;
    let there = open(netns_file, libc::O_RDONLY)?;
    // SAFETY: both descriptors are open namespaces; setns changes the calling thread only.
    check(
        unsafe { libc::setns(there.0, libc::CLONE_NEWNET) }.into(),
        &format!("enter {netns_file}"),
    )?;
    let written = fs::write(format!("/proc/sys/{}", name.replace('.', "/")), value)
        .map_err(|error| format!("set {name}: {error}"));
    // SAFETY: as above. A thread that cannot come home must not go on: it would work in the wrong namespace.
    if unsafe { libc::setns(home.0, libc::CLONE_NEWNET) } != 0 {
        std::process::abort();
    }
    written
}
