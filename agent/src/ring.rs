//! The last output of one process: all streams in the order read, under one running byte offset. Pure.

use std::collections::VecDeque;

pub const RING_BYTES: usize = 1 << 20;
/// Memory comes and goes in blocks of this size, so a quiet process needs little and a full ring no more than its bytes.
const BLOCK_BYTES: usize = 32 << 10;
/// A process that writes single bytes to two streams in turn must not cost a record for each of a million bytes.
const BLOCK_RUNS: usize = 4 << 10;
const MAX_RUNS: usize = 32 << 10;

#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    runs: Vec<Run>,
}

/// Bytes of one stream in a row.
#[derive(Debug, Clone, Copy)]
struct Run {
    stream: u8,
    length: u32,
}

#[derive(Debug, Default)]
pub struct Ring {
    blocks: VecDeque<Block>,
    /// bytes of the first block that are no longer held
    dropped: usize,
    /// offset of the oldest byte held
    start: u64,
    length: usize,
    runs: usize,
}

impl Ring {
    pub fn start(&self) -> u64 {
        self.start
    }

    pub fn end(&self) -> u64 {
        self.start + self.length as u64
    }

    pub fn len(&self) -> usize {
        self.length
    }

    /// How many bytes may be pushed without dropping any at or after `needed`.
    pub fn room_after(&self, needed: u64) -> usize {
        if self.runs >= MAX_RUNS && self.end_of_first_block() > needed {
            return 0;
        }
        let held = self.end().saturating_sub(needed.max(self.start)) as usize;
        RING_BYTES.saturating_sub(held)
    }

    /// Adds bytes; the oldest go when the ring is full.
    pub fn push(&mut self, stream: u8, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let is_full = |block: &Block| block.bytes.len() == BLOCK_BYTES || block.runs.len() >= BLOCK_RUNS;
            if self.blocks.back().map_or(true, is_full) {
                self.blocks.push_back(Block::default());
            }
            if let Some(block) = self.blocks.back_mut() {
                let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - block.bytes.len()));
                self.runs += usize::from(block.push(stream, now));
                self.length += now.len();
                bytes = later;
            }
        }
        self.drop_oldest(self.length.saturating_sub(RING_BYTES));
        if self.runs > MAX_RUNS {
            self.drop_oldest((self.end_of_first_block() - self.start) as usize);
        }
    }

    /// Forgets everything before `offset` and gives the memory back.
    pub fn forget_before(&mut self, offset: u64) {
        let count = offset.saturating_sub(self.start).min(self.length as u64);
        self.drop_oldest(count as usize);
    }

    /// Calls `give(stream, bytes)` for the runs from `offset` on, at most `limit` bytes together and `max_runs` runs. Returns the
    /// offset behind the last byte given.
    pub fn read(&self, offset: u64, limit: usize, max_runs: usize, mut give: impl FnMut(u8, &[u8])) -> u64 {
        let mut at = offset.max(self.start);
        // From the beginning of the first block.
        let mut skip = (at - self.start) as usize + self.dropped;
        let mut left = limit;
        let mut runs_left = max_runs;
        for block in &self.blocks {
            if skip >= block.bytes.len() {
                skip -= block.bytes.len();
                continue;
            }
            let mut begin = 0;
            for run in &block.runs {
                let end = begin + run.length as usize;
                if skip < end {
                    if left == 0 || runs_left == 0 {
                        return at;
                    }
                    let from = begin.max(skip);
                    let count = (end - from).min(left);
                    give(run.stream, &block.bytes[from..from + count]);
                    at += count as u64;
                    left -= count;
                    runs_left -= 1;
                }
                begin = end;
            }
            skip = 0;
        }
        at
    }

    fn end_of_first_block(&self) -> u64 {
        let length = self.blocks.front().map_or(0, |block| block.bytes.len() - self.dropped);
        self.start + length as u64
    }

    fn drop_oldest(&mut self, count: usize) {
        self.start += count as u64;
        self.length -= count;
        self.dropped += count;
        while let Some(first) = self.blocks.front() {
            if self.dropped < first.bytes.len() {
                return;
            }
            self.dropped -= first.bytes.len();
            self.runs -= first.runs.len();
            self.blocks.pop_front();
        }
        self.blocks = VecDeque::new();
    }
}

