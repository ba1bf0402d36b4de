//! The life of a connection: accepting, greeting, reading requests, sending responses, closing.

use std::os::unix::io::AsRawFd;
use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::connection::{is_secret, After, Connection, Outgoing, State, Wait, GREETING, LISTENING, MAGIC};
use crate::errors::Error;
use crate::frame::{self, TooLong};
use crate::poller::{Token, BROKEN, PEER_CLOSED, READABLE, WRITABLE};
use crate::sys;
use crate::timers::Timer;
use crate::tunnel;
use crate::workers::{Owner, Task};

const GREETING_TIME: Duration = Duration::from_secs(5);
/// The oldest goes when another one comes: processes of the sandbox cannot keep the service out by opening many.
const MAX_STRANGERS: usize = 64;
const MAX_ACCEPTS: usize = 32;
/// Out of descriptors: time to wait before accepting again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Frames longer than this are admitted one by one, so that they never need more than the budget together.
const LONG_FRAME: usize = 64 << 10;
const FRAME_BUDGET: usize = 32 << 20;
const LONG_FRAME_TIME: Duration = Duration::from_secs(60);
const LINGER_TIME: Duration = Duration::from_secs(1);
/// Read from one connection before others get their turn.
const READ_BUDGET: usize = 1 << 20;

impl Agent {
    pub fn accept(&mut self) {
        for _ in 0..MAX_ACCEPTS {
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            let listener = self.listener.as_raw_fd();
            let (address, length) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: null means that the peer's address is not wanted.
            match sys::own(unsafe { libc::accept4(listener, address, length, flags) }) {
                Ok(socket) => self.welcome(Connection::new(socket)),
                Err(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    self.poller.update(listener, Token::Listener, &mut self.listener_interest, None);
                    self.timers.set(Instant::now() + ACCEPT_PAUSE, Timer::Listener);
                    return;
                }
                Err(libc::ECONNABORTED | libc::EINTR) => (),
                Err(_) => return,
            }
        }
    }

    pub fn listen(&mut self) {
        let listener = self.listener.as_raw_fd();
        self.poller.update(listener, Token::Listener, &mut self.listener_interest, Some(READABLE));
    }

    fn welcome(&mut self, mut connection: Connection) {
        tunnel::set_no_delay(connection.fd());
        self.last_connection += 1;
        let id = self.last_connection;
        connection.timer = Some(self.timers.set(Instant::now() + GREETING_TIME, Timer::Connection(id)));
        let fd = connection.fd();
        self.poller.update(fd, Token::Connection(id), &mut connection.interest, LISTENING);
        self.connections.insert(id, connection);
        self.strangers.push_back(id);
        self.greet(id);
        if self.strangers.len() > MAX_STRANGERS {
            let oldest = self.strangers[0];
            self.close(oldest);
        }
    }

    fn greet(&mut self, id: u64) {
        let connection = match self.connections.get_mut(&id) {
            Some(connection) => connection,
            None => return,
        };
        let fd = connection.fd();
        if let State::Greeting(greeting) = &mut connection.state {
            let missing = GREETING - greeting.len();
            match sys::read_onto(fd, greeting, missing) {
                Ok(0) => return self.close(id),
                Ok(count) if count < missing => return,
                Ok(_) => (),
                Err(libc::EAGAIN) => return,
                Err(_) => return self.close(id),
            }
            let settings = self.context.settings.lock().unwrap();
            let is_welcome = &greeting[..4] == MAGIC && is_secret(&greeting[4..], &settings.secret);
            drop(settings);
            self.strangers.retain(|&stranger| stranger != id);
            if is_welcome {
                self.send(id, vec![1], After::Idle);
            } else {
                self.send(id, vec![0], After::Close);
            }
        }
    }

    pub fn connection_event(&mut self, id: u64, mask: u32) {
        let connection = match self.connections.get_mut(&id) {
            Some(connection) => connection,
            None => return,
        };
        let is_broken = mask & BROKEN != 0;
        match &connection.state {
            State::Greeting(_) => self.greet(id),
            State::Idle => self.serve(id),
            State::Sending(_) if is_broken => self.close(id),
            State::Sending(_) => self.flush(id),
            State::Blocked(_) if is_broken => self.close(id),
            State::Blocked(_) => self.unblock(id),
            State::Tunnel(_) => self.pump_tunnel(id),
            State::Lingering => self.linger(id),
            // A request is under way or waits: closing the connection cancels it.
            State::Working | State::Waiting(_) | State::Dialing(_) | State::Parked => {
                if is_broken || mask & PEER_CLOSED != 0 {
                    self.close(id);
                } else {
                    // The client has sent more than it may; it is read later.
                    self.set_interest(id, PEER_CLOSED);
                }
            }
        }
    }

