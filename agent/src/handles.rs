//! Open files of OPEN_READ and OPEN_WRITE.

use std::collections::HashMap;
use std::os::unix::io::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::errors::{Code, Error, Outcome};

const MAX_HANDLES: usize = 1024;
pub const HANDLE_IDLE: Duration = Duration::from_secs(15 * 60);

pub struct Handle {
    pub file: OwnedFd,
    pub path: Vec<u8>,
}

#[derive(Default)]
pub struct Handles {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    open: HashMap<u64, (Arc<Handle>, Instant)>,
    last: u64,
}

impl Handles {
    pub fn insert(&self, file: OwnedFd, path: Vec<u8>) -> Outcome<u64> {
        let mut table = self.table.lock().unwrap();
        if table.open.len() >= MAX_HANDLES {
            return Err(Error::new(Code::Exhausted, "too many open handles").at(&path));
        }
        table.last += 1;
        let number = table.last;
        table.open.insert(number, (Arc::new(Handle { file, path }), Instant::now()));
        Ok(number)
    }

    pub fn get(&self, number: u64) -> Outcome<Arc<Handle>> {
        let mut table = self.table.lock().unwrap();
        match table.open.get_mut(&number) {
            Some((handle, used)) => {
                *used = Instant::now();
                Ok(handle.clone())
            }
            None => Err(unknown()),
        }
    }

    /// The file is closed when the last operation on it ends.
    pub fn remove(&self, number: u64) -> Outcome<Arc<Handle>> {
        let removed = self.table.lock().unwrap().open.remove(&number);
        removed.map(|(handle, _)| handle).ok_or_else(unknown)
    }

    /// Takes out those not used for 15 minutes; dropping them closes them.
    pub fn take_idle(&self, now: Instant) -> Vec<Arc<Handle>> {
        let mut table = self.table.lock().unwrap();
        let idle = |used: &Instant| now.saturating_duration_since(*used) >= HANDLE_IDLE;
        let numbers: Vec<u64> =
            table.open.iter().filter(|(_, (_, used))| idle(used)).map(|(&number, _)| number).collect();
        numbers.iter().filter_map(|number| table.open.remove(number)).map(|(handle, _)| handle).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.table.lock().unwrap().open.is_empty()
    }
}

fn unknown() -> Error {
    Error::new(Code::NotFound, "no such handle")
}
