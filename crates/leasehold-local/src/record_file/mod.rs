//! The file of one key: where it is, how it is opened, and how it is read without a lock.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::{Key, Queue};
use leasehold_store::{ErrorKind, StoreError};
use rustix::fs::{OFlags, Stat, fstat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use tokio::sync::Mutex as AsyncMutex;

use super::directory::{RECORDS, inode_of};
use super::name::file_name;
use super::record::{BLOCK, FORMAT, Flaw, Record};
use super::{Inner, file};

/// How many records stay open at most in this process, beside those in use. Each takes a descriptor,
/// of which a process has 1,024 by default.
const MOST_OPEN: usize = 256;

/// How many of them each client may have, whatever the others have.
const FEW_OPEN: usize = 16;

/// How many are open in this process.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// How often a record is read that seems to be damaged, before it is said to be.
const READ_TRIES: usize = 16;

/// A record of which this client has or had the file open: a step on it opens no file, and reads
/// only what other processes have written since.
#[derive(Debug, Default)]
pub(super) struct OpenRecord {
    pub(super) file: Option<Arc<OpenFile>>,
    /// What was last read or written there.
    pub(super) known: Option<Box<Record>>,
}

#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) fd: OwnedFd,
    pub(super) inode: (u64, u64),
    pub(super) path: PathBuf,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The open records by the names of their files. The steps of this client on one key take turns by
/// its mutex; the lock of the file is for other clients.
#[derive(Debug, Default)]
pub(super) struct OpenRecords(Mutex<HashMap<Arc<str>, Arc<AsyncMutex<OpenRecord>>>>);

impl OpenRecords {
    pub(super) fn get(&self, name: &Arc<str>) -> Arc<AsyncMutex<OpenRecord>> {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = records.get(name) {
            return record.clone();
        }
        // The same share of what this process may have open, if that is less.
        let limit = getrlimit(Resource::Nofile).current;
        let share = limit.and_then(|limit| usize::try_from(limit / 4).ok());
        let most = share.unwrap_or(MOST_OPEN).min(MOST_OPEN);
        let is_room = OPEN.load(Ordering::Relaxed) < most;
        if records.len() >= [FEW_OPEN, most][usize::from(is_room)] {
            let mut all = records.iter();
            let idle = all.find(|(_, one)| Arc::strong_count(one) == 1);
            let idle = idle.map(|(name, _)| name.clone());
            idle.and_then(|name| records.remove(&name));
        }
        records.entry(name.clone()).or_default().clone()
    }
}

/// Where a key's record is.
#[derive(Clone)]
pub(super) struct RecordFile {
    pub(super) store: Arc<Inner>,
    /// The path of the file in the directory.
    pub(super) name: Arc<str>,
}

impl RecordFile {
    pub(super) fn of_key(store: &Arc<Inner>, key: &Key) -> Self {
        Self::of(store, &file_name(key.as_str()))
    }

    pub(super) fn of(store: &Arc<Inner>, file_name: &str) -> Self {
        Self {
            store: store.clone(),
            name: [RECORDS, "/", file_name, ".rec"].concat().into(),
        }
    }

    /// The open file, which is made if need be.
    pub(super) fn open(&self) -> Result<OpenFile, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE;
        let fd = self.store.directory.file(&self.name, flags)?;
        let inode = inode_of(&fstat(&fd)?);
        OPEN.fetch_add(1, Ordering::Relaxed);
        Ok(OpenFile {
            inode,
            path: self.path(),
            fd,
        })
    }

    /// Reads the record. Who looks holds no lock, so the file that it has opened can be
    /// written over meanwhile: its checksums show that, and the record is read again.
    pub(super) fn read(&self) -> Result<Option<Record>, StoreError> {
        let read = || match self.store.directory.file(&self.name, OFlags::RDONLY) {
            Ok(file) => self.read_open(&file),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.failed("read", errno)),
        };
        unless_damaged_for_good(read)
    }

    /// Reads what others have written to a record that this client has open, if no step is under way.
    /// Takes no lock: a frame counts once it is whole, and the next step looks at the first line again.
    pub(super) fn read_ahead(&self) {
        if let Ok(mut open) = self.store.records.get(&self.name).try_lock_owned()
            && let Some(file) = open.file.clone()
            && let Ok(stat) = fstat(&file.fd)
        {
            let read = self.read_on(&file.fd, size_of(&stat), open.known.take());
            open.known = read.ok().flatten();
        }
    }

    /// Reads a record from its open file: what was written since it was `known`, or all of it.
    pub(super) fn read_on(
        &self,
        file: &OwnedFd,
        size: usize,
        known: Option<Box<Record>>,
    ) -> Result<Option<Box<Record>>, StoreError> {
        let source = source(file, size);
        let Some(mut known) = known.filter(|known| known.goes_on(&source)) else {
            return Ok(self.read_open(file)?.map(Box::new));
        };
        let followed = known.follow(&source);
        followed.map_err(|flaw| self.flawed(flaw))?;
        Ok(Some(known))
    }

    /// Reads the record once, from its open file.
    pub(super) fn read_open(&self, file: &OwnedFd) -> Result<Option<Record>, StoreError> {
        let failed = |errno| self.failed("read", errno);
        let (stat, clock) = (fstat(file).map_err(failed)?, &self.store.clock);
        match Record::read(&source(file, size_of(&stat))) {
            Ok(Some(mut record)) => {
                if record.header.boot != clock.boot() {
                    record.queue.void_claims();
                }
                Ok(Some(record))
            }
            Ok(None) => Ok(None),
            // The machine went down before it was on the disk: nothing of it
            // is still valid, and later tokens are above the clock of then.
            Err(Flaw::Torn | Flaw::Foreign(..FORMAT)) if clock.is_of_earlier_boot(&stat) => {
                Ok(None)
            }
            Err(flaw) => Err(self.flawed(flaw)),
        }
    }

    /// Reads the queue of `key`; an empty one if there is no record.
    pub(super) fn read_key(&self, key: &Key) -> Result<Queue, StoreError> {
        let Some(record) = self.read()? else {
            return Ok(Queue::default());
        };
        self.check_key(key, &record).map(|()| record.queue)
    }

    /// Refuses the record of another key.
    pub(super) fn check_key(&self, key: &Key, record: &Record) -> Result<(), StoreError> {
        match &record.header.key {
            found if found == key => Ok(()),
            found => Err(self.corrupt(&format!("is the record of {found:?}, not of {key:?}"))),
        }
    }

    /// What to tell a caller when the file is not as it should be.
    pub(super) fn flawed(&self, flaw: Flaw) -> StoreError {
        match flaw {
            Flaw::Torn => self.corrupt("is damaged"),
            Flaw::Unreadable(errno) => self.failed("read", errno),
            Flaw::Foreign(format) => {
                let message = format!("{} has format {format}", self.path().display());
                StoreError::new(ErrorKind::Unsupported, message).with_hint(
                    "another version of leasehold wrote it: use that one, or remove the file when \
                     nobody uses the key",
                )
            }
        }
    }

    pub(super) fn failed(&self, doing: &str, errno: Errno) -> StoreError {
        match errno {
            Errno::LOOP | Errno::ISDIR | Errno::NXIO => self.corrupt("is no file"),
            errno => self.store.directory.failed_at(&self.name, doing, errno),
        }
    }

    fn corrupt(&self, what: &str) -> StoreError {
        let message = format!("{} {what}", self.path().display());
        StoreError::new(ErrorKind::Corrupt, message)
            .with_hint("it was not changed: look at it, and remove it when nobody uses the key")
    }

    fn path(&self) -> PathBuf {
        self.store.directory.path().join(&*self.name)
    }
}

