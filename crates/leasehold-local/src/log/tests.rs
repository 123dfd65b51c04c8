//! Files that are full, removed, cut off, and read.

use std::fs;
use std::io::Write;
use std::path::Path;

use leasehold_core::{
    Arrival, AuditEvent, AuditedHold, Claim, ClaimId, ClientInfo, Command, Mode, Token,
};
use leasehold_store::Records;

use super::*;
use crate::{LocalOptions, LocalStore};

const START: StoreTime = StoreTime(1_795_000_000_000_000);

fn entry(number: u64, at: StoreTime) -> AuditEntry {
    AuditEntry {
        at,
        event: AuditEvent::Returned,
        hold: Some(AuditedHold {
            token: Token(number),
            arrival: Arrival(number),
            claim: "1a2b3c…".to_owned(),
            mode: Mode::EXCLUSIVE,
            owner: ClientInfo::new("host", 7, Some("label")),
        }),
    }
}

fn key() -> Key {
    Key::new("k").unwrap()
}

fn directory(path: &Path) -> Arc<Directory> {
    Arc::new(Directory::open(path.join("d")).unwrap())
}

fn log(directory: &Arc<Directory>, limit: &str) -> Log {
    Log::open(directory, limit.parse().unwrap()).unwrap()
}

/// The tokens of what can be read from there on.
fn read(directory: &Directory, from: &mut Option<((u64, u64), usize)>) -> Vec<u64> {
    let mut tokens = Vec::new();
    while let Some(lines) = next_lines(directory, StoreTime(0), from).unwrap() {
        let lines = lines.split(|byte| *byte == b'\n');
        let records = lines.filter_map(|line| serde_json::from_slice::<AuditRecord>(line).ok());
        tokens.extend(records.map(|record| record.entry.hold.unwrap().token.get()));
    }
    tokens
}

fn files(path: &Path) -> usize {
    fs::read_dir(path.join("d/audit")).unwrap().count()
}

#[test]
fn so_many_entries_are_kept_and_not_many_more() {
    let place = tempfile::tempdir().unwrap();
    let directory = directory(place.path());
    let log = log(&directory, "1000");
    for number in 1..=5_000 {
        log.add(
            &key(),
            vec![entry(number, START + Duration::from_millis(number))],
        );
    }
    let kept = read(&directory, &mut None);
    let first = kept[0];
    assert!(
        (2_000..=4_000).contains(&first),
        "{first}: 1000 to 3000 are kept"
    );
    assert!(kept.into_iter().eq(first..=5_000));
}

#[test]
fn entries_of_so_long_a_time_are_kept() {
    let place = tempfile::tempdir().unwrap();
    let directory = directory(place.path());
    let log = log(&directory, "1h");
    for number in 1..=600 {
        log.add(
            &key(),
            vec![entry(number, START + Duration::from_secs(60 * number))],
        );
    }
    let kept = read(&directory, &mut None);
    let first = kept[0];
    assert!(
        (480..=540).contains(&first),
        "{first}: one hour to two are kept"
    );
    assert!(kept.into_iter().eq(first..=600));
    assert!(files(place.path()) <= 8);
}

/// Several processes write, and one reads on, whichever of them begins a new file.
#[test]
fn files_change_under_writers_and_readers() {
    let place = tempfile::tempdir().unwrap();
    let directory = directory(place.path());
    let logs = [0; 3].map(|_| log(&directory, "2000"));
    let (mut from, mut seen) = (None, Vec::new());
    for number in 1..=3_000 {
        let big = "x".repeat(255);
        let mut one = entry(number, START);
        one.hold.as_mut().unwrap().owner = ClientInfo::new(&big, 7, Some(&big));
        logs[usize::try_from(number % 3).unwrap()]
            .add(&Key::new("k".repeat(500)).unwrap(), vec![one]);
        if number % 100 == 0 {
            seen.extend(read(&directory, &mut from));
        }
    }
    assert!(files(place.path()) > 1, "no file was full");
    assert!(seen.into_iter().eq(1..=3_000));
}

#[test]
fn a_line_that_was_cut_off_hides_no_other() {
    let place = tempfile::tempdir().unwrap();
    let directory = directory(place.path());
    let log = log(&directory, "1000");
    log.add(&key(), vec![entry(1, START)]);
    let current = place.path().join("d/audit/current.jsonl");
    let mut file = fs::OpenOptions::new().append(true).open(current).unwrap();
    file.write_all(b"{\"key\":\"k\",\"at\":17").unwrap();
    let mut from = None;
    assert_eq!(read(&directory, &mut from), [1]);
    file.write_all(b"\n").unwrap();
    log.add(&key(), vec![entry(2, START)]);
    assert_eq!(read(&directory, &mut from), [2]);
}

/// A step is taken, although nothing can be written about it.
#[tokio::test]
async fn a_log_that_cannot_be_written_stops_nobody() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("d");
    let url = format!("local:{}?audit=1000", path.display());
    let options = LocalOptions::from_url(&url).unwrap();
    let store = LocalStore::open(options).await.unwrap();
    // In the way of the file.
    fs::create_dir(path.join("audit/current.jsonl")).unwrap();
    let claim = Claim::new(
        ClaimId::from_random(1),
        Mode::EXCLUSIVE,
        Duration::from_secs(9),
    );
    let taken = |command| {
        let store = store.clone();
        async move {
            let step = leasehold_store::Step::One(&command);
            let taken = store.transact(&[&key()], step).await.unwrap();
            taken.taken.unwrap().remove(0).reply
        }
    };
    assert!(taken(Command::Claim(claim)).await.is_grant());
    fs::remove_dir(path.join("audit/current.jsonl")).unwrap();
    let by = ClientInfo::unknown();
    taken(Command::Break { by, only: None }).await;
    let mut log = Records::audit_log(&store, None, StoreTime(0)).unwrap();
    let entries = log.next_page().await.unwrap();
    assert!(
        matches!(&entries[..], [broken] if matches!(broken.entry.event, AuditEvent::Broken { .. })),
        "{entries:?}"
    );
}
