//! `archive`: what a path or pattern names in a tree, as an archive on standard output.

use crate::glob::Pattern;
use crate::place::{path_of, said};
use crate::sys::Outcome;
use crate::tar::{Entry, Kind, Writer};
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Archives all that `source` names in the tree that is this process's root, under the names it has there.
pub fn archive(source: &str) -> Outcome<()> {
    let mut writer = Writer::new(BufWriter::with_capacity(1 << 18, io::stdout()));
    let pattern = Pattern::new(source);
    let found = match pattern.literal() {
        // The source itself may be a link; links below it are kept as they are.
        Some(parts) => match fs::canonicalize(path_of(parts)) {
            Ok(real) => add(&mut writer, &real, parts)?,
            Err(_) => false,
        },
        None => add_matches(&mut writer, &pattern, &mut Vec::new())?,
    };
    if !found {
        return Err(format!("'{source}' does not exist"));
    }
    writer.finish()
}

fn add_matches<W: Write>(
    writer: &mut Writer<W>,
    pattern: &Pattern,
    parts: &mut Vec<Vec<u8>>,
) -> Outcome<bool> {
    let directory = path_of(parts);
    let mut found = false;
    for name in names(&directory)? {
        parts.push(name);
        let path = path_of(parts);
        if pattern.matches(parts) {
            found |= add(writer, &path, parts)?;
        } else if fs::symlink_metadata(&path).map_or(false, |found| found.is_dir()) {
            found |= add_matches(writer, pattern, parts)?;
        }
        parts.pop();
    }
    Ok(found)
}

fn add<W: Write>(writer: &mut Writer<W>, path: &Path, name: &[Vec<u8>]) -> Outcome<bool> {
    let found = fs::symlink_metadata(path).map_err(|error| said("read", path, &error))?;
    let mut entry = entry_of(&found, name);
    if found.is_dir() {
        entry.kind = Kind::Directory;
        if !name.is_empty() {
            writer.add(&entry, &mut io::empty())?;
        }
        let mut below = name.to_vec();
        for child in names(path)? {
            below.push(child.clone());
            add(
                writer,
                &path.join(std::ffi::OsStr::from_bytes(&child)),
                &below,
            )?;
            below.pop();
        }
    } else if found.is_file() {
        entry.size = found.len();
        let mut file = File::open(path).map_err(|error| said("read", path, &error))?;
        writer.add(&entry, &mut file)?;
    } else if found.file_type().is_symlink() {
        entry.kind = Kind::Symlink;
        entry.link = fs::read_link(path)
            .map_err(|error| said("read", path, &error))?
            .as_os_str()
            .as_bytes()
            .to_vec();
        writer.add(&entry, &mut io::empty())?;
    }
    Ok(true)
}

fn names(directory: &Path) -> Outcome<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| said("read", directory, &error))? {
        let entry = entry.map_err(|error| said("read", directory, &error))?;
        names.push(entry.file_name().as_bytes().to_vec());
    }
    names.sort();
    Ok(names)
}

fn entry_of(found: &Metadata, name: &[Vec<u8>]) -> Entry {
    Entry {
        path: name.join(&b'/'),
        link: Vec::new(),
        kind: Kind::File,
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        size: 0,
        mtime: found.mtime(),
        major: 0,
        minor: 0,
        xattrs: Vec::new(),
    }
}
