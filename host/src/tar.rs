//! Reading and writing tar: ustar with the extensions that programs really write (pax, GNU long names, base-256 numbers).

use crate::sys::Outcome;
use std::io::{self, Read, Write};

const BLOCK: usize = 512;
/// Longest name, link or set of attributes that is believed.
const HEADER_LIMIT: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    HardLink,
    Symlink,
    Char,
    Block,
    Directory,
    Fifo,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub path: Vec<u8>,
    pub link: Vec<u8>,
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Seconds since 1970.
    pub mtime: i64,
    pub major: u32,
    pub minor: u32,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }
}

/// What a pax or GNU header says about the entry that follows it.
#[derive(Clone, Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u32>,
    gid: Option<u32>,
    mtime: Option<i64>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

pub struct Reader<R: Read> {
    input: R,
    /// Bytes of the present entry that are not read yet, and what fills up its last block.
    left: u64,
    padding: u64,
    global: Extension,
}

impl<R: Read> Reader<R> {
    pub fn new(input: R) -> Self {
        Reader {
            input,
            left: 0,
            padding: 0,
            global: Extension::default(),
        }
    }

    /// The next entry; what was not read of the one before is passed over.
    pub fn next(&mut self) -> Outcome<Option<Entry>> {
        let mut extension = self.global.clone();
        loop {
            self.skip()?;
            let mut header = [0u8; BLOCK];
            if !self.fill(&mut header)? || header.iter().all(|&byte| byte == 0) {
                return Ok(None);
            }
            check_sum(&header)?;
            let size = number(&header[124..136])?;
            let kind = header[156];
            match kind {
                b'x' => read_pax(&self.take(size)?, &mut extension)?,
                b'g' => {
                    let text = self.take(size)?;
                    read_pax(&text, &mut self.global)?;
                    read_pax(&text, &mut extension)?;
                }
                b'L' => extension.path = Some(trimmed(self.take(size)?)),
                b'K' => extension.link = Some(trimmed(self.take(size)?)),
                b'V' => self.begin(size),
                _ => return self.entry(&header, kind, size, extension).map(Some),
            }
        }
    }

