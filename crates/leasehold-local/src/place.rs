//! The files of one key: the record, what it is replaced by, and the lock.

use leasehold_core::{Key, Queue, StoreTime};
use leasehold_store::{ErrorKind, StoreError};
use rustix::fs::{OFlags, renameat};
use rustix::io::Errno;

use super::clock::Clock;
use super::directory::{Directory, KEYS, Locked, is_regular};
use super::file;
use super::name::file_name;
use super::record::{Flaw, Header, RESERVED, decode, encode};

/// How often a step tries to lock a key before it waits in a thread. Steps are
/// short, and starting a thread takes as long as some of them.
const LOCK_TRIES: usize = 8;

/// How often a record is read that seems to be damaged, before it is said to be.
const READ_TRIES: usize = 16;

/// What file systems give files room by, in bytes.
const BLOCK: u64 = 4096;

/// By how much a record may at least grow without new room, in bytes: a release adds
/// the id that it remembers.
const SLACK: u64 = 1024;

/// How many times as much room as it needs a record keeps.
const SPARED: u64 = 4;

/// Where a key's files are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    record: String,
    temporary: String,
    lock: String,
}

impl Place {
    pub(super) fn of_key(key: &Key) -> Self {
        Self::of(&file_name(key.as_str()))
    }

    pub(super) fn of(file_name: &str) -> Self {
        Self {
            record: format!("{KEYS}/{file_name}.json"),
            temporary: format!("{KEYS}/{file_name}.tmp"),
            lock: format!("{KEYS}/{file_name}.lock"),
        }
    }

    /// Locks the key for one step, unless another step takes too long.
    /// The record itself cannot carry the lock, since each step replaces it.
    pub(super) fn lock(&self, directory: &Directory) -> Result<Option<Locked>, Errno> {
        for _ in 0..LOCK_TRIES {
            if let Some(locked) = self.try_lock(directory)? {
                return Ok(Some(locked));
            }
            std::thread::yield_now();
        }
        Ok(None)
    }

    /// Locks the key, however long that takes.
    pub(super) fn wait(&self, directory: &Directory) -> Result<Locked, Errno> {
        Locked::wait_at(directory, &self.lock)
    }

    pub(super) fn try_lock(&self, directory: &Directory) -> Result<Option<Locked>, Errno> {
        Locked::now_at(directory, &self.lock)
    }

    /// Removes all of it. Only for who holds the lock.
    pub(super) fn remove(&self, directory: &Directory) {
        file::remove(directory, &self.record);
        file::remove(directory, &self.temporary);
        file::remove(directory, &self.lock);
    }

    /// Reads the record. Who looks holds no lock, so the file that it has opened can be
    /// written over by the second step from there: its checksum shows that, and the record
    /// is read again.
    pub(super) fn read(
        &self,
        directory: &Directory,
        clock: &Clock,
    ) -> Result<Option<(Header, Queue)>, StoreError> {
        unless_damaged_for_good(|| self.read_once(directory, clock))
    }

    fn read_once(
        &self,
        directory: &Directory,
        clock: &Clock,
    ) -> Result<Option<(Header, Queue)>, StoreError> {
        let opened = directory.file(&self.record, OFlags::RDONLY | OFlags::NONBLOCK);
        let (bytes, stat) = match opened.and_then(file::read) {
            Ok(read) => read,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
                return Err(self.corrupt(directory, "is no file"));
            }
            Err(errno) => return Err(directory.failed("read", errno)),
        };
        if !is_regular(&stat) {
            return Err(self.corrupt(directory, "is no file"));
        }
        if bytes.starts_with(RESERVED) {
            return Ok(None);
        }
        match decode(&bytes) {
            Ok((header, mut queue)) => {
                if header.boot != clock.boot() {
                    queue.void_claims();
                }
                Ok(Some((header, queue)))
            }
            // The machine went down before it was on the disk: nothing of it
            // is still valid, and later tokens are above the clock of then.
            Err(Flaw::Torn) if clock.is_of_earlier_boot(&stat) => Ok(None),
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
        match self.read(directory, clock)? {
            None => Ok(Queue::default()),
            Some((header, queue)) if header.key == *key => Ok(queue),
            Some((header, _)) => {
                let what = format!("is the record of {:?}, not of {key:?}", header.key);
                Err(self.corrupt(directory, &what))
            }
        }
    }

