use std::fs;
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::thread;

use sandbar_agent::fields::field;
use sandbar_agent::operations::operation as op;

use crate::client::{eventually, text, Agent, Client};

const NOT_FOUND: u64 = 1;
const EXISTS: u64 = 2;
const NOT_DIRECTORY: u64 = 3;
const IS_DIRECTORY: u64 = 4;
const INVALID: u64 = 5;
const UNKNOWN_USER: u64 = 6;
const LOOP: u64 = 9;
const NOT_REGULAR: u64 = 17;

fn path_field<'a>(path: &'a str) -> impl FnOnce(&mut sandbar_agent::fields::Writer) + 'a {
    move |out| out.bytes(field::PATH, path.as_bytes())
}

#[test]
fn a_file_is_described_with_all_its_properties() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let path = agent.path("file.txt");
    fs::write(&path, "12345").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let response = client.ok(op::STAT, path_field(&path));
    let entry = response.entry();
    assert_eq!(text(entry.bytes(field::PATH)), path);
    assert_eq!(entry.bytes(field::NAME), b"file.txt");
    assert_eq!(entry.number(field::TYPE), 1);
    assert_eq!(entry.number(field::SIZE), 5);
    assert_eq!(entry.number(field::MODE), 0o100640);
    assert_eq!(entry.bytes(field::OWNER), b"root");
    let expected = fs::metadata(&path).unwrap();
    let expected = expected.mtime() as u64 * 1_000_000_000 + expected.mtime_nsec() as u64;
    assert_eq!(entry.number(field::MTIME_NS), expected);
    assert!(entry.find(field::LINK_TARGET).is_none());

    let missing = client.call(op::STAT, path_field("/no/such/thing"));
    assert_eq!(missing.number(field::CODE), NOT_FOUND);
    assert_eq!(missing.number(field::ERRNO), libc::ENOENT as u64);
    assert_eq!(missing.text(field::MESSAGE), "no such file or directory");
    assert_eq!(missing.text(field::PATH), "/no/such/thing");
}

#[test]
fn links_show_their_target_and_its_type() {
    let agent = Agent::start();
    let mut client = agent.connect();
    fs::create_dir(agent.path("dir")).unwrap();
    symlink("dir", agent.path("to-dir")).unwrap();
    symlink("nothing", agent.path("broken")).unwrap();
    symlink("b", agent.path("a")).unwrap();
    symlink("a", agent.path("b")).unwrap();
    let response = client.ok(op::STAT, path_field(&agent.path("to-dir")));
    let entry = response.entry();
    assert_eq!(entry.number(field::TYPE), 2);
    assert_eq!(entry.number(field::SIZE), 3);
    assert_eq!(entry.number(field::MODE), 0o120777);
    assert_eq!(entry.number(field::TARGET_MODE), 0o040755);
    assert_eq!(text(entry.bytes(field::LINK_TARGET)), agent.path("dir"));
    for name in ["broken", "a"] {
        let response = client.ok(op::STAT, path_field(&agent.path(name)));
        let entry = response.entry();
        assert_eq!(entry.number(field::TYPE), 0);
        assert_eq!(text(entry.bytes(field::LINK_TARGET)), agent.path(name));
    }
    assert_eq!(client.error(op::LIST, path_field(&agent.path("a"))), LOOP);
    assert_eq!(client.error(op::OPEN_READ, path_field(&agent.path("a"))), LOOP);
}

fn names(client: &mut Client, path: &str, depth: u64) -> Vec<String> {
    let response = client.ok(op::LIST, |out| {
        out.bytes(field::PATH, path.as_bytes());
        out.number(field::DEPTH, depth);
    });
    let entries = response.records(field::ENTRY);
    entries.iter().map(|entry| text(&entry.bytes(field::PATH)[path.len() + 1..])).collect()
}

