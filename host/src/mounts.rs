//! Overlay, loop and unmount.

use crate::sys::{c_string, check, failure, open, Outcome};
use std::fs;
use std::io;
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const ATTEMPTS: usize = 64;
/// How long a device that is being taken apart is waited for.
const DETACH_LIMIT: Duration = Duration::from_secs(10);

#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// Mounts a file system of a kernel type, options as mount(8)'s -o less the flags.
pub fn mount(
    kind: &str,
    source: &str,
    target: &str,
    flags: libc::c_ulong,
    data: &str,
) -> Outcome<()> {
    let kind_c = c_string(kind)?;
    let source_c = c_string(source)?;
    let target_c = c_string(target)?;
    let data_c = c_string(data)?;
    // SAFETY: all strings are zero-terminated and outlive the call.
    let done = unsafe {
        libc::mount(
            source_c.as_ptr(),
            target_c.as_ptr(),
            kind_c.as_ptr(),
            flags,
            data_c.as_ptr() as *const libc::c_void,
        )
    };
    check(done.into(), &format!("mount {kind} at {target}"))?;
    Ok(())
}

/// Two threads that ask for a free loop device are told the same one, and the slower finds it taken.
static LOOP_LOCK: Mutex<()> = Mutex::new(());

/// Mounts a file that holds an ext4 file system and has never been mounted. The loop device frees itself when the mount goes.
pub fn mount_loop(file: &str, target: &str, data: &str) -> Outcome<()> {
    let backing = open(file, libc::O_RDWR)?;
    mount_device(new_device(&backing)?, target, data)
}

/// Mounts such a file that may have been mounted before. Another mount namespace, such as one that a container is just being made in,
/// can keep the file system alive behind an unmount: then it is that one that is mounted again. Through a device of its own the file
/// would show what had been written to it so far, and be written by both.
pub fn mount_loop_again(file: &str, target: &str, data: &str) -> Outcome<()> {
    let backing = open(file, libc::O_RDWR)?;
    let device = match device_of(file)? {
        Some(device) => device,
        None => new_device(&backing)?,
    };
    mount_device(device, target, data)
}

type Device = (String, crate::sys::Fd);

fn new_device(backing: &crate::sys::Fd) -> Outcome<Device> {
    let _held = LOOP_LOCK.lock().map_err(|_| "loop lock".to_string())?;
    attach(backing)
}

fn mount_device(device: Device, target: &str, data: &str) -> Outcome<()> {
    let mounted = mount(
        "ext4",
        &device.0,
        target,
        libc::MS_NOATIME | libc::MS_NODEV,
        data,
    );
    if mounted.is_err() {
        // SAFETY: the descriptor is open; the call takes no pointer.
        unsafe { libc::ioctl(device.1 .0, LOOP_CLR_FD as _, 0) };
    }
    mounted
}

