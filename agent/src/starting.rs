//! START on the event loop: requests that a worker is spawning for, and what becomes of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::connection::Wait;
use crate::errors::{Error, Outcome};
use crate::fields::{field, Message};
use crate::frame::{self, Request};
use crate::input::{Input, MAX_OPERATION_ID};
use crate::output::Output;
use crate::process::{Config, Process, Source};
use crate::start::{Start, Started};
use crate::timers::Timer;
use crate::workers::Owner;

#[derive(Default)]
pub struct Starting {
    pending: HashMap<u64, Pending>,
    last: u64,
    /// Exits of processes not yet in the table. A process may end before the worker that made it has told us its pid; while
    /// any is being made, the exit of every unknown process is kept.
    pub early_exits: HashMap<i32, i32>,
}

struct Pending {
    request: Arc<Request>,
    operation: Vec<u8>,
    connections: Vec<u64>,
    received: Instant,
}

impl Starting {
    pub fn is_busy(&self) -> bool {
        !self.pending.is_empty()
    }
}

impl Agent {
    pub fn start(&mut self, id: u64, request: Request) {
        let operation = match Message::parse(request.payload()) {
            Ok(message) => message.bytes(field::OPERATION_ID).to_vec(),
            Err(_) => Vec::new(),
        };
        if operation.len() > MAX_OPERATION_ID {
            return self.respond_error(id, &Error::invalid("operationId is too long"));
        }
        if !operation.is_empty() {
            if let Some(key) = self.processes.by_operation(&operation) {
                let pid = self.processes.get(key).map_or(0, |process| process.pid);
                return self.respond(id, pid_response(pid));
            }
            let same = self.starting.pending.values_mut().find(|pending| pending.operation == operation);
            if let Some(pending) = same {
                pending.connections.push(id);
                return self.wait(id, Wait::Start, 0);
            }
        }
        let request = Arc::new(request);
        self.starting.last += 1;
        let number = self.starting.last;
        let pending = Pending { request: request.clone(), operation, connections: vec![id], received: Instant::now() };
        self.starting.pending.insert(number, pending);
        self.wait(id, Wait::Start, 0);
        self.workers.submit(Owner::Start(number), Box::new(Start::new(request)));
    }

    pub fn process_started(&mut self, number: u64, outcome: Outcome<Started>) {
        let pending = match self.starting.pending.remove(&number) {
            Some(pending) => pending,
            None => return,
        };
        let response = match outcome {
            Ok(started) => {
                let pid = started.pid;
                self.enter_process(&pending, started);
                pid_response(pid)
            }
            Err(error) => frame::error(&error),
        };
        if !self.starting.is_busy() {
            self.starting.early_exits = HashMap::new();
        }
        for id in pending.connections {
            self.respond(id, response.clone());
        }
    }

    fn enter_process(&mut self, pending: &Pending, started: Started) {
        // Parsed before it was given to the worker.
        let request = match Message::parse(pending.request.payload()) {
            Ok(request) => request,
            Err(_) => return,
        };
        let sources = started.outputs.into_iter();
        let sources = sources.map(|(stream, fd)| Source { stream, fd, interest: None, drain: None });
        let mut output = Output::default();
        output.subscribe(request.number(field::SUBSCRIBER), Instant::now());
        let key = self.processes.insert(Process {
            pid: started.pid,
            config: Config::of(&request),
            operation: pending.operation.clone(),
            output,
            sources: sources.collect(),
            input: Input::new(started.input),
            exit: None,
            is_killed: false,
            deadline_hit: false,
            has_ended: false,
            readers: Vec::new(),
            deadline: None,
            drain_timer: None,
        });
        let deadline_ms = request.number(field::DEADLINE_MS);
        if deadline_ms > 0 {
            let at = pending.received + Duration::from_millis(deadline_ms.min(u32::MAX.into()));
            let timer = self.timers.set(at, Timer::Deadline(key));
            if let Some(process) = self.processes.get(key) {
                process.deadline = Some(timer);
            }
        }
        self.resume_sources(key);
        self.watch_subscribers();
        if let Some(status) = self.starting.early_exits.remove(&started.pid) {
            self.process_exited(key, status);
        }
    }
}

fn pid_response(pid: i32) -> Vec<u8> {
    frame::ok(|out| out.number(field::PID, pid as u64))
}
