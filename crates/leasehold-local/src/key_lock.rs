//! A key that is locked for one step: its queue is read, and written.

use std::os::fd::OwnedFd;

use leasehold_core::{Key, Queue, StoreTime};
use leasehold_store::{ErrorKind, StoreError};
use rustix::fs::{FlockOperation, Stat, flock, fstat, ftruncate};
use rustix::io::Errno;

use super::Inner;
use super::cache::OpenRecord;
use super::file;
use super::place::Place;
use super::record::{self, At, BLOCK, Header};

/// A key that is locked for one step.
#[derive(Debug)]
pub(super) struct KeyLock<'a> {
    store: &'a Inner,
    place: &'a Place,
    /// Carries the lock.
    file: Option<OwnedFd>,
    size: usize,
    /// What the record says, as far as it is known.
    known: Option<(Queue, At)>,
}

/// A queue for which there is room: it only has to be written.
#[derive(Debug)]
pub(super) struct Prepared {
    frame: Vec<u8>,
    at: At,
    /// Where the last frame is.
    last: Option<At>,
    queue: Queue,
}

impl<'a> KeyLock<'a> {
    /// For who has locked that file.
    pub(super) fn new(store: &'a Inner, place: &'a Place, open: OpenRecord, stat: &Stat) -> Self {
        Self {
            store,
            place,
            file: Some(open.file),
            size: usize::try_from(stat.st_size).unwrap_or(0),
            known: open.known,
        }
    }

    /// The queue of `key`, and where it was found.
    pub(super) fn read(&mut self, key: &Key) -> Result<(Queue, Option<At>), StoreError> {
        if let Some((queue, at)) = self.known.take()
            && self.is_last(at)
        {
            return Ok((queue, Some(at)));
        }
        let (directory, clock) = (&self.store.directory, &self.store.clock);
        let failed = |errno| directory.failed("read", errno);
        let file = self.file().map_err(failed)?;
        let stat = fstat(file).map_err(failed)?;
        let Some(read) = self.place.read_open(directory, clock, file, &stat)? else {
            return Ok((Queue::default(), None));
        };
        let (_, queue, at) = self.place.of_this(directory, key, read)?;
        Ok((queue, Some(at)))
    }

    /// Whether nothing was written after that frame: the next would be in the other half.
    fn is_last(&self, at: At) -> bool {
        let mut next = [0; 8];
        let Ok(file) = self.file() else { return false };
        let read = rustix::io::pread(file, &mut next, at.next().offset());
        read == Ok(next.len()) && u64::from_le_bytes(next) <= at.number
    }

    /// Does what is likely to fail of writing the queue: gets the room.
    pub(super) fn prepare(
        &mut self,
        key: &Key,
        queue: Queue,
        last: Option<At>,
        expires: StoreTime,
    ) -> Result<Prepared, StoreError> {
        let header = Header {
            key: key.clone(),
            boot: self.store.clock.boot().to_owned(),
            expires,
        };
        let next = last.map(At::next);
        let number = next.map_or(1, |next| next.number);
        let frame = record::frame(number, &header, &queue).map_err(|error| {
            StoreError::new(ErrorKind::Refused, "the queue cannot be written down")
                .with_source(error)
        })?;
        // Many have waited here: who looks would go on reading as much.
        let smaller = next.filter(|_| queue.is_empty());
        let smaller = smaller.and_then(|next| next.smaller(frame.len()));
        let fits = smaller.or_else(|| next.filter(|next| next.fits(frame.len())));
        let at = match fits {
            Some(at) => at,
            None => {
                let found = self.make_room(last, number, frame.len());
                found.map_err(|errno| self.store.directory.failed("write to", errno))?
            }
        };
        Ok(Prepared {
            frame,
            at,
            last,
            queue,
        })
    }

    /// Room for a frame by zeroes at the end of the file, or the file is left as it was.
    fn make_room(&mut self, last: Option<At>, number: u64, length: usize) -> Result<At, Errno> {
        let mut before = self.size;
        if last.is_none() {
            // What is in it is no record, and nothing of it may count.
            ftruncate(self.file()?, 0)?;
            (self.size, before) = (0, 0);
        }
        let at = At::beyond(before, number, length);
        let (file, room) = (self.file()?, vec![0; at.size().saturating_sub(before)]);
        let grown = file::write(file, &room, before as u64);
        if grown.is_err() {
            ftruncate(file, before as u64).ok();
        }
        grown.map(|()| at)
    }

    /// Writes what was prepared.
    pub(super) fn commit(&mut self, prepared: Prepared) -> Result<(), StoreError> {
        let Prepared {
            frame,
            at,
            last,
            queue,
        } = prepared;
        let written = self.put(&frame, at, last);
        written.map_err(|errno| self.store.directory.failed("write to", errno))?;
        self.known = Some((queue, at));
        Ok(())
    }

    fn put(&mut self, frame: &[u8], at: At, last: Option<At>) -> Result<(), Errno> {
        let file = self.file()?;
        file::write(file, frame, at.offset())?;
        if !last.is_some_and(|last| last.is_in_area_of(at)) {
            // Who keeps in mind what was there, or here before, has to see that it is over.
            for over in [Some(at), last].into_iter().flatten() {
                file::write(file, &at.number.to_le_bytes(), over.next().offset())?;
            }
            file::write(file, &at.preamble(), 0)?;
            if at.size() == BLOCK {
                ftruncate(file, BLOCK as u64).ok();
            }
        }
        self.size = at.size();
        Ok(())
    }

    /// Drops what was prepared.
    pub(super) fn discard(&self) {
        if let Ok(file) = self.file() {
            ftruncate(file, self.size as u64).ok();
        }
    }

    /// Removes the record.
    pub(super) fn remove(mut self) {
        self.size = 0;
    }

    fn file(&self) -> Result<&OwnedFd, Errno> {
        self.file.as_ref().ok_or(Errno::BADF)
    }
}

impl Drop for KeyLock<'_> {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        // It was made for this step, which came to nothing.
        let unused = self.size == 0;
        if unused {
            file::remove(&self.store.directory, self.place.path());
        }
        // Closing would not do, since it stays open; nor where a child is between fork and exec.
        if flock(&file, FlockOperation::Unlock).is_ok() && !unused {
            let known = self.known.take();
            let open = OpenRecord { file, known };
            self.store.records.put(self.place.path(), open);
        }
    }
}
