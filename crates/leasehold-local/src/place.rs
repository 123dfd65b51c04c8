//! The files of one key: the record, what it is replaced by, and the lock.

use std::os::fd::OwnedFd;

use leasehold_core::{Key, Queue, StoreTime};
use leasehold_store::{ErrorKind, StoreError};
use rustix::fs::{OFlags, renameat};
use rustix::io::Errno;

use super::clock::Clock;
use super::directory::{Directory, KEYS, Locked, is_regular};
use super::file;
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
        loop {
            let locked = Locked::wait(self.lock_file(directory)?)?;
            if locked.stands_at(directory, &self.lock)? {
                return Ok(locked);
            }
        }
    }

    pub(super) fn try_lock(&self, directory: &Directory) -> Result<Option<Locked>, Errno> {
        match Locked::now(self.lock_file(directory)?)? {
            Some(locked) if locked.stands_at(directory, &self.lock)? => Ok(Some(locked)),
            Some(_) | None => Ok(None),
        }
    }

    fn lock_file(&self, directory: &Directory) -> Result<OwnedFd, Errno> {
        directory.file(&self.lock, OFlags::RDWR | OFlags::CREATE)
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
        let (bytes, stat) = match directory.file(&self.record, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(opened) => file::read(opened),
            Err(errno) => Err(errno),
        }
        .map_or_else(
            |errno| match errno {
                Errno::NOENT => Ok(None),
                Errno::LOOP | Errno::ISDIR | Errno::NXIO => {
                    Err(self.corrupt(directory, "is no file"))
                }
                _ => Err(directory.failed("read", errno)),
            },
            |read| Ok(Some(read)),
        )?
        .unzip();
        let (Some(bytes), Some(stat)) = (bytes, stat) else {
            return Ok(None);
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

    /// Puts the record in the place of the last one. Only for who holds the lock.
    pub(super) fn write(
        &self,
        directory: &Directory,
        clock: &Clock,
        key: &Key,
        queue: &Queue,
        expires: StoreTime,
    ) -> Result<(), StoreError> {
        self.prepare(directory, clock, key, queue, expires)?
            .commit(directory)
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
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::time::{Duration, UNIX_EPOCH};

    use leasehold_core::{Claim, ClaimId, Command, Inbox, Mode, Release, Reply};
    use tempfile::TempDir;

    use super::*;

    struct Case {
        place: TempDir,
        directory: Directory,
        clock: Clock,
        key: Key,
    }

    impl Case {
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            let directory = Directory::open(place.path().join("d")).unwrap();
            let clock = Clock::open(&directory).unwrap();
            let key = Key::new("k").unwrap();
            Self {
                place,
                directory,
                clock,
                key,
            }
        }

        /// A record of somebody who holds the key.
        fn held(&self, clock: &Clock) -> Queue {
            let mut queue = Queue::default();
            queue.apply(&claim(1), clock.now());
            let place = Place::of("k");
            place
                .write(&self.directory, clock, &self.key, &queue, clock.now())
                .unwrap();
            queue
        }

        fn read(&self) -> Result<Queue, StoreError> {
            Place::of("k").read_key(&self.directory, &self.clock, &self.key)
        }

        fn path(&self) -> PathBuf {
            self.place.path().join("d/keys/k.json")
        }

        fn refusal(&self) -> ErrorKind {
            self.read().unwrap_err().kind()
        }
    }

    fn claim(id: u128) -> Command {
        let id = ClaimId::from_random(id);
        Command::Claim(Claim::new(id, Mode::EXCLUSIVE, Duration::from_secs(30)))
    }

    #[test]
    fn reads_what_was_written() {
        let case = Case::new();
        let queue = case.held(&case.clock);
        assert_eq!(case.read().unwrap(), queue);
    }

    /// Those who look take no lock, and steps write where the record before was.
    #[test]
    fn who_looks_while_others_write_finds_no_half_of_a_record() {
        let case = Case::new();
        let queue = case.held(&case.clock);
        let whole = fs::read(case.path()).unwrap();
        let mut reads = 0;
        let read = unless_damaged_for_good(|| {
            reads += 1;
            let now = if reads < 3 { &whole[..100] } else { &whole };
            fs::write(case.path(), now).unwrap();
            Place::of("k").read_once(&case.directory, &case.clock)
        });
        assert_eq!(read.unwrap().map(|(_, queue)| queue), Some(queue));
        assert_eq!(reads, 3);
    }

    /// Whoever is killed at any instant leaves the old record or the new one, and
    /// files that the next step can do with.
    #[test]
    fn every_half_way_state_is_gone_on_from() {
        let case = Case::new();
        let (record, temporary) = (case.path(), case.path().with_extension("tmp"));
        type Bytes = Option<&'static [u8]>;
        let states: [(Bytes, Bytes); 6] = [
            (None, Some(b"")),
            (None, Some(b"half of the reser")),
            (Some(b"reserved\n\0\0\0"), None),
            (Some(b"reserved\n\0\0\0"), Some(b"")),
            (Some(b"reserved\n\0\0\0"), Some(b"half of the first rec")),
            (None, None),
        ];
        for (old, new) in states {
            for (path, bytes) in [(&record, old), (&temporary, new)] {
                fs::remove_file(path).ok();
                if let Some(bytes) = bytes {
                    fs::write(path, bytes).unwrap();
                }
            }
            assert_eq!(case.read().unwrap(), Queue::default());
            let queue = case.held(&case.clock);
            assert_eq!(case.read().unwrap(), queue);
            let sizes = [&record, &temporary].map(|path| fs::metadata(path).unwrap().len());
            assert_eq!(sizes, [BLOCK, BLOCK]);
            fs::write(&temporary, b"half of the next reco").unwrap();
            assert_eq!(case.read().unwrap(), queue);
            case.held(&case.clock);
            let idle = Queue::default();
            let now = case.clock.now();
            Place::of("k")
                .write(&case.directory, &case.clock, &case.key, &idle, now)
                .unwrap();
            assert_eq!(case.read().unwrap(), idle);
            assert!(!temporary.exists() && fs::metadata(&record).unwrap().len() < BLOCK);
        }
    }

    #[test]
    fn claims_of_an_earlier_boot_are_void_and_tokens_rise() {
        let case = Case::new();
        let before = case.held(&Clock::of_boot("earlier"));
        let held = before.look(case.clock.now()).last_token;
        let mut queue = case.read().unwrap();
        assert!(queue.is_empty());
        queue.apply(&claim(2), StoreTime(0));
        let snapshot = queue.look(case.clock.now());
        assert!(
            snapshot.last_token > held,
            "even with a clock that went back"
        );
    }

    /// No process has survived, but a minimum hold is not about processes.
    #[test]
    fn of_an_earlier_boot_minimum_holds_and_released_ids_count() {
        let case = Case::new();
        let boot = Clock::of_boot("earlier");
        let mut queue = Queue::default();
        let id = ClaimId::from_random;
        let claim = |number, min_hold| {
            let mode = Mode::permits(4, 1);
            Command::Claim(Claim {
                min_hold,
                inbox: Some(Inbox::new("then").unwrap()),
                ..Claim::new(id(number), mode, Duration::from_secs(30))
            })
        };
        let hold = Duration::from_secs(3600);
        let release = Command::Release(Release {
            id: id(4),
            hand_off: true,
            settled: false,
            unused: false,
        });
        let watch = Command::Watch {
            inbox: Inbox::new("watching").unwrap(),
            ttl: hold,
        };
        let then = [claim(1, hold), claim(2, hold), claim(3, Duration::ZERO)];
        for command in then.iter().chain([&release, &watch]) {
            queue.apply(command, boot.now());
        }
        Place::of("k")
            .write(&case.directory, &boot, &case.key, &queue, boot.now())
            .unwrap();

        let now = case.clock.now();
        let mut queue = case.read().unwrap();
        let holders = queue.look(now).holders;
        assert_eq!(holders.len(), 2);
        assert!(holders.iter().all(|holder| holder.claim.kept));
        assert_eq!(queue.inboxes(usize::MAX).count(), 0);
        let replies = [claim(1, hold), claim(4, hold), claim(5, hold)]
            .map(|command| queue.apply(&command, now).reply);
        assert_eq!(replies[..2], [Reply::Gone, Reply::Gone]);
        assert!(replies[2].is_grant());
        let events = queue.apply(&Command::Break, now).events;
        assert!(
            events
                .iter()
                .all(|event| event.inbox().as_str() != "watching"),
            "{events:?}"
        );
    }

    #[test]
    fn a_torn_record_of_this_boot_is_left_as_it_is() {
        let case = Case::new();
        case.held(&case.clock);
        let whole = fs::read(case.path()).unwrap();
        let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
        for cut in 0..=end {
            assert!(decode(&whole[..cut]).is_err(), "cut to {cut}");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            assert!(decode(&flipped).is_err(), "a bit flipped at {at}");
        }
        let torn = &whole[..end / 2];
        fs::write(case.path(), torn).unwrap();
        assert_eq!(case.refusal(), ErrorKind::Corrupt);
        assert_eq!(fs::read(case.path()).unwrap(), torn);
    }

    #[test]
    fn a_torn_record_of_an_earlier_boot_is_void() {
        let case = Case::new();
        case.held(&case.clock);
        fs::write(case.path(), &fs::read(case.path()).unwrap()[..50]).unwrap();
        let file = fs::File::options().write(true).open(case.path()).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
        assert_eq!(case.read().unwrap(), Queue::default());
    }

    #[test]
    fn what_is_not_its_record_is_left_as_it_is() {
        let case = Case::new();
        let other = Key::new("other").unwrap();
        let (queue, now) = (Queue::default(), case.clock.now());
        Place::of("k")
            .write(&case.directory, &case.clock, &other, &queue, now)
            .unwrap();
        assert_eq!(case.refusal(), ErrorKind::Corrupt);
        fs::write(case.path(), "{\"leasehold\":2}\n").unwrap();
        assert_eq!(case.refusal(), ErrorKind::Unsupported);
        fs::remove_file(case.path()).unwrap();
        fs::create_dir(case.path()).unwrap();
        assert_eq!(case.refusal(), ErrorKind::Corrupt);
        fs::remove_dir(case.path()).unwrap();
        std::os::unix::fs::symlink("/dev/null", case.path()).unwrap();
        assert_eq!(case.refusal(), ErrorKind::Corrupt);
    }

    #[test]
    fn one_at_a_time_has_the_lock() {
        let case = Case::new();
        let place = Place::of("k");
        let locked = place.lock(&case.directory).unwrap().expect("free");
        assert!(place.lock(&case.directory).unwrap().is_none());
        // Swept while somebody had it: the next lock is of the new file.
        place.remove(&case.directory);
        let other = place.lock(&case.directory).unwrap();
        drop(locked);
        assert!(other.is_some() && place.lock(&case.directory).unwrap().is_none());
    }
}
