//! `serve`: requests on standard input, answers and events on standard output, one line each, words parted by tabs.
//!
//! Request: `ID OP WORD...`. Answer: `ID ok [WORD...]` or `ID error MESSAGE`. Events: `- exit KEY`, `- memory KEY`. The end of input is
//! the end of the program. The request `batch` holds several: `COUNT OP WORD...` for each, with the number of its words; they are done in this order,
//! and the first that fails is the last. In a word `\\` stands for a backslash, `\t` for a tab, `\n` for a line feed.

use crate::run::{Request, Runs};
use crate::sys::Outcome;
use crate::watch::{Kind, Watch};
use crate::{conntrack, files, identity, idmap, mounts, slot, sparse};
use std::io::{self, Read, Write};
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const WORKERS: usize = 8;

pub fn serve() -> Outcome<()> {
    let (sender, receiver) = channel::<String>();
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..WORKERS {
        let receiver = Arc::clone(&receiver);
        thread::spawn(move || work(&receiver));
    }
    let runs = Runs::default();
    let mut watch = Watch::new()?;
    let mut pending = Vec::new();
    let mut chunk = [0u8; 65536];
    loop {
        let (input, told) = watch.wait()?;
        for (kind, key) in told {
            let event = match kind {
                Kind::Exit => "exit",
                Kind::Memory => "memory",
            };
            say(&format!("-\t{event}\t{key}"));
        }
        if !input {
            continue;
        }
        let count = io::stdin()
            .read(&mut chunk)
            .map_err(|error| error.to_string())?;
        if count == 0 {
            return Ok(());
        }
        pending.extend_from_slice(&chunk[..count]);
        while let Some(end) = pending.iter().position(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(&pending[..end]).into_owned();
            pending.drain(..=end);
            let words: Vec<&str> = line.split('\t').collect();
            // Watching changes the loop's own state, so it is done here; what may take long is done by the workers.
            match words.as_slice() {
                [id, "watch", key, pid] => answer(
                    id,
                    pid.parse()
                        .map_err(|_| "bad pid".to_string())
                        .and_then(|pid| watch.watch(key, pid)),
                ),
                [id, "watch-memory", key, group, threshold] => {
                    match watch.watch_memory(key, &unescaped(group), threshold) {
                        Ok(register) => {
                            let id = id.to_string();
                            thread::spawn(move || answer(&id, register()));
                        }
                        Err(message) => answer(id, Err(message)),
                    }
                }
                [id, "forget", key] => {
                    watch.forget(key);
                    answer(id, Ok(()));
                }
                [id, "stop", run] => {
                    runs.stop(run);
                    answer(id, Ok(()));
                }
                // In a thread of its own: programs may take minutes, and the workers are few.
                [id, "run", ..] => {
                    runs.expect(id);
                    let (id, line, runs) = (id.to_string(), line.clone(), runs.clone());
                    thread::spawn(move || reply(&id, run(&runs, &id, &line)));
                }
                _ => sender.send(line).map_err(|error| error.to_string())?,
            }
        }
    }
}

fn work(receiver: &Mutex<Receiver<String>>) {
    loop {
        let line = match receiver.lock().map(|held| held.recv()) {
            Ok(Ok(line)) => line,
            _ => return,
        };
        let words: Vec<String> = line.split('\t').map(unescaped).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if let [id, op, rest @ ..] = words.as_slice() {
            match (*op, rest) {
                ("origin", [client, client_port, local, local_port]) => {
                    reply(id, origin(client, client_port, local, local_port))
                }
                _ => answer(id, perform(op, rest)),
            }
        }
    }
}

fn batch(mut words: &[&str]) -> Outcome<()> {
    while let [count, op, rest @ ..] = words {
        let count: usize = count
            .parse()
            .map_err(|_| format!("'{count}' is not a number"))?;
        if count > rest.len() {
            return Err(format!("{op} lacks words"));
        }
        perform(op, &rest[..count])?;
        words = &rest[count..];
    }
    match words {
        [] => Ok(()),
        _ => Err("half an order".to_string()),
    }
}

