//! The files of one key, and its lock.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use leasehold_core::{Key, Queue, StoreTime};
use leasehold_store::{ErrorKind, StoreError};
use rustix::fs::{FlockOperation, OFlags, flock, fstat, renameat};
use rustix::io::{Errno, retry_on_intr};

use super::Inner;
use super::cache::OpenRecord;
use super::clock::Clock;
use super::directory::{Directory, KEYS, Locked, is_regular};
use super::file;
use super::name::file_name;
use super::record::{self, At, Flaw, Header, SMALLEST};

/// How often a step tries to lock a key before it waits in a thread. Steps are
/// short, and starting a thread takes as long as some of them.
const LOCK_TRIES: usize = 8;

/// How often a record is read that seems to be damaged, before it is said to be.
const READ_TRIES: usize = 16;

/// Where a key's files are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    record: String,
    /// Where a new file is written before it becomes the record.
    temporary: String,
    /// Locked while the record is made, and by clients of the first format at each step.
    making: String,
}

impl Place {
    pub(super) fn of_key(key: &Key) -> Self {
        Self::of(&file_name(key.as_str()))
    }

    pub(super) fn of(file_name: &str) -> Self {
        Self {
            record: format!("{KEYS}/{file_name}.json"),
            temporary: format!("{KEYS}/{file_name}.tmp"),
            making: format!("{KEYS}/{file_name}.lock"),
        }
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

    /// The record itself carries the lock. Where there is none yet, another file does.
    fn lock_by<'a>(
        &'a self,
        store: &'a Inner,
        how: FlockOperation,
    ) -> Result<Option<KeyLock<'a>>, StoreError> {
        let failed = |errno| store.directory.failed("write to", errno);
        loop {
            let Some(open) = self.open(store)? else {
                return self.lock_to_make(store, how);
            };
            match retry_on_intr(|| flock(&open.file, how)) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    store.records.put(&self.record, open);
                    return Ok(None);
                }
                Err(errno) => return Err(failed(errno)),
            }
            let stands = fstat(&open.file).map_err(failed)?.st_nlink > 0;
            let locked = KeyLock {
                store,
                place: self,
                record: Some(open.file),
                known: open.known,
                _making: None,
            };
            // Removed or replaced meanwhile: what stands there now is another file.
            if stands {
                return Ok(Some(locked));
            }
            locked.give_up();
        }
    }

    /// The record, if there is one of this version.
    fn open(&self, store: &Inner) -> Result<Option<OpenRecord>, StoreError> {
        if let Some(open) = store.records.take(&self.record) {
            return Ok(Some(open));
        }
        let directory = &store.directory;
        let flags = OFlags::RDWR | OFlags::NONBLOCK;
        let file = match directory.file(&self.record, flags) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.failed(directory, "write to", errno)),
        };
        let mut first = [0; 16];
        let read = rustix::io::pread(&file, &mut first, 0);
        let current = read.is_ok_and(|read| record::is_current(&first[..read]));
        let known = None;
        Ok(current.then_some(OpenRecord { file, known }))
    }

    fn lock_to_make<'a>(
        &'a self,
        store: &'a Inner,
        how: FlockOperation,
    ) -> Result<Option<KeyLock<'a>>, StoreError> {
        let waits = how == FlockOperation::LockExclusive;
        let locked = match waits {
            true => Locked::wait_at(&store.directory, &self.making).map(Some),
            false => Locked::now_at(&store.directory, &self.making),
        };
        let locked = locked.map_err(|errno| store.directory.failed("write to", errno))?;
        let Some(locked) = locked else {
            return Ok(None);
        };
        let made = self.open(store)?;
        let making = Making {
            store,
            place: self,
            _locked: locked,
        };
        match made {
            Some(open) => {
                drop(making);
                store.records.put(&self.record, open);
                self.lock_by(store, how)
            }
            None => Ok(Some(KeyLock {
                store,
                place: self,
                record: None,
                known: None,
                _making: Some(making),
            })),
        }
    }

    /// Reads the record. Who looks holds no lock, so the file that it has opened can be
    /// written over meanwhile: its checksums show that, and the record is read again.
    pub(super) fn read(
        &self,
        directory: &Directory,
        clock: &Clock,
    ) -> Result<Option<record::Read>, StoreError> {
        unless_damaged_for_good(|| self.read_once(directory, clock))
    }

    fn read_once(
        &self,
        directory: &Directory,
        clock: &Clock,
    ) -> Result<Option<record::Read>, StoreError> {
        let opened = directory.file(&self.record, OFlags::RDONLY | OFlags::NONBLOCK);
        let (bytes, stat) = match opened.and_then(file::read) {
            Ok(read) => read,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.failed(directory, "read", errno)),
        };
        if !is_regular(&stat) {
            return Err(self.corrupt(directory, "is no file"));
        }
        match record::decode(&bytes) {
            Ok((header, mut queue, at)) => {
                if header.boot != clock.boot() {
                    queue.void_claims();
                }
                Ok(Some((header, queue, at)))
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
        let read = self.read_at(directory, clock, key)?;
        Ok(read.map(|(queue, _)| queue).unwrap_or_default())
    }

    fn read_at(
        &self,
        directory: &Directory,
        clock: &Clock,
        key: &Key,
    ) -> Result<Option<(Queue, Option<At>)>, StoreError> {
        match self.read(directory, clock)? {
            None => Ok(None),
            Some((header, queue, at)) if header.key == *key => Ok(Some((queue, at))),
            Some((header, ..)) => {
                let what = format!("is the record of {:?}, not of {key:?}", header.key);
                Err(self.corrupt(directory, &what))
            }
        }
    }

    fn failed(&self, directory: &Directory, doing: &str, errno: Errno) -> StoreError {
        match errno {
            Errno::LOOP | Errno::ISDIR | Errno::NXIO => self.corrupt(directory, "is no file"),
            errno => directory.failed(doing, errno),
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

/// A key that is locked for one step.
#[derive(Debug)]
pub(super) struct KeyLock<'a> {
    store: &'a Inner,
    place: &'a Place,
    /// Carries the lock, if there is one.
    record: Option<OwnedFd>,
    /// What the record says, as far as it is known.
    known: Option<(Queue, At)>,
    /// Carries it otherwise.
    _making: Option<Making<'a>>,
}

impl KeyLock<'_> {
    /// The queue of `key`, and where it was found; to be given back by [`Prepared::commit`].
    pub(super) fn read(&mut self, key: &Key) -> Result<(Queue, Option<At>), StoreError> {
        if let Some((queue, at)) = self.known.take_if(|(_, at)| is_last(&self.record, *at)) {
            return Ok((queue, Some(at)));
        }
        let Inner {
            directory, clock, ..
        } = self.store;
        let read = self.place.read_at(directory, clock, key)?;
        Ok(read.unwrap_or_default())
    }

    /// Does what is likely to fail of writing the queue: a new file, where there is none or it
    /// has no room.
    pub(super) fn prepare(
        &self,
        key: &Key,
        queue: Queue,
        found: Option<At>,
        expires: StoreTime,
    ) -> Result<Prepared, StoreError> {
        let header = Header {
            key: key.clone(),
            boot: self.store.clock.boot().to_owned(),
            expires,
        };
        let at = found.filter(|_| self.record.is_some()).map(At::next);
        let number = at.map_or(1, |at| at.number);
        let frame = record::frame(number, &header, &queue).map_err(|error| {
            StoreError::new(ErrorKind::Refused, "the queue cannot be written down")
                .with_source(error)
        })?;
        let fits = at.filter(|at| frame.len() <= at.room);
        // Many have waited here; who looks would go on reading as much.
        let spacious = fits.is_some_and(|at| at.room > SMALLEST) && queue.is_empty();
        let made = match fits {
            Some(_) if !spacious => None,
            _ => match self.make(number, &frame) {
                Ok(made) => Some(made),
                Err(_) if fits.is_some() => None,
                Err(errno) => return Err(self.store.directory.failed("write to", errno)),
            },
        };
        Ok(match (made, fits) {
            (Some((file, at)), _) => Prepared::File { file, at, queue },
            (None, Some(at)) => Prepared::Frame { frame, at, queue },
            (None, None) => return Err(self.store.directory.failed("write to", Errno::NOSPC)),
        })
    }

    /// A new file beside the record, locked.
    fn make(&self, number: u64, frame: &[u8]) -> Result<(File, At), Errno> {
        let (bytes, at) = record::file(number, frame);
        let (directory, temporary) = (&self.store.directory, &self.place.temporary);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        let file = File::from(directory.file(temporary, flags)?);
        let written = file
            .write_all_at(&bytes, 0)
            .map_err(|error| file::errno(&error));
        // Nobody else can have it locked: it has not been the record yet.
        let locked = written.and_then(|()| {
            retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive))
        });
        match locked {
            Ok(()) => Ok((file, at)),
            Err(errno) => {
                file::remove(directory, temporary);
                Err(errno)
            }
        }
    }

    /// Puts what was prepared in the place of the last record.
    pub(super) fn commit(&mut self, prepared: Prepared) -> Result<(), StoreError> {
        let directory = &self.store.directory;
        let (done, queue, at) = match prepared {
            Prepared::Frame { frame, at, queue } => {
                let record = self.record.as_ref().ok_or(Errno::BADF);
                (
                    record.and_then(|record| write_all(record, &frame, at.offset())),
                    queue,
                    at,
                )
            }
            Prepared::File { file, at, queue } => {
                let (from, to) = (&*self.place.temporary, &*self.place.record);
                let done = renameat(directory, from, directory, to);
                match done {
                    Ok(()) => {
                        let former = self.record.replace(file.into());
                        former.map(|former| flock(former, FlockOperation::Unlock));
                    }
                    Err(_) => file::remove(directory, from),
                }
                (done, queue, at)
            }
        };
        done.map_err(|errno| directory.failed("write to", errno))?;
        self.known = Some((queue, at));
        Ok(())
    }

    /// Drops what was prepared.
    pub(super) fn discard(&self, prepared: &Prepared) {
        if let Prepared::File { .. } = prepared {
            file::remove(&self.store.directory, &self.place.temporary);
        }
    }

    /// Removes the files of the key.
    pub(super) fn remove(self) {
        for name in [&self.place.record, &self.place.temporary] {
            file::remove(&self.store.directory, name);
        }
        self.give_up();
    }

    /// Lets go of a record that does not count any more.
    fn give_up(mut self) {
        if let Some(record) = self.record.take() {
            flock(&record, FlockOperation::Unlock).ok();
        }
    }
}

