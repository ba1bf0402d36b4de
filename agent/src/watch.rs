//! Watchers: which of them want to know of a directory, and what an inotify event means to each.
//!
//! One inotify instance serves them all, made with the first watcher: instances are few (128 for a user of a host). All of this
//! runs on workers, because it reads directories; the event loop only takes events out of the queues.

use std::collections::{HashMap, HashSet};
use std::os::unix::io::OwnedFd;
use std::sync::{Arc, Mutex};

use crate::context::Context;
use crate::directory::Directory;
use crate::entry;
use crate::errors::{AtPath, Code, Error, Outcome};
use crate::fields::{field, Message, Writer};
use crate::frame;
use crate::inotify::{self, Event};
use crate::paths;
use crate::sys::{self, Errno};
use crate::users::Accounts;
use crate::watch_queue::{self as kind, Queue};

const MAX_WATCHERS: usize = 1024;
/// Names remembered to tell a scan and an event of the same creation apart.
const MAX_SCANNED: usize = 64 << 10;

#[derive(Default)]
pub struct Watches {
    tree: Mutex<Tree>,
    /// held for moments only: the event loop takes it too
    queues: Mutex<HashMap<u64, Queue>>,
}

#[derive(Default)]
struct Tree {
    inotify: Option<Arc<OwnedFd>>,
    watchers: HashMap<u64, Watcher>,
    last: u64,
    /// by watch descriptor: who is interested, and what it calls the directory
    places: HashMap<i32, Vec<Place>>,
    /// creations reported from scanning a new directory, whose events may still be on their way
    scanned: HashSet<(i32, Vec<u8>)>,
}

struct Watcher {
    root: Vec<u8>,
    is_recursive: bool,
    has_entries: bool,
}

#[derive(Clone)]
struct Place {
    watcher: u64,
    /// path below the root of the watcher; empty for the root itself
    relative: Vec<u8>,
}

impl Watches {
    pub fn create(&self, context: &Context, request: &Message) -> Outcome<Vec<u8>> {
        let actor = context.actor(request)?;
        let root = actor.resolve(request.bytes(field::PATH))?;
        let c_root = sys::c_path(&root).at_path(&root)?;
        let found = sys::stat(&c_root).at_path(&root)?;
        if !sys::is_kind(found.st_mode, libc::S_IFDIR) {
            return Err(Error::with_errno(Code::NotDirectory, libc::ENOTDIR).at(&root));
        }
        if !request.flag(field::ALLOW_NETWORK_MOUNTS) && inotify::is_on_network(&c_root).at_path(&root)? {
            return Err(Error::new(Code::NetworkMount, "cannot watch a network file system").at(&root));
        }
        let mut tree = self.tree.lock().unwrap();
        if tree.watchers.len() >= MAX_WATCHERS {
            return Err(Error::new(Code::Exhausted, "too many watchers").at(&root));
        }
        let inotify = tree.open().map_err(|errno| Error::with_errno(Code::Exhausted, errno))?;
        let descriptor = inotify::add(&inotify, &c_root, true).map_err(|errno| watch_error(errno).at(&root))?;
        tree.last += 1;
        let number = tree.last;
        let is_recursive = request.flag(field::RECURSIVE);
        let has_entries = request.flag(field::INCLUDE_ENTRY);
        tree.watchers.insert(number, Watcher { root, is_recursive, has_entries });
        tree.place(descriptor, number, Vec::new());
        if is_recursive {
            let mut news = Vec::new();
            if let Err(errno) = tree.scan(number, descriptor, Vec::new(), false, &mut news) {
                tree.remove(number);
                return Err(watch_error(errno));
            }
        }
        self.queues.lock().unwrap().insert(number, Queue::new());
        Ok(frame::ok(|out| out.number(field::WATCHER, number)))
    }

    /// The first half of WATCH_REMOVE, which does not wait: nobody can read from the watcher any more.
    pub fn close(&self, number: u64) -> Outcome<()> {
        let removed = self.queues.lock().unwrap().remove(&number);
        removed.map(drop).ok_or_else(unknown)
    }

    /// The second half: its directories are given up.
    pub fn remove(&self, request: &Message) -> Outcome<Vec<u8>> {
        self.tree.lock().unwrap().remove(request.number(field::WATCHER));
        Ok(frame::empty_ok())
    }

    /// A response with what waits in a queue; none when that is nothing and `is_final` is not set.
    pub fn read(&self, watcher: u64, sequence: u64, is_final: bool) -> Outcome<Option<Vec<u8>>> {
        let mut queues = self.queues.lock().unwrap();
        let queue = queues.get_mut(&watcher).ok_or_else(unknown)?;
        let mut has_any = false;
        let response = frame::ok(|out| has_any = queue.read(sequence, out));
        Ok(if has_any || is_final { Some(response) } else { None })
    }

