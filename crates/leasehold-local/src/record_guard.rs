//! A record that is locked for one step: its queue is read, and written.

use std::sync::Arc;

use leasehold_core::Key;
use leasehold_store::StoreError;
use rustix::fs::{FlockOperation, flock, ftruncate};
use rustix::io::Errno;
use tokio::sync::OwnedMutexGuard;

use super::file;
use super::record::{Change, Half, Record, Writes, roomy};
use super::record_file::{OpenFile, OpenRecord, RecordFile};

/// A record that is locked for one step.
pub(super) struct RecordGuard {
    pub(super) record: RecordFile,
    /// The turn of this client, and what it knows of the record.
    pub(super) turn: OwnedMutexGuard<OpenRecord>,
    /// The file, which carries the lock.
    pub(super) file: Arc<OpenFile>,
    /// How long the file is.
    pub(super) size: usize,
    /// How long it has to be: what is written counts, and not what was only prepared.
    pub(super) used: usize,
}

impl RecordGuard {
    /// The record of `key`. Who has changed nothing of it gives it back by [`Self::keep`].
    pub(super) fn read(&mut self, key: &Key) -> Result<Box<Record>, StoreError> {
        let known = self.turn.known.take();
        match self.record.read_on(&self.file.fd, self.size, known)? {
            Some(found) => self.record.check_key(key, &found).map(|()| found),
            None => Ok(Box::new(Record::new(key, self.record.store.clock.boot()))),
        }
    }

    /// Keeps in mind what the file says.
    pub(super) fn keep(&mut self, record: Box<Record>) {
        self.turn.known = Some(record);
    }

    /// Does what is likely to fail of writing a step that has changed the queue: gets the room.
    pub(super) fn prepare(
        &mut self,
        record: &mut Record,
        change: &Change<'_>,
    ) -> Result<Writes, StoreError> {
        let boot = self.record.store.clock.boot();
        let goes_on = record.header.boot == boot;
        boot.clone_into(&mut record.header.boot);
        record.header.expires = change.expires;
        // Many have waited here: who looks would go on reading as much.
        if record.queue.is_empty() && record.half.is_large() {
            let whole = record.whole()?;
            if whole.len() <= Half::SMALLEST.room {
                return Ok(record.move_to(Half::SMALLEST, whole));
            }
        }
        if goes_on && let Some(writes) = record.next(change)? {
            return Ok(writes);
        }
        let whole = record.whole()?;
        let half = self.room_for(whole.len(), record.half);
        let half = half.map_err(|errno| self.record.failed("write to", errno))?;
        Ok(record.move_to(half, whole))
    }

    /// Room for a queue of that length: the other half; or by zeroes at the end of the file, where
    /// the other half would be full again soon.
    fn room_for(&mut self, length: usize, last: Half) -> Result<Half, Errno> {
        if roomy(length) <= last.room {
            return Ok(last.other());
        }
        let fd = &self.file.fd;
        if last.room == 0 {
            // What is in it is no record, and nothing of it may count.
            ftruncate(fd, 0)?;
            (self.size, self.used) = (0, 0);
        }
        let half = Half::beyond(self.size, length);
        let room = vec![0; half.size().saturating_sub(self.size)];
        match file::write(fd, &room, self.size) {
            Ok(()) => {
                self.size = half.size();
                Ok(half)
            }
            Err(errno) => {
                ftruncate(fd, self.size as u64).ok();
                let tight = (length <= last.room).then(|| last.other());
                tight.ok_or(errno)
            }
        }
    }

    /// Writes what was prepared.
    pub(super) fn commit(
        &mut self,
        record: Box<Record>,
        writes: &Writes,
    ) -> Result<(), StoreError> {
        for (at, bytes) in writes {
            let written = file::write(&self.file.fd, bytes, *at);
            written.map_err(|errno| self.record.failed("write to", errno))?;
        }
        self.used = match record.half.is_large() {
            true => self.size,
            // What is beyond does not count any more.
            false => record.half.size(),
        };
        self.keep(record);
        Ok(())
    }

    /// Removes the record.
    pub(super) fn remove(mut self) {
        self.used = 0;
    }
}

impl Drop for RecordGuard {
    fn drop(&mut self) {
        let fd = &self.file.fd;
        // It was made for this step, which came to nothing.
        let unused = self.used == 0;
        if unused {
            self.record.store.directory.remove(&self.record.name);
        } else if self.used < self.size {
            ftruncate(fd, self.used as u64).ok();
        }
        // Closing would not do, since it stays open; nor where a child is between fork and exec.
        if flock(fd, FlockOperation::Unlock).is_err() || unused {
            self.turn.file = None;
        }
    }
}
