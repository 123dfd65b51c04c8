//! Records as they lie on the disk: whole, torn, of another boot, not theirs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::{Claim, ClaimId, Command, Inbox, Mode, Release, Reply, StoreTime};
use tempfile::TempDir;

use super::super::record::{Header, decode};
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
        self.place.path().join("d/records/k.rec")
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
    let found = locked.read(key).unwrap().1;
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
        let file = case
            .store
            .directory
            .file("records/k.rec", OFlags::RDONLY)
            .unwrap();
        let stat = fstat(&file).unwrap();
        Place::of("k").read_open(&case.store.directory, &case.store.clock, &file, &stat)
    });
    assert_eq!(read.unwrap().map(|(_, queue, _)| queue), Some(queue));
    assert_eq!(reads, 3);
}

/// Whoever is killed at any instant leaves the old frame or the new one, and
/// a file that the next step can do with.
#[test]
fn every_half_way_state_is_gone_on_from() {
    let case = Case::new();
    for made in [0, 1, 4095, 4096] {
        fs::write(case.path(), vec![0; made]).unwrap();
        case.store.records.take(Place::of("k").path());
        assert_eq!(case.read().unwrap(), Queue::default());
        let queue = case.held();
        assert_eq!(case.read().unwrap(), queue);
        assert_eq!(fs::metadata(case.path()).unwrap().len(), 4096);
    }
    let long = || {
        let mut queue = Queue::default();
        for id in 0..40 {
            queue.apply(&claim(id), case.store.clock.now());
        }
        queue
    };
    // In its place, to more room, and back to less.
    let queues = [
        case.held(),
        Queue::default(),
        long(),
        long(),
        Queue::default(),
    ];
    for (queue, next) in queues.iter().zip(&queues[1..]) {
        case.write(queue);
        let before = fs::read(case.path()).unwrap();
        case.write(next);
        let after = fs::read(case.path()).unwrap();
        // What the file begins with is written last, and at once.
        let changed: Vec<_> = (64..after.len())
            .filter(|at| before.get(*at) != after.get(*at))
            .collect();
        for killed in (0..changed.len()).step_by(61) {
            let mut torn = before.clone();
            torn.resize(before.len().max(after.len()), 0);
            for at in &changed[..killed] {
                torn[*at] = after[*at];
            }
            fs::write(case.path(), torn).unwrap();
            // It was another process.
            case.store.records.take(Place::of("k").path());
            assert_eq!(case.read().unwrap(), *queue, "killed at {killed}");
            case.write(next);
            assert_eq!(case.read().unwrap(), *next, "after a kill at {killed}");
        }
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
    case.write(&Queue::default());
    assert_eq!(size(), 4096);
    assert_eq!(case.read().unwrap(), Queue::default());
}

/// Where clients of earlier versions have been, and where they come later.
#[test]
fn earlier_versions_are_refused_and_refuse() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("d");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    for sub in ["keys", "sessions"] {
        fs::create_dir(path.join(sub)).unwrap();
    }
    fs::write(path.join("keys/k.json"), "").unwrap();
    let client = fs::File::create(path.join("sessions/one")).unwrap();
    client.lock().unwrap();
    let open = || Inner::open(path.clone(), Duration::from_secs(60));
    let refused = open().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    let said = refused.to_string();
    assert!(said.contains("a client of an earlier version"), "{said}");
    assert!(path.join("keys/k.json").exists());
    client.unlock().unwrap();
    // Several at once take it over, and none takes another for a client of then.
    std::thread::scope(|scope| {
        let opening: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        let opened = opening.into_iter().map(|one| one.join().unwrap().unwrap());
        assert_eq!(opened.collect::<Vec<_>>().len(), 8);
    });
    assert!(path.join("keys.earlier/k.json").exists());
    assert!(path.join("keys").is_file());
    // They make this directory, and files in it.
    assert!(fs::create_dir(path.join("keys")).is_err());
    assert!(fs::write(path.join("keys/k.lock"), "").is_err());
    drop(open().unwrap());
}

/// A record that was written in another boot.
fn put_of_boot(case: &Case, boot: &Clock, queue: &Queue) {
    let header = Header {
        key: case.key.clone(),
        boot: boot.boot().to_owned(),
        expires: boot.now(),
    };
    let frame = record::frame(7, &header, queue).unwrap();
    fs::write(case.path(), record::file(7, &frame)).unwrap();
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
    // A frame ends with a line; after it there is room.
    let used = whole.iter().rposition(|byte| *byte == b'\n').unwrap();
    for cut in 1..=used {
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
    let file = fs::File::options().write(true).open(case.path()).unwrap();
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
