//! `unpack`: an archive into an empty directory, as one layer of an overlay.
//!
//! Two kinds of archive: the changes of a sandbox, in which an entry that hides what lies below is a character device 0:0 already, and a
//! layer of an OCI image, in which it is a file `.wh.NAME`.

use crate::place::{self, Placer};
use crate::sys::Outcome;
use crate::tar::{Entry, Kind, Reader};
use std::collections::HashSet;
use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

const HIDE: &[u8] = b".wh.";
const HIDE_ALL: &[u8] = b".wh..wh..opq";

pub struct Options {
    /// The archive is a layer of an OCI image.
    pub oci: bool,
    /// Paths without leading slash that are left out, with all below them.
    pub skip: Vec<Vec<u8>>,
    /// Most bytes of content.
    pub limit: u64,
}

/// `file` may be a named pipe; `-` is standard input.
pub fn unpack(file: &str, directory: &str, options: &Options) -> Outcome<()> {
    let input: Box<dyn io::Read> = match file {
        "-" => Box::new(io::stdin()),
        _ => Box::new(
            fs::File::open(file).map_err(|error| place::said("read", Path::new(file), &error))?,
        ),
    };
    place::enter_root(directory)?;
    let mut reader = Reader::new(BufReader::with_capacity(1 << 18, input));
    let mut layer = Layer {
        placer: Placer::new(options.limit),
        hidden: HashSet::new(),
        options,
    };
    while let Some(entry) = reader.next()? {
        layer.add(&entry, &mut reader)?;
    }
    reader.drain()?;
    layer.placer.finish()
}

struct Layer<'a> {
    placer: Placer,
    /// Paths of whiteouts, those that are left out too: others may be hard links to them.
    hidden: HashSet<PathBuf>,
    options: &'a Options,
}

impl Layer<'_> {
    fn add(&mut self, entry: &Entry, content: &mut dyn io::Read) -> Outcome<()> {
        let parts = place::parts_of(&entry.path, true)?;
        let path = place::path_of(&parts);
        let (name, parents) = match parts.split_last() {
            Some(split) => split,
            None => return self.placer.put(entry, Path::new("/"), content),
        };
        let hides = entry.kind == Kind::Char && (entry.major, entry.minor) == (0, 0)
            || entry.kind == Kind::HardLink
                && self
                    .hidden
                    .contains(&place::path_of(&place::parts_of(&entry.link, true)?));
        if hides {
            self.hidden.insert(path.clone());
        }
        if self.skipped(&parts) {
            return Ok(());
        }
        let parent = place::path_of(parents);
        place::make_directories(&parent, None)?;
        if self.options.oci && name.starts_with(HIDE) {
            return self.add_oci_sign(name, &parent);
        }
        if hides {
            return self.hide(&path);
        }
        let below = fs::symlink_metadata(&path).ok();
        if entry.kind == Kind::HardLink {
            return link(entry, &path, below.is_some());
        }
        self.placer.put(entry, &path, content)?;
        // What lay below was taken away earlier in this layer: the new directory does not show it again.
        let hidden_before = below.map_or(false, |found| place::is_whiteout(&found));
        let marked = !self.options.oci
            && entry
                .xattrs
                .iter()
                .any(|(name, value)| name == place::OPAQUE.as_bytes() && value == b"y");
        if entry.kind == Kind::Directory && (hidden_before || marked) {
            place::set_opaque(&path)?;
        }
        Ok(())
    }

    fn skipped(&self, parts: &[Vec<u8>]) -> bool {
        let joined = parts.join(&b'/');
        self.options.skip.iter().any(|skip| {
            joined == *skip || (joined.starts_with(skip) && joined.get(skip.len()) == Some(&b'/'))
        })
    }

    fn add_oci_sign(&mut self, name: &[u8], parent: &Path) -> Outcome<()> {
        if name == HIDE_ALL {
            return place::set_opaque(parent);
        }
        let hidden = &name[HIDE.len()..];
        // Other names that begin so are aufs's own bookkeeping.
        if hidden.is_empty() || hidden.starts_with(HIDE) || hidden == b"." || hidden == b".." {
            return Ok(());
        }
        self.hide(
            &parent.join(
                place::path_of(&[hidden.to_vec()])
                    .strip_prefix("/")
                    .unwrap_or(Path::new("")),
            ),
        )
    }

    fn hide(&mut self, path: &Path) -> Outcome<()> {
        match fs::symlink_metadata(path) {
            Err(_) => place::make_whiteout(path),
            Ok(found) if found.is_dir() => place::set_opaque(path),
            Ok(_) => Ok(()),
        }
    }
}

fn link(entry: &Entry, path: &Path, there: bool) -> Outcome<()> {
    let target = place::path_of(&place::parts_of(&entry.link, true)?);
    if target == path {
        return Ok(());
    }
    if there {
        place::remove(path)?;
    }
    fs::hard_link(&target, path).map_err(|error| place::said("link", path, &error))
}
