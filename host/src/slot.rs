//! Network slots: a namespace under /run/netns with one interface, joined to an interface out here.

use crate::mounts::unmount;
use crate::netlink::{interface_index, Netlink};
use crate::sys::{c_string, check, open, Fd, Outcome};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;

const DIRECTORY: &str = "/run/netns";
const PREFIX: u8 = 30;

/// Makes the namespace `name` with `eth0` at `guest`, and `interface` at `host` out here as its way to the world.
pub fn make(name: &str, interface: &str, host: &str, guest: &str) -> Outcome<()> {
    let file = file_of(name)?;
    let (host, guest) = (address(host)?, address(guest)?);
    fs::create_dir_all(DIRECTORY).map_err(|error| format!("make {DIRECTORY}: {error}"))?;
    fs::write(&file, "").map_err(|error| format!("make {file}: {error}"))?;
    let interface = interface.to_string();
    // A thread of its own: one that fails half way would otherwise go on working in the wrong namespace.
    thread::spawn(move || build(&file, &interface, host, guest))
        .join()
        .unwrap_or_else(|_| Err("the thread that made a slot ended".to_string()))
}

/// Removes a slot; what is not there is success. The interface goes first: a namespace alone is taken apart some time later.
pub fn remove(name: &str, interface: &str) -> Outcome<()> {
    let file = file_of(name)?;
    if Path::new("/sys/class/net").join(interface).exists() {
        let deleted = Netlink::open()?.delete_link(interface);
        if Path::new("/sys/class/net").join(interface).exists() {
            deleted?;
        }
    }
    unmount(&file)?;
    match fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("remove {file}: {error}"))
        }
        _ => Ok(()),
    }
}

fn build(file: &str, interface: &str, host: [u8; 4], guest: [u8; 4]) -> Outcome<()> {
    let home = open("/proc/thread-self/ns/net", libc::O_RDONLY)?;
    // SAFETY: no pointers; only this thread changes.
    check(
        unsafe { libc::unshare(libc::CLONE_NEWNET) }.into(),
        "new network namespace",
    )?;
    let here = open("/proc/thread-self/ns/net", libc::O_RDONLY)?;
    keep(file)?;
    let inside = Netlink::open()?;
    inside.add_veth("eth0", interface, &home)?;

    enter(&home)?;
    let outside = Netlink::open()?;
    let index = interface_index(interface)?;
    outside.add_address(index, host, PREFIX)?;
    outside.set_up(index, true)?;

    enter(&here)?;
    inside.set_up(interface_index("lo")?, false)?;
    let index = interface_index("eth0")?;
    inside.add_address(index, guest, PREFIX)?;
    inside.set_up(index, false)?;
    inside.add_default_route(host)?;
    // The namespace belongs to the machine's root, so a container's root has no say in it: what it may do is opened here.
    set("net/ipv4/ip_unprivileged_port_start", "0")?;
    set("net/ipv4/ping_group_range", "0 2147483647")
}

/// Binds this thread's namespace to a file, which keeps it alive.
fn keep(file: &str) -> Outcome<()> {
    let source = c_string("/proc/thread-self/ns/net")?;
    let target = c_string(file)?;
    // SAFETY: both strings are zero-terminated and outlive the call; a bind mount takes no type or data.
    let done = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            std::ptr::null(),
            libc::MS_BIND,
            std::ptr::null(),
        )
    };
    check(done.into(), &format!("keep the namespace at {file}"))?;
    Ok(())
}

fn enter(namespace: &Fd) -> Outcome<()> {
    // SAFETY: the descriptor is an open namespace; only this thread changes.
    check(
        unsafe { libc::setns(namespace.0, libc::CLONE_NEWNET) }.into(),
        "enter a network namespace",
    )?;
    Ok(())
}

fn set(name: &str, value: &str) -> Outcome<()> {
    fs::write(format!("/proc/sys/{name}"), value).map_err(|error| format!("set {name}: {error}"))
}

fn file_of(name: &str) -> Outcome<String> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(format!("'{name}' is not a name for a namespace"));
    }
    Ok(format!("{DIRECTORY}/{name}"))
}

fn address(text: &str) -> Outcome<[u8; 4]> {
    text.parse::<Ipv4Addr>()
        .map(|address| address.octets())
        .map_err(|_| format!("'{text}' is not an address"))
}
