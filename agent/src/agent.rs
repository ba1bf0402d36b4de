//! The event loop: one thread that owns every connection and every process, and never blocks.

use std::collections::{HashMap, VecDeque};
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::context::Context;
use crate::poller::{Interest, Poller, Token, READABLE};
use crate::process::Processes;
use crate::relieve::Relief;
use crate::starting::Starting;
use crate::sys::Errno;
use crate::timers::{Timer, Timers};
use crate::workers::{Owner, Reply, Step, Task, Workers};

const SCRATCH: usize = 64 << 10;
const HANDLES_INTERVAL: Duration = Duration::from_secs(60);

pub struct Agent {
    pub context: Arc<Context>,
    pub workers: Arc<Workers>,
    pub poller: Poller,
    pub timers: Timers,
    pub listener: OwnedFd,
    pub listener_interest: Interest,
    pub signals: OwnedFd,
    pub connections: HashMap<u64, Connection>,
    pub last_connection: u64,
    /// connections that have not authenticated, oldest first
    pub strangers: VecDeque<u64>,
    /// connections with a request in their buffer that no event will tell of
    pub ready: Vec<u64>,
    /// bytes promised to long frames, and the connections that wait for some
    pub frame_bytes: usize,
    pub parked: VecDeque<u64>,
    pub processes: Processes,
    pub starting: Starting,
    /// bytes of output held by all processes, and when to look for some to give up
    pub held_bytes: usize,
    pub shed_above: usize,
    /// bytes of output given up since memory was last given back to the system
    pub freed_bytes: usize,
    pub is_trim_due: bool,
    pub watches_subscribers: bool,
    pub relief: Relief,
    pub scratch: Vec<u8>,
    /// connections whose WATCH_READ waits, by watcher
    pub watch_readers: HashMap<u64, Vec<u64>>,
    /// watch operations that wait for the one a worker does now
    watch_line: VecDeque<(Option<u64>, Box<dyn Task>)>,
    is_watch_busy: bool,
    inotify: Option<Arc<OwnedFd>>,
    inotify_interest: Interest,
    watches_handles: bool,
    pub is_stopping: bool,
    /// there may be more children to reap than were reaped in one go
    pub has_more_children: bool,
}

impl Agent {
    pub fn new(
        context: Arc<Context>,
        workers: Arc<Workers>,
        listener: OwnedFd,
        signals: OwnedFd,
    ) -> Result<Agent, Errno> {
        let poller = Poller::new()?;
        let mut listener_interest = None;
        let wanted = Some(READABLE);
        poller.update(listener.as_raw_fd(), Token::Listener, &mut listener_interest, wanted);
        poller.update(signals.as_raw_fd(), Token::Signals, &mut None, wanted);
        poller.update(workers.bell().as_raw_fd(), Token::Workers, &mut None, wanted);
        Ok(Agent {
            context,
            workers,
            poller,
            timers: Timers::default(),
            listener,
            listener_interest,
            signals,
            connections: HashMap::new(),
            last_connection: 0,
            strangers: VecDeque::new(),
            ready: Vec::new(),
            frame_bytes: 0,
            parked: VecDeque::new(),
            processes: Processes::default(),
            starting: Starting::default(),
            held_bytes: 0,
            shed_above: 0,
            freed_bytes: 0,
            is_trim_due: false,
            watches_subscribers: false,
            relief: Relief::new(),
            scratch: vec![0; SCRATCH],
            watch_readers: HashMap::new(),
            watch_line: VecDeque::new(),
            is_watch_busy: false,
            inotify: None,
            inotify_interest: None,
            watches_handles: false,
            is_stopping: false,
            has_more_children: false,
        })
    }

    pub fn run(mut self) -> ! {
        loop {
            let timeout = match self.has_more_children || !self.ready.is_empty() {
                true => 0,
                false => self.timers.timeout_ms(Instant::now()),
            };
            for (token, mask) in self.poller.wait(timeout) {
                self.dispatch(token, mask);
            }
            if self.has_more_children {
                self.reap();
            }
            self.fire_timers();
            for connection in std::mem::take(&mut self.ready) {
                self.serve(connection);
            }
        }
    }

    fn dispatch(&mut self, token: Token, mask: u32) {
        match token {
            Token::Listener => self.accept(),
            Token::Signals => self.take_signals(),
            Token::Workers => self.take_completions(),
            Token::Inotify => self.collect_events(),
            Token::Connection(id) => self.connection_event(id, mask),
            Token::DialTarget(id) => self.target_event(id),
            Token::Output(key, stream) => self.output_event(key, stream),
            Token::Input(key) => self.write_input(key),
        }
    }

