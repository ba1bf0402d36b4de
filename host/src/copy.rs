//! COPY: files of an archive put into a tree by the rules of a Dockerfile.

use crate::accounts;
use crate::glob::Pattern;
use crate::place::{self, make_directories, said, Placer};
use crate::sys::Outcome;
use crate::tar::{Entry, Kind, Reader};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub struct Request {
    /// Path or pattern of what is copied, as the archive names it.
    pub source: String,
    /// Where to, absolute; with a slash at its end it is a directory.
    pub destination: String,
    /// `user` or `user:group`; empty: the owners of the archive.
    pub owner: String,
    /// Permission bits of all that is copied; none: those of the archive.
    pub mode: Option<u32>,
    /// Most bytes of content.
    pub limit: u64,
}

/// Copies what standard input holds into the tree that is this process's root.
pub fn copy(request: &Request) -> Outcome<()> {
    copy_from(request, BufReader::with_capacity(1 << 18, io::stdin()))
}

fn copy_from(request: &Request, input: impl Read) -> Outcome<()> {
    let mut reader = Reader::new(input);
    let owner = if request.owner.is_empty() {
        None
    } else {
        Some(accounts::owner(&request.owner)?)
    };
    let mut copying = Copying {
        pattern: Pattern::new(&request.source),
        destination: PathBuf::from(&request.destination),
        into_directory: request.destination.ends_with('/'),
        owner,
        mode: request.mode,
        placer: Placer::new(request.limit),
        sources: Vec::new(),
        lone_file: None,
        placed: HashMap::new(),
        links: HashSet::new(),
    };
    while let Some(entry) = reader.next()? {
        copying.add(entry, &mut reader)?;
    }
    reader.drain()?;
    if copying.sources.is_empty() {
        return Err(format!(
            "no file in the archive matches '{}'",
            request.source
        ));
    }
    copying.placer.finish()
}

struct Copying {
    pattern: Pattern,
    destination: PathBuf,
    into_directory: bool,
    owner: Option<(u32, u32)>,
    mode: Option<u32>,
    placer: Placer,
    /// What the pattern has matched so far.
    sources: Vec<Vec<Vec<u8>>>,
    /// The first file, put at the destination itself; it moves when a second source shows that the destination is a directory.
    lone_file: Option<Vec<u8>>,
    /// Where each file of the archive went, for hard links to it.
    placed: HashMap<Vec<Vec<u8>>, PathBuf>,
    /// Links of the archive: nothing may be written through one.
    links: HashSet<PathBuf>,
}

impl Copying {
    fn add(&mut self, mut entry: Entry, content: &mut dyn Read) -> Outcome<()> {
        let parts = place::parts_of(&entry.path, false)?;
        let source = match self.source_of(&parts) {
            Some(length) => parts[..length].to_vec(),
            None => return Ok(()),
        };
        let first_of_source = !self.sources.contains(&source);
        let within = &parts[source.len()..];
        let whole = within.is_empty() && entry.kind != Kind::Directory;
        if first_of_source {
            self.sources.push(source.clone());
            if self.sources.len() > 1 || !whole {
                self.become_directory()?;
            }
        }
        let target = self.target_of(&source, within, whole)?;
        if entry.kind == Kind::Directory {
            return self.put_directory(&mut entry, &target);
        }
        let parent = target.parent().unwrap_or(Path::new("/")).to_path_buf();
        make_directories(&parent, self.owner)?;
        match entry.kind {
            Kind::HardLink => return self.put_hard_link(&entry, parts, &target),
            Kind::File => {
                self.placed.insert(parts, target.clone());
            }
            Kind::Symlink => {
                self.links.insert(target.clone());
            }
            _ => {
                return Err(format!(
                    "the archive holds '{}', which is no file, directory or link",
                    entry.name()
                ))
            }
        }
        if fs::symlink_metadata(&target).map_or(false, |found| found.is_dir()) {
            return Err(format!(
                "cannot put the file '{}' in the place of the directory '{}'",
                entry.name(),
                target.display()
            ));
        }
        self.dress(&mut entry);
        self.placer.put(&entry, &target, content)
    }

    /// How many parts of a path name a source; none when it belongs to no source.
    fn source_of(&self, parts: &[Vec<u8>]) -> Option<usize> {
        match self.pattern.literal() {
            Some(literal) if parts.starts_with(literal) => Some(literal.len()),
            Some(_) => None,
            None => (1..=parts.len()).find(|&length| self.pattern.matches(&parts[..length])),
        }
    }

    fn target_of(
        &mut self,
        source: &[Vec<u8>],
        within: &[Vec<u8>],
        whole: bool,
    ) -> Outcome<PathBuf> {
        if whole {
            let name = source.last().cloned().unwrap_or_default();
            let is_directory =
                fs::metadata(&self.destination).map_or(false, |found| found.is_dir());
            if self.into_directory || is_directory {
                return Ok(self.destination.join(std::ffi::OsStr::from_bytes(&name)));
            }
            self.lone_file = Some(name);
            return Ok(self.destination.clone());
        }
        let mut target = self.destination.clone();
        for part in within {
            target.push(std::ffi::OsStr::from_bytes(part));
            if self.links.contains(&target) && Some(part) != within.last() {
                return Err(format!(
                    "the archive writes through its own link '{}'",
                    target.display()
                ));
            }
        }
        Ok(target)
    }

    /// From here on the destination is a directory; a file that was put in its place moves into it.
    fn become_directory(&mut self) -> Outcome<()> {
        self.into_directory = true;
        if let Some(name) = self.lone_file.take() {
            let aside = self.destination.with_extension("sandbar-moved");
            fs::rename(&self.destination, &aside)
                .map_err(|error| said("move", &self.destination, &error))?;
            make_directories(&self.destination, self.owner)?;
            let target = self.destination.join(std::ffi::OsStr::from_bytes(&name));
            fs::rename(&aside, &target).map_err(|error| said("move", &target, &error))?;
            for place in self
                .placed
                .values_mut()
                .filter(|place| **place == self.destination)
            {
                *place = target.clone();
            }
        }
        Ok(())
    }

    /// A directory that is there already keeps its owner and mode.
    fn put_directory(&mut self, entry: &mut Entry, target: &Path) -> Outcome<()> {
        match fs::metadata(target) {
            Ok(found) if found.is_dir() => return Ok(()),
            Ok(_) => {
                return Err(format!(
                    "cannot put the directory '{}' in the place of a file",
                    entry.name()
                ))
            }
            Err(_) => (),
        }
        make_directories(target.parent().unwrap_or(Path::new("/")), self.owner)?;
        self.dress(entry);
        self.placer.put(entry, target, &mut io::empty())
    }

    fn put_hard_link(&mut self, entry: &Entry, parts: Vec<Vec<u8>>, target: &Path) -> Outcome<()> {
        let to = place::parts_of(&entry.link, false)?;
        let existing = self.placed.get(&to).cloned().ok_or_else(|| {
            format!(
                "'{}' is a hard link to '{}', which is not among what is copied",
                entry.name(),
                String::from_utf8_lossy(&entry.link)
            )
        })?;
        if fs::symlink_metadata(target).is_ok() {
            place::remove(target)?;
        }
        fs::hard_link(&existing, target).map_err(|error| said("link", target, &error))?;
        self.placed.insert(parts, target.to_path_buf());
        Ok(())
    }

    fn dress(&self, entry: &mut Entry) {
        if let Some((uid, gid)) = self.owner {
            entry.uid = uid;
            entry.gid = gid;
        }
        if let Some(mode) = self.mode {
            entry.mode = mode;
        }
    }
}