#[test]
fn a_listing_is_in_lexical_pre_order_and_does_not_enter_links() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let root = agent.path("tree");
    for directory in ["b/deep/deeper", "a"] {
        fs::create_dir_all(format!("{root}/{directory}")).unwrap();
    }
    for file in ["b/1", "a/2", "c", "b/deep/3", "b-"] {
        fs::write(format!("{root}/{file}"), "").unwrap();
    }
    symlink("b", format!("{root}/link")).unwrap();
    symlink("tree", agent.path("tree-link")).unwrap();
    assert_eq!(names(&mut client, &root, 0), ["a", "b", "b-", "c", "link"]);
    let two = ["a", "a/2", "b", "b/1", "b/deep", "b-", "c", "link"];
    assert_eq!(names(&mut client, &root, 2), two);
    assert_eq!(names(&mut client, &agent.path("tree-link"), 2), two);
    assert_eq!(names(&mut client, &root, 99).len(), 10);
    assert_eq!(client.error(op::LIST, path_field(&format!("{root}/c"))), NOT_DIRECTORY);
    assert_eq!(client.error(op::LIST, path_field(&format!("{root}/none"))), NOT_FOUND);
}

#[test]
fn a_long_listing_comes_in_several_frames() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let root = agent.path("many");
    fs::create_dir(&root).unwrap();
    for number in 0..5000 {
        fs::write(format!("{root}/{number:05}"), "").unwrap();
    }
    let response = client.ok(op::LIST, path_field(&root));
    assert!(response.frames > 2);
    let entries = response.records(field::ENTRY);
    assert_eq!(entries.len(), 5000);
    assert!(entries.windows(2).all(|pair| pair[0].bytes(field::NAME) < pair[1].bytes(field::NAME)));
    assert_eq!(response.text(field::PATH), root);
}

#[test]
fn directories_are_made_with_their_parents_for_the_user() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let path = agent.path("x/y/z");
    let response = client.ok(op::MAKE_DIR, |out| {
        out.bytes(field::PATH, path.as_bytes());
        out.bytes(field::USER, b"nobody");
    });
    assert_eq!(response.entry().bytes(field::OWNER), b"nobody");
    for part in ["x", "x/y", "x/y/z"] {
        let found = fs::metadata(agent.path(part)).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o7777), (65534, 0o755));
    }
    assert_eq!(client.error(op::MAKE_DIR, path_field(&path)), EXISTS);
    fs::write(agent.path("file"), "").unwrap();
    let response = client.call(op::MAKE_DIR, path_field(&agent.path("file")));
    assert_eq!((response.number(field::CODE), response.number(field::ERRNO)), (NOT_DIRECTORY, 0));
    let response = client.call(op::MAKE_DIR, path_field(&agent.path("file/below")));
    assert_eq!(response.number(field::CODE), NOT_DIRECTORY);
    assert_eq!(response.number(field::ERRNO), libc::ENOTDIR as u64);
}

#[test]
fn moving_makes_the_way_and_replaces_files() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let mut move_to = |from: &str, to: &str| {
        client.call(op::MOVE, |out| {
            out.bytes(field::PATH, agent.path(from).as_bytes());
            out.bytes(field::DESTINATION, agent.path(to).as_bytes());
        })
    };
    fs::write(agent.path("a"), "content").unwrap();
    fs::create_dir(agent.path("full")).unwrap();
    fs::write(agent.path("full/x"), "").unwrap();
    let response = move_to("a", "new/place/b");
    assert_eq!(text(response.entry().bytes(field::PATH)), agent.path("new/place/b"));
    assert_eq!(move_to("a", "c").number(field::CODE), NOT_FOUND);
    assert_eq!(move_to("new", "full").number(field::ERRNO), libc::ENOTEMPTY as u64);
    assert_eq!(move_to("new/place/b", "full/x").kind, 0);
    assert_eq!(fs::read(agent.path("full/x")).unwrap(), b"content");
}

#[test]
fn removing_takes_trees_of_any_depth_but_nothing_behind_links() {
    let agent = Agent::start();
    let mut client = agent.connect();
    fs::create_dir_all(agent.path("keep/inside")).unwrap();
    fs::write(agent.path("keep/inside/file"), "").unwrap();
    fs::create_dir(agent.path("tree")).unwrap();
    symlink(agent.path("keep"), agent.path("tree/link")).unwrap();
    for number in 0..300 {
        fs::create_dir(agent.path(&format!("tree/d{number}"))).unwrap();
        fs::write(agent.path(&format!("tree/d{number}/f")), "").unwrap();
    }
    // Far deeper than a path may be long, and than directories are kept open.
    let script = "cd tree; for i in $(seq 3000); do mkdir abcdefgh; cd abcdefgh; done; echo x > file";
    let ended = client.run(script, |out| out.bytes(field::CWD, agent.directory.to_str().unwrap().as_bytes()));
    assert_eq!(ended.exit_code, 0);
    client.ok(op::REMOVE, path_field(&agent.path("tree")));
    assert!(fs::symlink_metadata(agent.path("tree")).is_err());
    assert!(fs::metadata(agent.path("keep/inside/file")).is_ok());
    client.ok(op::REMOVE, path_field(&agent.path("tree")));
    symlink("keep", agent.path("link")).unwrap();
    client.ok(op::REMOVE, path_field(&agent.path("link")));
    assert!(fs::metadata(agent.path("keep/inside/file")).is_ok());
    assert_eq!(client.error(op::REMOVE, path_field("/")), INVALID);
}

