//! The kernel's connection tracking: where a connection was going before it was redirected to this machine, and forgetting what an address began.

use crate::sys::{check, failure, Fd, Outcome};
use std::mem;
use std::net::Ipv4Addr;

const NETLINK_NETFILTER: libc::c_int = 12;
const NFNL_SUBSYS_CTNETLINK: u16 = 1;
const IPCTNL_MSG_CT_GET: u16 = 1;
const IPCTNL_MSG_CT_DELETE: u16 = 2;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLA_F_NESTED: u16 = 0x8000;
const NLA_TYPE_MASK: u16 = 0x3fff;

const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;

const HEADER: usize = 16;
const FAMILY_HEADER: usize = 4;
const TIMEOUT_SECONDS: libc::time_t = 5;

pub struct Endpoint {
    pub address: Ipv4Addr,
    pub port: u16,
}

/// The destination that `client` asked for, of a TCP connection that has arrived at `local` instead.
pub fn original_destination(client: &Endpoint, local: &Endpoint) -> Outcome<Endpoint> {
    let socket = open_socket()?;
    send(&socket, &request(client, local))?;
    let mut answer = [0u8; 8192];
    let count = receive(&socket, &mut answer)?;
    destination_in(&answer[..count])
}

/// Forgets every connection and flow that one of the addresses began.
pub fn forget_flows(addresses: &[Ipv4Addr]) -> Outcome<()> {
    let socket = open_socket()?;
    send(
        &socket,
        &message(IPCTNL_MSG_CT_GET, NLM_F_REQUEST | NLM_F_DUMP, &[]),
    )?;
    let mut found = Vec::new();
    let mut buffer = vec![0u8; 65536];
    'dump: loop {
        let count = receive(&socket, &mut buffer)?;
        for part in messages(&buffer[..count]) {
            match u16_at(part, 4) {
                Some(NLMSG_DONE) => break 'dump,
                Some(NLMSG_ERROR) => return Err("connection tracking cannot be listed".to_string()),
                _ => {}
            }
            let tuple = part
                .get(HEADER + FAMILY_HEADER..)
                .and_then(|body| find(body, CTA_TUPLE_ORIG));
            if let Some(tuple) = tuple {
                if source_in(tuple).map_or(false, |source| addresses.contains(&source)) {
                    found.push(tuple.to_vec());
                }
            }
        }
    }
    for tuple in found {
        let body = attribute(CTA_TUPLE_ORIG | NLA_F_NESTED, &tuple);
        send(
            &socket,
            &message(IPCTNL_MSG_CT_DELETE, NLM_F_REQUEST | NLM_F_ACK, &body),
        )?;
        // One that has ended meanwhile is forgotten too.
        receive(&socket, &mut buffer)?;
    }
    Ok(())
}

fn source_in(tuple: &[u8]) -> Option<Ipv4Addr> {
    match find(find(tuple, CTA_TUPLE_IP)?, CTA_IP_V4_SRC)? {
        [a, b, c, d] => Some(Ipv4Addr::new(*a, *b, *c, *d)),
        _ => None,
    }
}

/// The messages of one datagram.
fn messages(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while let Some(head) = bytes.get(..4) {
        let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        match bytes.get(..length) {
            Some(part) if length >= HEADER => found.push(part),
            _ => break,
        }
        bytes = bytes.get((length + 3) & !3..).unwrap_or(&[]);
    }
    found
}

fn send(socket: &Fd, bytes: &[u8]) -> Outcome<()> {
    // SAFETY: the buffer is valid for its length; the socket is open.
    let sent = unsafe { libc::send(socket.0, bytes.as_ptr().cast(), bytes.len(), 0) };
    check(sent as libc::c_long, "ask connection tracking")?;
    Ok(())
}

fn receive(socket: &Fd, buffer: &mut [u8]) -> Outcome<usize> {
    // SAFETY: the buffer is valid for its length; the socket is open.
    let count = unsafe { libc::recv(socket.0, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    Ok(check(count as libc::c_long, "hear connection tracking")? as usize)
}

fn open_socket() -> Outcome<Fd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, NETLINK_NETFILTER) };
    check(fd.into(), "open netlink")?;
    let socket = Fd(fd);
    let patience = libc::timeval {
        tv_sec: TIMEOUT_SECONDS,
        tv_usec: 0,
    };
    // SAFETY: `patience` is a valid timeval of the size given and outlives the call.
    let set = unsafe {
        libc::setsockopt(
            socket.0,
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            &patience as *const libc::timeval as *const libc::c_void,
            mem::size_of::<libc::timeval>() as libc::socklen_t,
        )
    };
    if set != 0 {
        return Err(failure("set netlink time limit"));
    }
    Ok(socket)
}

