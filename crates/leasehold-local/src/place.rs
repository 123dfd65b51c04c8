//! The file of one key: how it is locked, and read by who only looks.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Key, Queue};
use leasehold_store::{ErrorKind, StoreError};
use rustix::fs::{FlockOperation, OFlags, Stat, flock, fstat};
use rustix::io::{Errno, retry_on_intr};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::sleep;

use super::Inner;
use super::directory::{RECORDS, inode_of};
use super::file;
use super::key_lock::KeyLock;
use super::name::file_name;
use super::record::{BLOCK, FORMAT, Flaw, Record};

/// How many records stay open at most, beside those in use. Each takes a descriptor, of which a
/// process has 1,024 by default.
const MOST_OPEN: usize = 256;

/// How often a step tries to lock a key before it sleeps: steps are short.
const LOCK_TRIES: usize = 16;

/// How long it sleeps then at first, and at most.
const LOCK_PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(16)];

/// How often a record is read that seems to be damaged, before it is said to be.
const READ_TRIES: usize = 16;

/// A record of which this client has or had the file open: a step on it opens no file, and reads
/// only what other processes have written since.
#[derive(Debug, Default)]
pub(super) struct OpenRecord {
    pub(super) file: Option<OpenFile>,
    /// What was last read or written there.
    pub(super) known: Option<Box<Record>>,
}

#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) fd: OwnedFd,
    inode: (u64, u64),
    path: PathBuf,
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
        if records.len() >= MOST_OPEN {
            let idle = records.iter().find(|(_, one)| Arc::strong_count(one) == 1);
            let idle = idle.map(|(name, _)| name.clone());
            idle.and_then(|name| records.remove(&name));
        }
        records.entry(name.clone()).or_default().clone()
    }
}

/// Where a key's record is.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) store: Arc<Inner>,
    /// The path of the file in the directory.
    pub(super) name: Arc<str>,
}

impl Place {
    pub(super) fn of_key(store: &Arc<Inner>, key: &Key) -> Self {
        Self::of(store, &file_name(key.as_str()))
    }

    pub(super) fn of(store: &Arc<Inner>, file_name: &str) -> Self {
        Self {
            store: store.clone(),
            name: [RECORDS, "/", file_name, ".rec"].concat().into(),
        }
    }

    /// Locks the key for one step, unless others are at it for long.
    pub(super) fn try_lock(&self) -> Result<Option<KeyLock>, StoreError> {
        match self.store.records.get(&self.name).try_lock_owned() {
            Ok(open) => Ok(self.lock_open(open)?.ok()),
            Err(_) => Ok(None),
        }
    }

    /// Locks the key, however long that takes: first among the steps of this client, then among
    /// those of all. Asks again and again: a system call that waits could not be given up.
    pub(super) async fn lock(&self) -> Result<KeyLock, StoreError> {
        let mut open = self.store.records.get(&self.name).lock_owned().await;
        let [mut pause, longest] = LOCK_PAUSES;
        loop {
            match self.lock_open(open)? {
                Ok(locked) => return Ok(locked),
                Err(taken) => open = taken,
            }
            sleep(pause).await;
            pause = longest.min(pause * 2);
        }
    }

