use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use sandbar_agent::fields::field;
use sandbar_agent::frame;
use sandbar_agent::operations::operation as op;

use crate::client::{eventually, text, Agent};

const NOT_FOUND: u64 = 1;
const INVALID: u64 = 5;
const UNKNOWN_USER: u64 = 6;
const CWD: u64 = 10;

#[test]
fn a_process_has_its_own_session_user_groups_and_environment() {
    let agent = Agent::start();
    let mut client = agent.connect();
    // gVisor does not show masks of signals.
    let script = "id -u; id -g; id -Gn; echo $HOME $USER $LOGNAME $PATH $X; pwd; ls /proc/self/fd | wc -l; \
                  cat /proc/$$/oom_score_adj; cut -d' ' -f6 /proc/$$/stat; echo $$; env | grep -c SANDBAR; \
                  grep -E 'SigBlk|SigIgn' /proc/self/status";
    let ended = client.run(script, |out| {
        out.bytes(field::USER, b"daemon");
        out.bytes(field::ENV, b"X=1");
        out.bytes(field::ENV, b"X=2");
    });
    let lines: Vec<String> = ended.out().lines().map(str::to_owned).collect();
    assert_eq!(&lines[..3], ["1", "1", "daemon"]);
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    assert_eq!(lines[3], format!("/usr/sbin daemon daemon {path} 2"));
    assert_eq!(lines[4], "/usr/sbin");
    // 0, 1, 2 and the directory itself.
    assert_eq!(lines[5], "4");
    assert_eq!(lines[6], "0");
    assert_eq!(lines[7], lines[8], "it leads its own session");
    assert_eq!(lines[9], "0");
    assert!(lines[10..].iter().all(|line| line.ends_with("\t0000000000000000")), "{lines:?}");
}

#[test]
fn what_cannot_be_executed_ends_as_a_shell_would_say() {
    let agent = Agent::start();
    let mut client = agent.connect();
    std::fs::write(agent.path("script"), "echo from script $1\n").unwrap();
    let mut run = |command: &str| {
        let started = client.ok(op::START, |out| {
            out.bytes(field::CMD, command.as_bytes());
            out.bytes(field::ARG, b"arg");
            out.number(field::SUBSCRIBER, 1);
        });
        client.finish(started.number(field::PID))
    };
    let ended = run("no-such-command");
    assert_eq!((ended.exit_code, ended.err()), (127, "sandbar: no-such-command: command not found\n".into()));
    let ended = run("/no/such/file");
    assert_eq!((ended.exit_code, ended.err()), (127, "sandbar: /no/such/file: no such file or directory\n".into()));
    let ended = run("/etc/passwd");
    assert_eq!((ended.exit_code, ended.err()), (126, "sandbar: /etc/passwd: permission denied\n".into()));
    let ended = run("echo");
    assert_eq!((ended.exit_code, ended.out()), (0, "arg\n".into()));
    use std::os::unix::fs::PermissionsExt;
    let script = agent.path("script");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(run(&script).out(), "from script arg\n");
}

#[test]
fn the_working_directory_is_entered_as_the_user() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let mut start = |cwd: &str, user: &str| {
        client.call(op::START, |out| {
            out.bytes(field::CMD, b"pwd");
            out.bytes(field::CWD, cwd.as_bytes());
            out.bytes(field::USER, user.as_bytes());
        })
    };
    let missing = start("/no/such/place", "");
    assert_eq!(missing.number(field::CODE), CWD);
    assert_eq!(missing.number(field::ERRNO), libc::ENOENT as u64);
    assert_eq!(missing.text(field::PATH), "/no/such/place");
    assert_eq!(start("/root", "nobody").number(field::ERRNO), libc::EACCES as u64);
    assert_eq!(start("/", "nobody-here").number(field::CODE), UNKNOWN_USER);
    assert_eq!(client.error(op::START, |_| ()), INVALID);
    assert_eq!(client.error(op::START, |out| out.bytes(field::CMD, b"a\0b")), INVALID);
}

#[test]
fn arguments_too_long_are_an_error_of_the_start() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let response = client.call(op::START, |out| {
        out.bytes(field::CMD, b"true");
        out.bytes(field::ARG, &vec![b'x'; 3 << 20]);
    });
    // gVisor takes them.
    if response.kind == frame::ERROR {
        assert_eq!(response.number(field::ERRNO), libc::E2BIG as u64);
    }
}

#[test]
fn a_repeated_start_is_one_process() {
    let agent = Agent::start();
    let begin = |pause: u64| {
        let mut client = agent.connect();
        thread::sleep(Duration::from_millis(pause));
        client.start_shell("echo started; exit 4", |out| out.bytes(field::OPERATION_ID, b"once"))
    };
    let pids: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = [0, 0, 0, 200].map(|pause| scope.spawn(move || begin(pause))).into_iter().collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(pids.iter().all(|&pid| pid == pids[0]), "{pids:?}");
    let mut client = agent.connect();
    let response = client.ok(op::READ_OUTPUT, |out| {
        out.number(field::PID, pids[0]);
        out.number(field::REPLAY, 1);
        out.number(field::WAIT_MS, 5000);
    });
    assert_eq!(text(response.records(field::CHUNK)[0].bytes(field::DATA)), "started\n");
}

