use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::thread;
use std::time::Duration;

use sandbar_agent::fields::field;
use sandbar_agent::operations::operation as op;

use crate::client::Agent;

const REFUSED: u64 = 18;

#[test]
fn bytes_pass_both_ways_and_a_half_close_is_passed_on() {
    let agent = Agent::start();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            stream.write_all(format!("{} bytes", received.len()).as_bytes()).unwrap();
        });
        let mut client = agent.connect();
        client.ok(op::DIAL, |out| out.number(field::PORT, port.into()));
        client.stream.write_all(&vec![7; 3_000_000]).unwrap();
        client.close_writing();
        let mut answer = String::new();
        client.stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "3000000 bytes");
        server.join().unwrap();
    }
}

#[test]
fn a_slow_reader_slows_the_sender_and_loses_nothing() {
    const SIZE: usize = 30_000_000;
    let agent = Agent::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let data: Vec<u8> = (0..SIZE).map(|i| (i % 253) as u8).collect();
        stream.write_all(&data).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        rest
    });
    let mut client = agent.connect();
    client.ok(op::DIAL, |out| out.number(field::PORT, port.into()));
    thread::sleep(Duration::from_millis(500));
    let kilobytes = agent.resident_kilobytes();
    assert!(kilobytes < 8_000, "the tunnel buffers too much: {kilobytes} kB");
    let mut received = Vec::new();
    client.stream.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), SIZE);
    assert!(received.iter().enumerate().all(|(i, &byte)| byte == (i % 253) as u8));
    client.stream.write_all(b"thanks").unwrap();
    client.close_writing();
    assert_eq!(server.join().unwrap(), b"thanks");
}

#[test]
fn a_port_where_nothing_listens_is_refused_and_the_connection_can_be_used_on() {
    let agent = Agent::start();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut client = agent.connect();
    assert_eq!(client.error(op::DIAL, |out| out.number(field::PORT, port.into())), REFUSED);
    assert_eq!(client.error(op::DIAL, |out| out.number(field::PORT, 70_000)), 5);
    client.ok(op::PING, |_| ());
}

#[test]
fn a_hundred_tunnels_at_once() {
    let agent = Agent::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let mut streams: Vec<_> = (0..100).map(|_| listener.accept().unwrap().0).collect();
        for stream in &mut streams {
            let mut word = [0; 8];
            stream.read_exact(&mut word).unwrap();
            stream.write_all(&word).unwrap();
        }
    });
    let mut clients: Vec<_> = (0..100).map(|_| agent.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.ok(op::DIAL, |out| out.number(field::PORT, port.into()));
        client.stream.write_all(&number.to_be_bytes()).unwrap();
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let mut word = [0; 8];
        client.stream.read_exact(&mut word).unwrap();
        assert_eq!(usize::from_be_bytes(word), number);
        assert!(client.is_closed());
    }
    server.join().unwrap();
}
