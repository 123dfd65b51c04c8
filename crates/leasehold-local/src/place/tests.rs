//! Records as they lie on the disk: whole, torn, of another boot, not theirs.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::{Claim, ClaimId, Command, Inbox, Mode, Release, Reply};
use tempfile::TempDir;

use super::record::decode;
use super::*;

struct Case {
    place: TempDir,
    store: Inner,
    key: Key,
}

impl Case {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let store = Inner::open(place.path().join("d"), Duration::from_secs(60)).unwrap();
        let key = Key::new("k").unwrap();
        Self { place, store, key }
    }

    /// A record of somebody who holds the key.
    fn held(&self) -> Queue {
        let mut queue = Queue::default();
        queue.apply(&claim(1), self.store.clock.now());
        self.write(&queue);
        queue
    }

    /// Puts the record in the place of the last one.
    fn write(&self, queue: &Queue) {
        write(&self.store, &self.key, queue);
    }

    fn read(&self) -> Result<Queue, StoreError> {
        Place::of("k").read_key(&self.store.directory, &self.store.clock, &self.key)
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("d/keys/k.json")
    }

    fn refusal(&self) -> ErrorKind {
        let place = Place::of("k");
        let locked = place.try_lock(&self.store);
        let step = locked.and_then(|locked| locked.unwrap().read(&self.key));
        let looks = self.read().unwrap_err().kind();
        assert_eq!(
            step.unwrap_err().kind(),
            looks,
            "who writes is told the same"
        );
        looks
    }
}

fn write(store: &Inner, key: &Key, queue: &Queue) {
    let place = Place::of("k");
    let mut locked = place.try_lock(store).unwrap().unwrap();
    let found = locked.read(key).ok().and_then(|(_, found)| found);
    let prepared = locked.prepare(key, queue.clone(), found, store.clock.now());
    locked.commit(prepared.unwrap()).unwrap();
}

fn claim(id: u128) -> Command {
    let id = ClaimId::from_random(id);
    Command::Claim(Claim::new(id, Mode::EXCLUSIVE, Duration::from_secs(30)))
}

#[test]
fn reads_what_was_written() {
    let case = Case::new();
    for _ in 0..3 {
        let queue = case.held();
        assert_eq!(case.read().unwrap(), queue);
    }
}

/// Those who look take no lock, and steps write where an older frame was.
#[test]
fn who_looks_while_others_write_finds_no_half_of_a_record() {
    let case = Case::new();
    let queue = case.held();
    let whole = fs::read(case.path()).unwrap();
    let mut reads = 0;
    let read = unless_damaged_for_good(|| {
        reads += 1;
        let now = if reads < 3 { &whole[..100] } else { &whole };
        fs::write(case.path(), now).unwrap();
        Place::of("k").read_once(&case.store.directory, &case.store.clock)
    });
    assert_eq!(read.unwrap().map(|(_, queue, _)| queue), Some(queue));
    assert_eq!(reads, 3);
}

/// Whoever is killed at any instant leaves the old frame or the new one, and
/// files that the next step can do with.
#[test]
fn every_half_way_state_is_gone_on_from() {
    let case = Case::new();
    let [record, temporary, making] =
        ["json", "tmp", "lock"].map(|ending| case.path().with_extension(ending));
    for half in ["", "half of the first rec"] {
        fs::remove_file(&record).ok();
        fs::write(&temporary, half).unwrap();
        fs::write(&making, "").unwrap();
        assert_eq!(case.read().unwrap(), Queue::default());
        let queue = case.held();
        assert_eq!(case.read().unwrap(), queue);
        assert!(!temporary.exists() && !making.exists());
    }
    let queue = case.held();
    let before = fs::read(&record).unwrap();
    case.write(&Queue::default());
    let after = fs::read(&record).unwrap();
    assert_eq!(before.len(), after.len(), "in the same file");
    let changed: Vec<_> = (0..after.len())
        .filter(|at| before[*at] != after[*at])
        .collect();
    // Wherever in the frame it was killed, what was there is whole.
    for last in changed.iter().step_by(7) {
        let mut torn = before.clone();
        torn[..*last].copy_from_slice(&after[..*last]);
        fs::write(&record, torn).unwrap();
        assert_eq!(case.read().unwrap(), queue, "killed at {last}");
        let next = case.held();
        assert_eq!(case.read().unwrap(), next, "killed at {last}");
    }
}

/// What one process has read is good as long as nobody else writes.
#[test]
fn another_process_is_seen_at_once() {
    let case = Case::new();
    let other = Inner::open(case.place.path().join("d"), Duration::from_secs(60)).unwrap();
    let mut queue = Queue::default();
    for round in 0..20 {
        queue.apply(&claim(round + 1), case.store.clock.now());
        let (writes, reads) = match round % 3 {
            0 => (&case.store, &other),
            _ => (&other, &case.store),
        };
        write(writes, &case.key, &queue);
        let place = Place::of("k");
        let mut locked = place.try_lock(reads).unwrap().unwrap();
        assert_eq!(locked.read(&case.key).unwrap().0, queue, "round {round}");
    }
}

/// A long queue moves to a larger file, and an empty one back.
#[test]
fn a_record_has_the_room_that_it_needs() {
    let case = Case::new();
    let size = || fs::metadata(case.path()).unwrap().len();
    let mut queue = Queue::default();
    case.write(&queue);
    assert_eq!(size(), 4096);
    for id in 1..200 {
        queue.apply(&claim(id), case.store.clock.now());
        case.write(&queue);
        assert_eq!(case.read().unwrap(), queue);
    }
    assert!(size() > 40_000);
    let places = fs::read_dir(case.place.path().join("d/keys")).unwrap();
    assert_eq!(places.count(), 1);
    case.write(&Queue::default());
    assert_eq!(size(), 4096);
    assert_eq!(case.read().unwrap(), Queue::default());
}