    /// Reads and handles requests until one has to wait or there are none.
    pub fn serve(&mut self, id: u64) {
        let mut read = 0;
        loop {
            let connection = match self.connections.get_mut(&id) {
                Some(connection) if matches!(connection.state, State::Idle) => connection,
                _ => return,
            };
            match connection.input.take() {
                Err(TooLong) => {
                    let error = Error::invalid("a frame has at most 4 MiB");
                    return self.send(id, frame::error(&error), After::Linger);
                }
                Ok(Some(request)) => {
                    self.timers.cancel(&mut connection.timer);
                    let is_drained = connection.input.is_empty();
                    self.handle(id, request);
                    if is_drained {
                        return;
                    }
                    continue;
                }
                Ok(None) => (),
            }
            if read >= READ_BUDGET || !self.admit_frame(id) {
                return;
            }
            read += match self.read_more(id) {
                Some(count) => count,
                None => return,
            };
        }
    }

    /// None when there is nothing more to read now.
    fn read_more(&mut self, id: u64) -> Option<usize> {
        let connection = self.connections.get_mut(&id)?;
        let fd = connection.fd();
        let (buffer, step) = connection.input.space();
        match sys::read_onto(fd, buffer, step) {
            Ok(count) if count > 0 => Some(count),
            Err(libc::EAGAIN) => {
                if connection.input.is_empty() {
                    connection.input.take_rest();
                }
                None
            }
            _ => {
                self.close(id);
                None
            }
        }
    }

    /// Finds memory for a long frame; without any the connection waits until another one is done with its own.
    fn admit_frame(&mut self, id: u64) -> bool {
        let connection = match self.connections.get_mut(&id) {
            Some(connection) => connection,
            None => return false,
        };
        let length = connection.input.payload_length().unwrap_or(0);
        if length <= LONG_FRAME || connection.reserved > 0 {
            return true;
        }
        if self.frame_bytes + length > FRAME_BUDGET {
            connection.state = State::Parked;
            self.parked.push_back(id);
            self.set_interest(id, PEER_CLOSED);
            return false;
        }
        self.frame_bytes += length;
        connection.reserved = length;
        connection.input.reserve_payload();
        connection.timer = Some(self.timers.set(Instant::now() + LONG_FRAME_TIME, Timer::Connection(id)));
        true
    }