    /// The record itself carries the lock: it is made if need be, and stays the same file until
    /// it is swept.
    fn lock_open(
        &self,
        mut open: OwnedMutexGuard<OpenRecord>,
    ) -> Result<Result<KeyLock, OwnedMutexGuard<OpenRecord>>, StoreError> {
        let failed = |errno| self.failed("write to", errno);
        for _ in 0..LOCK_TRIES {
            let file = match open.file.take() {
                Some(file) => file,
                None => {
                    open.known = None;
                    self.open().map_err(failed)?
                }
            };
            let now = FlockOperation::NonBlockingLockExclusive;
            let locked = retry_on_intr(|| flock(&file.fd, now));
            // One look says that the directory and the file are where they were.
            let size = match inode_and_size(&file.path) {
                Some((inode, size)) if inode == file.inode => size,
                _ => {
                    self.store.directory.check_stands()?;
                    let stat = fstat(&file.fd).map_err(failed)?;
                    // Removed meanwhile: what stands there now is another file.
                    if stat.st_nlink == 0 {
                        continue;
                    }
                    size_of(&stat)
                }
            };
            open.file = Some(file);
            match locked {
                Ok(()) => {
                    return Ok(Ok(KeyLock {
                        place: self.clone(),
                        open,
                        size,
                        used: size,
                    }));
                }
                Err(Errno::WOULDBLOCK) => std::thread::yield_now(),
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(Err(open))
    }

    fn open(&self) -> Result<OpenFile, Errno> {
        let directory = &self.store.directory;
        let fd = directory.file(&self.name, OFlags::RDWR | OFlags::CREATE)?;
        let (inode, path) = (inode_of(&fstat(&fd)?), directory.path().join(&*self.name));
        Ok(OpenFile { fd, inode, path })
    }

    /// Reads the record. Who looks holds no lock, so the file that it has opened can be
    /// written over meanwhile: its checksums show that, and the record is read again.
    pub(super) fn read(&self) -> Result<Option<Record>, StoreError> {
        unless_damaged_for_good(
            || match self.store.directory.file(&self.name, OFlags::RDONLY) {
                Ok(file) => self.read_open(&file),
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(self.failed("read", errno)),
            },
        )
    }

    /// Reads the record once, from its open file.
    pub(super) fn read_open(&self, file: &OwnedFd) -> Result<Option<Record>, StoreError> {
        let failed = |errno| self.failed("read", errno);
        let (stat, clock) = (fstat(file).map_err(failed)?, &self.store.clock);
        match Record::read(&source(file, size_of(&stat)).map_err(failed)?) {
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
        Ok(self.of_this(key, record)?.queue)
    }

    /// Refuses the record of another key.
    pub(super) fn of_this(&self, key: &Key, record: Record) -> Result<Record, StoreError> {
        let found = &record.header.key;
        if found == key {
            return Ok(record);
        }
        Err(self.corrupt(&format!("is the record of {found:?}, not of {key:?}")))
    }

    /// What to tell a caller when the file is not as it should be.
    pub(super) fn flawed(&self, flaw: Flaw) -> StoreError {
        match flaw {
            Flaw::Torn => self.corrupt("is damaged"),
            Flaw::Unreadable(errno) => self.failed("read", errno),
            Flaw::Foreign(format) => {
                let message = format!("{} has format {format}", self.shown());
                StoreError::new(ErrorKind::Unsupported, message).with_hint(
                    "another version of leasehold wrote it: use that one, or remove the file when \
                     nobody uses the key",
                )
            }
        }
    }

    fn failed(&self, doing: &str, errno: Errno) -> StoreError {
        match errno {
            Errno::LOOP | Errno::ISDIR | Errno::NXIO => self.corrupt("is no file"),
            errno => self.store.directory.failed_at(&self.name, doing, errno),
        }
    }

    fn shown(&self) -> String {
        let path = self.store.directory.path().join(&*self.name);
        path.display().to_string()
    }

    fn corrupt(&self, what: &str) -> StoreError {
        StoreError::new(ErrorKind::Corrupt, format!("{} {what}", self.shown()))
            .with_hint("it was not changed: look at it, and remove it when nobody uses the key")
    }
}

/// What is at that path. Nobody asks for its times: Linux goes on to write down another one with
/// each write after somebody has, which takes longer than the write.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn inode_and_size(path: &Path) -> Option<((u64, u64), usize)> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
    let asked = StatxFlags::INO | StatxFlags::SIZE;
    let seen = statx(CWD, path, AtFlags::empty(), asked).ok()?;
    let device = makedev(seen.stx_dev_major, seen.stx_dev_minor);
    Some(((device, seen.stx_ino), usize::try_from(seen.stx_size).ok()?))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn inode_and_size(_path: &Path) -> Option<((u64, u64), usize)> {
    None
}

fn size_of(stat: &Stat) -> usize {
    usize::try_from(stat.st_size).unwrap_or(0)
}

/// Reads from a file of that size no more than there is, whatever a damaged record says of its
/// length. What is in the first block is read at once.
pub(super) fn source(
    file: &OwnedFd,
    size: usize,
) -> Result<impl Fn(usize, usize) -> Result<Vec<u8>, Errno>, Errno> {
    let start = file::read(file, 0, size.min(BLOCK))?;
    Ok(
        move |at: usize, length: usize| match start.get(at..at.saturating_add(length)) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => file::read(file, at, length.min(size.saturating_sub(at))),
        },
    )
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
