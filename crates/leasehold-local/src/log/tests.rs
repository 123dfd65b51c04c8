//! Files that are full, removed, cut off, and read.

use std::fs;
use std::future::poll_fn;
use std::io::Write;
use std::sync::mpsc;
use std::task::Poll;

use leasehold_core::{Arrival, AuditEvent, AuditedHold, ClientInfo, Command, Mode, Token};
use leasehold_store::Records;
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;

use super::*;
use crate::tests::{Place, claim, key, release};
use crate::{LocalOptions, LocalStore};

const START: StoreTime = StoreTime(1_795_000_000_000_000);

fn entry(number: u64, at: StoreTime) -> AuditEntry {
    let (token, arrival) = (Token::from(number), Arrival(number));
    let claim = "1a2b3c…".to_owned();
    let owner = ClientInfo::new("host", 7, Some("label"));
    let hold = AuditedHold::new(token, arrival, claim, Mode::EXCLUSIVE, owner);
    AuditEntry::new(at, AuditEvent::Returned, Some(hold))
}

fn log(directory: &Arc<Directory>, limit: &str) -> Log {
    Log::open(directory, limit.parse().unwrap()).unwrap()
}

/// A log that keeps so much, and where it is.
fn opened(limit: &str) -> (Place, Arc<Directory>, Log) {
    let place = Place::new();
    let directory = place.directory();
    let log = log(&directory, limit);
    (place, directory, log)
}

/// A store with a log.
async fn audited() -> (Place, LocalStore) {
    let place = Place::new();
    let url = format!("local:{}?audit=1000", place.path.display());
    let options = LocalOptions::from_url(&url).unwrap();
    (place, LocalStore::open(options).await.unwrap())
}

/// The tokens of what can be read from there on.
fn read(directory: &Directory, from: &mut Position) -> Vec<u64> {
    let mut tokens = Vec::new();
    while let Some((lines, _)) = next_lines(directory, StoreTime(0), from).unwrap() {
        let lines = lines.split(|byte| *byte == b'\n');
        let records = lines.filter_map(|line| serde_json::from_slice::<AuditRecord>(line).ok());
        tokens.extend(records.map(|record| record.entry.hold.unwrap().token.get()));
    }
    tokens
}

/// Adds an entry each so often; what can be read then.
fn kept(limit: &str, entries: u64, every: Duration) -> (Place, Vec<u64>) {
    let (place, directory, log) = opened(limit);
    for number in 1..=entries {
        let at = START + every * u32::try_from(number).unwrap();
        log.add(&key("k"), vec![entry(number, at)]);
        log.remove_old(at);
    }
    let kept = read(&directory, &mut None);
    assert!(kept.iter().copied().eq(kept[0]..=entries));
    (place, kept)
}

#[test]
fn so_many_entries_are_kept_and_not_many_more() {
    let (_place, kept) = kept("1000", 5_000, Duration::from_millis(1));
    let few = (2_000..=4_000).contains(&kept[0]);
    assert!(few, "{}: 1000 to 3000 are kept", kept[0]);
}

#[test]
fn entries_of_so_long_a_time_are_kept() {
    let (place, kept) = kept("1h", 600, Duration::from_secs(60));
    let few = (480..=540).contains(&kept[0]);
    assert!(few, "{}: one hour to two are kept", kept[0]);
    assert!(place.names("audit").len() <= 8);
}

/// A line that was cut off does not say when it began, and a long one does.
#[test]
fn a_file_ends_by_its_age_however_it_begins() {
    for cut_off in [true, false] {
        let (place, _, log) = opened("1h");
        let odd = "\"".repeat(255);
        if cut_off {
            fs::write(place.at("audit/current.jsonl"), "{\"key\":\"k\",\"at\":17").unwrap();
        }
        for minutes in [0, 20] {
            let mut one = entry(1, START + Duration::from_secs(60) * minutes);
            one.hold.as_mut().unwrap().owner = ClientInfo::new(&odd, 7, Some(&odd));
            log.add(&key(&odd.repeat(2)), vec![one]);
        }
        assert_eq!(place.names("audit").len(), 2, "cut off: {cut_off}");
    }
}

