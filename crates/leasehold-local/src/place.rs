//! The file of one key: how it is locked, and read by who only looks.

use std::os::fd::OwnedFd;

use leasehold_core::{Key, Queue};
use leasehold_store::{ErrorKind, StoreError};
use rustix::fs::{FlockOperation, OFlags, Stat, flock, fstat};
use rustix::io::{Errno, retry_on_intr};

use super::Inner;
use super::cache::OpenRecord;
use super::clock::Clock;
use super::directory::{Directory, RECORDS, is_regular};
use super::file;
use super::key_lock::KeyLock;
use super::name::file_name;
use super::record::{self, Flaw};

/// How often a step tries to lock a key before it waits in a thread. Steps are
/// short, and starting a thread takes as long as some of them.
const LOCK_TRIES: usize = 8;

/// How often a record is read that seems to be damaged, before it is said to be.
const READ_TRIES: usize = 16;

/// Where a key's record is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(String);

impl Place {
    pub(super) fn of_key(key: &Key) -> Self {
        Self::of(&file_name(key.as_str()))
    }

    pub(super) fn of(file_name: &str) -> Self {
        Self(format!("{RECORDS}/{file_name}.rec"))
    }

    pub(super) fn path(&self) -> &str {
        &self.0
    }

    /// Locks the key for one step, unless another step takes too long.
    pub(super) fn lock<'a>(&'a self, store: &'a Inner) -> Result<Option<KeyLock<'a>>, StoreError> {
        for _ in 0..LOCK_TRIES {
            if let Some(locked) = self.try_lock(store)? {
                return Ok(Some(locked));
            }
            std::thread::yield_now();
        }
        Ok(None)
    }

    /// Locks the key, however long that takes.
    pub(super) fn wait<'a>(&'a self, store: &'a Inner) -> Result<KeyLock<'a>, StoreError> {
        loop {
            if let Some(locked) = self.lock_by(store, FlockOperation::LockExclusive)? {
                return Ok(locked);
            }
        }
    }

    pub(super) fn try_lock<'a>(
        &'a self,
        store: &'a Inner,
    ) -> Result<Option<KeyLock<'a>>, StoreError> {
        self.lock_by(store, FlockOperation::NonBlockingLockExclusive)
    }

    /// The record itself carries the lock: it is made if need be, and stays the same file until
    /// it is swept.
    fn lock_by<'a>(
        &'a self,
        store: &'a Inner,
        how: FlockOperation,
    ) -> Result<Option<KeyLock<'a>>, StoreError> {
        let failed = |errno| self.failed(&store.directory, "write to", errno);
        loop {
            let open = match store.records.take(&self.0) {
                Some(open) => open,
                None => self.open(&store.directory).map_err(failed)?,
            };
            match retry_on_intr(|| flock(&open.file, how)) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    store.records.put(&self.0, open);
                    return Ok(None);
                }
                Err(errno) => return Err(failed(errno)),
            }
            let stat = fstat(&open.file).map_err(failed)?;
            // Removed meanwhile: what stands there now is another file.
            if stat.st_nlink == 0 {
                continue;
            }
            if !is_regular(&stat) {
                return Err(self.corrupt(&store.directory, "is no file"));
            }
            return Ok(Some(KeyLock::new(store, self, open, &stat)));
        }
    }

    fn open(&self, directory: &Directory) -> Result<OpenRecord, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK;
        let file = directory.file(&self.0, flags)?;
        let known = None;
        Ok(OpenRecord { file, known })
    }

    /// Reads the record. Who looks holds no lock, so the file that it has opened can be
    /// written over meanwhile: its checksums show that, and the record is read again.
    pub(super) fn read(
        &self,
        directory: &Directory,
        clock: &Clock,
    ) -> Result<Option<record::Read>, StoreError> {
        unless_damaged_for_good(|| {
            let failed = |errno| self.failed(directory, "read", errno);
            match directory.file(&self.0, OFlags::RDONLY | OFlags::NONBLOCK) {
                Ok(file) => {
                    let stat = fstat(&file).map_err(failed)?;
                    self.read_open(directory, clock, &file, &stat)
                }
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(failed(errno)),
            }
        })
    }

    /// Reads the record once, from its open file.
    pub(super) fn read_open(
        &self,
        directory: &Directory,
        clock: &Clock,
        file: &OwnedFd,
        stat: &Stat,
    ) -> Result<Option<record::Read>, StoreError> {
        if !is_regular(stat) {
            return Err(self.corrupt(directory, "is no file"));
        }
        let read = file::read(file, stat);
        let bytes = read.map_err(|errno| self.failed(directory, "read", errno))?;
        match record::decode(&bytes) {
            Ok(Some((header, mut queue, at))) => {
                if header.boot != clock.boot() {
                    queue.void_claims();
                }
                Ok(Some((header, queue, at)))
            }
            Ok(None) => Ok(None),
            // The machine went down before it was on the disk: nothing of it
            // is still valid, and later tokens are above the clock of then.
            Err(Flaw::Torn) if clock.is_of_earlier_boot(stat) => Ok(None),
            Err(Flaw::Torn) => Err(self.corrupt(directory, "is damaged")),
            Err(Flaw::Later(format)) => Err(StoreError::new(
                ErrorKind::Unsupported,
                format!("{} has format {format}", self.shown(directory)),
            )
            .with_hint("a later version of leasehold wrote it: use that one")),
        }
    }

    /// Reads the record of `key`; an empty queue if there is none.
    pub(super) fn read_key(
        &self,
        directory: &Directory,
        clock: &Clock,
        key: &Key,
    ) -> Result<Queue, StoreError> {
        let read = self.read(directory, clock)?;
        let found = read.map(|read| self.of_this(directory, key, read));
        Ok(found
            .transpose()?
            .map(|(_, queue, _)| queue)
            .unwrap_or_default())
    }

    /// Refuses the record of another key.
    pub(super) fn of_this(
        &self,
        directory: &Directory,
        key: &Key,
        read: record::Read,
    ) -> Result<record::Read, StoreError> {
        let found = &read.0.key;
        if found == key {
            return Ok(read);
        }
        let what = format!("is the record of {found:?}, not of {key:?}");
        Err(self.corrupt(directory, &what))
    }

    fn failed(&self, directory: &Directory, doing: &str, errno: Errno) -> StoreError {
        match errno {
            Errno::LOOP | Errno::ISDIR | Errno::NXIO => self.corrupt(directory, "is no file"),
            errno => directory.failed(doing, errno),
        }
    }

    fn shown(&self, directory: &Directory) -> String {
        directory.path().join(&self.0).display().to_string()
    }

    fn corrupt(&self, directory: &Directory, what: &str) -> StoreError {
        StoreError::new(
            ErrorKind::Corrupt,
            format!("{} {what}", self.shown(directory)),
        )
        .with_hint("it was left as it is: look at it, and remove it when nobody uses the key")
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
