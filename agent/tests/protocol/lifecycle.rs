use std::process::Command;
use std::time::Duration;

use sandbar_agent::fields::field;
use sandbar_agent::operations::operation as op;

use crate::client::{Agent, SECRET};

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
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    let kilobytes: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    // Unoptimised builds are larger on disk, and so in memory; gVisor counts all of the binary.
    let limit = if cfg!(debug_assertions) { 8_000 } else { 4_000 };
    assert!(kilobytes < limit, "{resident}");
}
