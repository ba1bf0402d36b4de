//! LIST: a walk in lexical pre-order, sent in frames of bounded size while it goes on.

use std::sync::Arc;

use crate::context::Context;
use crate::directory::Directory;
use crate::entry;
use crate::errors::{AtPath, Code, Error, Outcome};
use crate::fields::{field, Message, Writer};
use crate::frame;
use crate::paths;
use crate::sys::{self, Errno};
use crate::users::Accounts;
use crate::workers::{Reply, Step, Task};

/// A frame is sent once it is this long.
const FRAME_BYTES: usize = 128 << 10;

pub struct List {
    accounts: Arc<Accounts>,
    root: Vec<u8>,
    max_depth: u64,
    /// the directories from the root down to the one being listed
    levels: Vec<Level>,
    is_first_frame: bool,
}

struct Level {
    path: Vec<u8>,
    names: Names,
}

impl List {
    pub fn begin(context: &Context, request: &Message) -> Outcome<List> {
        let actor = context.actor(request)?;
        let root = actor.resolve(request.bytes(field::PATH))?;
        // The path itself may be a link; entries are named below the path that was asked for all the same.
        let found = sys::stat(&sys::c_path(&root).at_path(&root)?).at_path(&root)?;
        if !sys::is_kind(found.st_mode, libc::S_IFDIR) {
            return Err(Error::with_errno(Code::NotDirectory, libc::ENOTDIR).at(&root));
        }
        let names = Names::read(&root).at_path(&root)?;
        Ok(List {
            accounts: actor.accounts,
            max_depth: request.number(field::DEPTH).max(1),
            levels: vec![Level { path: root.clone(), names }],
            root,
            is_first_frame: true,
        })
    }

    /// Appends entries until the frame is full; true when there are no more.
    fn fill(&mut self, out: &mut Writer) -> bool {
        if self.is_first_frame {
            out.bytes(field::PATH, &self.root);
            self.is_first_frame = false;
        }
        while out.len() < FRAME_BYTES {
            let depth = self.levels.len() as u64;
            let level = match self.levels.last_mut() {
                None => return true,
                Some(level) => level,
            };
            let path = match level.names.next() {
                Some(name) => paths::join(&level.path, name),
                None => {
                    self.levels.pop();
                    continue;
                }
            };
            // What vanished since its directory was read is left out, as if it had vanished before.
            let mode = entry::write_entry(out, &path, &self.accounts).unwrap_or(0);
            if sys::is_kind(mode, libc::S_IFDIR) && depth < self.max_depth {
                if let Ok(names) = Names::read(&path) {
                    self.levels.push(Level { path, names });
                }
            }
        }
        false
    }
}

impl Task for List {
    fn step(&mut self, _: &Context) -> Step {
        let mut finished = false;
        let mut response = frame::build(frame::MORE, |out| finished = self.fill(out));
        if finished {
            response[0] = frame::OK;
            return Step::Done(Reply::Frame(response));
        }
        Step::Frame(response)
    }
}

/// The sorted names of a directory, packed: a million of them cost little more than their letters.
struct Names {
    text: Vec<u8>,
    /// start and length of each name
    spans: Vec<(u32, u16)>,
    next: usize,
}

impl Names {
    fn read(path: &[u8]) -> Result<Names, Errno> {
        let mut directory = Directory::open(&sys::c_path(path)?)?;
        let mut text = Vec::new();
        let mut spans = Vec::new();
        while let Some(item) = directory.next()? {
            let name = item.name.to_bytes();
            let start = u32::try_from(text.len()).map_err(|_| libc::EOVERFLOW)?;
            spans.push((start, name.len() as u16));
            text.extend_from_slice(name);
        }
        let name = |&(start, length): &(u32, u16)| &text[start as usize..start as usize + length as usize];
        spans.sort_unstable_by(|a, b| name(a).cmp(name(b)));
        Ok(Names { text, spans, next: 0 })
    }

    fn next(&mut self) -> Option<&[u8]> {
        let (start, length) = *self.spans.get(self.next)?;
        self.next += 1;
        Some(&self.text[start as usize..start as usize + length as usize])
    }
}
