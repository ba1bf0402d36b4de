//! The few rtnetlink requests that a network slot needs (rtnetlink(7)). One request at a time, each acknowledged.

use crate::sys::{check, failure, Fd, Outcome};
use std::io;
use std::mem;

const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RTN_UNICAST: u8 = 1;

/// A socket that talks to the kernel about the network namespace it was opened in.
pub struct Netlink {
    socket: Fd,
}

impl Netlink {
    pub fn open() -> Outcome<Netlink> {
        // SAFETY: no pointers are passed.
        let socket = unsafe {
            libc::socket(
                libc::AF_NETLINK,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                libc::NETLINK_ROUTE,
            )
        };
        check(socket.into(), "netlink socket")?;
        Ok(Netlink { socket: Fd(socket) })
    }

    /// A pair of interfaces: `name` here, `peer` in the namespace of a descriptor, both without an IPv6 address of their own.
    pub fn add_veth(&self, name: &str, peer: &str, peer_namespace: &Fd) -> Outcome<()> {
        let mut message = Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
        message.put(&link_header(0, 0));
        message.text(IFLA_IFNAME, name);
        message.nest(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "veth");
            info.nest(IFLA_INFO_DATA, |data| {
                data.nest(VETH_INFO_PEER, |other| {
                    other.put(&link_header(0, 0));
                    other.text(IFLA_IFNAME, peer);
                    other.attribute(IFLA_NET_NS_FD, &(peer_namespace.0 as u32).to_ne_bytes());
                });
            });
        });
        self.ask(message, &format!("make the interfaces {name} and {peer}"))
    }

    pub fn delete_link(&self, name: &str) -> Outcome<()> {
        let mut message = Message::new(RTM_DELLINK, 0);
        message.put(&link_header(0, 0));
        message.text(IFLA_IFNAME, name);
        self.ask(message, &format!("delete the interface {name}"))
    }

    /// Brings an interface up, where `quiet` without an IPv6 address that nobody asked for.
    pub fn set_up(&self, index: u32, quiet: bool) -> Outcome<()> {
        if quiet {
            let mut message = Message::new(RTM_NEWLINK, 0);
            message.put(&link_header(index, 0));
            message.nest(IFLA_AF_SPEC, |families| {
                families.nest(libc::AF_INET6 as u16, |inet6| {
                    inet6.attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
                });
            });
            // A kernel without IPv6 has nothing to turn off.
            let _ = self.ask(message, "turn off automatic addresses");
        }
        let mut message = Message::new(RTM_NEWLINK, 0);
        message.put(&link_header(index, libc::IFF_UP as u32));
        self.ask(message, "bring an interface up")
    }

    pub fn add_address(&self, index: u32, address: [u8; 4], prefix: u8) -> Outcome<()> {
        let mut message = Message::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
        message.put(&[libc::AF_INET as u8, prefix, 0, 0]);
        message.put(&index.to_ne_bytes());
        message.attribute(IFA_LOCAL, &address);
        message.attribute(IFA_ADDRESS, &address);
        self.ask(message, "add an address")
    }

    pub fn add_default_route(&self, gateway: [u8; 4]) -> Outcome<()> {
        let mut message = Message::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
        // family, destination and source length, tos, table, protocol, scope, type, flags
        message.put(&[
            libc::AF_INET as u8,
            0,
            0,
            0,
            RT_TABLE_MAIN,
            RTPROT_BOOT,
            0,
            RTN_UNICAST,
        ]);
        message.put(&0u32.to_ne_bytes());
        message.attribute(RTA_GATEWAY, &gateway);
        self.ask(message, "add the default route")
    }

    fn ask(&self, message: Message, what: &str) -> Outcome<()> {
        let bytes = message.finish();
        // SAFETY: the buffer is valid for its length.
        let sent = unsafe { libc::send(self.socket.0, bytes.as_ptr().cast(), bytes.len(), 0) };
        check(sent as libc::c_long, what)?;
        let mut answer = [0u8; 4096];
        // SAFETY: the buffer is valid for its length.
        let count =
            unsafe { libc::recv(self.socket.0, answer.as_mut_ptr().cast(), answer.len(), 0) };
        check(count as libc::c_long, what)?;
        if count < 20 {
            return Err(format!("{what}: short answer"));
        }
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        let error = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
        match (kind, error) {
            (NLMSG_ERROR, 0) => Ok(()),
            (NLMSG_ERROR, error) => {
                Err(format!("{what}: {}", io::Error::from_raw_os_error(-error)))
            }
            _ => Err(format!("{what}: unexpected answer {kind}")),
        }
    }
}

/// Number of an interface in the calling thread's namespace.
pub fn interface_index(name: &str) -> Outcome<u32> {
    let name_c = crate::sys::c_string(name)?;
    // SAFETY: the string is zero-terminated and outlives the call.
    match unsafe { libc::if_nametoindex(name_c.as_ptr()) } {
        0 => Err(failure(&format!("find the interface {name}"))),
        index => Ok(index),
    }
}

/// struct ifinfomsg
fn link_header(index: u32, flags: u32) -> [u8; 16] {
    let mut header = [0u8; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&flags.to_ne_bytes());
    header
}

/// A request under construction.
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: u16) -> Message {
        let mut bytes = vec![0; 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
        Message { bytes }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = (4 + value.len()) as u16;
        self.put(&length.to_ne_bytes());
        self.put(&kind.to_ne_bytes());
        self.put(value);
        self.bytes.resize((self.bytes.len() + 3) & !3, 0);
    }

    fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes);
    }

    fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message { bytes: Vec::new() };
        fill(&mut inner);
        self.attribute(kind, &inner.bytes);
    }

    fn finish(mut self) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..mem::size_of::<u32>()].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nested_ones_measured_whole() {
        let mut message = Message::new(RTM_NEWLINK, 0);
        message.nest(IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, "veth"));
        let bytes = message.finish();
        assert_eq!(bytes.len(), 16 + 4 + 12);
        assert_eq!(
            u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            bytes.len() as u32
        );
        assert_eq!(u16::from_ne_bytes([bytes[16], bytes[17]]), 16);
        // "veth" and its zero are 9 bytes with their header, padded to 12.
        assert_eq!(u16::from_ne_bytes([bytes[20], bytes[21]]), 9);
        assert_eq!(&bytes[24..29], b"veth\0");
    }
}
