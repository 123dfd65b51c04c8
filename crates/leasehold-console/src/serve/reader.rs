//! One reader of the store for all who look: it reads while somebody does, and rests otherwise.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use leasehold::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::api::At;
use super::selection::{MOST_CLAIMS, Selection, TableView};
use crate::duration::millis;
use crate::feed::{self, AFTER_ERROR, Load, send_if_other};
use crate::lock_table::LockTable;
use crate::view::time;

/// For how long the reader goes on after a request.
const LINGER: Duration = Duration::from_secs(5);
/// How long a request waits for the first data: less than a scrape of Prometheus takes at most.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long the first data waits for what was read before. The store has the rest of the patience.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How many keys are read once in an interval, because somebody looks at them.
const MOST_SHOWN: usize = 1000;
/// How many tables are kept for those who ask for the same.
const MOST_TABLES: usize = 64;
/// Tables for pages that are kept up to date take at most one part in so many of the only thread,
/// and what is made for requests takes another: see [`in_turn`].
const SHARE: u32 = 4;

/// Reads the store for all who look.
#[derive(Clone)]
pub(super) struct Reader {
    /// The locks as they were read; who looks is woken by each change.
    table: watch::Sender<LockTable>,
    tables: Arc<Mutex<Tables>>,
    /// Who looks: the task that reads is woken by each change.
    looks: watch::Sender<Looks>,
    requests: Turn,
    pages: Turn,
}

/// Who makes something, and not before when.
type Turn = Arc<tokio::sync::Mutex<Instant>>;

/// The tables for pages and requests, each with the version of the locks of which it was made.
type Tables = HashMap<Selection, (u64, Arc<TableView>)>;

/// Those who look, with the keys that each of them shows.
type Looks = BTreeMap<u64, Vec<String>>;

/// Somebody looks, until this is dropped.
pub(super) struct Look {
    reader: Reader,
    table: watch::Receiver<LockTable>,
    id: u64,
}

impl Reader {
    /// Begins the task that reads.
    pub(super) fn begin(client: Client, interval: Duration) -> Self {
        let (looks, mut woken) = watch::channel(Looks::new());
        let table = watch::Sender::new(LockTable::of_at_most(MOST_CLAIMS));
        let (known, load) = (table.clone(), Load::default());
        // Reads while somebody looks, until nobody can any more.
        tokio::spawn(async move {
            loop {
                if woken.wait_for(|looks| !looks.is_empty()).await.is_err() {
                    return;
                }
                drop(load.turn(LONGEST_PAUSE).await);
                let (shows, shown) = watch::channel(Vec::new());
                let (client, load) = (client.clone(), load.clone());
                let mut updates = feed::begin(client, interval, load, "*", Some(shown));
                while !woken.borrow().is_empty() {
                    send_if_other(&shows, all_shown(&woken.borrow(), &known.borrow()));
                    tokio::select! {
                        told = updates.recv() => {
                            let Some(update) = told else { break };
                            known.send_if_modified(|table| {
                                let before = table.version;
                                table.take(update, Instant::now());
                                table.version != before
                            });
                        }
                        changed = woken.changed() => if changed.is_err() {
                            return;
                        },
                    }
                }
                let failed = updates.is_closed() || known.borrow().failure.is_some();
                drop(updates);
                // What was found last is true no more: who looks next waits for what is true then.
                known.send_modify(|table| (table.complete, table.failure) = (false, None));
                if failed {
                    sleep(AFTER_ERROR).await;
                }
            }
        });
        let turn = || Arc::new(tokio::sync::Mutex::new(Instant::now()));
        Self {
            table,
            tables: Arc::default(),
            looks,
            requests: turn(),
            pages: turn(),
        }
    }

