//! Removes what nobody needs any more, a bounded share each time: when a client is
//! opened, and from time to time while it lives.

use std::sync::Arc;
use std::time::Duration;

use leasehold_store::StoreError;
use leasehold_store::clock::{of_machine, wall};
use leasehold_store::random::random_u64;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Inner;
use super::acquire_record::blocking;
use super::directory::{Directory, INBOXES, RECORDS, SESSIONS};
use super::liveness::is_dead_file;
use super::name::file_name;
use super::record_file::RecordFile;

/// How many keys and sessions one sweep looks into.
const LOOKS: usize = 128;

/// How many names one sweep reads, unless it reads all, and how many keys it looks at.
const NAMES: usize = 10_000;

/// One in so many of those on opening reads all names. The order of a directory stays the same: those
/// behind the first would never have their turn.
const READS_ALL: u64 = 16;

/// How many keys and clients are looked into in the task of who opens a client: some 100 µs. A
/// thread for them takes longer to start.
const FEW: usize = 64;

/// How often a client sweeps at least and at most; in between, so often that no idle
/// record outlives its retention by much.
const PERIODS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(3600)];

/// The share of the retention that is one such period.
const PERIODS_A_RETENTION: u32 = 24;

/// How long the disk is left alone between two shares, at least, and how many times as long as one took.
const PAUSE: Duration = Duration::from_millis(100);
const RESTS: u32 = 20;

/// The task that sweeps while its client lives.
pub(super) fn start(store: &Arc<Inner>) -> JoinSet<()> {
    let [least, most] = PERIODS;
    let period = (store.options.retention / PERIODS_A_RETENTION).clamp(least, most);
    let (store, mut pause, mut all) = (Arc::downgrade(store), period, true);
    JoinSet::from_iter([async move {
        loop {
            sleep(pause).await;
            let Some(store) = store.upgrade() else { return };
            store.directory.keep();
            let most = if all { usize::MAX } else { NAMES };
            let begun = of_machine();
            let sweep = move || sweep_found(&store, find(&store.directory, most));
            let Ok(more) = blocking(move || Ok(sweep())).await else {
                return;
            };
            // As long as there is enough among the first, the others need not be read.
            let rest = (of_machine().since(begun) * RESTS).min(PERIODS[1]);
            (pause, all) = match (more, all) {
                (false, true) => (period.max(rest), true),
                _ => (PAUSE.max(rest), !more),
            };
        }
    }])
}

/// Sweeps when a client is opened: at once where there is little to look at, else where it holds
/// nobody up.
pub(super) async fn on_opening(store: &Arc<Inner>) -> Result<(), StoreError> {
    // A directory lists itself and the one above it too.
    let found = find(&store.directory, FEW + 3);
    if found.iter().map(Vec::len).sum::<usize>() <= FEW {
        sweep_found(store, found);
        return Ok(());
    }
    let store = store.clone();
    blocking(move || Ok(sweep(&store))).await.map(drop)
}

/// Sweeps, as far as it goes: whatever cannot be removed is left to the next. Says
/// whether there may be more to remove at once.
pub(super) fn sweep(store: &Arc<Inner>) -> bool {
    let reads_all = random_u64().is_multiple_of(READS_ALL);
    let most = if reads_all { usize::MAX } else { NAMES };
    sweep_found(store, find(&store.directory, most))
}

/// The names of clients and of keys, without their endings, at most so many of each kind. They
/// start somewhere else each time, so that in the end all of those have their turn.
fn find(directory: &Directory, most: usize) -> [Vec<String>; 2] {
    let names = |sub, ending| {
        let mut names = directory.names(sub, ending, most).unwrap_or_default();
        let start = random_u64() % names.len().max(1) as u64;
        names.rotate_left(usize::try_from(start).unwrap_or(0));
        names
    };
    let clients = [names(SESSIONS, ""), names(INBOXES, ".sock")].concat();
    [clients, names(RECORDS, ".rec")]
}

fn sweep_found(store: &Arc<Inner>, [clients, keys]: [Vec<String>; 2]) -> bool {
    for name in clients.into_iter().take(LOOKS) {
        if name != file_name(store.session.inbox().as_str()) {
            is_dead_file(&store.directory, &name);
        }
    }
    store.directory.remove_unfinished(wall(), NAMES);
    // Not used for so long that they are worth a look.
    let records = keys.iter().take(NAMES);
    let records = records.map(|name| RecordFile::of(store, name));
    let old = records.filter(|record| {
        let used = store.directory.last_written(&record.name);
        used.is_some_and(|used| used.saturating_add(store.options.retention) <= wall())
    });
    let old: Vec<_> = old.take(LOOKS).collect();
    let removed = old.iter().filter(|record| is_removed(record)).count();
    old.len() == LOOKS && removed > 0
}