#[test]
fn a_large_file_is_written_and_read_back_whole() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let content: Vec<u8> = (0..11_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let path = agent.path("deep/er/large");
    client.write_file(&path, &content);
    assert!(fs::read(&path).unwrap() == content);
    assert!(client.read_file(&path) == content);
    assert_eq!(client.read_file("/proc/self/comm"), b"sandbar-agent\n");
    client.write_file(&path, b"");
    assert_eq!(client.read_file(&path), b"");
}

#[test]
fn frames_of_the_largest_size_from_many_connections() {
    let agent = Agent::start();
    let path = agent.path("parallel");
    let handle = agent.connect().ok(op::OPEN_WRITE, path_field(&path)).number(field::HANDLE);
    let piece = (4 << 20) - 200;
    thread::scope(|scope| {
        for number in 0..20u8 {
            let agent = &agent;
            scope.spawn(move || {
                agent.connect().ok(op::WRITE_AT, |out| {
                    out.number(field::HANDLE, handle);
                    out.number(field::OFFSET, number as u64 * piece as u64);
                    out.bytes(field::DATA, &vec![number; piece]);
                });
            });
        }
    });
    let content = fs::read(&path).unwrap();
    assert_eq!(content.len(), 20 * piece);
    assert!(content.chunks(piece).enumerate().all(|(i, chunk)| chunk.iter().all(|&byte| byte == i as u8)));
    eventually("buffers are given back", || agent.resident_kilobytes() < 8_000);
}

#[test]
fn reading_at_offsets_and_past_the_end() {
    let agent = Agent::start();
    let mut client = agent.connect();
    fs::write(agent.path("f"), "0123456789").unwrap();
    let opened = client.ok(op::OPEN_READ, path_field(&agent.path("f")));
    assert_eq!((opened.number(field::SIZE), opened.number(field::TYPE)), (10, 1));
    let handle = opened.number(field::HANDLE);
    let mut read = |offset: u64, length: u64| {
        client.call(op::READ_AT, |out| {
            out.number(field::HANDLE, handle);
            out.number(field::OFFSET, offset);
            out.number(field::LENGTH, length);
        })
    };
    assert_eq!(read(2, 3).payload, b"234");
    assert_eq!(read(8, 100).payload, b"89");
    assert_eq!(read(10, 100).payload, b"");
    assert_eq!(read(1 << 40, 100).payload, b"");
    assert_eq!(read(0, 5 << 20).number(field::CODE), INVALID);
    assert_eq!(client.error(op::OPEN_READ, path_field("/etc")), IS_DIRECTORY);
    assert_eq!(client.error(op::READ_AT, |out| out.number(field::HANDLE, 999)), NOT_FOUND);
    client.ok(op::CLOSE, |out| out.number(field::HANDLE, handle));
    assert_eq!(client.error(op::CLOSE, |out| out.number(field::HANDLE, handle)), NOT_FOUND);
}