/// All that were begun after it have later names.
#[test]
fn a_clock_that_was_ahead_does_not_keep_files_for_ever() {
    let (place, _, log) = opened("1h");
    let ahead = place.at(&format!("audit/{:020}.jsonl", START.0 * 2));
    fs::write(&ahead, "").unwrap();
    let file = File::options().write(true).open(&ahead).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    for minutes in [0, 20] {
        let at = START + Duration::from_secs(60) * minutes;
        log.add(&key("k"), vec![entry(1, at)]);
        log.remove_old(at);
    }
    assert_eq!(place.names("audit").len(), 2);
    assert!(!ahead.exists());
}

#[test]
fn a_file_with_the_last_number_is_followed_by_others() {
    let (place, directory, log) = opened("1000");
    fs::write(place.at(&format!("audit/{}.jsonl", u64::MAX)), "").unwrap();
    fs::write(place.at("audit/current.jsonl"), "\n".repeat(1 << 17)).unwrap();
    log.add(&key("k"), vec![entry(7, START)]);
    assert_eq!(place.names("audit").len(), 3);
    assert_eq!(read(&directory, &mut None), [7]);
}

/// Several processes write, and one reads on, whichever of them begins a new file.
#[test]
fn files_change_under_writers_and_readers() {
    let place = Place::new();
    let directory = place.directory();
    let logs = [0; 3].map(|_| log(&directory, "2000"));
    let (mut from, mut seen) = (None, Vec::new());
    for number in 1..=3_000 {
        let big = "x".repeat(255);
        let mut one = entry(number, START);
        one.hold.as_mut().unwrap().owner = ClientInfo::new(&big, 7, Some(&big));
        logs[number as usize % 3].add(&key(&"k".repeat(500)), vec![one]);
        if number % 100 == 0 {
            seen.extend(read(&directory, &mut from));
        }
    }
    assert!(place.names("audit").len() > 1, "no file was full");
    assert!(seen.into_iter().eq(1..=3_000));
}

#[test]
fn a_file_that_another_has_ended_is_not_missed() {
    let place = Place::new();
    let directory = place.directory();
    let log = log(&directory, "1000");
    log.add(&key("k"), vec![entry(1, START)]);
    // Two that have found it full at the same time.
    for _ in 0..2 {
        log.begin_another(START).unwrap();
    }
    log.add(&key("k"), vec![entry(2, START)]);
    assert_eq!(read(&directory, &mut None), [1, 2]);
}

/// Neither whoever waits for the key waits for that, nor another task: all that is kept may be read
/// for it.
#[test]
fn what_is_not_kept_is_removed_after_the_step() {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        let (place, store) = audited().await;
        for (name, lines) in [(full(1), 1), (full(2), 1000), (path(CURRENT), 1 << 17)] {
            fs::write(place.at(&name), "\n".repeat(lines)).unwrap();
        }
        let log = store.inner.audit.as_ref().unwrap();
        log.add(&key("k"), vec![entry(1, START)]);
        assert_eq!(place.names("audit").len(), 4, "in the step");
        // The only thread for what blocks is busy.
        let (free, busy) = mpsc::channel::<()>();
        spawn_blocking(move || busy.recv());
        let (key, step) = (key("k"), release(1));
        let (keys, step) = ([&key], leasehold_store::Step::One(&step));
        let mut taking = store.transact(&keys, step);
        let first = poll_fn(|context| Poll::Ready(taking.as_mut().poll(context))).await;
        assert!(first.is_pending(), "it is read where that holds up no task");
        drop(free);
        assert!(taking.await.unwrap().taken.is_ok());
        assert!(!place.at(&full(1)).exists());
        assert_eq!(place.names("audit").len(), 3);
    });
}

