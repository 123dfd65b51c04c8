//! Records as they lie on the disk: whole, torn, of another boot, not theirs.

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
        write(self, clock, &self.key, &queue, clock.now());
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

/// Puts the record in the place of the last one.
fn write(case: &Case, clock: &Clock, key: &Key, queue: &Queue, expires: StoreTime) {
    let place = Place::of("k");
    let prepared = place.prepare(&case.directory, clock, key, queue, expires);
    prepared.unwrap().commit(&case.directory).unwrap();
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
        write(&case, &case.clock, &case.key, &idle, now);
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
    write(&case, &boot, &case.key, &queue, boot.now());

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
    write(&case, &case.clock, &other, &queue, now);
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