/// The first format is two lines and another file is locked.
#[test]
fn a_record_of_the_first_format_is_gone_on_with() {
    let case = Case::new();
    let mut queue = Queue::default();
    queue.apply(&claim(1), case.store.clock.now());
    fs::write(case.path(), first_format(&case, &queue)).unwrap();
    assert_eq!(case.read().unwrap(), queue);
    let place = Place::of("k");
    let stopped = File::create(case.path().with_extension("lock")).unwrap();
    stopped.lock().unwrap();
    assert!(
        place.try_lock(&case.store).unwrap().is_none(),
        "a step of it"
    );
    stopped.unlock().unwrap();
    let mut locked = place.try_lock(&case.store).unwrap().unwrap();
    let (found, at) = locked.read(&case.key).unwrap();
    assert_eq!((&found, at), (&queue, None));
    queue.apply(&claim(2), case.store.clock.now());
    let now = case.store.clock.now();
    let prepared = locked.prepare(&case.key, queue.clone(), at, now).unwrap();
    locked.commit(prepared).unwrap();
    drop(locked);
    assert_eq!(case.read().unwrap(), queue);
    // What older clients read first, and is refused by.
    assert!(
        fs::read(case.path())
            .unwrap()
            .starts_with(b"{\"leasehold\":2,")
    );
}

fn first_format(case: &Case, queue: &Queue) -> String {
    let (boot, now) = (case.store.clock.boot(), case.store.clock.now().0);
    let body = serde_json::to_string(queue).unwrap();
    let mut sum = xxhash_rust::xxh3::Xxh3::new();
    for part in ["k", boot, &body] {
        sum.update(&(part.len() as u64).to_le_bytes());
        sum.update(part.as_bytes());
    }
    sum.update(&now.to_le_bytes());
    let sum = format!("{:016x}", sum.digest());
    let line = serde_json::json!({
        "leasehold": 1, "key": "k", "boot": boot, "expires": now, "checksum": sum,
    });
    format!("{line}\n{body}\n\0\0\0")
}

/// A record that was written in another boot.
fn put_of_boot(case: &Case, boot: &Clock, queue: &Queue) {
    let header = Header {
        key: case.key.clone(),
        boot: boot.boot().to_owned(),
        expires: boot.now(),
    };
    let frame = record::frame(7, &header, queue).unwrap();
    fs::write(case.path(), record::file(7, &frame).0).unwrap();
}

#[test]
fn claims_of_an_earlier_boot_are_void_and_tokens_rise() {
    let case = Case::new();
    let earlier = Clock::of_boot("earlier");
    let mut before = Queue::default();
    before.apply(&claim(1), earlier.now());
    put_of_boot(&case, &earlier, &before);
    let held = before.look(case.store.clock.now()).last_token;
    let mut queue = case.read().unwrap();
    assert!(queue.is_empty());
    queue.apply(&claim(2), StoreTime(0));
    let snapshot = queue.look(case.store.clock.now());
    assert!(
        snapshot.last_token > held,
        "even with a clock that went back"
    );
    case.write(&queue);
    assert_eq!(case.read().unwrap(), queue);
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
    put_of_boot(&case, &boot, &queue);

    let now = case.store.clock.now();
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
    case.held();
    let whole = fs::read(case.path()).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
    for cut in 0..=used {
        assert!(decode(&whole[..cut]).is_err(), "cut to {cut}");
    }
    for at in 64..=used {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        assert!(decode(&flipped).is_err(), "a bit flipped at {at}");
    }
    let torn = &whole[..used / 2];
    fs::write(case.path(), torn).unwrap();
    assert_eq!(case.refusal(), ErrorKind::Corrupt);
    assert_eq!(fs::read(case.path()).unwrap(), torn);
}

#[test]
fn a_torn_record_of_an_earlier_boot_is_void() {
    let case = Case::new();
    case.held();
    fs::write(case.path(), &fs::read(case.path()).unwrap()[..100]).unwrap();
    let file = File::options().write(true).open(case.path()).unwrap();
    file.set_modified(UNIX_EPOCH).unwrap();
    assert_eq!(case.read().unwrap(), Queue::default());
    let queue = case.held();
    assert_eq!(case.read().unwrap(), queue);
}

#[test]
fn what_is_not_its_record_is_left_as_it_is() {
    let case = Case::new();
    let other = Case {
        key: Key::new("other").unwrap(),
        ..Case::new()
    };
    fs::write(case.path(), {
        other.held();
        fs::read(other.path()).unwrap()
    })
    .unwrap();
    assert_eq!(case.refusal(), ErrorKind::Corrupt);
    fs::write(case.path(), "{\"leasehold\":3}\n").unwrap();
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
    // While the record is made, and when it is there.
    for _ in 0..2 {
        let locked = place.lock(&case.store).unwrap().expect("free");
        assert!(place.lock(&case.store).unwrap().is_none());
        drop(locked);
        case.held();
    }
    // Removed while somebody had it: the next lock is of the new file.
    let locked = place.lock(&case.store).unwrap().expect("free");
    fs::remove_file(case.path()).unwrap();
    let other = place.lock(&case.store).unwrap();
    drop(locked);
    assert!(other.is_some() && place.lock(&case.store).unwrap().is_none());
}