    fn release_frame(&mut self, reserved: usize) {
        self.frame_bytes -= reserved;
        self.note_freed(reserved);
        let places = (FRAME_BUDGET - self.frame_bytes) / frame::MAX_PAYLOAD;
        for _ in 0..places.min(self.parked.len()) {
            let id = self.parked.pop_front().unwrap_or(0);
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.state = State::Idle;
                self.set_interest(id, READABLE | PEER_CLOSED);
                self.ready.push(id);
            }
        }
    }

    pub fn respond(&mut self, id: u64, response: Vec<u8>) {
        self.send(id, response, After::Idle);
    }

    pub fn respond_error(&mut self, id: u64, error: &Error) {
        self.respond(id, frame::error(error));
    }

    pub fn send_then_resume(&mut self, id: u64, response: Vec<u8>, task: Box<dyn Task>) {
        self.send(id, response, After::Resume(task));
    }

    pub fn send(&mut self, id: u64, bytes: Vec<u8>, after: After) {
        if let Some(connection) = self.connections.get_mut(&id) {
            self.timers.cancel(&mut connection.timer);
            connection.output = Outgoing::new(bytes);
            connection.state = State::Sending(after);
            self.flush(id);
        }
    }

    fn flush(&mut self, id: u64) {
        let connection = match self.connections.get_mut(&id) {
            Some(connection) => connection,
            None => return,
        };
        match connection.output.send(connection.fd()) {
            Err(_) => return self.close(id),
            Ok(false) => return self.set_interest(id, WRITABLE),
            Ok(true) => (),
        }
        match std::mem::replace(&mut connection.state, State::Working) {
            State::Sending(After::Resume(task)) => {
                self.set_interest(id, READABLE | PEER_CLOSED);
                self.workers.submit(Owner::Connection(id), task);
            }
            State::Sending(After::Tunnel(target, interest)) => self.open_tunnel(id, target, interest),
            State::Sending(After::Linger) => self.begin_lingering(id),
            State::Sending(After::Close) => self.close(id),
            _ => self.become_idle(id),
        }
    }

    pub fn become_idle(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::Idle;
            if !connection.input.is_empty() {
                self.ready.push(id);
            }
            let reserved = std::mem::take(&mut connection.reserved);
            self.set_interest(id, READABLE | PEER_CLOSED);
            self.release_frame(reserved);
        }
    }

    pub fn wait_writable(&mut self, id: u64, task: Box<dyn Task>) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::Blocked(task);
            self.set_interest(id, WRITABLE);
        }
    }

    fn unblock(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            if let State::Blocked(task) = std::mem::replace(&mut connection.state, State::Working) {
                self.set_interest(id, READABLE | PEER_CLOSED);
                self.workers.submit(Owner::Connection(id), task);
            }
        }
    }

    /// Leaves the connection waiting; with `wait_ms` above 0 at most that long.
    pub fn wait(&mut self, id: u64, wait: Wait, wait_ms: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::Waiting(wait);
            if wait_ms > 0 {
                let at = Instant::now() + Duration::from_millis(wait_ms.min(u32::MAX.into()));
                connection.timer = Some(self.timers.set(at, Timer::Connection(id)));
            }
        }
    }

    pub fn wait_of(&self, id: u64) -> Option<&Wait> {
        match &self.connections.get(&id)?.state {
            State::Waiting(wait) => Some(wait),
            _ => None,
        }
    }

    pub fn connection_timeout(&mut self, id: u64) {
        let connection = match self.connections.get_mut(&id) {
            Some(connection) => connection,
            None => return,
        };
        connection.timer = None;
        match &connection.state {
            State::Waiting(Wait::Output(wait)) => {
                let wait = *wait;
                self.serve_reader(id, wait, true);
            }
            State::Waiting(Wait::Watch { watcher, sequence }) => {
                let (watcher, sequence) = (*watcher, *sequence);
                self.serve_watch_read(id, watcher, sequence, true);
            }
            State::Dialing(_) => self.dial_failed(id, libc::ETIMEDOUT),
            _ => self.close(id),
        }
    }

    fn begin_lingering(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::Lingering;
            connection.timer = Some(self.timers.set(Instant::now() + LINGER_TIME, Timer::Connection(id)));
            // SAFETY: takes no pointer.
            unsafe { libc::shutdown(connection.fd(), libc::SHUT_WR) };
            self.set_interest(id, READABLE);
            self.linger(id);
        }
    }

    fn linger(&mut self, id: u64) {
        if let Some(connection) = self.connections.get(&id) {
            match sys::read(connection.fd(), &mut self.scratch) {
                Ok(count) if count > 0 => (),
                Err(libc::EAGAIN) => (),
                _ => self.close(id),
            }
        }
    }

    pub fn set_interest(&mut self, id: u64, wanted: u32) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let fd = connection.fd();
            self.poller.update(fd, Token::Connection(id), &mut connection.interest, Some(wanted));
        }
    }

    /// Cancels what waits on the connection, and nothing else.
    pub fn close(&mut self, id: u64) {
        let mut connection = match self.connections.remove(&id) {
            Some(connection) => connection,
            None => return,
        };
        let fd = connection.fd();
        self.poller.update(fd, Token::Connection(id), &mut connection.interest, None);
        self.timers.cancel(&mut connection.timer);
        match &mut connection.state {
            State::Greeting(_) => self.strangers.retain(|&stranger| stranger != id),
            State::Parked => self.parked.retain(|&parked| parked != id),
            State::Waiting(Wait::Output(wait)) => self.leave_readers(id, *wait),
            State::Waiting(Wait::Watch { watcher, .. }) => self.leave_watch_readers(id, *watcher),
            State::Waiting(Wait::Input(process)) => self.cancel_input(id, *process),
            State::Dialing(dial) => {
                let fd = dial.target.as_raw_fd();
                self.poller.update(fd, Token::DialTarget(id), &mut dial.interest, None);
            }
            State::Sending(After::Tunnel(target, interest)) => {
                self.poller.update(target.as_raw_fd(), Token::DialTarget(id), interest, None);
            }
            State::Tunnel(tunnel) => {
                let fd = tunnel.target();
                self.poller.update(fd, Token::DialTarget(id), &mut tunnel.target_interest, None);
            }
            _ => (),
        }
        self.release_frame(connection.reserved);
    }
}
