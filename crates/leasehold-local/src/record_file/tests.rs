//! Records as they lie on the disk: whole, torn, of another boot, not theirs.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::{
    Adopt, Claim, ClaimId, ClientInfo, Command, Inbox, Mode, Note, OwnerSecret, Release, Renew,
    Reply, Rotate, StoreTime,
};
use xxhash_rust::xxh3::Xxh3;

use super::*;
use crate::clock::Clock;
use crate::record::{Change, Header, fuzzing};
use crate::record_guard::RecordGuard;
use crate::remove_dead;
use crate::tests::{Place, claim, id, key, leave, open, refusal, release, take};

struct Case {
    place: Place,
    store: Arc<Inner>,
    key: Key,
}

impl Case {
    fn new() -> Self {
        let place = Place::new();
        Self {
            store: place.store(),
            place,
            key: key("k"),
        }
    }

    fn step(&self, command: &Command) -> Queue {
        take(&self.store, &self.key, command)
    }

    /// A record of somebody who holds the key, and nothing else.
    fn held(&self) -> Queue {
        self.step(&claim(1))
    }

    fn read(&self) -> Result<Queue, StoreError> {
        RecordFile::of(&self.store, "k").read_key(&self.key)
    }

    /// The queue that this client has in mind, after it has read what others have written.
    fn followed(&self, store: &Arc<Inner>) -> Queue {
        let mut guard = locked(store);
        let record = guard.read(&self.key).unwrap();
        let queue = record.queue.clone();
        guard.keep(record);
        queue
    }

    /// As after a restart of the process.
    fn forget(&self) {
        let file = RecordFile::of(&self.store, "k");
        let slot = self.store.records.get(&file.name);
        *slot.try_lock().unwrap() = OpenRecord::default();
    }

    fn path(&self) -> PathBuf {
        self.place.at("records/k.rec")
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }

    fn write(&self, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(), bytes).unwrap();
    }

    fn refusal(&self) -> ErrorKind {
        let looks = self.read().unwrap_err().kind();
        let locked = RecordFile::of(&self.store, "k").try_lock();
        let step = locked.and_then(|locked| locked.unwrap().read(&self.key));
        let writes = step.unwrap_err().kind();
        assert_eq!(writes, looks, "who writes is told the same");
        looks
    }
}

fn locked(store: &Arc<Inner>) -> RecordGuard {
    RecordFile::of(store, "k").try_lock().unwrap().unwrap()
}

/// It leaves nothing to be remembered.
fn settled(number: u128) -> Command {
    leave(number, true)
}

/// A file can be of any size that it says it is, on less disk than a block.
#[test]
fn a_record_that_says_it_is_huge_is_damaged() {
    let case = Case::new();
    case.held();
    let room = 1_u64 << 43;
    let line = format!(
        r#"{{"leasehold":5,"first":1,"at":128,"other":{},"room":{room}}}"#,
        room + 128
    );
    let mut head = format!("{line:127}\n").into_bytes();
    for number in [1, room / 2, 0] {
        head.extend(number.to_le_bytes());
    }
    case.write(head);
    let file = fs::File::options().write(true).open(case.path()).unwrap();
    file.set_len(room).unwrap();
    case.forget();
    assert_eq!(case.refusal(), ErrorKind::Corrupt);
}

/// Those who look take no lock, and steps write where an older frame was.
#[test]
fn who_looks_while_others_write_finds_no_half_of_a_record() {
    let case = Case::new();
    let queue = case.held();
    let whole = case.bytes();
    let mut reads = 0;
    let read = unless_damaged_for_good(|| {
        reads += 1;
        case.write(if reads < 3 { &whole[..200] } else { &whole });
        let file = case.store.directory.file("records/k.rec", OFlags::RDONLY);
        RecordFile::of(&case.store, "k").read_open(&file.unwrap())
    });
    assert_eq!(read.unwrap().map(|record| record.queue), Some(queue));
    assert_eq!(reads, 3);
}

