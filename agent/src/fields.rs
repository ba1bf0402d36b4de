//! Payloads: sequences of numbered fields (docs/agent-protocol.md, "Frames"). Pure: no input or output here.

/// The field numbers, the same in every message.
pub mod field {
    pub const PATH: u8 = 1;
    pub const USER: u8 = 2;
    pub const DATA: u8 = 3;
    pub const HANDLE: u8 = 4;
    pub const OFFSET: u8 = 5;
    pub const LENGTH: u8 = 6;
    pub const DESTINATION: u8 = 7;
    pub const DEPTH: u8 = 8;
    pub const ENTRY: u8 = 9;
    pub const NAME: u8 = 10;
    pub const TYPE: u8 = 11;
    pub const SIZE: u8 = 12;
    pub const MODE: u8 = 13;
    pub const TARGET_MODE: u8 = 14;
    pub const OWNER: u8 = 15;
    pub const GROUP: u8 = 16;
    pub const MTIME_NS: u8 = 17;
    pub const LINK_TARGET: u8 = 18;
    pub const XATTR: u8 = 19;
    pub const CREATED: u8 = 20;
    pub const TRUNCATE: u8 = 21;
    pub const SOURCE: u8 = 22;
    pub const RECURSIVE: u8 = 23;
    pub const INCLUDE_ENTRY: u8 = 24;
    pub const WATCHER: u8 = 25;
    pub const EVENT: u8 = 26;
    pub const SEQUENCE: u8 = 27;
    pub const ALLOW_NETWORK_MOUNTS: u8 = 28;
    pub const GID: u8 = 29;
    pub const UID: u8 = 30;
    pub const PID: u8 = 31;
    pub const TAG: u8 = 32;
    pub const CMD: u8 = 33;
    pub const ARG: u8 = 34;
    pub const ENV: u8 = 35;
    pub const CWD: u8 = 36;
    pub const COLS: u8 = 37;
    pub const ROWS: u8 = 38;
    pub const STDIN: u8 = 39;
    pub const DEADLINE_MS: u8 = 40;
    pub const OPERATION_ID: u8 = 41;
    pub const SUBSCRIBER: u8 = 42;
    pub const WAIT_MS: u8 = 43;
    pub const CHUNK: u8 = 44;
    pub const STREAM: u8 = 45;
    pub const ENDED: u8 = 46;
    pub const EXIT_CODE: u8 = 47;
    pub const SIGNAL: u8 = 48;
    pub const DEADLINE_HIT: u8 = 49;
    pub const PROCESS: u8 = 50;
    pub const PTY: u8 = 51;
    pub const KIND: u8 = 52;
    pub const LOST: u8 = 53;
    pub const SECRET: u8 = 54;
    pub const DEFAULT_USER: u8 = 55;
    pub const DEFAULT_WORKDIR: u8 = 56;
    pub const HOSTNAME: u8 = 57;
    pub const TOTAL: u8 = 58;
    pub const USED: u8 = 59;
    pub const PORT: u8 = 60;
    pub const CODE: u8 = 61;
    pub const ERRNO: u8 = 62;
    pub const MESSAGE: u8 = 63;
    pub const PIDS_MAX: u8 = 64;
    pub const REPLAY: u8 = 65;
    pub const FILE: u8 = 66;
}

/// Number and length in front of every value.
const PREFIX: usize = 5;

#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

/// A payload whose structure has been checked: reading a field of it cannot fail.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    payload: &'a [u8],
}

impl<'a> Message<'a> {
    pub fn parse(payload: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let mut rest = payload;
        while !rest.is_empty() {
            let (number, value, after) = split_field(rest).ok_or(Malformed)?;
            if is_number(number) && value.len() != 8 {
                return Err(Malformed);
            }
            rest = after;
        }
        Ok(Message { payload })
    }

    pub fn fields(&self) -> Fields<'a> {
        Fields { rest: self.payload }
    }

    /// Every value of a field that may repeat.
    pub fn all(&self, number: u8) -> impl Iterator<Item = &'a [u8]> {
        self.fields().filter(move |(found, _)| *found == number).map(|(_, value)| value)
    }

    pub fn find(&self, number: u8) -> Option<&'a [u8]> {
        self.all(number).next()
    }

    /// Empty when missing.
    pub fn bytes(&self, number: u8) -> &'a [u8] {
        self.find(number).unwrap_or(&[])
    }

    /// 0 when missing.
    pub fn number(&self, number: u8) -> u64 {
        let mut value = [0; 8];
        if let Some(found) = self.find(number) {
            if found.len() == 8 {
                value.copy_from_slice(found);
            }
        }
        u64::from_be_bytes(value)
    }

    pub fn flag(&self, number: u8) -> bool {
        self.number(number) != 0
    }
}

pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (number, value, after) = split_field(self.rest)?;
        self.rest = after;
        Some((number, value))
    }
}

fn split_field(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    if bytes.len() < PREFIX {
        return None;
    }
    let length = u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize;
    let rest = &bytes[PREFIX..];
    if rest.len() < length {
        return None;
    }
    let (value, after) = rest.split_at(length);
    Some((bytes[0], value, after))
}

/// Which fields hold 8-byte numbers (the table of the protocol).
fn is_number(number: u8) -> bool {
    use field::*;
    matches!(
        number,
        HANDLE
            | OFFSET
            | LENGTH
            | DEPTH
            | TYPE
            | SIZE
            | MODE
            | TARGET_MODE
            | MTIME_NS
            | CREATED
            | TRUNCATE
            | RECURSIVE
            | INCLUDE_ENTRY
            | WATCHER
            | SEQUENCE
            | ALLOW_NETWORK_MOUNTS
            | GID
            | UID
            | PID
            | COLS
            | ROWS
            | STDIN
            | DEADLINE_MS
            | SUBSCRIBER
            | WAIT_MS
            | STREAM
            | ENDED
            | EXIT_CODE
            | SIGNAL
            | DEADLINE_HIT
            | PTY
            | KIND
            | LOST
            | TOTAL
            | USED
            | PORT
            | CODE
            | ERRNO
            | PIDS_MAX
            | REPLAY
    )
}

/// Appends fields to a growing buffer.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Goes on behind bytes that are already there, such as a frame header.
    pub fn after(bytes: Vec<u8>) -> Writer {
        Writer { bytes }
    }

    pub fn number(&mut self, number: u8, value: u64) {
        self.bytes(number, &value.to_be_bytes());
    }

    pub fn bytes(&mut self, number: u8, value: &[u8]) {
        self.prefix(number, value.len());
        self.bytes.extend_from_slice(value);
    }

    /// Fields that are encoded already.
    pub fn raw(&mut self, fields: &[u8]) {
        self.bytes.extend_from_slice(fields);
    }

    /// A value that comes in two pieces, as from a ring.
    pub fn pieces(&mut self, number: u8, first: &[u8], second: &[u8]) {
        self.prefix(number, first.len() + second.len());
        self.bytes.extend_from_slice(first);
        self.bytes.extend_from_slice(second);
    }

    /// A nested sequence of fields.
    pub fn record(&mut self, number: u8, fill: impl FnOnce(&mut Writer)) {
        self.prefix(number, 0);
        let start = self.bytes.len();
        fill(self);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start - 4..start].copy_from_slice(&length.to_be_bytes());
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn prefix(&mut self, number: u8, length: usize) {
        self.bytes.push(number);
        self.bytes.extend_from_slice(&(length as u32).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut out = Writer::new();
        out.number(field::OFFSET, 7);
        out.bytes(field::ARG, b"one");
        out.bytes(field::ARG, b"");
        out.record(field::CHUNK, |chunk| {
            chunk.number(field::STREAM, 2);
            chunk.pieces(field::DATA, b"ab", b"c");
        });
        let bytes = out.into_bytes();
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.number(field::OFFSET), 7);
        assert_eq!(message.all(field::ARG).collect::<Vec<_>>(), [&b"one"[..], b""]);
        let chunk = Message::parse(message.bytes(field::CHUNK)).unwrap();
        assert_eq!(chunk.number(field::STREAM), 2);
        assert_eq!(chunk.bytes(field::DATA), b"abc");
    }

    #[test]
    fn missing_fields_are_zero_or_empty_and_unknown_ones_ignored() {
        let mut out = Writer::new();
        out.bytes(200, b"from the future");
        let bytes = out.into_bytes();
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.number(field::LENGTH), 0);
        assert_eq!(message.bytes(field::PATH), b"");
        assert!(message.find(field::PATH).is_none());
    }

    #[test]
    fn truncated_fields_and_numbers_of_a_wrong_width_are_refused() {
        assert!(Message::parse(&[field::PATH, 0, 0, 0, 4, b'a']).is_err());
        assert!(Message::parse(&[field::PATH, 0, 0]).is_err());
        assert!(Message::parse(&[field::OFFSET, 0, 0, 0, 1, 9]).is_err());
        assert!(Message::parse(&[field::PATH, 0xff, 0xff, 0xff, 0xff]).is_err());
    }
}