    /// Reads on to the end of the input: only there does whoever checks the whole of it know whether it was right.
    pub fn drain(mut self) -> Outcome<()> {
        io::copy(&mut self.input, &mut io::sink())
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    fn entry(
        &mut self,
        header: &[u8; BLOCK],
        kind: u8,
        size: u64,
        extension: Extension,
    ) -> Outcome<Entry> {
        let mut path = text(&header[0..100]);
        if &header[257..262] == b"ustar" && header[263] != b' ' {
            let prefix = text(&header[345..500]);
            if !prefix.is_empty() {
                path = [prefix, vec![b'/'], path].concat();
            }
        }
        let path = extension.path.unwrap_or(path);
        let name = String::from_utf8_lossy(&path).into_owned();
        let kind = match kind {
            b'0' | 0 | b'7' if path.ends_with(b"/") => Kind::Directory,
            b'0' | 0 | b'7' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => Kind::Char,
            b'4' => Kind::Block,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            b'S' => {
                return Err(format!(
                    "the archive holds '{name}' in GNU's sparse form, which is not supported"
                ))
            }
            other => {
                return Err(format!(
                    "the archive holds '{name}' of unknown type '{}'",
                    other as char
                ))
            }
        };
        if path.is_empty() || path.contains(&0) {
            return Err("the archive holds an entry without a name".to_string());
        }
        let size = if kind == Kind::File {
            extension.size.unwrap_or(size)
        } else {
            0
        };
        self.begin(size);
        let id = |field: &[u8]| number(field).map(|value| value as u32);
        Ok(Entry {
            path,
            link: extension.link.unwrap_or_else(|| text(&header[157..257])),
            kind,
            mode: number(&header[100..108])? as u32 & 0o7777,
            uid: extension.uid.map_or_else(|| id(&header[108..116]), Ok)?,
            gid: extension.gid.map_or_else(|| id(&header[116..124]), Ok)?,
            size,
            mtime: extension
                .mtime
                .map_or_else(|| number(&header[136..148]).map(|value| value as i64), Ok)?,
            major: number(&header[329..337]).unwrap_or(0) as u32,
            minor: number(&header[337..345]).unwrap_or(0) as u32,
            xattrs: extension.xattrs,
        })
    }

    fn begin(&mut self, size: u64) {
        self.left = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
    }

    fn take(&mut self, size: u64) -> Outcome<Vec<u8>> {
        if size > HEADER_LIMIT {
            return Err("the archive holds a header that is too long".to_string());
        }
        self.begin(size);
        let mut data = vec![0; size as usize];
        self.read_exact(&mut data).map_err(cut_short)?;
        Ok(data)
    }

    fn skip(&mut self) -> Outcome<()> {
        let rest = self.left + self.padding;
        let passed = io::copy(&mut (&mut self.input).take(rest), &mut io::sink())
            .map_err(|error| error.to_string())?;
        self.left = 0;
        self.padding = 0;
        if passed < rest {
            return Err("the archive is cut short".to_string());
        }
        Ok(())
    }

    /// False at the end of the input.
    fn fill(&mut self, block: &mut [u8; BLOCK]) -> Outcome<bool> {
        let mut have = 0;
        while have < BLOCK {
            match self.input.read(&mut block[have..]) {
                Ok(0) if have == 0 => return Ok(false),
                Ok(0) => return Err("the archive is cut short".to_string()),
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(true)
    }
}

/// The content of the present entry.
impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = (buffer.len() as u64).min(self.left) as usize;
        if most == 0 {
            return Ok(0);
        }
        let count = self.input.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the archive is cut short",
            ));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

fn cut_short(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the archive is cut short".to_string(),
        _ => error.to_string(),
    }
}

fn check_sum(header: &[u8; BLOCK]) -> Outcome<()> {
    let wrong = || "this is not a tar archive, or it is damaged".to_string();
    let said = number(&header[148..156]).map_err(|_| wrong())?;
    let sum: u64 = header
        .iter()
        .enumerate()
        .map(|(at, &byte)| {
            if (148..156).contains(&at) {
                32
            } else {
                u64::from(byte)
            }
        })
        .sum();
    if sum == said {
        Ok(())
    } else {
        Err(wrong())
    }
}

/// Octal digits, or with the highest bit set a number in base 256.
fn number(field: &[u8]) -> Outcome<u64> {
    if field[0] & 0x80 != 0 {
        if field[0] & 0x40 != 0 {
            return Ok(0);
        }
        let value = field[1..]
            .iter()
            .fold(u128::from(field[0] & 0x3f), |sum, &byte| {
                (sum << 8) | u128::from(byte)
            });
        return u64::try_from(value)
            .map_err(|_| "the archive holds a number that is too large".to_string());
    }
    let digits: Vec<u8> = field
        .iter()
        .copied()
        .filter(|byte| !matches!(byte, b' ' | 0))
        .collect();
    digits.iter().try_fold(0u64, |value, &digit| match digit {
        b'0'..=b'7' => Ok((value << 3) | u64::from(digit - b'0')),
        _ => Err("the archive holds a number that is not one".to_string()),
    })
}

fn text(field: &[u8]) -> Vec<u8> {
    field
        .iter()
        .copied()
        .take_while(|&byte| byte != 0)
        .collect()
}

fn trimmed(mut data: Vec<u8>) -> Vec<u8> {
    while data.last() == Some(&0) {
        data.pop();
    }
    data
}

