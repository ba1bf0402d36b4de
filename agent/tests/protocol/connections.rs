use std::io::{Read, Write};
use std::time::{Duration, Instant};

use sandbar_agent::fields::field;
use sandbar_agent::frame;
use sandbar_agent::operations::operation as op;

use crate::client::{Agent, Client, SECRET};

const INVALID: u64 = 5;
const UNSUPPORTED: u64 = 16;

#[test]
fn a_wrong_secret_is_refused_and_a_right_one_is_not() {
    let agent = Agent::start();
    let mut wrong = SECRET;
    wrong[31] ^= 1;
    let mut client = Client::raw(agent.port);
    assert_eq!(client.greet(&wrong), Some(0));
    assert!(client.is_closed());
    agent.connect().ok(op::PING, |_| ());
}

#[test]
fn one_who_says_nothing_is_sent_away_after_five_seconds() {
    let agent = Agent::start();
    let mut client = Client::raw(agent.port);
    client.stream.write_all(b"SBA").unwrap();
    let begin = Instant::now();
    assert!(client.is_closed());
    let waited = begin.elapsed();
    assert!(waited > Duration::from_secs(4) && waited < Duration::from_secs(7), "{waited:?}");
}

#[test]
fn strangers_do_not_keep_the_service_out() {
    let agent = Agent::start();
    let strangers: Vec<Client> = (0..200).map(|_| Client::raw(agent.port)).collect();
    agent.connect().ok(op::PING, |_| ());
    drop(strangers);
}

#[test]
fn malformed_requests_are_answered_and_overlong_ones_end_the_connection() {
    let agent = Agent::start();
    let mut client = agent.connect();
    assert_eq!(client.error(200, |_| ()), UNSUPPORTED);
    assert_eq!(client.error(0, |_| ()), UNSUPPORTED);
    client.stream.write_all(&[op::STAT, 0, 0, 0, 3, 1, 2, 3]).unwrap();
    assert_eq!(client.receive().number(field::CODE), INVALID);
    // A number of one byte.
    client.stream.write_all(&[op::READ_AT, 0, 0, 0, 6, field::HANDLE, 0, 0, 0, 1, 9]).unwrap();
    assert_eq!(client.receive().number(field::CODE), INVALID);
    client.ok(op::PING, |_| ());
    client.stream.write_all(&[op::PING, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]).unwrap();
    assert_eq!(client.receive().number(field::CODE), INVALID);
    assert!(client.is_closed());
}

#[test]
fn random_bytes_do_no_harm() {
    let agent = Agent::start();
    let mut random = 1u64;
    for _ in 0..300 {
        let mut client = agent.connect();
        client.stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let bytes: Vec<u8> = (0..64)
            .map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) as u8
            })
            .collect();
        // An operation that exists, so that its fields are looked at; nothing that would wait or kill.
        let mut request = vec![3 + bytes[0] % 6, 0, 0, 0, 64];
        request.extend_from_slice(&bytes);
        let _ = client.stream.write_all(&request);
        let _ = client.stream.read(&mut [0; 256]);
    }
    agent.connect().ok(op::PING, |_| ());
}

#[test]
fn a_request_in_single_bytes_and_two_at_once_are_both_understood() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let request = frame::build(op::STAT, |out| out.bytes(field::PATH, b"/etc/passwd"));
    for byte in &request {
        client.stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(client.receive().kind, frame::OK);
    client.stream.write_all(&[&request[..], &request[..], &request[..]].concat()).unwrap();
    for _ in 0..3 {
        assert_eq!(client.receive().entry().bytes(field::NAME), b"passwd");
    }
}

#[test]
fn configuration_changes_secret_variables_user_and_files() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let path = agent.path("etc/deep/file");
    client.ok(op::CONFIGURE, |out| {
        out.number(field::KIND, 1);
        out.bytes(field::ENV, b"COLOUR=green");
        out.bytes(field::ENV, b"SIZE=big");
        out.bytes(field::DEFAULT_WORKDIR, agent.directory.to_str().unwrap().as_bytes());
        out.record(field::FILE, |file| {
            file.bytes(field::PATH, path.as_bytes());
            file.bytes(field::DATA, b"content");
            file.number(field::MODE, 0o640);
        });
    });
    assert_eq!(std::fs::read(&path).unwrap(), b"content");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
    assert_eq!(mode & 0o7777, 0o640);
    client.ok(op::CONFIGURE, |out| out.bytes(field::ENV, b"SIZE=small"));
    let ended = client.run("echo $COLOUR $SIZE; pwd", |_| ());
    assert_eq!(ended.out(), format!("green small\n{}\n", agent.directory.display()));
    client.ok(op::CONFIGURE, |out| out.number(field::KIND, 1));
    assert_eq!(client.run("echo [$COLOUR]", |_| ()).out(), "[]\n");
    let response = client.ok(op::CONFIGURE, |out| out.number(field::PIDS_MAX, 100));
    assert_eq!(response.number(field::USED), 0, "an ordinary process leaves the cgroups of the machine alone");

    client.ok(op::CONFIGURE, |out| out.bytes(field::SECRET, &[9; 32]));
    assert_eq!(Client::raw(agent.port).greet(&SECRET), Some(0));
    assert_eq!(Client::raw(agent.port).greet(&[9; 32]), Some(1));
    assert_eq!(client.error(op::CONFIGURE, |out| out.bytes(field::SECRET, b"short")), INVALID);
    client.ok(op::CONFIGURE, |out| out.bytes(field::DEFAULT_USER, b"nobody-here"));
    assert_eq!(client.error(op::STAT, |out| out.bytes(field::PATH, b"/")), 6);
}