#[test]
fn a_start_and_the_first_read_can_be_sent_together() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let read = |operation: &'static [u8]| {
        frame::build(op::READ_OUTPUT, |out| {
            out.bytes(field::OPERATION_ID, operation);
            out.number(field::SUBSCRIBER, 3);
            out.number(field::WAIT_MS, 5000);
        })
    };
    let start = |operation: &'static [u8], cwd: &'static [u8]| {
        frame::build(op::START, |out| {
            for (number, value) in [(field::CMD, &b"/bin/echo"[..]), (field::ARG, b"both"), (field::CWD, cwd)] {
                out.bytes(number, value);
            }
            out.bytes(field::OPERATION_ID, operation);
            out.number(field::SUBSCRIBER, 3);
        })
    };
    client.stream.write_all(&[start(b"one", b"/"), read(b"one")].concat()).unwrap();
    let pid = client.receive().number(field::PID);
    let output = client.receive();
    assert_eq!(output.number(field::PID), pid);
    assert_eq!(text(output.records(field::CHUNK)[0].bytes(field::DATA)), "both\n");
    // A start that fails leaves nothing to read.
    client.stream.write_all(&[start(b"two", b"/nowhere"), read(b"two")].concat()).unwrap();
    assert_eq!(client.receive().kind, frame::ERROR);
    let response = client.receive();
    assert_eq!((response.kind, response.number(field::CODE)), (frame::ERROR, NOT_FOUND));
}

#[test]
fn an_exit_is_remembered_and_not_listed() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let pid = client.start_shell("exit 5", |out| out.bytes(field::TAG, b"short"));
    eventually("it ends", || client.ok(op::PROCESSES, |_| ()).records(field::PROCESS).is_empty());
    for named in [false, true] {
        let response = client.ok(op::READ_OUTPUT, |out| {
            if named {
                out.bytes(field::TAG, b"short");
            } else {
                out.number(field::PID, pid);
            }
            out.number(field::SUBSCRIBER, 9);
        });
        assert_eq!((response.number(field::ENDED), response.number(field::EXIT_CODE)), (1, 5));
        assert_eq!(response.number(field::PID), pid);
    }
    assert_eq!(client.error(op::SIGNAL, |out| out.number(field::PID, pid)), NOT_FOUND);
    let next = client.start_shell("exec sleep 60", |out| out.bytes(field::TAG, b"short"));
    client.ok(op::SIGNAL, |out| {
        out.bytes(field::TAG, b"short");
        out.number(field::SIGNAL, 15);
    });
    let ended = client.finish(next);
    assert_eq!((ended.exit_code, ended.signal), (-1, 15));
}

#[test]
fn an_exit_is_forgotten_after_thirty_seconds() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let pid = client.start_shell("exit 5", |out| out.bytes(field::OPERATION_ID, b"op"));
    thread::sleep(Duration::from_secs(27));
    client.ok(op::READ_OUTPUT, |out| out.number(field::PID, pid));
    thread::sleep(Duration::from_secs(5));
    assert_eq!(client.error(op::READ_OUTPUT, |out| out.number(field::PID, pid)), NOT_FOUND);
    assert_ne!(client.start_shell("true", |out| out.bytes(field::OPERATION_ID, b"op")), pid);
}

#[test]
fn processes_are_listed_as_they_were_asked_for() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let pid = client.start_shell("sleep 60", |out| {
        out.bytes(field::TAG, b"sleeper");
        out.bytes(field::ENV, b"A=1");
        out.bytes(field::CWD, b"/tmp");
    });
    let response = client.ok(op::PROCESSES, |_| ());
    let listed = response.records(field::PROCESS);
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].number(field::PID), pid);
    assert_eq!(listed[0].bytes(field::TAG), b"sleeper");
    assert_eq!(listed[0].bytes(field::CMD), b"/bin/sh");
    assert_eq!(listed[0].all(field::ARG).collect::<Vec<_>>(), [&b"-c"[..], b"sleep 60"]);
    assert_eq!(listed[0].bytes(field::ENV), b"A=1");
    assert_eq!(listed[0].bytes(field::CWD), b"/tmp");
}

#[test]
fn the_end_waits_for_background_children_but_not_after_a_kill() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let begin = Instant::now();
    let ended = client.run("(sleep 1; echo background) & echo front", |_| ());
    assert_eq!(ended.out(), "front\nbackground\n");
    assert!(begin.elapsed() >= Duration::from_secs(1));

    let pid = client.start_shell("echo before; sleep 7 & wait", |out| out.number(field::SUBSCRIBER, 1));
    thread::sleep(Duration::from_millis(200));
    client.ok(op::SIGNAL, |out| {
        out.number(field::PID, pid);
        out.number(field::SIGNAL, 9);
    });
    let begin = Instant::now();
    let ended = client.finish(pid);
    assert_eq!((ended.out(), ended.exit_code, ended.signal), ("before\n".into(), -1, 9));
    assert!(begin.elapsed() < Duration::from_secs(3));

    // Exited by itself, held open by a child: a kill ends it.
    let pid = client.start_shell("sleep 7 & exit 6", |out| out.number(field::SUBSCRIBER, 1));
    thread::sleep(Duration::from_millis(200));
    client.ok(op::SIGNAL, |out| {
        out.number(field::PID, pid);
        out.number(field::SIGNAL, 9);
    });
    assert_eq!(client.finish(pid).exit_code, 6);
}