    /// The inotify instance, once there is one.
    pub fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        // Never waits: whoever holds the lock tells the event loop when it is done.
        self.tree.try_lock().ok()?.inotify.clone()
    }

    /// Takes events from the kernel into the queues. Returns the watchers that got some, and whether there may be more.
    pub fn collect(&self, context: &Context) -> (Vec<u64>, bool) {
        let mut tree = self.tree.lock().unwrap();
        let mut touched = Vec::new();
        let inotify = match &tree.inotify {
            Some(inotify) => inotify.clone(),
            None => return (touched, false),
        };
        let mut news = Vec::new();
        let has_more = inotify::read(&inotify, |event| tree.interpret(&event, &mut news));
        if !has_more {
            tree.scanned = HashSet::new();
        }
        let accounts = context.accounts.get();
        let entries: Vec<Vec<u8>> = news.iter().map(|change| tree.entry_of(change, &accounts)).collect();
        drop(tree);
        let mut queues = self.queues.lock().unwrap();
        for (change, entry) in news.iter().zip(&entries) {
            if let Some(queue) = queues.get_mut(&change.watcher) {
                match change.kind {
                    LOSS => queue.skip(),
                    kind => queue.push(kind, &change.name, entry),
                }
                if !touched.contains(&change.watcher) {
                    touched.push(change.watcher);
                }
            }
        }
        (touched, has_more)
    }
}

/// Something to put into a watcher's queue.
struct Change {
    watcher: u64,
    /// one of the kinds of the protocol, or LOSS
    kind: u64,
    name: Vec<u8>,
}

/// Not an event: some could not be seen.
const LOSS: u64 = 0;

impl Tree {
    fn open(&mut self) -> Result<Arc<OwnedFd>, Errno> {
        if self.inotify.is_none() {
            self.inotify = Some(Arc::new(inotify::open()?));
        }
        Ok(self.inotify.clone().expect("made above"))
    }

    /// False when the watcher had the directory already.
    fn place(&mut self, descriptor: i32, watcher: u64, relative: Vec<u8>) -> bool {
        let places = self.places.entry(descriptor).or_default();
        match places.iter_mut().find(|place| place.watcher == watcher) {
            Some(place) => {
                place.relative = relative;
                false
            }
            None => {
                places.push(Place { watcher, relative });
                true
            }
        }
    }

    fn interpret(&mut self, event: &Event, news: &mut Vec<Change>) {
        if event.mask & libc::IN_Q_OVERFLOW != 0 {
            return self.recover(news);
        }
        if event.mask & libc::IN_IGNORED != 0 {
            self.places.remove(&event.descriptor);
            return;
        }
        let places = match self.places.get(&event.descriptor) {
            Some(places) => places.clone(),
            None => return,
        };
        let was_scanned = event.mask & (libc::IN_CREATE | libc::IN_MOVED_TO) != 0
            && self.scanned.remove(&(event.descriptor, event.name.to_vec()));
        for place in places {
            if event.name.is_empty() {
                self.interpret_own(&place, event.mask, news);
                continue;
            }
            let name = paths::join(&place.relative, event.name);
            for &(bits, kind) in &inotify::KINDS {
                let is_repeated = was_scanned && kind == kind::CREATE;
                if event.mask & bits != 0 && !is_repeated {
                    news.push(Change { watcher: place.watcher, kind, name: name.clone() });
                }
            }
            if event.mask & libc::IN_ISDIR != 0 {
                self.follow_directory(place.watcher, name, event.mask, news);
            }
        }
    }

    /// An event of a watched directory itself. Below the root its parent reports the same.
    fn interpret_own(&mut self, place: &Place, mask: u32, news: &mut Vec<Change>) {
        if !place.relative.is_empty() {
            return;
        }
        let kind = match mask {
            mask if mask & libc::IN_DELETE_SELF != 0 => kind::REMOVE,
            mask if mask & libc::IN_MOVE_SELF != 0 => kind::RENAME,
            _ => return,
        };
        if let Some(watcher) = self.watchers.get(&place.watcher) {
            let name = paths::base_name(&watcher.root).to_vec();
            news.push(Change { watcher: place.watcher, kind, name });
        }
    }

    /// Recursive watchers enter new directories and leave those that were moved away.
    fn follow_directory(&mut self, number: u64, name: Vec<u8>, mask: u32, news: &mut Vec<Change>) {
        if !self.watchers.get(&number).map_or(false, |watcher| watcher.is_recursive) {
            return;
        }
        if mask & libc::IN_MOVED_FROM != 0 {
            self.leave(number, |relative| relative == name || is_below(relative, &name));
        }
        if mask & (libc::IN_CREATE | libc::IN_MOVED_TO) != 0 {
            self.enter(number, name, true, news);
        }
    }

