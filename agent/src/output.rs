//! Who reads the output of a process, and from where (docs/agent-protocol.md, "Processes"). Pure: times are passed in.

use std::time::{Duration, Instant};

use crate::errors::{Error, Outcome};
use crate::ring::{Ring, RING_BYTES};

/// A subscriber with no READ_OUTPUT waiting for this long holds nothing back any more.
pub const SUBSCRIBER_IDLE: Duration = Duration::from_secs(10);
/// Silent subscribers whose place is remembered, should they come back.
const MAX_SILENT: usize = 64;

#[derive(Debug)]
struct Subscriber {
    id: u64,
    /// everything before it has been confirmed
    position: u64,
    /// READ_OUTPUT requests of it that wait now
    waiting: u32,
    seen: Instant,
    /// has been silent for too long: its place is known, but nothing is held back for it
    is_silent: bool,
}

impl Subscriber {
    fn new(id: u64, position: u64, now: Instant) -> Subscriber {
        Subscriber { id, position, waiting: 0, seen: now, is_silent: false }
    }
}

/// Where a READ_OUTPUT begins, and how many bytes before that are gone for good.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    pub offset: u64,
    pub lost: u64,
}

#[derive(Debug, Default)]
pub struct Output {
    pub ring: Ring,
    subscribers: Vec<Subscriber>,
}

impl Output {
    /// A subscriber made by START: it gets everything.
    pub fn subscribe(&mut self, id: u64, now: Instant) {
        if id != 0 && !self.subscribers.iter().any(|known| known.id == id) {
            self.subscribers.push(Subscriber::new(id, self.ring.end(), now));
        }
    }

    /// Finds the place for a READ_OUTPUT and confirms what came before it. Subscriber 0 keeps no place: it holds nothing back.
    pub fn locate(&mut self, id: u64, offset: u64, replay: bool, now: Instant) -> Outcome<Place> {
        let (start, end) = (self.ring.start(), self.ring.end());
        if offset > end {
            return Err(Error::invalid("offset is behind the end of the output"));
        }
        let known = self.subscribers.iter_mut().find(|known| known.id == id);
        let wanted = match &known {
            // A first read that was never answered is repeated with its old offset: the place has not moved.
            Some(subscriber) => offset.max(subscriber.position),
            // One whose place is not remembered goes on where it says; a new one joins at the end unless it asks for the past.
            None if offset > 0 || replay => offset,
            None => end,
        };
        let offset = wanted.max(start);
        match known {
            Some(subscriber) => {
                subscriber.position = offset;
                subscriber.seen = now;
                subscriber.is_silent = false;
            }
            None if id != 0 => self.subscribers.push(Subscriber::new(id, offset, now)),
            None => (),
        }
        Ok(Place { offset, lost: offset - wanted })
    }

    /// Marks the beginning (+1) or the end (-1) of a wait.
    pub fn waiting(&mut self, id: u64, change: i32, now: Instant) {
        if let Some(subscriber) = self.subscribers.iter_mut().find(|known| known.id == id) {
            subscriber.waiting = (subscriber.waiting as i32 + change).max(0) as u32;
            subscriber.seen = now;
        }
    }

    pub fn unsubscribe(&mut self, id: u64) {
        self.subscribers.retain(|known| known.id != id);
    }

    /// Holds nothing back any more for those that have gone silent; true when there were any.
    pub fn release_silent(&mut self, now: Instant) -> bool {
        let mut has_any = false;
        for known in self.subscribers.iter_mut().filter(|known| !known.is_silent && known.waiting == 0) {
            known.is_silent = now.duration_since(known.seen) >= SUBSCRIBER_IDLE;
            has_any |= known.is_silent;
        }
        let silent = self.subscribers.iter().filter(|known| known.is_silent).count();
        for _ in MAX_SILENT..silent {
            if let Some(oldest) = self.subscribers.iter().position(|known| known.is_silent) {
                self.subscribers.remove(oldest);
            }
        }
        has_any
    }

    pub fn has_subscribers(&self) -> bool {
        self.subscribers.iter().any(|known| !known.is_silent)
    }