/// Whoever is killed at any instant leaves the record as it was before the step or after it, and
/// a file that the next step can do with.
#[test]
fn every_half_way_state_is_gone_on_from() {
    let case = Case::new();
    for made in [0, 1, 4095, 4096] {
        case.write(vec![0; made]);
        case.forget();
        assert_eq!(case.read().unwrap(), Queue::default());
        assert_eq!(case.held(), case.read().unwrap());
        assert_eq!(fs::metadata(case.path()).unwrap().len(), 4096);
    }
    // In its place, to the other half, to more room, and back to less.
    let steps = (2..40).map(claim).chain((1..10).map(release));
    let steps = steps.chain((10..40).map(settled));
    let (mut moves, mut sizes) = (BTreeSet::new(), BTreeSet::new());
    for command in steps {
        let queue = case.read().unwrap();
        let before = case.bytes();
        let next = case.step(&command);
        assert_eq!(case.read().unwrap(), next);
        let after = case.bytes();
        moves.insert(before[..128] == after[..128]);
        sizes.insert(after.len());
        // What the file begins with is written last, and at once.
        let changed = (128..after.len()).filter(|at| before.get(*at) != after.get(*at));
        let changed: Vec<_> = changed.collect();
        for killed in (0..changed.len()).step_by(131).chain([changed.len() - 1]) {
            let mut torn = before.clone();
            torn.resize(before.len().max(after.len()), 0);
            for at in &changed[..killed] {
                torn[*at] = after[*at];
            }
            case.write(torn);
            assert_eq!(case.read().unwrap(), queue, "killed at {killed}");
            // It was another process: this one has in mind what it has read, or nothing.
            case.forget();
            if killed % 2 == 0 {
                case.followed(&case.store);
            }
            let again = case.step(&command);
            assert_eq!(case.read().unwrap(), again, "after a kill at {killed}");
            assert_eq!(ids(&again), ids(&next));
        }
        case.write(&after);
        case.forget();
    }
    assert_eq!(moves.len(), 2);
    assert!(sizes.len() > 3, "{sizes:?}");
    assert!(case.read().unwrap().is_empty());
}

fn ids(queue: &Queue) -> [Vec<String>; 2] {
    let seen = queue.look(StoreTime(0));
    let holders = seen.holders.into_iter().map(|holder| holder.claim.id_hint);
    let waiters = seen.waiters.into_iter().map(|waiter| waiter.claim.id_hint);
    [holders.collect(), waiters.collect()]
}