impl Block {
    /// True when it made a new run.
    fn push(&mut self, stream: u8, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(bytes);
        let length = bytes.len() as u32;
        match self.runs.last_mut() {
            Some(last) if last.stream == stream => {
                last.length += length;
                false
            }
            _ => {
                self.runs.push(Run { stream, length });
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read, with neighbouring runs of one stream joined.
    fn collect(ring: &Ring, offset: u64, limit: usize) -> (Vec<(u8, Vec<u8>)>, u64) {
        let mut runs: Vec<(u8, Vec<u8>)> = Vec::new();
        let end = ring.read(offset, limit, usize::MAX, |stream, bytes| match runs.last_mut() {
            Some((last, joined)) if *last == stream => joined.extend_from_slice(bytes),
            _ => runs.push((stream, bytes.to_vec())),
        });
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
        let mut expected = Vec::new();
        for i in 0..20_000u128 {
            ring.push((i % 3 / 2) as u8, &i.to_be_bytes());
            expected.extend_from_slice(&i.to_be_bytes());
        }
        assert_eq!(ring.len(), expected.len());
        for size in [7, 1000, 32 << 10, 100_000] {
            let mut pieces = Vec::new();
            let mut offset = 0;
            while offset < ring.end() {
                let (runs, next) = collect(&ring, offset, size);
                assert_eq!(next - offset, runs.iter().map(|(_, b)| b.len() as u64).sum::<u64>());
                pieces.extend(runs.into_iter().flat_map(|(_, bytes)| bytes));
                offset = next;
                if size == 7 && offset > 50_000 {
                    break;
                }
            }
            assert!(pieces == expected[..pieces.len()]);
        }
    }

    #[test]
    fn the_oldest_bytes_go_when_it_is_full() {
        let mut ring = Ring::default();
        ring.push(1, &vec![7; RING_BYTES]);
        ring.push(2, b"new");
        assert_eq!((ring.start(), ring.end(), ring.len()), (3, RING_BYTES as u64 + 3, RING_BYTES));
        assert_eq!(collect(&ring, RING_BYTES as u64, 10), (vec![(2, b"new".to_vec())], ring.end()));
        assert_eq!(collect(&ring, 0, 2), (vec![(1, vec![7, 7])], 5), "what is gone is skipped");
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
        for i in 0..MAX_RUNS {
            assert!(ring.room_after(0) > 0);
            ring.push((i % 2) as u8, b"x");
        }
        assert_eq!(ring.room_after(0), 0, "a subscriber that needs all of them stops the reading");
        assert!(ring.room_after(BLOCK_RUNS as u64) > 0);
        ring.push(7, b"x");
        assert_eq!(ring.start(), BLOCK_RUNS as u64);
        assert_eq!(ring.end(), MAX_RUNS as u64 + 1);
    }

    #[test]
    fn forgetting_keeps_the_offsets() {
        let mut ring = Ring::default();
        ring.push(1, b"hello");
        ring.forget_before(3);
        assert_eq!(collect(&ring, 3, 10).0, [(1, b"lo".to_vec())]);
        ring.forget_before(99);
        assert_eq!((ring.start(), ring.end(), ring.len()), (5, 5, 0));
        ring.push(1, b"x");
        assert_eq!(collect(&ring, 5, 10), (vec![(1, b"x".to_vec())], 6));
    }

    #[test]
    fn random_use_agrees_with_a_plain_list_of_bytes() {
        let mut random = 7u64;
        let mut next = move |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % limit
        };
        let mut ring = Ring::default();
        let mut all: Vec<(u8, u8)> = Vec::new();
        for _ in 0..3000 {
            let stream = next(2) as u8 + 1;
            let bytes: Vec<u8> = (0..next(3000)).map(|i| (i % 256) as u8).collect();
            ring.push(stream, &bytes);
            all.extend(bytes.iter().map(|&byte| (stream, byte)));
            if next(10) == 0 {
                ring.forget_before(ring.start() + next(5000));
            }
            let offset = ring.start() + next(ring.len() as u64 + 1);
            let mut found = Vec::new();
            let end = ring.read(offset, 2000, 5, |stream, bytes| {
                found.extend(bytes.iter().map(|&byte| (stream, byte)));
            });
            assert_eq!(ring.end(), all.len() as u64);
            assert!(found == all[offset as usize..end as usize]);
        }
    }
}