fn perform(op: &str, words: &[&str]) -> Outcome<()> {
    match (op, words) {
        ("batch", orders) => batch(orders),
        ("make-directory", [path]) => files::make_directory(path),
        ("write", [path, text]) => files::write(path, text),
        ("rename", [from, to]) => files::rename(from, to),
        ("remove", [path]) => files::remove(path),
        ("remove-group", [path]) => files::remove_group(path),
        ("idmap", [source, target, base, count, access]) => {
            let number = |text: &str| {
                text.parse::<u32>()
                    .map_err(|_| format!("'{text}' is not a number"))
            };
            idmap::idmap(
                source,
                target,
                number(base)?,
                number(count)?,
                *access == "ro",
            )
        }
        ("overlay", [target, data]) => mounts::overlay(target, data),
        ("overlay", [target, data, owner]) => {
            let owner = owner
                .parse()
                .map_err(|_| format!("'{owner}' is not a number"))?;
            identity::as_owner(owner, || mounts::overlay(target, data))
        }
        ("loop", [file, target, data]) => mounts::mount_loop(file, target, data),
        ("loop-again", [file, target, data]) => mounts::mount_loop_again(file, target, data),
        ("unmount", [target]) => mounts::unmount(target),
        ("copy", [source, target]) => sparse::copy(source, target),
        ("slot-make", [name, interface, host, guest]) => slot::make(name, interface, host, guest),
        ("slot-remove", [name, interface]) => slot::remove(name, interface),
        ("forget-flows", addresses) => {
            let parsed: Result<Vec<_>, _> = addresses.iter().map(|text| text.parse()).collect();
            conntrack::forget_flows(&parsed.map_err(|_| "not all are IPv4 addresses".to_string())?)
        }
        ("sync", [path]) => mounts::sync_filesystem(path),
        _ => Err(format!("unknown request {op} with {} words", words.len())),
    }
}

fn origin(client: &str, client_port: &str, local: &str, local_port: &str) -> Outcome<String> {
    let endpoint = |address: &str, port: &str| -> Outcome<conntrack::Endpoint> {
        Ok(conntrack::Endpoint {
            address: address
                .parse()
                .map_err(|_| format!("'{address}' is not an IPv4 address"))?,
            port: port
                .parse()
                .map_err(|_| format!("'{port}' is not a port"))?,
        })
    };
    let found = conntrack::original_destination(
        &endpoint(client, client_port)?,
        &endpoint(local, local_port)?,
    )?;
    Ok(format!("{}\t{}", found.address, found.port))
}

fn run(runs: &Runs, id: &str, line: &str) -> Outcome<String> {
    let mut words = line.split('\t').skip(2).map(unescaped);
    let mut next = || words.next().ok_or("a program to run, and how, is missing");
    let limit = next()?.parse().map_err(|_| "bad time limit")?;
    let output = next()?;
    let ended = runs.run(
        id,
        Request {
            limit: Duration::from_millis(limit),
            discard_output: output == "discard",
            input: next()?,
            program: next()?,
            args: words.collect(),
        },
    )?;
    let status = ended
        .status
        .map_or("timeout".to_string(), |status| status.to_string());
    Ok(format!(
        "{status}\t{}\t{}",
        escaped(&ended.stdout),
        escaped(&ended.stderr)
    ))
}

fn answer(id: &str, outcome: Outcome<()>) {
    reply(id, outcome.map(|()| String::new()))
}

fn reply(id: &str, outcome: Outcome<String>) {
    match outcome {
        Ok(words) if words.is_empty() => say(&format!("{id}\tok")),
        Ok(words) => say(&format!("{id}\tok\t{words}")),
        Err(message) => say(&format!(
            "{id}\terror\t{}",
            escaped(&message.replace('\n', " "))
        )),
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('\t', "\\t")
        .replace('\n', "\\n")
}

fn unescaped(word: &str) -> String {
    if !word.contains('\\') {
        return word.to_string();
    }
    let mut text = String::with_capacity(word.len());
    let mut characters = word.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('t') => text.push('\t'),
                Some('n') => text.push('\n'),
                other => text.extend(other),
            },
            _ => text.push(character),
        }
    }
    text
}

/// One write a line, so that lines of different threads never mix.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    // The service is gone when this fails, and the end of input says so too.
    let _ = out.write_all(format!("{line}\n").as_bytes());
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_what_parts_them() {
        let text = "a\tb\nc\\d\\n";
        assert!(!escaped(text).contains(|c| c == '\t' || c == '\n'));
        assert_eq!(unescaped(&escaped(text)), text);
        assert_eq!(unescaped("/plain/path"), "/plain/path");
    }

    #[test]
    fn a_batch_goes_on_until_one_fails() {
        let place = std::env::temp_dir().join(format!("sandbar-batch-{}", std::process::id()));
        let at = |name: &str| place.join(name).to_str().unwrap().to_string();
        let (directory, file, lost) = (at(""), at("file"), at("none/file"));
        batch(&["1", "make-directory", &directory, "2", "write", &file, ""]).unwrap();
        let failed = batch(&["2", "write", &lost, "x", "1", "remove", &file]).unwrap_err();
        assert!(failed.contains(&lost) && place.join("file").exists());
        assert!(batch(&["2", "remove", &file]).is_err());
        assert!(batch(&["1"]).is_err());
        assert!(batch(&["0", "batch", "1", "nonsense", "x"]).is_err());
        batch(&["1", "remove", &directory]).unwrap();
        assert!(!place.exists());
    }
}
