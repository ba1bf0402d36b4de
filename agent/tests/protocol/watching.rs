use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use sandbar_agent::fields::{field, Writer};
use sandbar_agent::operations::operation as op;

use crate::client::{text, Agent, Client};

const CREATE: u64 = 1;
const WRITE: u64 = 2;
const REMOVE: u64 = 3;
const RENAME: u64 = 4;
const CHMOD: u64 = 5;

/// A watcher and the place where its reader is.
struct Watch {
    client: Client,
    number: u64,
    sequence: u64,
    lost: u64,
}

impl Watch {
    fn start(agent: &Agent, path: &str, fill: impl FnOnce(&mut Writer)) -> Watch {
        let mut client = agent.connect();
        let created = client.ok(op::WATCH_CREATE, |out| {
            out.bytes(field::PATH, path.as_bytes());
            fill(out);
        });
        Watch { number: created.number(field::WATCHER), client, sequence: 0, lost: 0 }
    }

    /// Everything that happens until it is quiet.
    fn events(&mut self) -> Vec<(u64, String)> {
        let mut events = Vec::new();
        loop {
            let (number, sequence) = (self.number, self.sequence);
            let response = self.client.ok(op::WATCH_READ, |out| {
                out.number(field::WATCHER, number);
                out.number(field::SEQUENCE, sequence);
                out.number(field::WAIT_MS, 300);
            });
            let records = response.records(field::EVENT);
            self.lost += response.number(field::LOST);
            self.sequence = response.number(field::SEQUENCE);
            if records.is_empty() {
                return events;
            }
            events.extend(records.iter().map(|e| (e.number(field::KIND), text(e.bytes(field::NAME)))));
        }
    }
}

fn named(kind: u64, name: &str) -> (u64, String) {
    (kind, name.to_owned())
}