/// Steps of all kinds, always the same. The time passes meanwhile, and once it steps back.
fn history() -> impl Iterator<Item = Change<'static>> {
    let mut seed = 7_u64;
    let mut dice = move |of: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % of
    };
    (0..3_000_u64).map(move |number| {
        let whose = number / 3 + dice(20);
        let id = ClaimId::from_random(whose.into());
        let inbox = if dice(9) > 0 { whose % 5 } else { dice(5) };
        let inbox = Inbox::new(format!("inbox{inbox}")).unwrap();
        let ttl = Duration::from_millis(dice(2_000));
        let mode = match number / 500 % 3 {
            0 => Mode::EXCLUSIVE,
            1 => [Mode::EXCLUSIVE, Mode::SHARED][usize::try_from(dice(2)).unwrap()],
            _ => Mode::permits(3, 1 + u32::try_from(dice(2)).unwrap()),
        };
        let note = (dice(4) == 0).then(|| Note::new(format!("note {number}")).unwrap());
        let command = match dice(20) {
            0..8 => Command::Claim(Claim {
                mode,
                wait: dice(8) > 0,
                ahead: dice(8) == 0,
                inbox: (dice(8) > 0).then(|| inbox.clone()),
                secret: (dice(3) == 0).then(|| OwnerSecret::from_random(dice(2).into())),
                min_hold: ttl / 8 * u32::try_from(dice(2)).unwrap(),
                note,
                ..Claim::new(id, mode, ttl)
            }),
            8..12 => Command::Renew(Renew {
                downgrade: dice(9) == 0,
                note,
                rotate: (dice(3) == 0).then(|| Rotate {
                    to: ClaimId::from_random(u128::from(number / 3 + dice(20))),
                    version: dice(2),
                    adopt: (dice(2) == 0).then(|| Adopt {
                        inbox: Some(inbox.clone()),
                        owner: ClientInfo::default(),
                    }),
                }),
                ..Renew::new(id, ttl)
            }),
            12..16 => Command::Release(Release {
                id,
                hand_off: dice(8) > 0,
                settled: dice(2) == 0,
                unused: dice(4) == 0,
            }),
            16 => Command::Watch {
                inbox: inbox.clone(),
                ttl,
            },
            17 => Command::Resize { from: 3, to: 3 },
            18 => Command::Unheard {
                silent: vec![inbox.clone()],
                granted: Vec::new(),
                passed: Vec::new(),
            },
            _ if dice(5) == 0 => Command::Break {
                by: ClientInfo::unknown(),
                only: None,
            },
            _ => Command::Bury {
                inboxes: vec![inbox.clone()],
            },
        };
        let back = if number == 2_000 { 1_000_000 } else { 0 };
        let at = StoreTime(1_700_000_000_000_000 + number * 20_000 - back);
        let dead = (dice(20) == 0).then_some(inbox).into_iter().collect();
        let (command, expires) = (Some(Cow::Owned(command)), at);
        Change {
            at,
            dead,
            command,
            expires,
        }
    })
}

/// Who reads the steps of others comes to their queue, whenever it reads them.
#[test]
fn who_follows_comes_to_the_same() {
    let (case, mut seen) = (Case::new(), 0);
    let other = case.place.store();
    let mut mine = Queue::default();
    let mut sum = Xxh3::new();
    for (number, change) in history().enumerate() {
        let command = change.command.as_deref();
        let outcome = remove_dead::apply_without(&mut mine, &change.dead, command, change.at);
        seen += outcome.events.len();
        sum.update(&serde_json::to_vec(&mine).unwrap());
        // By turns, and now and then more than a half can hold.
        let (writes, reads) = match number % 5 {
            0 => (&case.store, &other),
            _ => (&other, &case.store),
        };
        let mut locked = locked(writes);
        let mut record = locked.read(&case.key).unwrap();
        let before = record.whole().unwrap().len();
        record.queue.clone_from(&mine);
        let frame = locked.prepare(&mut record, &change).unwrap();
        let grown = record.whole().unwrap().len().saturating_sub(before);
        let written = serde_json::to_vec(&change).unwrap().len() + 24;
        // Room for the step is room for the queue.
        assert!(grown <= written, "{change:?}");
        locked.commit(record, &frame).unwrap();
        drop(locked);
        if number % 3 == 0 {
            RecordFile::of(reads, "k").read_ahead();
        }
        if number % 7 < 5 {
            assert_eq!(case.followed(reads), mine, "{number}");
        }
        assert_eq!(case.read().unwrap(), mine, "{number}");
    }
    assert!(seen > 300, "{seen}");
    // Another number: the core comes to another queue by the same steps, and two versions of it
    // at one record would not agree. Then raise the format of the record.
    assert_eq!(format!("{:016x}", sum.digest()), "bc63f3b86f9de050");
}