/// Records `length key=value\n`.
fn read_pax(mut data: &[u8], extension: &mut Extension) -> Outcome<()> {
    let wrong = || "the archive holds a pax header that cannot be read".to_string();
    while !data.is_empty() {
        let space = data
            .iter()
            .position(|&byte| byte == b' ')
            .ok_or_else(wrong)?;
        let length: usize = std::str::from_utf8(&data[..space])
            .ok()
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(wrong)?;
        if length <= space + 1 || length > data.len() || data[length - 1] != b'\n' {
            return Err(wrong());
        }
        let record = &data[space + 1..length - 1];
        let equals = record
            .iter()
            .position(|&byte| byte == b'=')
            .ok_or_else(wrong)?;
        let (key, value) = (&record[..equals], record[equals + 1..].to_vec());
        let whole = || -> Outcome<i64> {
            let digits = value.split(|&byte| byte == b'.').next().unwrap_or(&[]);
            std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(wrong)
        };
        match key {
            b"path" => extension.path = Some(value),
            b"linkpath" => extension.link = Some(value),
            b"size" => extension.size = Some(u64::try_from(whole()?).map_err(|_| wrong())?),
            b"uid" => extension.uid = Some(whole()? as u32),
            b"gid" => extension.gid = Some(whole()? as u32),
            b"mtime" => extension.mtime = Some(whole()?),
            _ if key.starts_with(b"SCHILY.xattr.") => {
                extension.xattrs.push((key[13..].to_vec(), value))
            }
            _ if key.starts_with(b"GNU.sparse.") => {
                return Err(
                    "the archive holds a file in GNU's sparse form, which is not supported"
                        .to_string(),
                )
            }
            _ => (),
        }
        data = &data[length..];
    }
    Ok(())
}

pub struct Writer<W: Write> {
    output: W,
}

impl<W: Write> Writer<W> {
    pub fn new(output: W) -> Self {
        Writer { output }
    }

    /// Writes an entry; `content` must give `entry.size` bytes.
    pub fn add(&mut self, entry: &Entry, content: &mut dyn Read) -> Outcome<()> {
        let mut extra = Vec::new();
        for (key, value, room) in [("path", &entry.path, 100), ("linkpath", &entry.link, 100)] {
            if value.len() > room {
                extra.extend(pax_record(key, value));
            }
        }
        if entry.size >= 1 << 33 {
            extra.extend(pax_record("size", entry.size.to_string().as_bytes()));
        }
        for (key, id) in [("uid", entry.uid), ("gid", entry.gid)] {
            if id >= 1 << 21 {
                extra.extend(pax_record(key, id.to_string().as_bytes()));
            }
        }
        for (name, value) in &entry.xattrs {
            extra.extend(pax_record(
                &format!("SCHILY.xattr.{}", String::from_utf8_lossy(name)),
                value,
            ));
        }
        if !extra.is_empty() {
            self.write(&header(
                b"././@PaxHeader",
                &[],
                b'x',
                0o644,
                0,
                0,
                extra.len() as u64,
                0,
            ))?;
            self.write(&extra)?;
            self.pad(extra.len() as u64)?;
        }
        let kind = match entry.kind {
            Kind::File => b'0',
            Kind::HardLink => b'1',
            Kind::Symlink => b'2',
            Kind::Char => b'3',
            Kind::Block => b'4',
            Kind::Directory => b'5',
            Kind::Fifo => b'6',
        };
        self.write(&header(
            &entry.path,
            &entry.link,
            kind,
            entry.mode,
            entry.uid,
            entry.gid,
            entry.size,
            entry.mtime,
        ))?;
        let copied = io::copy(&mut content.take(entry.size), &mut self.output)
            .map_err(|error| error.to_string())?;
        if copied != entry.size {
            return Err(format!("'{}' changed while it was read", entry.name()));
        }
        self.pad(entry.size)
    }

    pub fn finish(mut self) -> Outcome<()> {
        self.write(&[0; 2 * BLOCK])?;
        self.output.flush().map_err(|error| error.to_string())
    }

    fn pad(&mut self, size: u64) -> Outcome<()> {
        let rest = (BLOCK - size as usize % BLOCK) % BLOCK;
        self.write(&[0; BLOCK][..rest])
    }