pub(super) fn size_of(stat: &Stat) -> usize {
    usize::try_from(stat.st_size).unwrap_or(0)
}

/// Reads from a file of that size no more than there is, whatever a damaged record says of its
/// length. Reads ahead, since a system call for each short frame costs more than the bytes: a file of one
/// block at once, and of a larger one some frames.
fn source(file: &OwnedFd, size: usize) -> impl Fn(usize, usize) -> Result<Vec<u8>, Flaw> {
    let ahead = RefCell::new((0, Vec::new()));
    let least = if size > BLOCK { BLOCK / 4 } else { BLOCK };
    move |at: usize, length: usize| {
        let (start, bytes) = &mut *ahead.borrow_mut();
        if at < *start || at.saturating_add(length) > *start + bytes.len() {
            let wanted = length.max(least).min(size.saturating_sub(at));
            *bytes = file::read(file, at, wanted).map_err(Flaw::Unreadable)?;
            *start = at;
        }
        let found = &bytes[at - *start..];
        Ok(found[..length.min(found.len())].to_vec())
    }
}

/// Reads again what seems to be damaged.
fn unless_damaged_for_good<T>(
    mut read: impl FnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    for _ in 1..READ_TRIES {
        match read() {
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            settled => return settled,
        }
    }
    read()
}

#[cfg(test)]
mod tests;