    fn fire_timers(&mut self) {
        let now = Instant::now();
        while let Some((_, timer)) = self.timers.pop_due(now) {
            match timer {
                Timer::Connection(id) => self.connection_timeout(id),
                Timer::Deadline(process) => self.deadline(process),
                Timer::Drain(process) => self.drain_timeout(process),
                Timer::Forget(process) => self.forget(process),
                Timer::Subscribers => self.check_subscribers(now),
                Timer::Handles => self.check_handles(now),
                Timer::Listener => self.listen(),
                Timer::Trim => self.trim(),
                Timer::Stop => self.exit(),
            }
        }
    }

    fn take_completions(&mut self) {
        for completion in self.workers.collect() {
            match (completion.job.owner, completion.step) {
                (Owner::Connection(id), step) => self.task_stepped(id, completion.job.task, step),
                (Owner::Start(number), Step::Done(Reply::Started(outcome))) => {
                    self.process_started(number, outcome);
                }
                (Owner::Watching(connection), step) => {
                    self.next_watch_task();
                    match (connection, step) {
                        (Some(id), step) => self.task_stepped(id, completion.job.task, step),
                        (None, Step::Done(Reply::Watched(watchers))) => self.watched(watchers),
                        _ => (),
                    }
                }
                _ => (),
            }
        }
        self.watch_inotify();
        if !self.watches_handles && !self.context.handles.is_empty() {
            self.watches_handles = true;
            self.timers.set(Instant::now() + HANDLES_INTERVAL, Timer::Handles);
        }
    }

    fn task_stepped(&mut self, id: u64, task: Box<dyn Task>, step: Step) {
        // A connection that has gone takes its answer with it.
        match step {
            Step::Frame(frame) => self.send_then_resume(id, frame, task),
            Step::WaitWritable => self.wait_writable(id, task),
            Step::Done(Reply::Frame(frame)) => self.respond(id, frame),
            Step::Done(Reply::Sent) => self.become_idle(id),
            Step::Done(_) | Step::Again => self.close(id),
        }
    }

    /// The inotify instance is made by a worker with the first watcher; from then on it is listened to.
    fn watch_inotify(&mut self) {
        if self.inotify.is_none() {
            self.inotify = self.context.watches.descriptor();
            self.listen_to_inotify(Some(READABLE));
        }
    }

    fn listen_to_inotify(&mut self, wanted: Interest) {
        if let Some(inotify) = &self.inotify {
            self.poller.update(inotify.as_raw_fd(), Token::Inotify, &mut self.inotify_interest, wanted);
        }
    }

    /// Reading events means reading directories: a worker does it.
    fn collect_events(&mut self) {
        self.listen_to_inotify(None);
        self.submit_watch_task(None, Box::new(CollectEvents { touched: Vec::new() }));
    }

    /// Operations on watchers exclude each other, and one on a large tree takes long: they take one worker at a time, not all.
    pub fn submit_watch_task(&mut self, connection: Option<u64>, task: Box<dyn Task>) {
        self.watch_line.push_back((connection, task));
        if !self.is_watch_busy {
            self.next_watch_task();
        }
    }

    fn next_watch_task(&mut self) {
        let next = self.watch_line.pop_front();
        self.is_watch_busy = next.is_some();
        if let Some((connection, task)) = next {
            self.workers.submit(Owner::Watching(connection), task);
        }
    }

    fn watched(&mut self, watchers: Vec<u64>) {
        self.listen_to_inotify(Some(READABLE));
        for watcher in watchers {
            self.serve_watch_readers(watcher);
        }
    }

    fn check_handles(&mut self, now: Instant) {
        let idle = self.context.handles.take_idle(now);
        if !idle.is_empty() {
            // Closing may write: not here.
            self.workers.submit(Owner::Nobody, Box::new(Drop(idle)));
        }
        self.watches_handles = !self.context.handles.is_empty();
        if self.watches_handles {
            self.timers.set(now + HANDLES_INTERVAL, Timer::Handles);
        }
    }
}

struct CollectEvents {
    touched: Vec<u64>,
}

impl Task for CollectEvents {
    fn step(&mut self, context: &Context) -> Step {
        let (touched, has_more) = context.watches.collect(context);
        self.touched.extend(touched);
        if has_more && self.touched.is_empty() {
            return Step::Again;
        }
        Step::Done(Reply::Watched(std::mem::take(&mut self.touched)))
    }
}

/// Drops what it holds on a worker.
struct Drop<T>(Vec<T>);

impl<T: Send> Task for Drop<T> {
    fn step(&mut self, _: &Context) -> Step {
        self.0.clear();
        Step::Done(Reply::Nothing)
    }
}