    /// A subscriber has not yet confirmed all there is.
    pub fn is_unread(&self) -> bool {
        self.slowest().map_or(false, |position| position < self.ring.end())
    }

    /// How much may be read from the process now: nothing while the slowest subscriber is a whole ring behind.
    pub fn room(&self) -> usize {
        match self.slowest() {
            Some(position) => self.ring.room_after(position),
            None => RING_BYTES,
        }
    }

    /// Gives up the history that no subscriber needs.
    pub fn forget_history(&mut self) {
        let needed = self.slowest().unwrap_or_else(|| self.ring.end());
        self.ring.forget_before(needed);
    }

    fn slowest(&self) -> Option<u64> {
        self.subscribers.iter().filter(|known| !known.is_silent).map(|known| known.position).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u64, lost: u64) -> Outcome<Place> {
        Ok(Place { offset, lost })
    }

    #[test]
    fn new_subscribers_join_at_the_end_unless_they_ask_for_the_past() {
        let now = Instant::now();
        let mut output = Output::default();
        output.ring.push(1, b"hello");
        assert_eq!(output.locate(1, 0, false, now), place(5, 0));
        assert_eq!(output.locate(2, 0, true, now), place(0, 0));
        assert_eq!(output.locate(3, 2, false, now), place(2, 0));
    }

    #[test]
    fn a_repeated_request_gets_the_same_place() {
        let now = Instant::now();
        let mut output = Output::default();
        output.ring.push(1, b"hello");
        assert_eq!(output.locate(1, 0, false, now), place(5, 0));
        output.ring.push(1, b" world");
        assert_eq!(output.locate(1, 0, false, now), place(5, 0));
        assert_eq!(output.locate(1, 8, false, now), place(8, 0));
        assert_eq!(output.locate(1, 8, false, now), place(8, 0));
        assert!(output.locate(1, 12, false, now).is_err());
    }

    #[test]
    fn the_slowest_subscriber_holds_the_process_back_until_it_has_been_silent_too_long() {
        let start = Instant::now();
        let mut output = Output::default();
        output.subscribe(1, start);
        output.subscribe(2, start);
        output.ring.push(1, &vec![0; RING_BYTES]);
        assert_eq!(output.room(), 0);
        output.locate(1, RING_BYTES as u64, false, start).unwrap();
        assert_eq!(output.room(), 0);
        let later = start + SUBSCRIBER_IDLE;
        output.waiting(1, 1, start);
        assert!(output.release_silent(later));
        assert_eq!(output.room(), RING_BYTES);
        assert!(output.has_subscribers(), "the one that waits stays");
    }

    #[test]
    fn one_who_comes_back_after_a_silence_goes_on_where_it_was_and_learns_what_it_has_lost() {
        let start = Instant::now();
        let later = start + SUBSCRIBER_IDLE;
        let mut output = Output::default();
        output.subscribe(1, start);
        output.ring.push(1, b"hello");
        assert!(output.release_silent(later));
        assert!(!output.has_subscribers());
        assert_eq!(output.locate(1, 0, false, later), place(0, 0));
        assert!(output.has_subscribers());
        output.release_silent(later + SUBSCRIBER_IDLE);
        output.ring.push(1, &vec![0; RING_BYTES]);
        assert_eq!(output.locate(1, 0, false, later), place(5, 5));
    }

    #[test]
    fn what_nobody_held_back_is_counted_as_lost() {
        let now = Instant::now();
        let mut output = Output::default();
        output.ring.push(1, &vec![0; RING_BYTES]);
        output.ring.push(1, b"12345");
        assert_eq!(output.locate(1, 2, false, now), place(5, 3));
        assert_eq!(output.locate(2, 0, true, now), place(5, 5));
    }

    #[test]
    fn nobody_in_particular_reads_without_holding_anything_back() {
        let now = Instant::now();
        let mut output = Output::default();
        output.ring.push(1, b"abc");
        assert_eq!(output.locate(0, 0, true, now), place(0, 0));
        assert!(!output.has_subscribers());
        output.forget_history();
        assert_eq!(output.locate(0, 1, false, now), place(3, 2));
    }
}