/// It has no lock: others may write while it reads, or have been killed while they wrote.
#[test]
fn who_reads_ahead_believes_no_half_of_a_step() {
    let case = Case::new();
    let other = case.place.store();
    let queue = case.held();
    assert_eq!(case.followed(&other), queue);
    let before = case.bytes();
    let next = case.step(&claim(2));
    let after = case.bytes();
    let changed = (0..after.len()).filter(|at| before[*at] != after[*at]);
    let changed: Vec<_> = changed.collect();
    for written in 0..changed.len() {
        let mut torn = before.clone();
        for at in &changed[..written] {
            torn[*at] = after[*at];
        }
        case.write(torn);
        RecordFile::of(&other, "k").read_ahead();
        assert_eq!(case.followed(&other), queue, "{written} bytes");
    }
    case.write(after);
    RecordFile::of(&other, "k").read_ahead();
    assert_eq!(case.followed(&other), next);
}

/// A long queue moves to a larger file, and an empty one back.
#[test]
fn a_record_has_the_room_that_it_needs() {
    let case = Case::new();
    let size = || fs::metadata(case.path()).unwrap().len();
    case.held();
    assert_eq!(size(), 4096);
    for id in 2..200 {
        assert_eq!(case.step(&claim(id)), case.read().unwrap());
    }
    assert!(size() > 40_000);
    for id in 1..200 {
        case.step(&settled(id));
    }
    assert_eq!(size(), 4096);
    assert!(case.read().unwrap().is_empty());
}

/// They would grant its keys to others.
#[test]
fn a_directory_of_the_first_versions_is_refused_and_they_are_kept_out() {
    let place = Place::new();
    drop(place.store());
    // They make this directory, and files in it.
    assert!(fs::create_dir(place.at("keys")).is_err());
    fs::remove_file(place.at("keys")).unwrap();
    fs::create_dir(place.at("keys")).unwrap();
    refusal(open(&place.path), "an earlier version of leasehold");
}

/// A record that was written in another boot.
fn put_of_boot(case: &Case, boot: &Clock, queue: &Queue) {
    let header = Header {
        key: case.key.clone(),
        boot: boot.boot().to_owned(),
        expires: boot.now(),
    };
    let lines = [serde_json::to_vec(&header), serde_json::to_vec(queue)].map(Result::unwrap);
    case.write(fuzzing::file([&*lines.join(&b'\n')]));
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
    let rises = queue.look(case.store.clock.now()).last_token > held;
    assert!(rises, "even with a clock that went back");
    for id in 2..5 {
        let queue = case.step(&claim(id));
        assert_eq!(case.read().unwrap(), queue);
        assert_eq!(ids(&queue)[0].len(), 1);
    }
}

/// No process has survived, but a minimum hold is not about processes.
#[test]
fn of_an_earlier_boot_minimum_holds_and_released_ids_count() {
    let case = Case::new();
    let boot = Clock::of_boot("earlier");
    let mut queue = Queue::default();
    let claim = |number, min_hold| {
        let mode = Mode::permits(4, 1);
        Command::Claim(Claim {
            min_hold,
            inbox: Some(Inbox::new("then").unwrap()),
            ..Claim::new(id(number), mode, Duration::from_secs(30))
        })
    };
    let hold = Duration::from_secs(3600);
    let release = release(4);
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
    let (by, only) = (ClientInfo::unknown(), None);
    let events = queue.apply(&Command::Break { by, only }, now).events;
    let mut inboxes = events.iter().map(|event| event.inbox().as_str());
    assert!(inboxes.all(|inbox| inbox != "watching"), "{events:?}");
}

#[test]
fn a_torn_record_of_this_boot_is_left_as_it_is() {
    let case = Case::new();
    case.held();
    let whole = case.bytes();
    // A frame ends with a line; after it there is room.
    let used = whole.iter().rposition(|byte| *byte == b'\n').unwrap();
    let read = |bytes: &[u8]| Record::read(&|at, length| Ok(fuzzing::within(bytes, at, length)));
    for cut in 1..=used {
        assert!(read(&whole[..cut]).is_err(), "cut to {cut}");
    }
    for at in 0..=used {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        assert!(read(&flipped).is_err(), "a bit flipped at {at}");
    }
    let torn = &whole[..(128 + used) / 2];
    case.write(torn);
    assert_eq!(case.refusal(), ErrorKind::Corrupt);
    assert_eq!(case.bytes(), torn);
}