#[test]
fn each_change_of_a_directory_is_told() {
    let agent = Agent::start();
    let root = agent.path("watched");
    fs::create_dir(&root).unwrap();
    let mut watch = Watch::start(&agent, &root, |_| ());
    fs::write(format!("{root}/a"), "x").unwrap();
    fs::set_permissions(format!("{root}/a"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(format!("{root}/a"), format!("{root}/b")).unwrap();
    fs::remove_file(format!("{root}/b")).unwrap();
    fs::create_dir(format!("{root}/sub")).unwrap();
    fs::write(format!("{root}/sub/unseen"), "").unwrap();
    let expected = [
        named(CREATE, "a"),
        named(WRITE, "a"),
        named(CHMOD, "a"),
        named(RENAME, "a"),
        named(CREATE, "b"),
        named(REMOVE, "b"),
        named(CREATE, "sub"),
    ];
    assert_eq!(watch.events(), expected);
    fs::remove_dir_all(&root).unwrap();
    assert_eq!(watch.events(), [named(REMOVE, "sub"), named(REMOVE, "watched")]);
}

#[test]
fn a_recursive_watch_sees_everything_in_new_directories_once() {
    let agent = Agent::start();
    let root = agent.path("deep");
    fs::create_dir_all(format!("{root}/old/older")).unwrap();
    let mut watch = Watch::start(&agent, &root, |out| out.number(field::RECURSIVE, 1));
    fs::write(format!("{root}/old/older/f"), "").unwrap();
    assert_eq!(watch.events(), [named(CREATE, "old/older/f")]);
    // Faster than anyone can watch: many directories, with files in them, at once.
    for number in 0..200 {
        fs::create_dir_all(format!("{root}/n{number}/m/k")).unwrap();
        fs::write(format!("{root}/n{number}/m/k/file"), "").unwrap();
        fs::write(format!("{root}/n{number}/top"), "").unwrap();
    }
    let events = watch.events();
    let created: Vec<String> = events.iter().filter(|(kind, _)| *kind == CREATE).map(|(_, n)| n.clone()).collect();
    for number in 0..200 {
        for name in ["", "/m", "/m/k", "/m/k/file", "/top"] {
            let name = format!("n{number}{name}");
            assert_eq!(created.iter().filter(|found| **found == name).count(), 1, "{name}");
        }
    }
    assert_eq!(created.len(), 1000);
    assert_eq!(watch.lost, 0);
}

#[test]
fn directories_moved_in_are_watched_and_those_moved_out_are_not() {
    let agent = Agent::start();
    let root = agent.path("root");
    fs::create_dir_all(agent.path("outside/inner")).unwrap();
    fs::write(agent.path("outside/inner/f"), "").unwrap();
    fs::create_dir(&root).unwrap();
    let mut watch = Watch::start(&agent, &root, |out| out.number(field::RECURSIVE, 1));
    fs::rename(agent.path("outside"), format!("{root}/inside")).unwrap();
    let mut events = watch.events();
    events.sort();
    assert_eq!(events, [named(CREATE, "inside"), named(CREATE, "inside/inner"), named(CREATE, "inside/inner/f")]);
    fs::rename(format!("{root}/inside"), format!("{root}/renamed")).unwrap();
    let events = watch.events();
    assert_eq!(events[..2], [named(RENAME, "inside"), named(CREATE, "renamed")]);
    fs::write(format!("{root}/renamed/inner/g"), "").unwrap();
    assert_eq!(watch.events(), [named(CREATE, "renamed/inner/g")]);
    fs::rename(format!("{root}/renamed"), agent.path("outside")).unwrap();
    assert_eq!(watch.events(), [named(RENAME, "renamed")]);
    fs::write(agent.path("outside/inner/h"), "").unwrap();
    assert_eq!(watch.events(), []);
}

#[test]
fn entries_come_with_events_when_asked_for() {
    let agent = Agent::start();
    let root = agent.path("entries");
    fs::create_dir(&root).unwrap();
    let mut watch = Watch::start(&agent, &root, |out| out.number(field::INCLUDE_ENTRY, 1));
    fs::write(format!("{root}/a"), "12345").unwrap();
    let number = watch.number;
    thread::sleep(Duration::from_millis(100));
    let response = watch.client.ok(op::WATCH_READ, |out| out.number(field::WATCHER, number));
    let events = response.records(field::EVENT);
    let last = events.last().unwrap();
    let entry = sandbar_agent::fields::Message::parse(last.bytes(field::ENTRY)).unwrap();
    assert_eq!(entry.number(field::SIZE), 5);
    assert_eq!(text(entry.bytes(field::PATH)), format!("{root}/a"));
}

#[test]
fn two_watchers_of_one_directory_both_hear_and_one_can_go() {
    let agent = Agent::start();
    let root = agent.path("both");
    fs::create_dir(&root).unwrap();
    let mut first = Watch::start(&agent, &root, |_| ());
    let mut second = Watch::start(&agent, &root, |out| out.number(field::RECURSIVE, 1));
    fs::write(format!("{root}/a"), "").unwrap();
    assert_eq!(first.events(), [named(CREATE, "a")]);
    assert_eq!(second.events(), [named(CREATE, "a")]);
    let number = first.number;
    // A read that waits is told that its watcher has gone.
    first.client.send(op::WATCH_READ, |out| {
        out.number(field::WATCHER, number);
        out.number(field::SEQUENCE, 2);
        out.number(field::WAIT_MS, 20_000);
    });
    thread::sleep(Duration::from_millis(50));
    agent.connect().ok(op::WATCH_REMOVE, |out| out.number(field::WATCHER, number));
    assert_eq!(first.client.receive().number(field::CODE), 1);
    assert_eq!(first.client.error(op::WATCH_REMOVE, |out| out.number(field::WATCHER, number)), 1);
    fs::write(format!("{root}/b"), "").unwrap();
    assert_eq!(second.events(), [named(CREATE, "b")]);
}

#[test]
fn a_read_wakes_at_once_and_too_many_events_are_counted() {
    let agent = Agent::start();
    let root = agent.path("storm");
    fs::create_dir(&root).unwrap();
    let mut watch = Watch::start(&agent, &root, |_| ());
    let number = watch.number;
    watch.client.send(op::WATCH_READ, |out| {
        out.number(field::WATCHER, number);
        out.number(field::WAIT_MS, 20_000);
    });
    thread::sleep(Duration::from_millis(100));
    let begin = Instant::now();
    fs::write(format!("{root}/a"), "").unwrap();
    assert_eq!(watch.client.receive().records(field::EVENT).len(), 1);
    assert!(begin.elapsed() < Duration::from_millis(500));
    for number in 0..20_000 {
        fs::write(format!("{root}/{number}"), "").unwrap();
    }
    thread::sleep(Duration::from_millis(500));
    let events = watch.events();
    assert_eq!(events.len(), 16_384);
    assert!(watch.lost >= 20_001 - 16_384);
}

#[test]
fn only_directories_can_be_watched() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let mut error = |path: &str| client.error(op::WATCH_CREATE, |out| out.bytes(field::PATH, path.as_bytes()));
    assert_eq!(error("/no/such/directory"), 1);
    assert_eq!(error("/etc/passwd"), 3);
    assert_eq!(client.error(op::WATCH_READ, |out| out.number(field::WATCHER, 99)), 1);
}
