//! WATCH_READ on the event loop.

use crate::agent::Agent;
use crate::connection::Wait;
use crate::fields::{field, Message};

impl Agent {
    pub fn watch_read(&mut self, id: u64, request: &Message) {
        let (watcher, sequence) = (request.number(field::WATCHER), request.number(field::SEQUENCE));
        let wait_ms = request.number(field::WAIT_MS);
        match self.context.watches.read(watcher, sequence, wait_ms == 0) {
            Ok(Some(response)) => self.respond(id, response),
            Err(error) => self.respond_error(id, &error),
            Ok(None) => {
                self.watch_readers.entry(watcher).or_default().push(id);
                self.wait(id, Wait::Watch { watcher, sequence }, wait_ms);
            }
        }
    }

    /// Answers the waiting reads of a watcher that have something to read, or whose watcher is gone.
    pub fn serve_watch_readers(&mut self, watcher: u64) {
        for id in self.watch_readers.get(&watcher).cloned().unwrap_or_default() {
            if let Some(&Wait::Watch { sequence, .. }) = self.wait_of(id) {
                self.serve_watch_read(id, watcher, sequence, false);
            }
        }
    }

    pub fn serve_watch_read(&mut self, id: u64, watcher: u64, sequence: u64, is_final: bool) {
        let outcome = self.context.watches.read(watcher, sequence, is_final);
        if let Ok(None) = outcome {
            return;
        }
        self.leave_watch_readers(id, watcher);
        match outcome {
            Ok(response) => self.respond(id, response.unwrap_or_default()),
            Err(error) => self.respond_error(id, &error),
        }
    }

    pub fn leave_watch_readers(&mut self, id: u64, watcher: u64) {
        if let Some(readers) = self.watch_readers.get_mut(&watcher) {
            readers.retain(|&reader| reader != id);
            if readers.is_empty() {
                self.watch_readers.remove(&watcher);
            }
        }
    }
}
