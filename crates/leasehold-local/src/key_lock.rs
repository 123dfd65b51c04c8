//! A key that is locked for one step: its queue is read, and written.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use leasehold_core::{Key, StoreTime};
use leasehold_store::{ErrorKind, StoreError};
use rustix::fs::{FlockOperation, flock, ftruncate};
use rustix::io::Errno;
use tokio::sync::OwnedMutexGuard;

use super::Inner;
use super::cache::OpenRecord;
use super::file;
use super::place::Place;
use super::record::{BLOCK, Change, Frame, Half, Header, Record};

/// A key that is locked for one step.
#[derive(Debug)]
pub(super) struct KeyLock {
    store: Arc<Inner>,
    place: Place,
    /// Carries the lock.
    file: Option<OwnedFd>,
    /// How long the file is.
    size: usize,
    /// How long it has to be: what is written counts, and not what was only prepared.
    used: usize,
    /// Where the file is kept open for the next step, with what it says.
    open: OwnedMutexGuard<OpenRecord>,
}

impl KeyLock {
    /// For who has locked that file.
    pub(super) fn new(
        store: &Arc<Inner>,
        place: &Place,
        open: OwnedMutexGuard<OpenRecord>,
        file: OwnedFd,
        size: usize,
    ) -> Self {
        Self {
            store: store.clone(),
            place: place.clone(),
            file: Some(file),
            size,
            used: size,
            open,
        }
    }

    /// The record of `key`. Who has changed nothing of it gives it back by [`Self::keep`].
    pub(super) fn read(&mut self, key: &Key) -> Result<Record, StoreError> {
        let directory = &self.store.directory;
        let file = self.file.as_ref().ok_or(Errno::BADF);
        let file = file.map_err(|errno| directory.failed("read", errno))?;
        let size = self.size;
        let source =
            |at: usize, length: usize| file::read(file, at, length.min(size.saturating_sub(at)));
        let known = self.open.known.take();
        if let Some(mut known) = known.filter(|known| known.goes_on(&source)) {
            let followed = known.follow(&source);
            followed.map_err(|flaw| self.place.flawed(directory, flaw))?;
            return self.place.of_this(directory, key, known);
        }
        match self.place.read_open(&self.store, file)? {
            Some(record) => self.place.of_this(directory, key, record),
            None => Ok(Record::new(Header {
                key: key.clone(),
                boot: self.store.clock.boot().to_owned(),
                expires: StoreTime(0),
            })),
        }
    }

    /// Keeps in mind what the file says.
    pub(super) fn keep(&mut self, record: Record) {
        self.open.known = Some(record);
    }

    /// Does what is likely to fail of writing a step that has changed the queue: gets the room.
    pub(super) fn prepare(
        &mut self,
        record: &mut Record,
        change: &Change<'_>,
    ) -> Result<Frame, StoreError> {
        let unwritable = |error| {
            StoreError::new(ErrorKind::Refused, "the queue cannot be written down")
                .with_source(error)
        };
        let (boot, half) = (self.store.clock.boot(), record.half());
        let goes_on = record.header.boot == boot;
        boot.clone_into(&mut record.header.boot);
        record.header.expires = change.expires;
        // Many have waited here: who looks would go on reading as much.
        if record.queue.is_empty() && half.is_large() {
            let whole = record.whole().map_err(unwritable)?;
            if let Some(smaller) = Half::smallest_for(whole.len()) {
                return Ok(record.moved(smaller, whole));
            }
        }
        if goes_on && let Some(frame) = record.frame(change).map_err(unwritable)? {
            return Ok(frame);
        }
        let whole = record.whole().map_err(unwritable)?;
        let next = match half.other(whole.len(), false) {
            Some(other) => Ok(other),
            None => self.make_room(half, whole.len()),
        };
        let next = next.map_err(|errno| self.store.directory.failed("write to", errno))?;
        Ok(record.moved(next, whole))
    }

    /// Room for a queue by zeroes at the end of the file, or the file is left as it was.
    fn make_room(&mut self, last: Half, length: usize) -> Result<Half, Errno> {
        let file = self.file.as_ref().ok_or(Errno::BADF)?;
        if last == Half::default() {
            // What is in it is no record, and nothing of it may count.
            ftruncate(file, 0)?;
            (self.size, self.used) = (0, 0);
        }
        let next = Half::beyond(self.size, length);
        let room = vec![0; next.size().saturating_sub(self.size)];
        match (
            file::write(file, &room, self.size),
            last.other(length, true),
        ) {
            (Ok(()), _) => {
                self.size = next.size();
                Ok(next)
            }
            (Err(errno), tight) => {
                ftruncate(file, self.size as u64).ok();
                tight.ok_or(errno)
            }
        }
    }

    /// Writes what was prepared.
    pub(super) fn commit(&mut self, record: Record, frame: &Frame) -> Result<(), StoreError> {
        let written = self.write(record.half(), frame);
        written.map_err(|errno| self.store.directory.failed("write to", errno))?;
        self.keep(record);
        Ok(())
    }

    fn write(&mut self, half: Half, frame: &Frame) -> Result<(), Errno> {
        let file = self.file.as_ref().ok_or(Errno::BADF)?;
        file::write(file, &frame.bytes, frame.offset)?;
        if let Some(head) = &frame.head {
            file::write(file, head, 0)?;
            if half.size() == BLOCK {
                self.size = BLOCK;
                ftruncate(file, BLOCK as u64).ok();
            }
        }
        self.used = self.size;
        Ok(())
    }

    /// Removes the record.
    pub(super) fn remove(mut self) {
        self.used = 0;
    }
}

impl Drop for KeyLock {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        // It was made for this step, which came to nothing.
        let unused = self.used == 0;
        if unused {
            file::remove(&self.store.directory, self.place.path());
        } else if self.used < self.size {
            ftruncate(&file, self.used as u64).ok();
        }
        // Closing would not do, since it stays open; nor where a child is between fork and exec.
        if flock(&file, FlockOperation::Unlock).is_ok() && !unused {
            self.open.file = Some(file);
        }
    }
}
