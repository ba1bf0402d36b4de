//! Things to do later, in order. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// the connection has had its time: to greet, to be answered, to send a long frame, to read a last answer
    Connection(u64),
    /// the process must end
    Deadline(u64),
    /// the process has exited: what is left of its output is to be closed
    Drain(u64),
    /// the ended process has been remembered long enough
    Forget(u64),
    /// look for subscribers that have gone silent
    Subscribers,
    /// look for handles that are not used any more
    Handles,
    /// give freed memory back to the system
    Trim,
    /// accept again after running out of descriptors
    Listener,
    /// the time to stop is over
    Stop,
}

/// Names one timer, to cancel it.
pub type TimerKey = (Instant, u64);

#[derive(Default)]
pub struct Timers {
    waiting: BTreeMap<TimerKey, Timer>,
    last: u64,
}

impl Timers {
    pub fn set(&mut self, at: Instant, timer: Timer) -> TimerKey {
        self.last += 1;
        let key = (at, self.last);
        self.waiting.insert(key, timer);
        key
    }

    pub fn cancel(&mut self, key: &mut Option<TimerKey>) {
        if let Some(key) = key.take() {
            self.waiting.remove(&key);
        }
    }

    /// Takes out one timer that is due.
    pub fn pop_due(&mut self, now: Instant) -> Option<(TimerKey, Timer)> {
        let (&key, &timer) = self.waiting.iter().next()?;
        if key.0 > now {
            return None;
        }
        self.waiting.remove(&key);
        Some((key, timer))
    }

    /// For epoll: milliseconds until the first one is due, rounded up; -1 without any.
    pub fn timeout_ms(&self, now: Instant) -> i32 {
        match self.waiting.keys().next() {
            None => -1,
            Some((at, _)) => {
                let left = at.saturating_duration_since(now) + Duration::from_micros(999);
                i32::try_from(left.as_millis()).unwrap_or(i32::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_once_they_are_due() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut timers = Timers::default();
        assert_eq!(timers.timeout_ms(start), -1);
        timers.set(start + 2 * second, Timer::Deadline(2));
        let mut cancelled = Some(timers.set(start + second, Timer::Deadline(0)));
        timers.set(start + second, Timer::Deadline(1));
        timers.cancel(&mut cancelled);
        assert_eq!(timers.timeout_ms(start), 1000);
        assert!(timers.pop_due(start).is_none());
        let late = start + 3 * second;
        assert_eq!(timers.pop_due(late).unwrap().1, Timer::Deadline(1));
        assert_eq!(timers.pop_due(late).unwrap().1, Timer::Deadline(2));
        assert!(timers.pop_due(late).is_none());
    }
}
