use std::thread;
use std::time::{Duration, Instant};

use sandbar_agent::fields::field;
use sandbar_agent::operations::operation as op;

use crate::client::{text, Agent, Client, Ended};

const NOT_A_TTY: u64 = 13;

fn start(client: &mut Client, script: &str) -> u64 {
    client.start_shell(script, |out| {
        out.number(field::PTY, 1);
        out.number(field::COLS, 100);
        out.number(field::ROWS, 40);
        out.number(field::SUBSCRIBER, 1);
    })
}

fn type_in(client: &mut Client, pid: u64, data: &[u8]) {
    client.ok(op::WRITE_INPUT, |out| {
        out.number(field::PID, pid);
        out.number(field::STREAM, 3);
        out.bytes(field::DATA, data);
    });
}

#[test]
fn a_process_on_a_terminal_has_its_size_and_follows_a_change() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let script = "stty size; tty; trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.05; done";
    let pid = start(&mut client, script);
    let mut seen = Ended::default();
    while !text(&seen.pty).contains("ready") {
        let response = client.ok(op::READ_OUTPUT, |out| {
            out.number(field::PID, pid);
            out.number(field::SUBSCRIBER, 2);
            out.number(field::OFFSET, seen.pty.len() as u64);
            out.number(field::REPLAY, 1);
            out.number(field::WAIT_MS, 10_000);
        });
        seen.take(&response);
    }
    client.ok(op::RESIZE, |out| {
        out.number(field::PID, pid);
        out.number(field::COLS, 120);
        out.number(field::ROWS, 50);
    });
    let begin = Instant::now();
    let ended = client.finish(pid);
    let output = text(&ended.pty);
    let lines: Vec<&str> = output.split("\r\n").collect();
    assert_eq!(lines[0], "40 100");
    assert!(lines[1].starts_with("/dev/pts/"));
    assert_eq!(&lines[2..4], ["ready", "50 120"]);
    assert_eq!(ended.exit_code, 3);
    assert!(begin.elapsed() < Duration::from_secs(2));
}

#[test]
fn what_is_typed_is_echoed_and_ctrl_d_ends_the_input() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let pid = start(&mut client, "cat; echo over");
    type_in(&mut client, pid, b"hello\n");
    thread::sleep(Duration::from_millis(100));
    type_in(&mut client, pid, b"\x04");
    let ended = client.finish(pid);
    assert_eq!(text(&ended.pty), "hello\r\nhello\r\nover\r\n");
    assert_eq!(client.error(op::CLOSE_STDIN, |out| out.number(field::PID, pid)), NOT_A_TTY);
}

#[test]
fn ctrl_c_interrupts_and_a_kill_ends_it() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let pid = start(&mut client, "trap 'echo caught; exit 9' INT; sleep 60");
    thread::sleep(Duration::from_millis(300));
    type_in(&mut client, pid, b"\x03");
    assert_eq!(client.finish(pid).exit_code, 9);

    let pid = start(&mut client, "echo up; sleep 60");
    thread::sleep(Duration::from_millis(300));
    let code = client.error(op::WRITE_INPUT, |out| {
        out.number(field::PID, pid);
        out.number(field::STREAM, 1);
        out.bytes(field::DATA, b"x");
    });
    assert_eq!(code, NOT_A_TTY);
    client.ok(op::SIGNAL, |out| {
        out.number(field::PID, pid);
        out.number(field::SIGNAL, 9);
    });
    let begin = Instant::now();
    let ended = client.finish(pid);
    assert_eq!((ended.exit_code, ended.signal, text(&ended.pty)), (-1, 9, "up\r\n".into()));
    assert!(begin.elapsed() < Duration::from_secs(1));
}

#[test]
fn much_output_of_a_terminal_is_complete() {
    let agent = Agent::start();
    let mut client = agent.connect();
    for _ in 0..3 {
        let pid = start(&mut client, "seq 1 200000");
        let ended = client.finish(pid);
        let expected: String = (1..=200_000).map(|i| format!("{i}\r\n")).collect();
        assert!(text(&ended.pty) == expected, "{} of {} bytes", ended.pty.len(), expected.len());
    }
}
