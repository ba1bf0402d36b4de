//! Events of one watcher that wait to be read. Pure.

use std::collections::VecDeque;

use crate::fields::{field, Writer};

pub const CREATE: u64 = 1;
pub const WRITE: u64 = 2;
pub const REMOVE: u64 = 3;
pub const RENAME: u64 = 4;
pub const CHMOD: u64 = 5;

const MAX_EVENTS: usize = 16_384;
/// Long names and entries must not add up to more than this.
const MAX_BYTES: usize = 8 << 20;
/// A response is closed once it is this long; the rest comes with the next one.
const RESPONSE_BYTES: usize = 512 << 10;

struct Event {
    sequence: u64,
    /// encoded fields but the sequence
    record: Vec<u8>,
}

pub struct Queue {
    events: VecDeque<Event>,
    bytes: usize,
    /// number of the next event; the first is 1
    next: u64,
}

impl Queue {
    pub fn new() -> Queue {
        Queue { events: VecDeque::new(), bytes: 0, next: 1 }
    }

    /// `entry` is an encoded entry field, or empty.
    pub fn push(&mut self, kind: u64, name: &[u8], entry: &[u8]) {
        let mut out = Writer::new();
        out.number(field::KIND, kind);
        out.bytes(field::NAME, name);
        let mut record = out.into_bytes();
        record.extend_from_slice(entry);
        record.shrink_to_fit();
        self.bytes += record.len();
        self.events.push_back(Event { sequence: self.next, record });
        self.next += 1;
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            self.drop_oldest();
        }
    }

    /// The kernel dropped events: a number that no event has makes the reader count a loss.
    pub fn skip(&mut self) {
        self.next += 1;
    }

    /// Drops what comes before `sequence` and writes what is left; false when that is nothing. The loss is the gap in the
    /// numbers, so a repeated request is told the same.
    pub fn read(&mut self, sequence: u64, out: &mut Writer) -> bool {
        let from = sequence.max(1);
        while self.events.front().map_or(false, |event| event.sequence < from) {
            self.drop_oldest();
        }
        let mut last = from - 1;
        let mut count = 0;
        for event in &self.events {
            out.record(field::EVENT, |record| {
                record.number(field::SEQUENCE, event.sequence);
                record.raw(&event.record);
            });
            last = event.sequence;
            count += 1;
            if out.len() >= RESPONSE_BYTES {
                break;
            }
        }
        out.number(field::SEQUENCE, last + 1);
        out.number(field::LOST, last + 1 - from - count);
        count > 0
    }

    fn drop_oldest(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.bytes -= event.record.len();
        }
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
    }
}

impl Default for Queue {
    fn default() -> Queue {
        Queue::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Message;

    fn read(queue: &mut Queue, sequence: u64) -> (Vec<(u64, String)>, u64) {
        let mut out = Writer::new();
        queue.read(sequence, &mut out);
        let bytes = out.into_bytes();
        let message = Message::parse(&bytes).unwrap();
        let events = message.all(field::EVENT).map(|event| {
            let event = Message::parse(event).unwrap();
            let name = String::from_utf8_lossy(event.bytes(field::NAME)).into_owned();
            (event.number(field::SEQUENCE), name)
        });
        (events.collect(), message.number(field::LOST))
    }

    #[test]
    fn a_repeated_read_repeats_and_the_next_one_goes_on() {
        let mut queue = Queue::new();
        queue.push(CREATE, b"a", b"");
        queue.push(WRITE, b"b", b"");
        let both = vec![(1, "a".to_owned()), (2, "b".to_owned())];
        assert_eq!(read(&mut queue, 0), (both.clone(), 0));
        assert_eq!(read(&mut queue, 1), (both, 0));
        assert_eq!(read(&mut queue, 2), (vec![(2, "b".to_owned())], 0));
        assert_eq!(read(&mut queue, 3), (vec![], 0));
    }

    #[test]
    fn the_oldest_go_and_are_counted() {
        let mut queue = Queue::new();
        for _ in 0..MAX_EVENTS + 5 {
            queue.push(WRITE, b"x", b"");
        }
        let (events, lost) = read(&mut queue, 1);
        assert_eq!((events[0].0, lost), (6, 5));
        assert_eq!(read(&mut queue, 6).1, 0);
    }

    #[test]
    fn what_the_kernel_dropped_is_counted() {
        let mut queue = Queue::new();
        queue.push(WRITE, b"a", b"");
        queue.skip();
        queue.push(WRITE, b"b", b"");
        let (events, lost) = read(&mut queue, 1);
        assert_eq!((events.len(), lost), (2, 1));
    }
}