    fn enter(&mut self, number: u64, relative: Vec<u8>, reports: bool, news: &mut Vec<Change>) {
        let added = self.add(number, &relative);
        let outcome = match added {
            Ok(Some(descriptor)) => self.scan(number, descriptor, relative, reports, news),
            Ok(None) => Ok(()),
            Err(errno) => Err(errno),
        };
        if outcome.is_err() {
            news.push(Change { watcher: number, kind: LOSS, name: Vec::new() });
        }
    }

    /// Watches one directory; none when it is gone, no directory, or watched already.
    fn add(&mut self, number: u64, relative: &[u8]) -> Result<Option<i32>, Errno> {
        let inotify = self.open()?;
        let path = match self.watchers.get(&number) {
            Some(watcher) => paths::join(&watcher.root, relative),
            None => return Ok(None),
        };
        match inotify::add(&inotify, &sys::c_path(&path)?, false) {
            Ok(descriptor) if self.place(descriptor, number, relative.to_vec()) => Ok(Some(descriptor)),
            Ok(_) | Err(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ENAMETOOLONG) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Takes in what is below a directory that has just been watched. What is created from now on gives an event, what was
    /// there before is found here, and what came in between is found twice: `scanned` remembers it.
    fn scan(
        &mut self,
        number: u64,
        descriptor: i32,
        relative: Vec<u8>,
        reports: bool,
        news: &mut Vec<Change>,
    ) -> Result<(), Errno> {
        let root = match self.watchers.get(&number) {
            Some(watcher) => watcher.root.clone(),
            None => return Ok(()),
        };
        let mut pending = vec![(descriptor, relative)];
        while let Some((descriptor, relative)) = pending.pop() {
            let path = sys::c_path(&paths::join(&root, &relative))?;
            let mut directory = match Directory::open(&path) {
                Ok(directory) => directory,
                Err(_) => continue,
            };
            while let Ok(Some(item)) = directory.next() {
                let name = paths::join(&relative, item.name.to_bytes());
                if reports {
                    if self.scanned.len() < MAX_SCANNED {
                        self.scanned.insert((descriptor, item.name.to_bytes().to_vec()));
                    }
                    news.push(Change { watcher: number, kind: kind::CREATE, name: name.clone() });
                }
                if matches!(item.kind, libc::DT_DIR | libc::DT_UNKNOWN) {
                    if let Some(below) = self.add(number, &name)? {
                        pending.push((below, name));
                    }
                }
            }
        }
        Ok(())
    }

    /// The kernel's queue has overflowed: every watcher is told, and new directories are looked for.
    fn recover(&mut self, news: &mut Vec<Change>) {
        let numbers: Vec<(u64, bool)> =
            self.watchers.iter().map(|(&number, watcher)| (number, watcher.is_recursive)).collect();
        for (number, is_recursive) in numbers {
            news.push(Change { watcher: number, kind: LOSS, name: Vec::new() });
            if is_recursive {
                self.leave(number, |relative| !relative.is_empty());
                let root = self.places.iter().find_map(|(&descriptor, places)| {
                    places.iter().any(|place| place.watcher == number).then_some(descriptor)
                });
                if let Some(descriptor) = root {
                    // What cannot be watched again is part of the loss just reported.
                    let _ = self.scan(number, descriptor, Vec::new(), false, news);
                }
            }
        }
    }

    fn remove(&mut self, number: u64) {
        self.leave(number, |_| true);
        self.watchers.remove(&number);
    }

    /// Gives up the places of a watcher; the kernel's watch goes with the last place.
    fn leave(&mut self, number: u64, is_left: impl Fn(&[u8]) -> bool) {
        let inotify = self.inotify.clone();
        self.places.retain(|&descriptor, places| {
            places.retain(|place| place.watcher != number || !is_left(&place.relative));
            if places.is_empty() {
                if let Some(inotify) = &inotify {
                    inotify::remove(inotify, descriptor);
                }
            }
            !places.is_empty()
        });
    }

    /// The encoded entry of a change, where the watcher asked for it and it can be had.
    fn entry_of(&self, change: &Change, accounts: &Accounts) -> Vec<u8> {
        let watcher = match self.watchers.get(&change.watcher) {
            Some(watcher) if watcher.has_entries => watcher,
            _ => return Vec::new(),
        };
        if !matches!(change.kind, kind::CREATE | kind::WRITE | kind::CHMOD) {
            return Vec::new();
        }
        let mut out = Writer::new();
        // It may be gone already: then the event comes without it.
        let _ = entry::write_entry(&mut out, &paths::join(&watcher.root, &change.name), accounts);
        out.into_bytes()
    }
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.len() > directory.len() && path.starts_with(directory) && path[directory.len()] == b'/'
}

fn watch_error(errno: Errno) -> Error {
    match errno {
        // The limit of watches, not of the disk.
        libc::ENOSPC => Error::with_errno(Code::Exhausted, errno),
        errno => errno.into(),
    }
}

fn unknown() -> Error {
    Error::new(Code::NotFound, "no such watcher")
}