    /// Writes the record beside the last one: what is likely to fail. Only for
    /// who holds the lock.
    ///
    /// While the key is in use both files are kept, and change places at each step:
    /// so a renewal and a release need no room that is not there.
    pub(super) fn prepare(
        &self,
        directory: &Directory,
        clock: &Clock,
        key: &Key,
        queue: &Queue,
        expires: StoreTime,
    ) -> Result<Prepared<'_>, StoreError> {
        let bytes = encode(key, clock.boot(), queue, expires).map_err(|error| {
            StoreError::new(ErrorKind::Refused, "the queue cannot be written down")
                .with_source(error)
        })?;
        let mut prepared = Prepared {
            place: self,
            in_use: !queue.is_empty(),
            made: Vec::new(),
        };
        match prepared.write(directory, bytes) {
            Ok(()) => Ok(prepared),
            Err(errno) => {
                prepared.discard(directory);
                Err(directory.failed("write to", errno))
            }
        }
    }

    fn shown(&self, directory: &Directory) -> String {
        directory.path().join(&self.record).display().to_string()
    }

    fn corrupt(&self, directory: &Directory, what: &str) -> StoreError {
        StoreError::new(
            ErrorKind::Corrupt,
            format!("{} {what}", self.shown(directory)),
        )
        .with_hint("it was left as it is: look at it, and remove it when nobody uses the key")
    }
}

/// A record that stands beside the last one.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    place: &'a Place,
    in_use: bool,
    /// What was not there before.
    made: Vec<&'a str>,
}

impl<'a> Prepared<'a> {
    fn write(&mut self, directory: &Directory, bytes: Vec<u8>) -> Result<(), Errno> {
        let (record, temporary) = (&*self.place.record, &*self.place.temporary);
        if !self.in_use {
            return file::write(directory, temporary, &bytes);
        }
        let least = bytes.len() as u64;
        let sizes = [least, (least + SLACK).next_multiple_of(BLOCK)];
        // The record becomes the room for the next one.
        if file::exists(directory, record)? {
            file::grow(directory, record, OFlags::empty(), sizes)?;
            if !file::exists(directory, temporary)? {
                self.made.push(temporary);
            }
        } else {
            self.made.extend([temporary, record]);
            let (file, size) = file::grow(directory, temporary, OFlags::CREATE, sizes)?;
            file::overwrite(&file, size, RESERVED.to_vec())?;
            renameat(directory, temporary, directory, record)?;
        }
        let (file, mut size) = file::grow(directory, temporary, OFlags::CREATE, sizes)?;
        // Many have waited here, and each step would go on writing as much.
        if size > sizes[1] * SPARED && file.set_len(sizes[1]).is_ok() {
            size = sizes[1];
        }
        file::overwrite(&file, size, bytes)
    }

    /// Puts what was prepared in the place of the last record.
    pub(super) fn commit(self, directory: &Directory) -> Result<(), StoreError> {
        let (record, temporary) = (&*self.place.record, &*self.place.temporary);
        let done = if self.in_use {
            file::exchange(directory, temporary, record)
        } else {
            renameat(directory, temporary, directory, record)
        };
        done.map_err(|errno| {
            self.discard(directory);
            directory.failed("write to", errno)
        })
    }

    /// Drops what was prepared.
    pub(super) fn discard(self, directory: &Directory) {
        for name in self.made {
            file::remove(directory, name);
        }
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