/// Removes a record that has expired. Whether it did.
fn is_removed(record: &RecordFile) -> bool {
    let Ok(Some(guard)) = record.try_lock() else {
        return false;
    };
    let expired = match record.read() {
        Ok(Some(found)) => found.header.expires <= record.store.clock.now(),
        Ok(None) => true,
        Err(_) => false,
    };
    if expired {
        guard.remove();
    }
    expired
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::UNIX_EPOCH;

    use leasehold_core::{Claim, Command};

    use super::*;
    use crate::tests::{Place, claim_for, key, options, release, take};
    use crate::{LocalOptions, LocalStore};

    const BRIEF: Duration = Duration::from_micros(1);
    const LONG: Duration = Duration::from_secs(60);

    /// A store that keeps nothing of an idle key.
    fn store(place: &Place) -> Arc<Inner> {
        Inner::open(&options(&place.path, Duration::ZERO)).unwrap()
    }

    fn used(store: &Arc<Inner>, name: &str, ttl: Duration) {
        take(store, &key(name), &Command::Claim(claim_for(1, ttl)));
        take(store, &key(name), &release(1));
    }

    /// Nobody holds or waits any more, and yet the record counts.
    #[test]
    fn what_is_kept_or_watched_does_not_vanish() {
        let place = Place::new();
        let store = store(&place);
        let inbox = || store.session.inbox().clone();
        for (name, ttl) in [("watched", LONG), ("watched once", BRIEF)] {
            let inbox = inbox();
            take(&store, &key(name), &Command::Watch { inbox, ttl });
        }
        let kept = Claim {
            min_hold: LONG,
            ..claim_for(1, BRIEF)
        };
        take(&store, &key("kept"), &Command::Claim(kept));
        take(&store, &key("kept"), &release(1));
        sweep(&store);
        assert_eq!(place.names("records"), ["kept.rec", "watched.rec"]);
    }

    /// In the task of whoever opens it where there is little, and in a thread where there is much.
    #[tokio::test]
    async fn what_dead_clients_have_left_is_removed_on_opening() {
        let place = Place::new();
        let options = LocalOptions::from_url(&format!("local:{}", place.path.display())).unwrap();
        drop(LocalStore::open(options.clone()).await.unwrap());
        for dead in [1, FEW * 2 - 1] {
            for number in 0..dead {
                fs::write(place.at(&format!("sessions/{number}")), "").unwrap();
            }
            let store = LocalStore::open(options.clone()).await.unwrap();
            let left = place.names("sessions").len();
            assert_eq!(left, 1, "of {dead}: only this client's is left");
            drop(store);
        }
    }

    /// Others are used, and come first in the directory.
    #[tokio::test(start_paused = true)]
    async fn idle_keys_have_their_turn_among_however_many() {
        let (place, hour) = (Place::new(), LONG * 60);
        let store = Inner::open(&options(&place.path, hour)).unwrap();
        let record = |name: &str| fs::File::create(place.at(&format!("records/{name}.rec")));
        let idle = |number: usize| {
            let record = record(&format!("idle{number}")).unwrap();
            record.set_modified(UNIX_EPOCH).unwrap();
        };
        (0..100).for_each(idle);
        for number in 0..NAMES * 2 {
            record(&number.to_string()).unwrap();
        }
        (100..200).for_each(idle);
        let _store = LocalStore::of(store);
        for _ in 0..30 {
            sleep(hour / PERIODS_A_RETENTION).await;
        }
        assert_eq!(place.names("records").len(), NAMES * 2);
    }

    #[tokio::test]
    async fn a_retention_without_end_removes_nothing() {
        let place = Place::new();
        for _ in 0..2 {
            let options = options(&place.path, Duration::MAX);
            let store = LocalStore::open(options).await.unwrap();
            used(&store.inner, "k", LONG);
        }
        assert_eq!(place.names("records"), ["k.rec"]);
    }

    /// However many keys it has used, and though it is never opened again.
    #[tokio::test(start_paused = true)]
    async fn a_running_client_removes_idle_keys() {
        let place = Place::new();
        let store = LocalStore::of(store(&place));
        for number in 0..LOOKS * 2 + 1 {
            used(&store.inner, &number.to_string(), BRIEF);
        }
        used(&store.inner, "not yet", LONG);
        assert_eq!(place.names("records").len(), LOOKS * 2 + 2);
        // Time stands still here but for those who sleep.
        for _ in 0..4 {
            sleep(PERIODS[0]).await;
        }
        assert_eq!(place.names("records").len(), 1, "the record of one key");
        drop(store);
        let tasks = tokio::runtime::Handle::current().metrics();
        while tasks.num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn idle_keys_vanish_after_the_retention() {
        let place = Place::new();
        let store = store(&place);
        used(&store, "over", BRIEF);
        used(&store, "not yet", LONG);
        for (name, content) in [
            ("records/crashed.rec", &b""[..]),
            ("records/half-made.rec", &[0; 4096]),
            ("records/damaged.rec", b"?"),
            ("sessions/dead", b""),
            ("inbox/dead.sock", b""),
            ("inbox/gone.sock", b""),
        ] {
            fs::write(place.at(name), content).unwrap();
        }
        sweep(&store);
        assert_eq!(place.names("records"), ["damaged.rec", "not%20yet.rec"]);
        assert_eq!(place.names("sessions"), [store.session.inbox().as_str()]);
        assert_eq!(place.names("inbox"), [""; 0]);
    }
}