impl Drop for KeyLock<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.record.take() {
            // Closing would not do, since it stays open; nor where a child is between fork and exec.
            if flock(&file, FlockOperation::Unlock).is_ok() {
                let known = self.known.take();
                let open = OpenRecord { file, known };
                self.store.records.put(&self.place.record, open);
            }
        }
    }
}

/// The lock under which the first record of a key is made.
#[derive(Debug)]
struct Making<'a> {
    store: &'a Inner,
    place: &'a Place,
    _locked: Locked,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        // Whoever waits for it sees that it does not stand there any more.
        file::remove(&self.store.directory, &self.place.making);
    }
}

/// A queue that only has to be put in its place.
#[derive(Debug)]
pub(super) enum Prepared {
    /// There is room for it in the record.
    Frame {
        frame: Vec<u8>,
        at: At,
        queue: Queue,
    },
    /// A new file, locked.
    File { file: File, at: At, queue: Queue },
}

/// Whether nothing was written after that frame: the next would be in the other half.
fn is_last(record: &Option<OwnedFd>, at: At) -> bool {
    let mut next = [0; 8];
    record.as_ref().is_some_and(|record| {
        let read = rustix::io::pread(record, &mut next, at.next().offset());
        read == Ok(next.len()) && record::number_of(&next).is_some_and(|next| next <= at.number)
    })
}

fn write_all(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = retry_on_intr(|| rustix::io::pwrite(file, bytes, offset))?;
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
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