#[test]
fn opening_for_writing_gives_the_file_to_the_user_and_keeps_its_mode() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let path = agent.path("mine");
    let mut open = |truncate: u64| {
        client.ok(op::OPEN_WRITE, |out| {
            out.bytes(field::PATH, path.as_bytes());
            out.bytes(field::USER, b"nobody");
            out.number(field::TRUNCATE, truncate);
        })
    };
    assert_eq!(open(0).number(field::CREATED), 1);
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777), (65534, 0o644));
    fs::write(&path, "old content").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let c_path = std::ffi::CString::new(path.as_str()).unwrap();
    // SAFETY: the path is NUL-terminated.
    assert_eq!(unsafe { libc::chown(c_path.as_ptr(), 0, 0) }, 0);
    assert_eq!(open(0).number(field::CREATED), 0);
    assert_eq!(fs::read(&path).unwrap(), b"old content");
    let handle = open(1).number(field::HANDLE);
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777, found.len()), (65534, 0o755, 0));
    client.ok(op::WRITE_AT, |out| {
        out.number(field::HANDLE, handle);
        out.bytes(field::DATA, b"0123456789");
    });
    client.ok(op::CLOSE, |out| {
        out.number(field::HANDLE, handle);
        out.number(field::TRUNCATE, 1);
        out.number(field::OFFSET, 4);
    });
    assert_eq!(fs::read(&path).unwrap(), b"0123");
    assert_eq!(client.error(op::OPEN_WRITE, path_field(&agent.path(""))), IS_DIRECTORY);
    assert_eq!(client.error(op::OPEN_WRITE, path_field(&format!("{path}/below"))), NOT_DIRECTORY);
    client.ok(op::OPEN_WRITE, path_field("/dev/null"));
    assert_eq!(fs::metadata("/dev/null").unwrap().mode() & 0o170000, 0o020000);
    client.run("mkfifo fifo", |out| out.bytes(field::CWD, agent.directory.to_str().unwrap().as_bytes()));
    assert_ne!(client.error(op::OPEN_WRITE, path_field(&agent.path("fifo"))), 0);
}

#[test]
fn metadata_is_replaced_as_a_whole() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let path = agent.path("tagged");
    for wanted in [&["colour=green", "size=a=b"][..], &["size=2"], &[]] {
        client.ok(op::OPEN_WRITE, |out| {
            out.bytes(field::PATH, path.as_bytes());
            wanted.iter().for_each(|pair| out.bytes(field::XATTR, pair.as_bytes()));
        });
        let response = client.ok(op::STAT, path_field(&path));
        let mut found: Vec<String> = response.entry().all(field::XATTR).map(text).collect();
        found.sort();
        assert_eq!(found, wanted);
    }
}

#[test]
fn composing_joins_files_and_removes_the_parts() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let mut compose = |sources: &[&str], destination: &str| {
        client.call(op::COMPOSE, |out| {
            sources.iter().for_each(|source| out.bytes(field::SOURCE, agent.path(source).as_bytes()));
            out.bytes(field::DESTINATION, agent.path(destination).as_bytes());
            out.bytes(field::USER, b"nobody");
        })
    };
    fs::write(agent.path("1"), vec![1; 5_000_000]).unwrap();
    fs::write(agent.path("2"), "two").unwrap();
    fs::write(agent.path("3"), "").unwrap();
    fs::write(agent.path("whole"), "old").unwrap();
    assert_eq!(compose(&["1", "2", "none"], "whole").text(field::PATH), agent.path("none"));
    assert_eq!(compose(&["1", "."], "whole").number(field::CODE), NOT_REGULAR);
    assert_eq!(compose(&["1", "whole"], "whole").number(field::CODE), INVALID);
    assert_eq!(compose(&[], "whole").number(field::CODE), INVALID);
    assert_eq!(compose(&["1", "2", "3"], "whole").entry().number(field::SIZE), 5_000_003);
    let content = fs::read(agent.path("whole")).unwrap();
    assert_eq!((content[0], &content[5_000_000..]), (1, &b"two"[..]));
    assert_eq!(fs::metadata(agent.path("whole")).unwrap().uid(), 65534);
    let left: Vec<_> = fs::read_dir(&agent.directory).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["whole"]);
}

#[test]
fn paths_are_resolved_for_the_user() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let mut stat = |path: &str| client.call(op::STAT, path_field(path));
    assert_eq!(text(stat("~").entry().bytes(field::PATH)), "/root");
    assert_eq!(text(stat("").entry().bytes(field::PATH)), "/root");
    assert_eq!(text(stat("../etc/./passwd").entry().bytes(field::PATH)), "/etc/passwd");
    assert_eq!(stat("~daemon/x").number(field::CODE), INVALID);
    let unknown = client.error(op::STAT, |out| {
        out.bytes(field::PATH, b"/");
        out.bytes(field::USER, b"nobody-here");
    });
    assert_eq!(unknown, UNKNOWN_USER);
}

#[test]
fn the_disk_has_a_size_and_can_be_synced() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let response = client.ok(op::DISK, path_field("/"));
    assert!(response.number(field::TOTAL) > response.number(field::USED));
    client.ok(op::SYNC, |_| ());
    client.ok(op::SET_TIME, |out| out.number(field::MTIME_NS, 1));
}
