use std::process::Command;
use std::time::Duration;

use sandbar_agent::fields::field;
use sandbar_agent::operations::operation as op;

use crate::client::{eventually, Agent, Client, SECRET};

#[test]
fn it_cannot_start_without_a_secret_or_on_a_port_that_is_taken() {
    let agent = Agent::start();
    let binary = env!("CARGO_BIN_EXE_sandbar-agent");
    let secret: String = SECRET.iter().map(|byte| format!("{byte:02x}")).collect();
    let status = |secret: &str| {
        let mut command = Command::new(binary);
        command.env("SANDBAR_SECRET", secret).env("SANDBAR_PORT", agent.port.to_string());
        command.stderr(std::process::Stdio::null()).status().unwrap().code()
    };
    assert_eq!(status(&secret), Some(70));
    assert_eq!(status("short"), Some(64));
}

#[test]
fn its_secret_cannot_be_read_from_its_environment() {
    let agent = Agent::start();
    let environment = std::fs::read(format!("/proc/{}/environ", agent.pid())).unwrap();
    assert!(environment.iter().all(|&byte| byte == 0));
    let ended = agent.connect().run("env", |_| ());
    assert!(!ended.out().contains("SANDBAR"));
}

#[test]
fn signals_do_not_end_it_but_sigterm_does_with_its_processes() {
    let mut agent = Agent::start();
    let mut client = agent.connect();
    for number in [libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGPIPE, libc::SIGALRM, libc::SIGQUIT] {
        // SAFETY: takes no pointer; the agent is this test's own child.
        unsafe { libc::kill(agent.pid() as i32, number) };
    }
    client.ok(op::PING, |_| ());
    let pid = client.start_shell("trap '' TERM; sleep 60", |_| ());
    client.start_shell("sleep 60", |out| out.bytes(field::TAG, b"willing"));
    // SAFETY: as above.
    unsafe { libc::kill(agent.pid() as i32, libc::SIGTERM) };
    assert_eq!(agent.wait_for_exit(Duration::from_secs(4)), Some(0));
    std::thread::sleep(Duration::from_millis(200));
    assert!(std::fs::metadata(format!("/proc/{pid}")).is_err(), "it has left a process behind");
}

#[test]
fn at_rest_it_needs_little_memory() {
    let agent = Agent::start();
    agent.connect().run("echo warm", |_| ());
    let kilobytes = agent.resident_kilobytes();
    // Unoptimised builds are larger on disk, and so in memory; gVisor counts all of the binary.
    let limit = if cfg!(debug_assertions) { 8_000 } else { 4_000 };
    assert!(kilobytes < limit, "{kilobytes} kB");
}

#[test]
fn output_that_nobody_reads_does_not_add_up() {
    let agent = Agent::start();
    let mut client = agent.connect();
    for _ in 0..60 {
        client.start_shell("head -c 2000000 /dev/zero", |_| ());
    }
    eventually("all end", || client.ok(op::PROCESSES, |_| ()).records(field::PROCESS).is_empty());
    eventually("memory is given back", || agent.resident_kilobytes() < 24_000);
}

#[test]
fn no_descriptor_is_left_behind() {
    let agent = Agent::start();
    let root = agent.directory.to_str().unwrap().to_owned();
    let open = || std::fs::read_dir(format!("/proc/{}/fd", agent.pid())).unwrap().count();
    // The first watcher makes the inotify instance, which stays.
    let mut client = agent.connect();
    let watch = |client: &mut Client| {
        let created = client.ok(op::WATCH_CREATE, |out| out.bytes(field::PATH, root.as_bytes()));
        client.ok(op::WATCH_REMOVE, |out| out.number(field::WATCHER, created.number(field::WATCHER)));
    };
    watch(&mut client);
    let before = open();
    for number in 0..30 {
        watch(&mut client);
        let pid = client.start_shell("cat; sleep 0.1", |out| {
            out.number(field::STDIN, 1);
            out.number(field::PTY, number % 2);
            out.number(field::SUBSCRIBER, 1);
        });
        let mut cut_off = agent.connect();
        cut_off.send(op::READ_OUTPUT, |out| {
            out.number(field::PID, pid);
            out.number(field::SUBSCRIBER, 1);
            out.number(field::WAIT_MS, 60_000);
        });
        client.ok(op::SIGNAL, |out| {
            out.number(field::PID, pid);
            out.number(field::SIGNAL, 9);
        });
        client.call(op::START, |out| {
            out.bytes(field::CMD, b"true");
            out.bytes(field::CWD, b"/no/such/place");
        });
        client.call(op::DIAL, |out| out.number(field::PORT, 1));
        let mut tunnel = agent.connect();
        tunnel.ok(op::DIAL, |out| out.number(field::PORT, agent.port.into()));
        client.write_file(&format!("{root}/file"), b"content");
        client.ok(op::REMOVE, |out| out.bytes(field::PATH, format!("{root}/file").as_bytes()));
    }
    eventually("all is closed", || open() == before);
}
