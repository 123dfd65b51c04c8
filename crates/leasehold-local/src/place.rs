//! The file of one key: how it is locked, and read by who only looks.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use leasehold_core::{Key, Queue};
use leasehold_store::{ErrorKind, StoreError};
use rustix::fs::{FlockOperation, OFlags, Stat, flock, fstat};
use rustix::io::{Errno, retry_on_intr};
use tokio::sync::OwnedMutexGuard;

use super::Inner;
use super::cache::OpenRecord;
use super::directory::{RECORDS, is_regular, refused};
use super::key_lock::KeyLock;
use super::name::file_name;
use super::record::{FORMAT, Flaw, Record};
use super::turn::in_thread;
use super::{file, version};

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
        Self([RECORDS, "/", file_name, ".rec"].concat())
    }

    pub(super) fn path(&self) -> &str {
        &self.0
    }

    /// Locks the key for one step, unless others are at it for long.
    pub(super) fn try_lock(&self, store: &Arc<Inner>) -> Result<Option<KeyLock>, StoreError> {
        let Ok(mut open) = store.records.get(&self.0).try_lock_owned() else {
            return Ok(None);
        };
        for _ in 0..LOCK_TRIES {
            match self.lock_by(store, open, FlockOperation::NonBlockingLockExclusive)? {
                Ok(locked) => return Ok(Some(locked)),
                Err(taken) => open = taken,
            }
            std::thread::yield_now();
        }
        Ok(None)
    }

    /// Locks the key, however long that takes: first among the steps of this client, then among
    /// those of all.
    pub(super) async fn lock(&self, store: &Arc<Inner>) -> Result<KeyLock, StoreError> {
        let open = store.records.get(&self.0).lock_owned().await;
        let now = FlockOperation::NonBlockingLockExclusive;
        let mut open = match self.lock_by(store, open, now)? {
            Ok(locked) => return Ok(locked),
            Err(open) => open,
        };
        let (place, inner) = (self.clone(), store.clone());
        in_thread(store, move || {
            loop {
                match place.lock_by(&inner, open, FlockOperation::LockExclusive)? {
                    Ok(locked) => return Ok(locked),
                    Err(taken) => open = taken,
                }
            }
        })
        .await
    }

    /// The record itself carries the lock: it is made if need be, and stays the same file until
    /// it is swept.
    fn lock_by(
        &self,
        store: &Arc<Inner>,
        mut open: OwnedMutexGuard<OpenRecord>,
        how: FlockOperation,
    ) -> Result<Result<KeyLock, OwnedMutexGuard<OpenRecord>>, StoreError> {
        let failed = |errno| self.failed(store, "write to", errno);
        loop {
            let file = match open.file.take() {
                Some(file) => file,
                None => {
                    open.known = None;
                    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK;
                    store.directory.file(&self.0, flags).map_err(failed)?
                }
            };
            let locked = retry_on_intr(|| flock(&file, how));
            let stat = fstat(&file).map_err(failed)?;
            // Removed meanwhile: what stands there now is another file.
            if stat.st_nlink == 0 {
                continue;
            }
            open.file = Some(file);
            return match locked {
                Ok(()) if !is_regular(&stat) => Err(self.corrupt(store, "is no file")),
                Ok(()) => Ok(Ok(KeyLock::new(store, self, open, size_of(&stat)))),
                Err(Errno::WOULDBLOCK) => Ok(Err(open)),
                Err(errno) => Err(failed(errno)),
            };
        }
    }

    /// Reads the record. Who looks holds no lock, so the file that it has opened can be
    /// written over meanwhile: its checksums show that, and the record is read again.
    pub(super) fn read(&self, store: &Inner) -> Result<Option<Record>, StoreError> {
        unless_damaged_for_good(|| {
            let failed = |errno| self.failed(store, "read", errno);
            match store
                .directory
                .file(&self.0, OFlags::RDONLY | OFlags::NONBLOCK)
            {
                Ok(file) => self.read_open(store, &file),
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(failed(errno)),
            }
        })
    }

    /// Reads the record once, from its open file.
    pub(super) fn read_open(
        &self,
        store: &Inner,
        file: &OwnedFd,
    ) -> Result<Option<Record>, StoreError> {
        let stat = fstat(file).map_err(|errno| self.failed(store, "read", errno))?;
        if !is_regular(&stat) {
            return Err(self.corrupt(store, "is no file"));
        }
        match Record::read(&source(file, size_of(&stat))) {
            Ok(Some(mut record)) => {
                if record.header.boot != store.clock.boot() {
                    record.queue.void_claims();
                }
                Ok(Some(record))
            }
            Ok(None) => Ok(None),
            // The machine went down before it was on the disk: nothing of it
            // is still valid, and later tokens are above the clock of then.
            Err(Flaw::Torn) if store.clock.is_of_earlier_boot(&stat) => Ok(None),
            // Tokens rise without it, by the clock.
            Err(Flaw::Foreign(format))
                if format < FORMAT && !version::earlier_lives(&store.directory) =>
            {
                store.told_void.call_once(|| {
                    tracing::warn!(
                        "records of an earlier version in {} are void: minimum holds among them \
                         are over",
                        store.directory.path().display()
                    );
                });
                Ok(None)
            }
            Err(flaw) => Err(self.flawed(store, flaw)),
        }
    }

    /// Reads the queue of `key`; an empty one if there is no record.
    pub(super) fn read_key(&self, store: &Inner, key: &Key) -> Result<Queue, StoreError> {
        let Some(record) = self.read(store)? else {
            return Ok(Queue::default());
        };
        Ok(self.of_this(store, key, record)?.queue)
    }

    /// Refuses the record of another key.
    pub(super) fn of_this(
        &self,
        store: &Inner,
        key: &Key,
        record: Record,
    ) -> Result<Record, StoreError> {
        let found = &record.header.key;
        if found == key {
            return Ok(record);
        }
        let what = format!("is the record of {found:?}, not of {key:?}");
        Err(self.corrupt(store, &what))
    }

    /// What to tell a caller when the file is not as it should be.
    pub(super) fn flawed(&self, store: &Inner, flaw: Flaw) -> StoreError {
        let format = match flaw {
            Flaw::Torn => return self.corrupt(store, "is damaged"),
            Flaw::Unreadable(errno) => return self.failed(store, "read", errno),
            Flaw::Foreign(format) if format < FORMAT => {
                return refused(
                    format!(
                        "an earlier version of leasehold wrote {}, and a client of it still runs",
                        self.shown(store)
                    ),
                    "wait until all clients of that version have ended, or name another directory with \
                     local:/some/dir",
                );
            }
            Flaw::Foreign(format) => format,
        };
        let message = format!("{} has format {format}", self.shown(store));
        StoreError::new(ErrorKind::Unsupported, message).with_hint(
            "a later version of leasehold wrote it: use that one, or remove the file when nobody \
             uses the key",
        )
    }

    fn failed(&self, store: &Inner, doing: &str, errno: Errno) -> StoreError {
        match errno {
            Errno::LOOP | Errno::ISDIR | Errno::NXIO => self.corrupt(store, "is no file"),
            errno => store.directory.failed(doing, errno),
        }
    }

    fn shown(&self, store: &Inner) -> String {
        let path = store.directory.path().join(&self.0);
        path.display().to_string()
    }

    fn corrupt(&self, store: &Inner, what: &str) -> StoreError {
        let message = format!("{} {what}", self.shown(store));
        StoreError::new(ErrorKind::Corrupt, message)
            .with_hint("it was left as it is: look at it, and remove it when nobody uses the key")
    }
}

fn size_of(stat: &Stat) -> usize {
    usize::try_from(stat.st_size).unwrap_or(0)
}

/// Reads from a file of that size no more than there is, whatever a damaged record says of its
/// length.
pub(super) fn source(
    file: &OwnedFd,
    size: usize,
) -> impl Fn(usize, usize) -> Result<Vec<u8>, Errno> {
    move |at, length| file::read(file, at, length.min(size.saturating_sub(at)))
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