#[test]
fn a_torn_record_of_an_earlier_boot_is_void_and_so_is_one_of_an_earlier_format() {
    let case = Case::new();
    case.held();
    let torn = case.bytes()[..100].to_vec();
    for record in [&torn[..], b"{\"leasehold\":3}\n"] {
        case.write(record);
        let file = fs::File::options().write(true).open(case.path());
        file.unwrap().set_modified(UNIX_EPOCH).unwrap();
        case.forget();
        assert_eq!(case.read().unwrap(), Queue::default());
        assert_eq!(case.held(), case.read().unwrap());
    }
}

/// The format before is read, and gone on from in the present one.
#[test]
fn a_record_of_the_last_format_goes_on() {
    let case = Case::new();
    let queue = case.held();
    let first_line = |record: &[u8]| record.starts_with(b"{\"leasehold\":6,");
    let mut record = case.bytes();
    assert!(first_line(&record));
    record[13] = b'5';
    case.write(record);
    case.forget();
    assert_eq!(case.read().unwrap(), queue);
    assert!(!first_line(&case.bytes()));
    let queue = case.held();
    assert!(first_line(&case.bytes()));
    case.forget();
    assert_eq!(case.read().unwrap(), queue);
}

#[test]
fn what_is_not_its_record_is_left_as_it_is() {
    let case = Case::new();
    let other = Case {
        key: Key::new("other").unwrap(),
        ..Case::new()
    };
    other.held();
    case.write(fs::read(other.place.at("records/other.rec")).unwrap());
    assert_eq!(case.refusal(), ErrorKind::Corrupt);
    for format in [2, 4, 7] {
        case.write(format!("{{\"leasehold\":{format}}}\n"));
        assert_eq!(case.refusal(), ErrorKind::Unsupported, "{format}");
    }
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
    let other = case.place.store();
    let place = RecordFile::of(&case.store, "k");
    let elsewhere = RecordFile::of(&other, "k");
    // While the record is made, and when it is there.
    for _ in 0..2 {
        let locked = place.try_lock().unwrap().expect("free");
        assert!(place.try_lock().unwrap().is_none());
        assert!(elsewhere.try_lock().unwrap().is_none());
        drop(locked);
        case.held();
    }
    // Removed while somebody had it: the next lock is of the new file.
    let locked = place.try_lock().unwrap().expect("free");
    fs::remove_file(case.path()).unwrap();
    let another = elsewhere.try_lock().unwrap();
    drop(locked);
    assert!(another.is_some() && place.try_lock().unwrap().is_none());
}

/// By who moves it away to look at it, and who puts a copy back.
#[test]
fn another_file_in_its_place_and_other_contents_are_seen() {
    let case = Case::new();
    let other = case.place.store();
    case.held();
    let copy = case.bytes();
    let agree = |number, what| {
        assert_eq!(case.step(&claim(number)), case.followed(&other), "{what}");
    };
    fs::rename(case.path(), case.place.at("away")).unwrap();
    agree(2, "moved away");
    case.write(&copy);
    agree(3, "put back");
    agree(4, "a step later");
    case.write(&copy);
    agree(5, "put back again");
}

/// Each takes a descriptor, and the process has other uses for those.
#[test]
fn few_records_stay_open_however_many_clients_a_process_has() {
    let places = [Place::new(), Place::new(), Place::new()];
    let stores = places.each_ref().map(Place::store);
    for store in &stores {
        for number in 0..200 {
            take(store, &key(&number.to_string()), &claim(1));
        }
    }
    let open = |store: &Arc<Inner>| store.records.0.lock().unwrap().len();
    let open: usize = stores.iter().map(open).sum();
    let most = MOST_OPEN + stores.len() * FEW_OPEN;
    assert!(open <= most, "{open} are open");
}