    /// Somebody looks from now on.
    pub(super) fn look(&self) -> Look {
        let (reader, mut id) = (self.clone(), 0);
        self.looks.send_modify(|looks| {
            id = looks.last_key_value().map_or(0, |(id, _)| id + 1);
            looks.insert(id, Vec::new());
        });
        let table = self.table.subscribe();
        Look { reader, table, id }
    }

    /// Makes something of all locks for a request that looks once, in its turn.
    pub(super) async fn make<T>(&self, make: impl FnOnce(&Self) -> T) -> T {
        let (mut look, lingers) = (self.look(), self.look());
        tokio::spawn(async move {
            sleep(LINGER).await;
            drop(lingers);
        });
        look.ready().await;
        drop(look);
        in_turn(&self.requests, || make(self)).await
    }

    /// A table for a page that is kept up to date, in its turn.
    pub(super) async fn page(&self, selection: &Selection) -> Arc<TableView> {
        in_turn(&self.pages, || self.select(selection)).await
    }

    /// Asks something of the table.
    pub(super) fn with<T>(&self, ask: impl FnOnce(&LockTable) -> T) -> T {
        ask(&self.table.borrow())
    }

    /// What was made of the table, with its age now.
    pub(super) fn aged<T>(&self, found: T) -> At<T> {
        let age = self.with(|table| table.data_age(Instant::now()));
        At {
            at: time(SystemTime::now()),
            found,
            read_ms_ago: Some(age.map(millis)),
        }
    }

    /// A table, made once for all who ask for the same.
    pub(super) fn select(&self, selection: &Selection) -> Arc<TableView> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let locks = self.table.borrow();
        if let Some((made, table)) = tables.get(selection)
            && *made == locks.version
        {
            return Arc::clone(table);
        }
        let table = Arc::new(selection.of(&locks));
        if tables.len() >= MOST_TABLES {
            tables.clear();
        }
        let entry = (locks.version, Arc::clone(&table));
        tables.insert(selection.clone(), entry);
        table
    }
}

impl Look {
    /// Waits until all locks were read once, or could not be.
    pub(super) async fn ready(&mut self) {
        let is_read = |table: &LockTable| table.complete || table.failure.is_some();
        drop(timeout(PATIENCE, self.table.wait_for(is_read)).await);
    }

    /// Waits until the table has changed; `None` if nobody reads any more.
    pub(super) async fn changed(&mut self) -> Option<()> {
        tokio::select! {
            changed = self.table.changed() => changed.ok(),
            () = self.reader.looks.closed() => None,
        }
    }

    /// The keys that it shows: these are read more often.
    pub(super) fn shows(&self, keys: &[String]) {
        self.reader.looks.send_if_modified(|looks| {
            let shown = looks.entry(self.id).or_default();
            let is_other = shown != keys;
            keys.clone_into(shown);
            is_other
        });
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        let remove = |looks: &mut Looks| drop(looks.remove(&self.id));
        self.reader.looks.send_modify(remove);
    }
}

/// The keys that somebody shows, and that can be read.
fn all_shown(looks: &Looks, table: &LockTable) -> Vec<String> {
    let mut shown: Vec<_> = looks.values().flatten().cloned().collect();
    shown.sort_unstable();
    shown.dedup();
    shown.retain(|key| !table.unreadable.contains_key(key));
    shown.truncate(MOST_SHOWN);
    shown
}