/// The loop device that a file is attached to, which while it is open stays so. One that is being taken apart is waited for.
fn device_of(file: &str) -> Outcome<Option<Device>> {
    let path = fs::canonicalize(file).map_err(|error| format!("{file}: {error}"))?;
    let there = fs::metadata(&path).map_err(|error| format!("{file}: {error}"))?;
    let give_up_at = Instant::now() + DETACH_LIMIT;
    while let Some(name) = attached_name(&path.to_string_lossy())? {
        if let Ok(device) = open(&name, libc::O_RDWR) {
            // SAFETY: all zeros is a valid value of this plain C structure.
            let mut info: LoopInfo64 = unsafe { mem::zeroed() };
            // SAFETY: `info` is a valid loop_info64 that outlives the call.
            let done = unsafe {
                libc::ioctl(
                    device.0,
                    LOOP_GET_STATUS64 as _,
                    &mut info as *mut LoopInfo64,
                )
            };
            if done == 0 && (info.device, info.inode) == (there.dev(), there.ino()) {
                return Ok(Some((name, device)));
            }
        }
        if Instant::now() > give_up_at {
            return Err(format!("{name} does not let go of {file}"));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(None)
}

fn attached_name(path: &str) -> Outcome<Option<String>> {
    let devices = fs::read_dir("/sys/block").map_err(|error| format!("/sys/block: {error}"))?;
    for name in devices.flatten().map(|entry| entry.file_name()) {
        let name = name.to_string_lossy();
        if !name.starts_with("loop") {
            continue;
        }
        let backing = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
        if backing.map_or(false, |backing| backing.trim_end_matches('\n') == path) {
            return Ok(Some(format!("/dev/{name}")));
        }
    }
    Ok(None)
}

fn attach(backing: &crate::sys::Fd) -> Outcome<Device> {
    let control = open("/dev/loop-control", libc::O_RDWR)?;
    for _ in 0..ATTEMPTS {
        // SAFETY: the descriptor is open; the call takes no pointer.
        let number = unsafe { libc::ioctl(control.0, LOOP_CTL_GET_FREE as _) };
        check(number.into(), "find a free loop device")?;
        let name = format!("/dev/loop{number}");
        make_node(&name, number as u32)?;
        let device = open(&name, libc::O_RDWR)?;
        // SAFETY: all zeros is a valid value of this plain C structure.
        let mut config: LoopConfig = unsafe { mem::zeroed() };
        config.fd = backing.0 as u32;
        config.info.flags = LO_FLAGS_AUTOCLEAR;
        // SAFETY: `config` is a valid loop_config that outlives the call.
        let done =
            unsafe { libc::ioctl(device.0, LOOP_CONFIGURE as _, &config as *const LoopConfig) };
        if done == 0 {
            return Ok((name, device));
        }
        // Somebody else on the machine took it between the two calls.
        if io::Error::last_os_error().raw_os_error() != Some(libc::EBUSY) {
            return Err(failure(&format!("attach {name}")));
        }
    }
    Err("no free loop device".to_string())
}

/// Where no udev runs, a device that the kernel has just made has no node yet.
fn make_node(name: &str, number: u32) -> Outcome<()> {
    let path = c_string(name)?;
    // SAFETY: `path` is a zero-terminated string that outlives the call.
    let made = unsafe {
        libc::mknod(
            path.as_ptr(),
            libc::S_IFBLK | 0o660,
            libc::makedev(7, number),
        )
    };
    if made == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EEXIST) {
        return Ok(());
    }
    Err(failure(&format!("make {name}")))
}

/// Takes a mount away; one that is in use goes when its last user does. Not mounted is success.
pub fn unmount(target: &str) -> Outcome<()> {
    let path = c_string(target)?;
    loop {
        // SAFETY: `path` is a zero-terminated string that outlives the call.
        let done = unsafe { libc::umount2(path.as_ptr(), libc::UMOUNT_NOFOLLOW) };
        if done == 0 {
            return Ok(());
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINVAL) | Some(libc::ENOENT) => return Ok(()),
            Some(libc::EINTR) => continue,
            Some(libc::EBUSY) => break,
            _ => return Err(failure(&format!("unmount {target}"))),
        }
    }
    // SAFETY: as above.
    let done = unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) };
    check(done.into(), &format!("unmount {target}"))?;
    Ok(())
}

/// Flushes one file system to its disk.
pub fn sync_filesystem(path: &str) -> Outcome<()> {
    let directory = open(path, libc::O_RDONLY | libc::O_DIRECTORY)?;
    // SAFETY: the descriptor is open; the call takes no pointer.
    check(
        unsafe { libc::syncfs(directory.0) }.into(),
        &format!("sync {path}"),
    )?;
    Ok(())
}

/// An overlay: `data` names the lower, upper and work directories.
pub fn overlay(target: &str, data: &str) -> Outcome<()> {
    mount("overlay", "sandbar", target, libc::MS_NODEV, data)
}