#[test]
fn at_its_deadline_a_process_is_killed() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let begin = Instant::now();
    let ended = client.run("echo hello; sleep 60 & sleep 60", |out| out.number(field::DEADLINE_MS, 300));
    assert_eq!((ended.out(), ended.exit_code, ended.signal), ("hello\n".into(), -1, 9));
    assert!(ended.deadline_hit);
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(3), "{took:?}");
    let ended = client.run("true", |out| out.number(field::DEADLINE_MS, 60_000));
    assert!(!ended.deadline_hit);
}

#[test]
fn two_hundred_processes_stream_side_by_side() {
    let agent = Agent::start();
    let mut clients: Vec<_> = (0..200).map(|_| agent.connect()).collect();
    let mut pids = Vec::new();
    for (number, client) in clients.iter_mut().enumerate() {
        let script = format!("for i in 1 2 3 4 5; do echo {number}-$i; sleep 0.1; done; exit {}", number % 100);
        pids.push(client.start_shell(&script, |out| out.number(field::SUBSCRIBER, 1)));
    }
    for (number, (client, pid)) in clients.iter_mut().zip(pids).enumerate() {
        let ended = client.finish(pid);
        let expected: String = (1..=5).map(|i| format!("{number}-{i}\n")).collect();
        assert_eq!((ended.out(), ended.exit_code), (expected, number as i64 % 100));
    }
}

#[test]
fn a_thousand_short_processes_all_end() {
    let agent = Agent::start();
    thread::scope(|scope| {
        for part in 0..8 {
            let agent = &agent;
            scope.spawn(move || {
                let mut client = agent.connect();
                for number in 0..125 {
                    let code = (part * 125 + number) % 200;
                    let pid = client.start_shell(&format!("exit {code}"), |out| out.number(field::SUBSCRIBER, 1));
                    assert_eq!(client.finish(pid).exit_code, code);
                }
            });
        }
    });
}

#[test]
fn orphans_are_reaped() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.1 & ) ; done >/dev/null 2>&1; echo done";
    assert_eq!(client.run(script, |_| ()).out(), "done\n");
    let children = format!("/proc/{0}/task/{0}/children", agent.pid());
    eventually("no zombies are left", || std::fs::read_to_string(&children).unwrap().is_empty());
}

#[test]
fn memory_is_relieved_by_ending_the_biggest_process() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let small = client.start_shell("sleep 60", |out| out.number(field::SUBSCRIBER, 1));
    let script = "exec python3 -c 'x = bytearray(80_000_000); print(len(x), flush=True); import time; time.sleep(60)'";
    let big = client.start_shell(script, |out| out.number(field::SUBSCRIBER, 1));
    let response = client.ok(op::READ_OUTPUT, |out| {
        out.number(field::PID, big);
        out.number(field::SUBSCRIBER, 1);
        out.number(field::WAIT_MS, 10_000);
    });
    assert_eq!(response.records(field::CHUNK)[0].bytes(field::DATA), b"80000000\n");
    let response = client.ok(op::RELIEVE, |out| out.number(field::KIND, 1));
    assert_eq!(response.number(field::PID), big);
    assert_eq!(response.text(field::NAME), "python3");
    assert!(response.number(field::USED) > 80_000_000);
    assert_eq!(client.finish(big).signal, 9);
    client.ok(op::SIGNAL, |out| {
        out.number(field::PID, small);
        out.number(field::SIGNAL, 0);
    });
    assert_eq!(client.error(op::RELIEVE, |_| ()), INVALID);
}

#[test]
fn processes_are_relieved_by_ending_the_largest_session() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let other = client.start_shell("sleep 60 & sleep 60 & wait", |_| ());
    let script = "f() { while :; do sleep 0.05; done; }; for i in $(seq 30); do f & done; echo ready; wait";
    let bomb = client.start_shell(script, |out| out.number(field::SUBSCRIBER, 1));
    client.ok(op::READ_OUTPUT, |out| {
        out.number(field::PID, bomb);
        out.number(field::SUBSCRIBER, 1);
        out.number(field::WAIT_MS, 10_000);
    });
    let response = client.ok(op::RELIEVE, |out| out.number(field::KIND, 2));
    assert_eq!(response.number(field::PID), bomb);
    assert!(response.number(field::USED) >= 31);
    // Or hung up on, as an orphaned group that was stopped.
    assert!([1, 9].contains(&client.finish(bomb).signal));
    let left = client.ok(op::PROCESSES, |_| ());
    assert_eq!(left.records(field::PROCESS)[0].number(field::PID), other);
}
