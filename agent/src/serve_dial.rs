//! DIAL on the event loop: connecting, and moving the bytes of tunnels.

use std::os::unix::io::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::connection::{After, Dial, State};
use crate::errors::{Code, Error};
use crate::fields::{field, Message};
use crate::frame;
use crate::poller::{Interest, Token, WRITABLE};
use crate::sys::Errno;
use crate::timers::Timer;
use crate::tunnel::{self, Loopback, Tunnel};

const DIAL_TIME: Duration = Duration::from_secs(10);

impl Agent {
    pub fn dial(&mut self, id: u64, request: &Message) {
        match u16::try_from(request.number(field::PORT)) {
            Ok(port) if port > 0 => self.connect(id, Loopback::V4, port),
            _ => self.respond_error(id, &Error::invalid("a port is a number from 1 to 65535")),
        }
    }

    fn connect(&mut self, id: u64, loopback: Loopback, port: u16) {
        let target = match tunnel::connect(loopback, port) {
            Ok(target) => target,
            Err(errno) => return self.connect_failed(id, loopback, port, errno),
        };
        if let Some(connection) = self.connections.get_mut(&id) {
            let mut interest = None;
            self.poller.update(target.as_raw_fd(), Token::DialTarget(id), &mut interest, Some(WRITABLE));
            self.timers.cancel(&mut connection.timer);
            connection.timer = Some(self.timers.set(Instant::now() + DIAL_TIME, Timer::Connection(id)));
            connection.state = State::Dialing(Dial { target, interest, loopback, port });
        }
    }

    fn connect_failed(&mut self, id: u64, loopback: Loopback, port: u16, errno: Errno) {
        match loopback {
            // Servers that listen on ::1 only.
            Loopback::V4 if errno == libc::ECONNREFUSED => self.connect(id, Loopback::V6, port),
            // A sandbox without IPv6: nothing listens there, and nothing did on 127.0.0.1.
            Loopback::V6 => self.dial_failed(id, libc::ECONNREFUSED),
            Loopback::V4 => self.dial_failed(id, errno),
        }
    }

    pub fn dial_failed(&mut self, id: u64, errno: Errno) {
        if let Some(connection) = self.connections.get_mut(&id) {
            if let State::Dialing(dial) = &mut connection.state {
                let fd = dial.target.as_raw_fd();
                self.poller.update(fd, Token::DialTarget(id), &mut dial.interest, None);
            }
        }
        self.respond_error(id, &Error::with_errno(Code::Refused, errno));
    }

    /// The far side of a tunnel, or of one that is to be.
    pub fn target_event(&mut self, id: u64) {
        match self.connections.get(&id).map(|connection| &connection.state) {
            Some(State::Dialing(_)) => self.connected(id),
            Some(State::Tunnel(_)) => self.pump_tunnel(id),
            _ => (),
        }
    }

    fn connected(&mut self, id: u64) {
        let connection = match self.connections.get_mut(&id) {
            Some(connection) => connection,
            None => return,
        };
        let mut dial = match std::mem::replace(&mut connection.state, State::Working) {
            State::Dialing(dial) => dial,
            _ => return,
        };
        // Not registered until the response is out: an idle target would be writable all the time.
        let fd = dial.target.as_raw_fd();
        self.poller.update(fd, Token::DialTarget(id), &mut dial.interest, None);
        match tunnel::connect_outcome(&dial.target) {
            Ok(()) => self.send(id, frame::empty_ok(), After::Tunnel(dial.target, dial.interest)),
            Err(errno) => self.connect_failed(id, dial.loopback, dial.port, errno),
        }
    }

    pub fn open_tunnel(&mut self, id: u64, target: OwnedFd, interest: Interest) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let first = connection.input.take_rest();
            let tunnel = Tunnel::new(connection.socket.clone(), target, interest, first);
            connection.state = State::Tunnel(Box::new(tunnel));
            self.pump_tunnel(id);
        }
    }

    pub fn pump_tunnel(&mut self, id: u64) {
        let connection = match self.connections.get_mut(&id) {
            Some(connection) => connection,
            None => return,
        };
        let fd = connection.fd();
        if let State::Tunnel(tunnel) = &mut connection.state {
            match tunnel.pump(&mut self.scratch) {
                Ok(false) => {
                    let (client, target) = tunnel.interests();
                    let target_fd = tunnel.target();
                    self.poller.update(target_fd, Token::DialTarget(id), &mut tunnel.target_interest, target);
                    self.poller.update(fd, Token::Connection(id), &mut connection.interest, client);
                }
                Ok(true) | Err(tunnel::Broken) => self.close(id),
            }
        }
    }
}