/// File systems give the inode of a file that was removed to the next one.
#[test]
fn a_file_that_is_removed_after_it_was_read_is_not_taken_for_a_new_one() {
    let (place, directory, log) = opened("1000");
    let add = |number| log.add(&key("k"), vec![entry(number, START)]);
    let (first, mut from) = (format!("audit/{:020}.jsonl", START.0), None);
    for number in [1, 2] {
        add(number);
        log.begin_another(START).unwrap();
        if number == 1 {
            next_lines(&directory, StoreTime(0), &mut from).unwrap();
        }
    }
    fs::remove_file(place.at(&first)).unwrap();
    add(3);
    assert_eq!(read(&directory, &mut from), [2, 3]);
}

/// All have the same time, as by a clock that is behind the names: none takes the name of another.
#[test]
fn writers_that_end_files_at_once_lose_none() {
    let place = Place::new();
    let directory = place.directory();
    let (big, each) = ("x".repeat(255), 600);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (log, big) = (log(&directory, "2000"), &big);
            scope.spawn(move || {
                for number in 1..=each {
                    let mut one = entry(writer * each + number, START);
                    one.hold.as_mut().unwrap().owner = ClientInfo::new(big, 7, Some(big));
                    log.add(&key(&"k".repeat(500)), vec![one]);
                }
            });
        }
    });
    let mut found = read(&directory, &mut None);
    found.sort_unstable();
    assert!(found.into_iter().eq(1..=3 * each));
}

/// Nor does what is no line, such as the zeroes after a crash, however long it is.
#[test]
fn a_line_that_was_cut_off_hides_no_other() {
    for odd in [b"{\"key\":\"k\",\"at\":17".to_vec(), vec![0; PAGE + 1]] {
        let (place, directory, log) = opened("1h");
        log.add(&key("k"), vec![entry(1, START)]);
        let current = place.at("audit/current.jsonl");
        let mut file = fs::OpenOptions::new().append(true).open(current).unwrap();
        file.write_all(&odd).unwrap();
        let mut from = None;
        assert_eq!(read(&directory, &mut from), [1]);
        log.add(&key("k"), vec![entry(2, START)]);
        assert_eq!(read(&directory, &mut from), [2]);
    }
}

#[test]
fn a_log_that_was_removed_with_its_directory_goes_on() {
    let (place, directory, log) = opened("1000");
    log.add(&key("k"), vec![entry(1, START)]);
    fs::remove_dir_all(place.at("audit")).unwrap();
    log.add(&key("k"), vec![entry(2, START)]);
    assert_eq!(read(&directory, &mut None), [2]);
}

/// However much others write: what there was when it was read is read to an end.
#[tokio::test]
async fn a_log_that_grows_has_an_end() {
    let (place, store) = audited().await;
    let (written, mut found) = (log(&place.directory(), "1000"), Vec::new());
    let mut log = Records::audit_log(&store, None, StoreTime(0)).unwrap();
    for number in 1..=3 {
        written.add(&key("k"), vec![entry(number, START)]);
        found.push(log.next_page().await.unwrap().len());
    }
    assert_eq!(found, [1, 0, 2]);
}

/// A step is taken, although nothing can be written about it.
#[tokio::test]
async fn a_log_that_cannot_be_written_stops_nobody() {
    let (place, store) = audited().await;
    // In the way of the file.
    fs::create_dir(place.at("audit/current.jsonl")).unwrap();
    let taken = |command| {
        let store = store.clone();
        async move {
            let step = leasehold_store::Step::One(&command);
            let taken = store.transact(&[&key("k")], step).await.unwrap();
            taken.taken.unwrap().remove(0).reply
        }
    };
    assert!(taken(claim(1)).await.is_grant());
    fs::remove_dir(place.at("audit/current.jsonl")).unwrap();
    let by = ClientInfo::unknown();
    taken(Command::Break { by, only: None }).await;
    let mut log = Records::audit_log(&store, None, StoreTime(0)).unwrap();
    let entries = log.next_page().await.unwrap();
    let [broken] = &entries[..] else {
        panic!("{entries:?}");
    };
    let is_broken = matches!(broken.entry.event, AuditEvent::Broken { .. });
    assert!(is_broken, "{entries:?}");
}