    fn write(&mut self, data: &[u8]) -> Outcome<()> {
        self.output
            .write_all(data)
            .map_err(|error| error.to_string())
    }
}

/// The length counts its own digits.
fn pax_record(key: &str, value: &[u8]) -> Vec<u8> {
    let body = key.len() + value.len() + 3;
    let mut length = body + body.to_string().len();
    if length.to_string().len() != body.to_string().len() {
        length = body + length.to_string().len();
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

#[allow(clippy::too_many_arguments)]
fn header(
    path: &[u8],
    link: &[u8],
    kind: u8,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: i64,
) -> [u8; BLOCK] {
    let mut block = [0u8; BLOCK];
    let put = |block: &mut [u8; BLOCK], at: usize, room: usize, bytes: &[u8]| {
        let length = bytes.len().min(room);
        block[at..at + length].copy_from_slice(&bytes[..length]);
    };
    let octal =
        |value: u64, digits: usize| format!("{:0digits$o}", value & ((1 << (3 * digits)) - 1));
    put(&mut block, 0, 100, path);
    put(&mut block, 100, 8, octal(u64::from(mode), 7).as_bytes());
    put(&mut block, 108, 8, octal(u64::from(uid), 7).as_bytes());
    put(&mut block, 116, 8, octal(u64::from(gid), 7).as_bytes());
    put(&mut block, 124, 12, octal(size, 11).as_bytes());
    put(
        &mut block,
        136,
        12,
        octal(mtime.max(0) as u64, 11).as_bytes(),
    );
    put(&mut block, 156, 1, &[kind]);
    put(&mut block, 157, 100, link);
    put(&mut block, 257, 8, b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    put(&mut block, 148, 8, format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: Kind, content: &[u8]) -> Entry {
        Entry {
            path: path.as_bytes().to_vec(),
            link: Vec::new(),
            kind,
            mode: 0o640,
            uid: 1000,
            gid: 3_000_000,
            size: content.len() as u64,
            mtime: 1_700_000_000,
            major: 0,
            minor: 0,
            xattrs: vec![(b"user.note".to_vec(), b"a\nb".to_vec())],
        }
    }

    fn archive(entries: &[(Entry, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        for (entry, content) in entries {
            let mut content: &[u8] = content;
            writer.add(entry, &mut content).unwrap();
        }
        writer.finish().unwrap();
        bytes
    }

    #[test]
    fn reads_back_what_it_writes() {
        let long = format!("{}/file", "d".repeat(150));
        let bytes = archive(&[
            (entry(&long, Kind::File, b"hello"), b"hello"),
            (entry("dir/", Kind::Directory, b""), b""),
        ]);
        let mut reader = Reader::new(&bytes[..]);
        let first = reader.next().unwrap().unwrap();
        assert_eq!(
            (first.name(), first.size, first.gid, first.mode),
            (long, 5, 3_000_000, 0o640)
        );
        assert_eq!(
            first.xattrs,
            vec![(b"user.note".to_vec(), b"a\nb".to_vec())]
        );
        let mut content = String::new();
        reader.read_to_string(&mut content).unwrap();
        assert_eq!(content, "hello");
        assert_eq!(reader.next().unwrap().unwrap().kind, Kind::Directory);
        assert!(reader.next().unwrap().is_none());
    }

    #[test]
    fn says_when_an_archive_is_cut_short_or_none() {
        let bytes = archive(&[(entry("file", Kind::File, &[7; 2000]), &[7; 2000])]);
        let mut reader = Reader::new(&bytes[..1600]);
        reader.next().unwrap();
        assert_eq!(reader.next().unwrap_err(), "the archive is cut short");
        assert!(Reader::new(&[9u8; 4096][..])
            .next()
            .unwrap_err()
            .contains("not a tar archive"));
        assert!(Reader::new(&b""[..]).next().unwrap().is_none());
    }
}
