use std::thread;
use std::time::Duration;

use sandbar_agent::fields::field;
use sandbar_agent::operations::operation as op;

use crate::client::{Agent, Client};

const STDIN_CLOSED: u64 = 12;
const NOT_A_TTY: u64 = 13;

fn write(client: &mut Client, pid: u64, operation: &[u8], data: &[u8]) {
    client.ok(op::WRITE_INPUT, |out| {
        out.number(field::PID, pid);
        out.number(field::STREAM, 1);
        out.bytes(field::OPERATION_ID, operation);
        out.bytes(field::DATA, data);
    });
}

#[test]
fn input_arrives_and_ends_when_it_is_closed() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let pid = client.start_shell("wc -c; sleep 1", |out| {
        out.number(field::STDIN, 1);
        out.number(field::SUBSCRIBER, 1);
    });
    write(&mut client, pid, b"", b"hello ");
    write(&mut client, pid, b"", &vec![b'x'; 3_000_000]);
    for _ in 0..2 {
        client.ok(op::CLOSE_STDIN, |out| out.number(field::PID, pid));
    }
    let code = client.error(op::WRITE_INPUT, |out| {
        out.number(field::PID, pid);
        out.number(field::STREAM, 1);
        out.bytes(field::DATA, b"more");
    });
    assert_eq!(code, STDIN_CLOSED);
    assert_eq!(client.finish(pid).out().trim(), "3000006");
}

#[test]
fn without_stdin_there_is_nothing_to_read_and_nothing_to_write_to() {
    let agent = Agent::start();
    let mut client = agent.connect();
    assert_eq!(client.run("wc -c", |_| ()).out().trim(), "0");
    let pid = client.start_shell("sleep 60", |_| ());
    let mut error = |stream: u64| {
        client.error(op::WRITE_INPUT, |out| {
            out.number(field::PID, pid);
            out.number(field::STREAM, stream);
            out.bytes(field::DATA, b"x");
        })
    };
    assert_eq!(error(1), STDIN_CLOSED);
    assert_eq!(error(3), NOT_A_TTY);
    assert_eq!(client.error(op::RESIZE, |out| out.number(field::PID, pid)), NOT_A_TTY);
}

#[test]
fn input_waits_for_the_process_and_fails_when_it_goes() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let pid = client.start_shell("sleep 0.5", |out| out.number(field::STDIN, 1));
    let code = client.error(op::WRITE_INPUT, |out| {
        out.number(field::PID, pid);
        out.number(field::STREAM, 1);
        out.bytes(field::DATA, &vec![0; 1_000_000]);
    });
    assert_eq!(code, STDIN_CLOSED);
}

#[test]
fn input_that_was_cut_off_and_repeated_arrives_once() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let pid = client.start_shell("sleep 0.5; md5sum; sleep 60", |out| {
        out.number(field::STDIN, 1);
        out.number(field::SUBSCRIBER, 1);
    });
    let data: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    // Half of it is in the pipe when the connection goes.
    let mut broken = agent.connect();
    broken.send(op::WRITE_INPUT, |out| {
        out.number(field::PID, pid);
        out.number(field::STREAM, 1);
        out.bytes(field::OPERATION_ID, b"big");
        out.bytes(field::DATA, &data);
    });
    thread::sleep(Duration::from_millis(200));
    drop(broken);
    write(&mut client, pid, b"big", &data);
    write(&mut client, pid, b"big", &data);
    client.ok(op::CLOSE_STDIN, |out| out.number(field::PID, pid));
    let response = client.ok(op::READ_OUTPUT, |out| {
        out.number(field::PID, pid);
        out.number(field::SUBSCRIBER, 1);
        out.number(field::WAIT_MS, 10_000);
    });
    let output = response.records(field::CHUNK)[0].bytes(field::DATA).to_vec();
    std::fs::write(agent.path("expected"), &data).unwrap();
    let expected = client.run(&format!("md5sum < {}", agent.path("expected")), |_| ());
    assert_eq!(output, expected.stdout);
}
