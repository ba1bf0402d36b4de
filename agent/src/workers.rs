//! A fixed pool of threads for work that may block. All of them are made at start-up: when the processes of a sandbox have
//! used up every pid, the agent still works.

use std::collections::VecDeque;
use std::os::raw::c_void;
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex};

use crate::context::Context;
use crate::errors::Error;
use crate::start::Started;
use crate::sys::{self, Errno};

const WORKERS: usize = 4;
/// Enough for realpath's buffers; nothing on a worker recurses.
const STACK: usize = 128 << 10;

/// A piece of work. Long work is cut into steps, so that four long ones do not keep the short ones waiting.
pub trait Task: Send {
    fn step(&mut self, context: &Context) -> Step;
}

pub enum Step {
    /// more to do: back to the end of the queue
    Again,
    /// a frame to send; go on when it is sent
    Frame(Vec<u8>),
    /// the socket takes no more; go on when it does
    WaitWritable,
    Done(Reply),
}

pub enum Reply {
    Frame(Vec<u8>),
    /// the task has sent its response itself
    Sent,
    /// the response cannot be completed: the connection must go
    Broken,
    Started(Result<Started, Error>),
    /// watchers that have new events
    Watched(Vec<u64>),
    Nothing,
}

/// Who is told of the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Connection(u64),
    Start(u64),
    /// the line of watch operations, where only one is done at a time; for a connection, or for the kernel's events
    Watching(Option<u64>),
    Nobody,
}

pub struct Job {
    pub owner: Owner,
    pub task: Box<dyn Task>,
}

pub struct Completion {
    pub job: Job,
    pub step: Step,
}

pub struct Workers {
    queue: Mutex<VecDeque<Job>>,
    available: Condvar,
    done: Mutex<Vec<Completion>>,
    /// an eventfd that wakes the event loop
    bell: OwnedFd,
    context: Arc<Context>,
}

impl Workers {
    pub fn start(context: Arc<Context>) -> Result<Arc<Workers>, Errno> {
        // SAFETY: takes no pointer.
        let bell = sys::own(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        let workers = Arc::new(Workers {
            queue: Mutex::default(),
            available: Condvar::new(),
            done: Mutex::default(),
            bell,
            context,
        });
        for _ in 0..WORKERS {
            start_thread(workers.clone())?;
        }
        Ok(workers)
    }

    pub fn submit(&self, owner: Owner, task: Box<dyn Task>) {
        self.queue.lock().unwrap().push_back(Job { owner, task });
        self.available.notify_one();
    }

    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// What has been finished since the last call.
    pub fn collect(&self) -> Vec<Completion> {
        let mut count = [0; 8];
        // Nothing to read (EAGAIN) only means that the bell was heard before.
        let _ = sys::read(self.bell.as_raw_fd(), &mut count);
        std::mem::take(&mut *self.done.lock().unwrap())
    }

    fn work(&self) {
        loop {
            let mut queue = self.queue.lock().unwrap();
            let mut job = loop {
                match queue.pop_front() {
                    Some(job) => break job,
                    None => queue = self.available.wait(queue).unwrap(),
                }
            };
            drop(queue);
            match job.task.step(&self.context) {
                Step::Again => self.submit(job.owner, job.task),
                step => self.finish(Completion { job, step }),
            }
        }
    }

    fn finish(&self, completion: Completion) {
        let mut done = self.done.lock().unwrap();
        let was_empty = done.is_empty();
        done.push(completion);
        drop(done);
        if was_empty {
            // Cannot fail: the counter of an eventfd does not overflow by ones.
            let _ = sys::write(self.bell.as_raw_fd(), &1u64.to_ne_bytes());
        }
    }
}

/// Directly with pthread_create: the standard library's threads would add 150 kB of C library to a static binary.
fn start_thread(workers: Arc<Workers>) -> Result<(), Errno> {
    extern "C" fn run(workers: *mut c_void) -> *mut c_void {
        // SAFETY: the pointer is the Arc given away below, and this thread alone takes it back.
        let workers = unsafe { Arc::from_raw(workers as *const Workers) };
        workers.work();
        std::ptr::null_mut()
    }
    let argument = Arc::into_raw(workers) as *mut c_void;
    // SAFETY: the attributes are initialised before use and destroyed after; `run` has the right type and owns its argument.
    let failed = unsafe {
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        let mut thread = std::mem::MaybeUninit::<libc::pthread_t>::uninit();
        let failed = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, argument);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        failed
    };
    if failed != 0 {
        return Err(failed);
    }
    Ok(())
}