/// Makes something, and then leaves the thread to others.
async fn in_turn<T>(turn: &Turn, make: impl FnOnce() -> T) -> T {
    let mut turn = turn.lock().await;
    sleep_until(*turn).await;
    let begun = Instant::now();
    let made = make();
    *turn = begun + begun.elapsed().saturating_mul(SHARE);
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_table::Update;

    fn fail(reader: &Reader, error: leasehold::Error) {
        let failed = Update::Failed(error);
        let take = |table: &mut LockTable| table.take(failed, Instant::now());
        reader.table.send_modify(take);
    }

    /// Its record may be damaged: that is no failure of the store, and all others are looked at.
    #[tokio::test]
    async fn a_key_that_cannot_be_read_is_looked_at_in_passes_only() {
        let store = leasehold::testing::TestStore::new();
        let client = store.connect().await.unwrap();
        store.make_refusing();
        let refused = client.inspect("k").await.unwrap_err();
        store.make_unavailable();
        let unanswered = client.inspect("j").await.unwrap_err();
        let reader = Reader::begin(client, Duration::from_secs(1));
        let look = reader.look();
        look.shows(&["j".to_owned(), "k".to_owned()]);
        let shown = || all_shown(&reader.looks.borrow(), &reader.table.borrow());
        assert_eq!(shown(), ["j", "k"]);
        fail(&reader, refused);
        assert!(reader.with(|table| table.failure.is_none()));
        fail(&reader, unanswered);
        assert!(reader.with(|table| table.failure.is_some()));
        assert_eq!(shown(), ["j"]);
    }

    /// By default Prometheus waits for 10 s, and then has no metric that says that the store is down.
    #[tokio::test(start_paused = true)]
    async fn a_store_that_does_not_answer_delays_no_answer_for_long() {
        let store = leasehold::testing::TestStore::new();
        let client = store.connect().await.unwrap();
        store.make_slow(Duration::from_secs(60 * 60));
        let reader = Reader::begin(client, Duration::from_secs(1));
        let begun = Instant::now();
        reader.make(|_| ()).await;
        assert!(begun.elapsed() < Duration::from_secs(9));
    }

    /// What was true before the pause may be hours old: neither locks nor a failure are answered.
    #[tokio::test(start_paused = true)]
    async fn after_a_pause_the_store_is_read_before_anything_is_answered() {
        let client = leasehold::connect("memory:").await.unwrap();
        let reader = Reader::begin(client.clone(), Duration::from_secs(1));
        let seen =
            |reader: &Reader| reader.with(|table| (table.locks().count(), table.failure.is_some()));
        assert_eq!(reader.make(seen).await, (0, false));
        fail(&reader, client.mutex("").err().unwrap());
        sleep_until(Instant::now() + LINGER * 2).await;
        let _lease = client.mutex("k").unwrap().lock().await.unwrap();
        assert_eq!(reader.make(seen).await, (1, false));
    }

    /// However often somebody comes and goes.
    #[tokio::test(start_paused = true)]
    async fn a_store_that_has_failed_is_left_alone_for_a_while_also_if_nobody_looks_any_more() {
        let store = leasehold::testing::TestStore::new();
        let client = store.connect().await.unwrap();
        store.make_unavailable();
        let reader = Reader::begin(client, Duration::from_secs(1));
        reader.look().ready().await;
        while reader.with(|table| table.failure.is_some()) {
            tokio::task::yield_now().await;
        }
        let begun = Instant::now();
        reader.look().ready().await;
        assert!(begun.elapsed() >= AFTER_ERROR);
    }

    #[tokio::test]
    async fn what_requests_and_pages_make_leaves_time_for_others() {
        let client = leasehold::connect("memory:").await.unwrap();
        let reader = Reader::begin(client, Duration::from_secs(1));
        let takes = Duration::from_millis(5);
        let busy = || {
            let begun = Instant::now();
            while begun.elapsed() < takes {}
        };
        let begun = Instant::now();
        reader.make(|_| busy()).await;
        in_turn(&reader.pages, busy).await;
        for turn in [&reader.requests, &reader.pages] {
            assert!(*turn.lock().await >= begun + SHARE * takes);
        }
        reader.make(|_| busy()).await;
        for turn in [&reader.requests, &reader.pages] {
            *turn.lock().await = Instant::now() + Duration::from_secs(60 * 60);
        }
        let soon = Duration::from_millis(50);
        assert!(timeout(soon, reader.make(|_| busy())).await.is_err());
        let selection = Selection::default();
        assert!(timeout(soon, reader.page(&selection)).await.is_err());
    }
}
