//! Bytes of a connection, in pieces of any size: never a panic, never a byte lost, never more than a frame asked for.
//!
//! `cargo +nightly fuzz run frames -- -max_total_time=60`
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandbar_agent::fields::{field, Message};
use sandbar_agent::frame::{FrameBuffer, HEADER, MAX_PAYLOAD};

fuzz_target!(|input: (u8, &[u8])| {
    let (step, bytes) = input;
    let mut buffer = FrameBuffer::new();
    let mut taken = 0;
    for piece in bytes.chunks(usize::from(step) + 1) {
        let (space, room) = buffer.space();
        assert!(room > 0);
        space.extend_from_slice(piece);
        loop {
            match buffer.take() {
                Ok(Some(request)) => {
                    taken += HEADER + request.payload().len();
                    inspect(request.payload());
                }
                Ok(None) => break,
                Err(_) => {
                    assert!(buffer.payload_length().unwrap() > MAX_PAYLOAD);
                    return;
                }
            }
        }
    }
    assert_eq!(taken + buffer.take_rest().len(), bytes.len());
});

fn inspect(payload: &[u8]) {
    if let Ok(message) = Message::parse(payload) {
        let size: usize = message.fields().map(|(_, value)| value.len() + 5).sum();
        assert_eq!(size, payload.len());
        for number in 0..=u8::MAX {
            message.number(number);
        }
        for nested in message.all(field::FILE) {
            inspect(nested);
        }
    }
}