/// Asks for the connection whose answers go from `local` to `client`.
fn request(client: &Endpoint, local: &Endpoint) -> Vec<u8> {
    let addresses = [
        attribute(CTA_IP_V4_SRC, &local.address.octets()),
        attribute(CTA_IP_V4_DST, &client.address.octets()),
    ]
    .concat();
    let ports = [
        attribute(CTA_PROTO_NUM, &[libc::IPPROTO_TCP as u8]),
        attribute(CTA_PROTO_SRC_PORT, &local.port.to_be_bytes()),
        attribute(CTA_PROTO_DST_PORT, &client.port.to_be_bytes()),
    ]
    .concat();
    let tuple = [
        attribute(CTA_TUPLE_IP | NLA_F_NESTED, &addresses),
        attribute(CTA_TUPLE_PROTO | NLA_F_NESTED, &ports),
    ]
    .concat();
    let body = attribute(CTA_TUPLE_REPLY | NLA_F_NESTED, &tuple);
    message(IPCTNL_MSG_CT_GET, NLM_F_REQUEST, &body)
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = (HEADER + FAMILY_HEADER + body.len()) as u32;
    let mut message = Vec::with_capacity(length as usize);
    message.extend(length.to_ne_bytes());
    message.extend((NFNL_SUBSYS_CTNETLINK << 8 | kind).to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence and sender, which a socket of its own for each question makes needless.
    message.extend([0; 8]);
    message.extend([libc::AF_INET as u8, 0, 0, 0]);
    message.extend(body);
    message
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + value.len() + 3);
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize((bytes.len() + 3) & !3, 0);
    bytes
}

fn destination_in(answer: &[u8]) -> Outcome<Endpoint> {
    let short = || "connection tracking gave a short answer".to_string();
    let kind = u16_at(answer, 4).ok_or_else(short)?;
    if kind == NLMSG_ERROR {
        let code = answer
            .get(HEADER..HEADER + 4)
            .map_or(0, |b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        return Err(format!(
            "no such connection: {}",
            std::io::Error::from_raw_os_error(-code)
        ));
    }
    let body = answer.get(HEADER + FAMILY_HEADER..).ok_or_else(short)?;
    let tuple = find(body, CTA_TUPLE_ORIG).ok_or_else(short)?;
    let address = find(tuple, CTA_TUPLE_IP)
        .and_then(|ip| find(ip, CTA_IP_V4_DST))
        .ok_or_else(short)?;
    let port = find(tuple, CTA_TUPLE_PROTO)
        .and_then(|proto| find(proto, CTA_PROTO_DST_PORT))
        .ok_or_else(short)?;
    match (address, port) {
        ([a, b, c, d, ..], [high, low, ..]) => Ok(Endpoint {
            address: Ipv4Addr::new(*a, *b, *c, *d),
            port: u16::from_be_bytes([*high, *low]),
        }),
        _ => Err(short()),
    }
}

/// The value of the first attribute of a kind.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = u16_at(attributes, 0)? as usize;
        let value = attributes.get(4..length)?;
        if u16_at(attributes, 2)? & NLA_TYPE_MASK == kind {
            return Some(value);
        }
        attributes = attributes.get((length + 3) & !3..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..at + 2)
        .map(|pair| u16::from_ne_bytes([pair[0], pair[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_destination_of_an_answer() {
        let addresses = [
            attribute(CTA_IP_V4_SRC, &[10, 0, 0, 2]),
            attribute(CTA_IP_V4_DST, &[203, 0, 113, 7]),
        ]
        .concat();
        let ports = [
            attribute(CTA_PROTO_NUM, &[6]),
            attribute(CTA_PROTO_DST_PORT, &443u16.to_be_bytes()),
        ]
        .concat();
        let tuple = [
            attribute(CTA_TUPLE_IP, &addresses),
            attribute(CTA_TUPLE_PROTO | NLA_F_NESTED, &ports),
        ]
        .concat();
        let mut answer = vec![0u8; HEADER + FAMILY_HEADER];
        answer.extend(attribute(CTA_TUPLE_ORIG | NLA_F_NESTED, &tuple));
        let found = destination_in(&answer).unwrap();
        assert_eq!(
            (found.address, found.port),
            (Ipv4Addr::new(203, 0, 113, 7), 443)
        );
    }

    #[test]
    fn reads_the_source_of_a_flow_and_parts_messages() {
        let addresses = attribute(CTA_IP_V4_SRC, &[10, 0, 0, 2]);
        let tuple = attribute(CTA_TUPLE_IP | NLA_F_NESTED, &addresses);
        assert_eq!(source_in(&tuple), Some(Ipv4Addr::new(10, 0, 0, 2)));
        assert_eq!(source_in(&addresses), None);
        let one = message(IPCTNL_MSG_CT_GET, 0, &tuple);
        let two = [one.clone(), one.clone(), vec![200, 0, 0, 0]].concat();
        assert_eq!(messages(&two), vec![&one[..], &one[..]]);
    }

    #[test]
    fn forgets_nothing_that_is_not_there() {
        // SAFETY: takes nothing, cannot fail.
        if unsafe { libc::geteuid() } == 0 {
            forget_flows(&[Ipv4Addr::new(198, 51, 100, 250)]).unwrap();
        }
    }

    #[test]
    fn says_so_when_there_is_no_such_connection() {
        let mut answer = vec![0u8; HEADER];
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        answer.extend((-libc::ENOENT).to_ne_bytes());
        assert!(destination_in(&answer)
            .err()
            .unwrap()
            .contains("No such file"));
        assert!(destination_in(&[]).is_err());
        assert!(destination_in(&[0; HEADER + FAMILY_HEADER]).is_err());
    }
}
