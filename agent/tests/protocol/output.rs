use std::thread;
use std::time::{Duration, Instant};

use sandbar_agent::fields::field;
use sandbar_agent::operations::operation as op;

use crate::client::{eventually, Agent, Client, Ended, Response};

const NOT_FOUND: u64 = 1;

fn read(client: &mut Client, pid: u64, subscriber: u64, offset: u64, wait_ms: u64) -> Response {
    client.ok(op::READ_OUTPUT, |out| {
        out.number(field::PID, pid);
        out.number(field::SUBSCRIBER, subscriber);
        out.number(field::OFFSET, offset);
        out.number(field::WAIT_MS, wait_ms);
    })
}

/// A process that writes 10 MB of counted lines.
const TEN_MEGABYTES: &str = "seq -f '%09.0f' 1 1000000";

fn check_lines(output: &[u8]) {
    assert_eq!(output.len(), 10_000_000);
    for (number, line) in output.chunks(10).enumerate() {
        assert_eq!(line, format!("{:09}\n", number + 1).as_bytes());
    }
}

#[test]
fn a_slow_reader_holds_the_process_back_and_loses_nothing() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let pid = client.start_shell(TEN_MEGABYTES, |out| out.number(field::SUBSCRIBER, 1));
    // The ring is full long before this; the process must be waiting, not done.
    thread::sleep(Duration::from_secs(1));
    let listed = client.ok(op::PROCESSES, |_| ());
    assert_eq!(listed.records(field::PROCESS).len(), 1);
    let mut ended = Ended::default();
    let mut offset = 0;
    let mut reads = 0;
    while {
        let response = read(&mut client, pid, 1, offset, 5000);
        assert_eq!(response.number(field::LOST), 0);
        offset += ended.take(&response);
        reads += 1;
        if reads < 10 {
            thread::sleep(Duration::from_millis(50));
        }
        !response.message().flag(field::ENDED)
    } {}
    check_lines(&ended.stdout);
}

#[test]
fn connections_that_break_all_the_time_neither_lose_nor_repeat() {
    let agent = Agent::start();
    let pid = agent.connect().start_shell(TEN_MEGABYTES, |out| out.number(field::SUBSCRIBER, 7));
    let mut ended = Ended::default();
    let mut offset = 0;
    loop {
        // A request whose answer is never read, then the same again.
        let mut broken = agent.connect();
        broken.send(op::READ_OUTPUT, |out| {
            out.number(field::PID, pid);
            out.number(field::SUBSCRIBER, 7);
            out.number(field::OFFSET, offset);
            out.number(field::WAIT_MS, 5000);
        });
        drop(broken);
        let response = read(&mut agent.connect(), pid, 7, offset, 5000);
        assert_eq!(response.number(field::OFFSET), offset);
        offset += ended.take(&response);
        if response.message().flag(field::ENDED) {
            break;
        }
    }
    check_lines(&ended.stdout);
}

#[test]
fn without_a_subscriber_the_process_runs_on_and_the_last_megabyte_is_kept() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let pid = client.start_shell(TEN_MEGABYTES, |_| ());
    eventually("the process ends", || client.ok(op::PROCESSES, |_| ()).records(field::PROCESS).is_empty());
    let response = client.ok(op::READ_OUTPUT, |out| {
        out.number(field::PID, pid);
        out.number(field::SUBSCRIBER, 3);
        out.number(field::REPLAY, 1);
        out.number(field::LENGTH, 100);
    });
    let kept = 1 << 20;
    assert_eq!(response.number(field::OFFSET), 10_000_000 - kept);
    assert_eq!(response.number(field::LOST), 10_000_000 - kept);
    assert_eq!(Ended::default().take(&response), 100);
    assert!(!response.message().flag(field::ENDED));
}

#[test]
fn one_who_joins_later_gets_only_what_is_new_and_all_get_everything_after() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let pid = client.start_shell("echo first; read x; echo second", |out| {
        out.number(field::SUBSCRIBER, 1);
        out.number(field::STDIN, 1);
    });
    let first = read(&mut client, pid, 1, 0, 5000);
    assert_eq!(first.records(field::CHUNK)[0].bytes(field::DATA), b"first\n");
    let mut late = agent.connect();
    let joined = read(&mut late, pid, 2, 0, 0);
    assert_eq!((joined.number(field::OFFSET), joined.records(field::CHUNK).len()), (6, 0));
    client.ok(op::WRITE_INPUT, |out| {
        out.number(field::PID, pid);
        out.number(field::STREAM, 1);
        out.bytes(field::DATA, b"\n");
    });
    for subscriber in [1, 2] {
        let mut ended = Ended::default();
        let mut offset = 6;
        while {
            let response = read(&mut late, pid, subscriber, offset, 5000);
            offset += ended.take(&response);
            !response.message().flag(field::ENDED)
        } {}
        assert_eq!(ended.out(), "second\n");
    }
}

#[test]
fn a_silent_subscriber_is_forgotten_and_the_process_goes_on() {
    let agent = Agent::start();
    let mut client = agent.connect();
    client.start_shell(TEN_MEGABYTES, |out| out.number(field::SUBSCRIBER, 1));
    let pid = client.start_shell(TEN_MEGABYTES, |out| out.number(field::SUBSCRIBER, 1));
    client.ok(op::UNSUBSCRIBE, |out| {
        out.number(field::PID, pid);
        out.number(field::SUBSCRIBER, 1);
    });
    let living = |client: &mut Client| client.ok(op::PROCESSES, |_| ()).records(field::PROCESS).len();
    eventually("the one without a subscriber ends", || living(&mut client) == 1);
    let begin = Instant::now();
    while living(&mut client) > 0 {
        assert!(begin.elapsed() < Duration::from_secs(14), "the silent subscriber is never forgotten");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn streams_come_apart_and_a_wait_ends_when_it_should() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let ended = client.run("echo out; echo err >&2; exit 3", |_| ());
    assert_eq!((ended.out(), ended.err(), ended.exit_code), ("out\n".into(), "err\n".into(), 3));
    let pid = client.start_shell("sleep 0.3; echo late; sleep 60", |out| out.number(field::SUBSCRIBER, 1));
    let begin = Instant::now();
    let response = read(&mut client, pid, 1, 0, 100);
    assert_eq!(response.records(field::CHUNK).len(), 0);
    assert!(begin.elapsed() >= Duration::from_millis(100));
    let response = read(&mut client, pid, 1, 0, 20_000);
    assert_eq!(response.records(field::CHUNK)[0].bytes(field::DATA), b"late\n");
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(client.error(op::READ_OUTPUT, |out| out.number(field::PID, 1)), NOT_FOUND);
}

#[test]
fn two_streams_in_single_bytes_keep_their_contents() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let ended = client.run("i=0; while [ $i -lt 3000 ]; do printf a; printf b >&2; i=$((i+1)); done", |_| ());
    assert_eq!((ended.stdout.len(), ended.stderr.len(), ended.lost), (3000, 3000, 0));
}
