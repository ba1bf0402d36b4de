//! The operations by number, and who does them: the event loop at once, or a worker.

use std::os::unix::io::OwnedFd;
use std::sync::Arc;

use crate::agent::Agent;
use crate::compose::Compose;
use crate::configure;
use crate::connection::State;
use crate::context::Context;
use crate::errors::{Code, Error, Outcome};
use crate::fields::{field, Message};
use crate::files;
use crate::frame::{self, Request};
use crate::list::List;
use crate::read_at::ReadAt;
use crate::remove::Remove;
use crate::workers::{Owner, Reply, Step, Task};

pub mod operation {
    pub const PING: u8 = 1;
    pub const CONFIGURE: u8 = 2;
    pub const STAT: u8 = 3;
    pub const LIST: u8 = 4;
    pub const MAKE_DIR: u8 = 5;
    pub const MOVE: u8 = 6;
    pub const REMOVE: u8 = 7;
    pub const OPEN_READ: u8 = 8;
    pub const READ_AT: u8 = 9;
    pub const OPEN_WRITE: u8 = 10;
    pub const WRITE_AT: u8 = 11;
    pub const CLOSE: u8 = 12;
    pub const COMPOSE: u8 = 13;
    pub const WATCH_CREATE: u8 = 14;
    pub const WATCH_READ: u8 = 15;
    pub const WATCH_REMOVE: u8 = 16;
    pub const START: u8 = 17;
    pub const READ_OUTPUT: u8 = 18;
    pub const UNSUBSCRIBE: u8 = 19;
    pub const WRITE_INPUT: u8 = 20;
    pub const CLOSE_STDIN: u8 = 21;
    pub const SIGNAL: u8 = 22;
    pub const RESIZE: u8 = 23;
    pub const PROCESSES: u8 = 24;
    pub const DIAL: u8 = 25;
    pub const RELIEVE: u8 = 26;
    pub const DISK: u8 = 27;
    pub const SYNC: u8 = 28;
    pub const SET_TIME: u8 = 29;
}

impl Agent {
    pub fn handle(&mut self, id: u64, request: Request) {
        use operation::*;
        let message = match Message::parse(request.payload()) {
            Ok(message) => message,
            Err(_) => return self.respond_error(id, &malformed()),
        };
        match request.operation() {
            PING => self.respond(id, frame::empty_ok()),
            WATCH_READ => self.watch_read(id, &message),
            READ_OUTPUT => self.read_output(id, &message),
            WRITE_INPUT => self.take_input(id, &message),
            DIAL => self.dial(id, &message),
            UNSUBSCRIBE => self.answer(id, |agent| agent.unsubscribe(&message)),
            CLOSE_STDIN => self.answer(id, |agent| agent.close_stdin(&message)),
            SIGNAL => self.answer(id, |agent| agent.signal(&message)),
            RESIZE => self.answer(id, |agent| agent.resize(&message)),
            PROCESSES => self.answer(id, |agent| Ok(agent.list_processes())),
            RELIEVE => self.answer(id, |agent| agent.relieve(&message)),
            START => self.start(id, request),
            WATCH_REMOVE => {
                let watcher = message.number(field::WATCHER);
                match self.context.watches.close(watcher) {
                    Ok(()) => {
                        self.serve_watch_readers(watcher);
                        self.give_to_worker(id, request);
                    }
                    Err(error) => self.respond_error(id, &error),
                }
            }
            CONFIGURE..=SET_TIME => self.give_to_worker(id, request),
            _ => {
                let error = Error::new(Code::Unsupported, "unknown operation");
                self.respond_error(id, &error);
            }
        }
    }

    fn answer(&mut self, id: u64, act: impl FnOnce(&mut Agent) -> Outcome<Vec<u8>>) {
        match act(self) {
            Ok(response) => self.respond(id, response),
            Err(error) => self.respond_error(id, &error),
        }
    }

    fn give_to_worker(&mut self, id: u64, request: Request) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::Working;
            let socket = connection.socket.clone();
            let is_watch = matches!(request.operation(), operation::WATCH_CREATE | operation::WATCH_REMOVE);
            let task = Box::new(Operation { request: Some(request), socket, rest: None });
            if is_watch {
                self.submit_watch_task(Some(id), task);
            } else {
                self.workers.submit(Owner::Connection(id), task);
            }
        }
    }
}

/// A request on a worker: done in its first step, or turned into a task of several.
struct Operation {
    request: Option<Request>,
    socket: Arc<OwnedFd>,
    rest: Option<Box<dyn Task>>,
}

enum Begun {
    Response(Vec<u8>),
    Rest(Box<dyn Task>),
}

impl Task for Operation {
    fn step(&mut self, context: &Context) -> Step {
        if let Some(request) = self.request.take() {
            match self.begin(context, &request) {
                Ok(Begun::Response(response)) => return Step::Done(Reply::Frame(response)),
                Ok(Begun::Rest(rest)) => self.rest = Some(rest),
                Err(error) => return Step::Done(Reply::Frame(frame::error(&error))),
            }
        }
        match &mut self.rest {
            Some(rest) => rest.step(context),
            None => Step::Done(Reply::Broken),
        }
    }
}

impl Operation {
    fn begin(&self, context: &Context, request: &Request) -> Outcome<Begun> {
        use operation::*;
        let message = Message::parse(request.payload()).map_err(|_| malformed())?;
        let rest = |task: Box<dyn Task>| Ok(Begun::Rest(task));
        let response = match request.operation() {
            LIST => return rest(Box::new(List::begin(context, &message)?)),
            COMPOSE => return rest(Box::new(Compose::begin(context, &message)?)),
            READ_AT => return rest(Box::new(ReadAt::begin(context, &message, self.socket.clone())?)),
            REMOVE => match Remove::begin(context, &message)? {
                Some(task) => return rest(Box::new(task)),
                None => Ok(frame::empty_ok()),
            },
            CONFIGURE => configure::configure(context, &message),
            STAT => files::stat(context, &message),
            MAKE_DIR => files::make_dir(context, &message),
            MOVE => files::move_entry(context, &message),
            OPEN_READ => files::open_read(context, &message),
            OPEN_WRITE => files::open_write(context, &message),
            WRITE_AT => files::write_at(context, &message),
            CLOSE => files::close(context, &message),
            WATCH_CREATE => context.watches.create(context, &message),
            WATCH_REMOVE => context.watches.remove(&message),
            DISK => files::disk(&message),
            SYNC => files::sync(),
            SET_TIME => configure::set_time(context, &message),
            _ => Err(Error::new(Code::Unsupported, "unknown operation")),
        };
        response.map(Begun::Response)
    }
}

fn malformed() -> Error {
    Error::invalid("malformed request")
}
