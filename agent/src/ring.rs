//! The last output of one process: all streams in the order read, under one running byte offset. Pure.

use std::collections::VecDeque;

pub const RING_BYTES: usize = 1 << 20;
/// A process that writes single bytes to two streams in turn must not cost a record for each of a million bytes.
const MAX_SEGMENTS: usize = 32 << 10;

#[derive(Debug, Clone, Copy)]
struct Segment {
    stream: u8,
    length: u32,
}

#[derive(Debug, Default)]
pub struct Ring {
    bytes: VecDeque<u8>,
    segments: VecDeque<Segment>,
    /// offset of the oldest byte held
    start: u64,
}

impl Ring {
    pub fn start(&self) -> u64 {
        self.start
    }

    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How many bytes may be pushed without dropping any at or after `needed`.
    pub fn room_after(&self, needed: u64) -> usize {
        if self.segments.len() >= MAX_SEGMENTS && self.segments_before(needed) == 0 {
            return 0;
        }
        let held = self.end().saturating_sub(needed.max(self.start)) as usize;
        RING_BYTES.saturating_sub(held)
    }

    /// Adds bytes; the oldest go when the ring is full.
    pub fn push(&mut self, stream: u8, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.bytes.extend(bytes);
        match self.segments.back_mut() {
            Some(last) if last.stream == stream => last.length += bytes.len() as u32,
            _ => self.segments.push_back(Segment { stream, length: bytes.len() as u32 }),
        }
        let excess = self.bytes.len().saturating_sub(RING_BYTES);
        self.drop_oldest(excess);
        if self.segments.len() > MAX_SEGMENTS {
            let oldest = self.segments[0].length as usize;
            self.drop_oldest(oldest);
        }
    }

    /// Forgets everything before `offset` and gives the memory back.
    pub fn forget_before(&mut self, offset: u64) {
        let count = offset.saturating_sub(self.start).min(self.bytes.len() as u64);
        self.drop_oldest(count as usize);
        self.bytes.shrink_to_fit();
        self.segments.shrink_to_fit();
    }

    /// Calls `give(stream, first, second)` for each run of one stream from `offset` on, at most `limit` bytes together and
    /// `max_runs` runs. Returns the offset behind the last byte given.
    pub fn read(&self, offset: u64, limit: usize, max_runs: usize, mut give: impl FnMut(u8, &[u8], &[u8])) -> u64 {
        let mut skip = offset.saturating_sub(self.start) as usize;
        let mut at = 0;
        let mut left = limit;
        let mut runs = 0;
        for segment in &self.segments {
            let length = segment.length as usize;
            if skip >= length {
                skip -= length;
                at += length;
                continue;
            }
            if left == 0 || runs == max_runs {
                break;
            }
            let from = at + skip;
            let count = (length - skip).min(left);
            let (first, second) = self.slices(from, count);
            give(segment.stream, first, second);
            runs += 1;
            left -= count;
            skip = 0;
            at = from + count;
            if left == 0 {
                break;
            }
        }
        offset.max(self.start + at as u64)
    }

    fn slices(&self, from: usize, count: usize) -> (&[u8], &[u8]) {
        let (front, back) = self.bytes.as_slices();
        if from >= front.len() {
            let from = from - front.len();
            return (&back[from..from + count], &[]);
        }
        let in_front = count.min(front.len() - from);
        (&front[from..from + in_front], &back[..count - in_front])
    }

    fn segments_before(&self, offset: u64) -> usize {
        match self.segments.front() {
            Some(first) if self.start + u64::from(first.length) <= offset => 1,
            _ => 0,
        }
    }

    fn drop_oldest(&mut self, mut count: usize) {
        self.bytes.drain(..count);
        self.start += count as u64;
        while count > 0 {
            let first = &mut self.segments[0];
            let length = first.length as usize;
            if length > count {
                first.length -= count as u32;
                break;
            }
            count -= length;
            self.segments.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(ring: &Ring, offset: u64, limit: usize) -> (Vec<(u8, Vec<u8>)>, u64) {
        let mut runs = Vec::new();
        let end = ring.read(offset, limit, usize::MAX, |stream, a, b| runs.push((stream, [a, b].concat())));
        (runs, end)
    }

    #[test]
    fn streams_keep_their_order_and_runs_are_joined() {
        let mut ring = Ring::default();
        ring.push(1, b"ab");
        ring.push(1, b"c");
        ring.push(2, b"ERR");
        ring.push(1, b"d");
        let (runs, end) = collect(&ring, 0, 100);
        assert_eq!(runs, [(1, b"abc".to_vec()), (2, b"ERR".to_vec()), (1, b"d".to_vec())]);
        assert_eq!(end, 7);
    }

    #[test]
    fn reading_goes_on_from_any_offset_in_pieces_of_any_size() {
        let mut ring = Ring::default();
        for i in 0..2000u32 {
            ring.push((i % 3) as u8, &i.to_be_bytes());
        }
        let (whole, _) = collect(&ring, 0, usize::MAX);
        let whole: Vec<u8> = whole.into_iter().flat_map(|(_, bytes)| bytes).collect();
        let mut pieces = Vec::new();
        let mut offset = 0;
        while offset < ring.end() {
            let (runs, next) = collect(&ring, offset, 7);
            assert_eq!(next - offset, runs.iter().map(|(_, b)| b.len() as u64).sum::<u64>());
            pieces.extend(runs.into_iter().flat_map(|(_, bytes)| bytes));
            offset = next;
        }
        assert_eq!(pieces, whole);
    }

    #[test]
    fn the_oldest_bytes_go_when_it_is_full() {
        let mut ring = Ring::default();
        ring.push(1, &vec![7; RING_BYTES]);
        ring.push(2, b"new");
        assert_eq!((ring.start(), ring.end()), (3, RING_BYTES as u64 + 3));
        assert_eq!(collect(&ring, RING_BYTES as u64, 10), (vec![(2, b"new".to_vec())], ring.end()));
    }

    #[test]
    fn room_counts_only_what_somebody_still_needs() {
        let mut ring = Ring::default();
        ring.push(1, &vec![7; RING_BYTES]);
        assert_eq!(ring.room_after(0), 0);
        assert_eq!(ring.room_after(10), 10);
        assert_eq!(ring.room_after(ring.end()), RING_BYTES);
    }

    #[test]
    fn alternating_single_bytes_are_bounded_in_records_too() {
        let mut ring = Ring::default();
        for i in 0..MAX_SEGMENTS {
            assert!(ring.room_after(0) > 0);
            ring.push((i % 2) as u8, b"x");
        }
        assert_eq!(ring.room_after(0), 0, "a subscriber that needs all of them stops the reading");
        assert!(ring.room_after(1) > 0);
        ring.push(7, b"x");
        assert_eq!(ring.start(), 1);
    }

    #[test]
    fn forgetting_keeps_the_offsets() {
        let mut ring = Ring::default();
        ring.push(1, b"hello");
        ring.forget_before(3);
        assert_eq!(collect(&ring, 3, 10).0, [(1, b"lo".to_vec())]);
        ring.forget_before(99);
        assert_eq!((ring.start(), ring.end()), (5, 5));
        ring.push(1, b"x");
        assert_eq!(collect(&ring, 5, 10), (vec![(1, b"x".to_vec())], 6));
    }
}
