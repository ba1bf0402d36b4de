//! An agent of its own for each test, and a client that speaks the protocol to it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sandbar_agent::fields::{field, Message, Writer};
use sandbar_agent::frame;
use sandbar_agent::operations::operation as op;

pub const SECRET: [u8; 32] = [0xa5; 32];

/// The agent and a directory for the test's files; both go when it is dropped.
pub struct Agent {
    process: Child,
    pub port: u16,
    pub directory: PathBuf,
}

impl Agent {
    pub fn start() -> Agent {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("sandbar-agent-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        // Another program may take the port between the choice and the start: then the agent exits with 70.
        for _ in 0..10 {
            if let Some((process, port)) = start_process() {
                return Agent { process, port, directory };
            }
        }
        panic!("the agent does not start");
    }

    pub fn connect(&self) -> Client {
        let mut client = Client { stream: TcpStream::connect(("127.0.0.1", self.port)).unwrap() };
        client.stream.set_nodelay(true).unwrap();
        client.stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        assert_eq!(client.greet(&SECRET), Some(1));
        client
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn resident_kilobytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        resident.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub fn wait_for_exit(&mut self, limit: Duration) -> Option<i32> {
        let begin = Instant::now();
        while begin.elapsed() < limit {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // SAFETY: takes no pointer; the process is this test's own child.
        unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
        if self.wait_for_exit(Duration::from_secs(5)).is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn start_process() -> Option<(Child, u16)> {
    let port = next_port();
    let secret: String = SECRET.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut process = Command::new(env!("CARGO_BIN_EXE_sandbar-agent"))
        .env_clear()
        .env("SANDBAR_SECRET", secret)
        .env("SANDBAR_PORT", port.to_string())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    // Once it listens it has wiped its environment.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(10) {
        if process.try_wait().unwrap().is_some() {
            return None;
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some((process, port));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    process.kill().unwrap();
    process.wait().unwrap();
    None
}

/// Below those that the kernel gives to outgoing connections. Not tried out first: a listener that has just been closed may take
/// the connection that is meant for the agent.
fn next_port() -> u16 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id().wrapping_mul(31) + COUNT.fetch_add(1, Ordering::Relaxed);
    10_000 + (number % 6_000) as u16
}

pub struct Client {
    pub stream: TcpStream,
}

/// A response: its type, and its payload (those of all frames, one after the other).
#[derive(Debug)]
pub struct Response {
    pub kind: u8,
    pub payload: Vec<u8>,
    pub frames: usize,
}

impl Client {
    pub fn raw(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client { stream }
    }

    /// The byte the agent answers; none when it closes.
    pub fn greet(&mut self, secret: &[u8]) -> Option<u8> {
        self.stream.write_all(&[b"SBA1", secret].concat()).unwrap();
        let mut answer = [0];
        match self.stream.read(&mut answer) {
            Ok(1) => Some(answer[0]),
            _ => None,
        }
    }

    pub fn send(&mut self, operation: u8, fill: impl FnOnce(&mut Writer)) {
        self.stream.write_all(&frame::build(operation, fill)).unwrap();
    }

    pub fn receive(&mut self) -> Response {
        let mut response = Response { kind: frame::MORE, payload: Vec::new(), frames: 0 };
        while response.kind == frame::MORE {
            let mut header = [0; frame::HEADER];
            self.stream.read_exact(&mut header).unwrap();
            let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
            let start = response.payload.len();
            response.payload.resize(start + length, 0);
            self.stream.read_exact(&mut response.payload[start..]).unwrap();
            response.kind = header[0];
            response.frames += 1;
        }
        response
    }

    pub fn call(&mut self, operation: u8, fill: impl FnOnce(&mut Writer)) -> Response {
        self.send(operation, fill);
        self.receive()
    }

    /// A call that must succeed.
    pub fn ok(&mut self, operation: u8, fill: impl FnOnce(&mut Writer)) -> Response {
        let response = self.call(operation, fill);
        assert_eq!(response.kind, frame::OK, "failed: {}", response.text(field::MESSAGE));
        response
    }

    /// The code of a call that must fail.
    pub fn error(&mut self, operation: u8, fill: impl FnOnce(&mut Writer)) -> u64 {
        let response = self.call(operation, fill);
        assert_eq!(response.kind, frame::ERROR, "did not fail");
        response.number(field::CODE)
    }

    pub fn start_shell(&mut self, script: &str, fill: impl FnOnce(&mut Writer)) -> u64 {
        let response = self.ok(op::START, |out| {
            out.bytes(field::CMD, b"/bin/sh");
            out.bytes(field::ARG, b"-c");
            out.bytes(field::ARG, script.as_bytes());
            fill(out);
        });
        response.number(field::PID)
    }

    /// Reads as subscriber 1 until the process has ended.
    pub fn finish(&mut self, pid: u64) -> Ended {
        let mut ended = Ended::default();
        let mut offset = 0;
        loop {
            let response = self.ok(op::READ_OUTPUT, |out| {
                out.number(field::PID, pid);
                out.number(field::SUBSCRIBER, 1);
                out.number(field::OFFSET, offset);
                out.number(field::WAIT_MS, 20_000);
            });
            ended.lost += response.number(field::LOST);
            assert_eq!(response.number(field::OFFSET), offset + response.number(field::LOST));
            offset = response.number(field::OFFSET) + ended.take(&response);
            if response.message().flag(field::ENDED) {
                ended.exit_code = response.number(field::EXIT_CODE) as i64;
                ended.signal = response.number(field::SIGNAL);
                ended.deadline_hit = response.message().flag(field::DEADLINE_HIT);
                return ended;
            }
        }
    }

    /// Runs a script to its end.
    pub fn run(&mut self, script: &str, fill: impl FnOnce(&mut Writer)) -> Ended {
        let pid = self.start_shell(script, |out| {
            out.number(field::SUBSCRIBER, 1);
            fill(out);
        });
        self.finish(pid)
    }

    pub fn write_file(&mut self, path: &str, content: &[u8]) {
        let opened = self.ok(op::OPEN_WRITE, |out| {
            out.bytes(field::PATH, path.as_bytes());
            out.number(field::TRUNCATE, 1);
        });
        let handle = opened.number(field::HANDLE);
        for (index, piece) in content.chunks(1 << 20).enumerate() {
            self.ok(op::WRITE_AT, |out| {
                out.number(field::HANDLE, handle);
                out.number(field::OFFSET, (index << 20) as u64);
                out.bytes(field::DATA, piece);
            });
        }
        self.ok(op::CLOSE, |out| out.number(field::HANDLE, handle));
    }

    pub fn read_file(&mut self, path: &str) -> Vec<u8> {
        let opened = self.ok(op::OPEN_READ, |out| out.bytes(field::PATH, path.as_bytes()));
        let handle = opened.number(field::HANDLE);
        let mut content = Vec::new();
        loop {
            let piece = self.ok(op::READ_AT, |out| {
                out.number(field::HANDLE, handle);
                out.number(field::OFFSET, content.len() as u64);
                out.number(field::LENGTH, 4 << 20);
            });
            content.extend_from_slice(&piece.payload);
            if piece.payload.len() < 4 << 20 {
                break;
            }
        }
        self.ok(op::CLOSE, |out| out.number(field::HANDLE, handle));
        content
    }

    /// The peer has closed: nothing comes any more.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 64]), Ok(0) | Err(_))
    }

    pub fn close_writing(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

impl Response {
    pub fn message(&self) -> Message<'_> {
        Message::parse(&self.payload).unwrap()
    }

    pub fn number(&self, number: u8) -> u64 {
        self.message().number(number)
    }

    pub fn text(&self, number: u8) -> String {
        String::from_utf8_lossy(self.message().bytes(number)).into_owned()
    }

    pub fn records(&self, number: u8) -> Vec<Message<'_>> {
        self.message().all(number).map(|record| Message::parse(record).unwrap()).collect()
    }

    pub fn entry(&self) -> Message<'_> {
        self.records(field::ENTRY)[0]
    }
}

/// All that a process has written and how it ended.
#[derive(Debug, Default)]
pub struct Ended {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub pty: Vec<u8>,
    pub exit_code: i64,
    pub signal: u64,
    pub deadline_hit: bool,
    pub lost: u64,
}

impl Ended {
    /// Adds the chunks of a response; returns their length.
    pub fn take(&mut self, response: &Response) -> u64 {
        let mut length = 0;
        for chunk in response.records(field::CHUNK) {
            let data = chunk.bytes(field::DATA);
            length += data.len() as u64;
            match chunk.number(field::STREAM) {
                1 => self.stdout.extend_from_slice(data),
                2 => self.stderr.extend_from_slice(data),
                _ => self.pty.extend_from_slice(data),
            }
        }
        length
    }

    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Repeats until it is true.
pub fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < Duration::from_secs(10), "never happened: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
