//! Frames (docs/agent-protocol.md, "Frames"). Pure: bytes in, frames out.

use crate::errors::Error;
use crate::fields::Writer;

pub const HEADER: usize = 5;
pub const MAX_PAYLOAD: usize = 4 << 20;

/// Response types.
pub const OK: u8 = 0;
pub const MORE: u8 = 1;
pub const ERROR: u8 = 2;

/// What is read before the length of a frame is known; most requests are whole with it.
const READ_AHEAD: usize = 2048;
/// One read of the rest of a long frame: bounded, so that other connections get their turn.
const READ_STEP: usize = 256 << 10;

/// A whole request frame, header included: a payload of 4 MiB is never moved to cut 5 bytes off.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    frame: Vec<u8>,
}

impl Request {
    pub fn operation(&self) -> u8 {
        self.frame[0]
    }

    pub fn payload(&self) -> &[u8] {
        &self.frame[HEADER..]
    }
}

/// The header announces a payload over the limit.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

/// Collects the bytes of one connection until a frame is whole.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
}

impl FrameBuffer {
    pub fn new() -> FrameBuffer {
        FrameBuffer::default()
    }

    /// The vector to append to, and how many bytes may be appended now.
    pub fn space(&mut self) -> (&mut Vec<u8>, usize) {
        let step = match self.payload_length() {
            None => READ_AHEAD,
            Some(length) => (HEADER + length).saturating_sub(self.bytes.len()).clamp(1, READ_STEP),
        };
        (&mut self.bytes, step)
    }

    /// Length of the payload of the frame under way, once its header is here.
    pub fn payload_length(&self) -> Option<usize> {
        let header = self.bytes.get(..HEADER)?;
        Some(u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize)
    }

    /// Makes room for the whole frame at once, so that a long one is not copied as it grows.
    pub fn reserve_payload(&mut self) {
        if let Some(length) = self.payload_length() {
            let wanted = HEADER + length.min(MAX_PAYLOAD);
            self.bytes.reserve_exact(wanted.saturating_sub(self.bytes.len()));
        }
    }

    pub fn take(&mut self) -> Result<Option<Request>, TooLong> {
        let length = match self.payload_length() {
            None => return Ok(None),
            Some(length) if length > MAX_PAYLOAD => return Err(TooLong),
            Some(length) => length,
        };
        if self.bytes.len() < HEADER + length {
            return Ok(None);
        }
        let rest = self.bytes.split_off(HEADER + length);
        let frame = std::mem::replace(&mut self.bytes, rest);
        Ok(Some(Request { frame }))
    }

    /// Bytes that came behind the last frame: the first ones of a tunnel.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Builds one response frame; the header is filled in at the end.
pub fn build(kind: u8, fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut out = Writer::after(vec![kind, 0, 0, 0, 0]);
    fill(&mut out);
    let mut bytes = out.into_bytes();
    let length = (bytes.len() - HEADER) as u32;
    bytes[1..HEADER].copy_from_slice(&length.to_be_bytes());
    bytes
}

pub fn ok(fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
    build(OK, fill)
}

pub fn empty_ok() -> Vec<u8> {
    build(OK, |_| ())
}

pub fn error(error: &Error) -> Vec<u8> {
    build(ERROR, |out| error.write(out))
}

/// The header of a frame whose payload follows raw.
pub fn header(kind: u8, length: usize) -> [u8; HEADER] {
    let [a, b, c, d] = (length as u32).to_be_bytes();
    [kind, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{field, Message};

    fn feed(buffer: &mut FrameBuffer, bytes: &[u8]) {
        buffer.space().0.extend_from_slice(bytes);
    }

    #[test]
    fn a_frame_is_taken_once_its_last_byte_is_here() {
        let mut buffer = FrameBuffer::new();
        let frame = [17, 0, 0, 0, 2, b'h', b'i'];
        for byte in &frame[..6] {
            feed(&mut buffer, &[*byte]);
            assert_eq!(buffer.take(), Ok(None));
        }
        feed(&mut buffer, &[frame[6], 1, 0]);
        let request = buffer.take().unwrap().unwrap();
        assert_eq!((request.operation(), request.payload()), (17, &b"hi"[..]));
        assert_eq!(buffer.take(), Ok(None));
        assert_eq!(buffer.take_rest(), [1, 0]);
    }

    #[test]
    fn never_asks_for_more_than_the_frame_once_the_length_is_known() {
        let mut buffer = FrameBuffer::new();
        feed(&mut buffer, &[1, 0, 0, 16, 0, 9]);
        assert_eq!(buffer.space().1, 4095);
    }

    #[test]
    fn a_length_over_the_limit_is_refused_from_the_header_alone() {
        let mut buffer = FrameBuffer::new();
        feed(&mut buffer, &[1, 0x00, 0x40, 0x00, 0x01]);
        assert_eq!(buffer.take(), Err(TooLong));
    }

    /// What the fuzz target does, without its tools: mutated frames, never a panic, never a byte lost.
    #[test]
    fn three_hundred_thousand_mutated_frames_do_no_harm() {
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let sample = build(9, |out| {
            out.number(field::HANDLE, 3);
            out.bytes(field::PATH, b"/home/user/file");
            out.record(field::FILE, |file| file.bytes(field::DATA, b"0123456789"));
        });
        for _ in 0..300_000 {
            let mut bytes = sample.clone();
            for _ in 0..next() % 4 {
                let at = (next() % bytes.len() as u64) as usize;
                bytes[at] = next() as u8;
            }
            bytes.truncate((next() % (bytes.len() as u64 + 1)) as usize);
            exercise(&bytes, (next() % 64) as usize + 1);
        }
    }

    fn exercise(bytes: &[u8], step: usize) {
        let mut buffer = FrameBuffer::new();
        for piece in bytes.chunks(step) {
            feed(&mut buffer, piece);
            assert!(buffer.space().1 > 0);
            while let Ok(Some(request)) = buffer.take() {
                assert!(request.payload().len() <= MAX_PAYLOAD);
                if let Ok(message) = Message::parse(request.payload()) {
                    let size: usize = message.fields().map(|(_, value)| value.len() + 5).sum();
                    assert_eq!(size, request.payload().len());
                }
            }
        }
    }
}
