//! The histories of keys whose details are shown, from the audit log: each key is followed once for
//! all who show it, within a limit on the load of the store.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use leasehold::audit::{AuditLog, AuditRecord};
use leasehold::{Client, Error};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::feed::{AFTER_ERROR, send_if_other};
use crate::history::EntryView;
use crate::load_limit::LoadLimit;
#[cfg(feature = "serve")]
use crate::view::KeyView;

/// From when on.
const SPAN: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest pause: the entries of a key may be behind very many of others, which are read once.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long looks at other keys wait for the answer about one.
#[cfg(feature = "serve")]
const LONGEST_TURN: Duration = Duration::from_secs(1);
/// How many of the newest entries are kept.
const MOST_ENTRIES: usize = 100;
/// How many keys are followed at once: each costs the store.
const MOST_KEYS: usize = 20;

/// The newest entries of a key, the newest first, or why there are none; nothing before the first
/// answer.
pub(crate) type History = Option<Result<Vec<EntryView>, String>>;

/// The keys that somebody shows.
#[derive(Clone)]
pub(crate) struct Histories {
    client: Client,
    interval: Duration,
    followed: Arc<Mutex<HashMap<String, watch::Sender<History>>>>,
}

impl Histories {
    pub(crate) fn new(client: Client, interval: Duration) -> Self {
        Self {
            client,
            interval,
            followed: Arc::default(),
        }
    }

    fn followed(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<History>>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the history of a key, until nobody has a receiver any more. `None` while there is no
    /// room for another key.
    pub(crate) fn follow(&self, key: &str) -> Option<watch::Receiver<History>> {
        let mut followed = self.followed();
        if let Some(known) = followed.get(key) {
            return Some(known.subscribe());
        }
        if followed.len() >= MOST_KEYS {
            return None;
        }
        let (known, receiver) = watch::channel(None);
        followed.insert(key.to_owned(), known.clone());
        tokio::spawn(self.clone().run(key.to_owned(), known));
        Some(receiver)
    }

    /// Reads the entries of the key, and those that come, until nobody shows them any more. That is
    /// looked at after each pause: what was read is paid for.
    async fn run(self, key: String, known: watch::Sender<History>) {
        let mut log = open(&self.client, &key);
        let mut load = LoadLimit::default();
        load.measure_round_trip(&self.client).await;
        let mut newest = Vec::new();
        loop {
            let read = match &mut log {
                Ok(log) => read_page(log, &mut newest, &mut load).await,
                Err(error) => Err(error.clone()),
            };
            let pause = match read {
                Ok(true) => Duration::ZERO,
                Ok(false) => {
                    send_if_other(&known, Some(Ok(newest.clone())));
                    self.interval
                }
                Err(error) => {
                    send_if_other(&known, Some(Err(error.to_string())));
                    self.interval.max(AFTER_ERROR)
                }
            };
            // What nobody shows takes no room for the rest of an interval, which may be long.
            let _ = timeout(pause, known.closed()).await;
            load.pause_up_to(LONGEST_PAUSE).await;
            let mut followed = self.followed();
            if known.receiver_count() == 0 {
                followed.remove(&key);
                return;
            }
        }
    }
}

/// What those are told for whom there is no room.
#[cfg(feature = "serve")]
pub(crate) fn no_room() -> String {
    format!("the histories of {MOST_KEYS} other keys are shown: close some of them")
}

/// A key now, and then its history. One looks at a time; others wait for its first answer no longer
/// than a turn: a server may hang.
#[cfg(feature = "serve")]
pub(crate) async fn look(
    client: &Client,
    key: &str,
    looks: &crate::feed::Load,
) -> Result<(KeyView, History), Error> {
    let mut load = looks.turn(LONGEST_PAUSE).await;
    let mut seen = std::pin::pin!(client.inspect(key));
    let seen = if let Ok(seen) = timeout(LONGEST_TURN, &mut seen).await {
        seen?
    } else {
        drop(load);
        let seen = seen.await?;
        load = looks.turn(LONGEST_PAUSE).await;
        seen
    };
    let view = KeyView::from(&seen);
    let newest = async {
        // It asks for a key that may be on another server.
        let _ = timeout(LONGEST_TURN, load.measure_round_trip(client)).await;
        let (mut log, mut newest) = (open(client, key)?, Vec::new());
        while read_page(&mut log, &mut newest, &mut load).await? {}
        Ok::<_, Error>(newest)
    };
    let history = newest.await.map_err(|error| error.to_string());
    Ok((view, Some(history)))
}

fn open<'a>(client: &'a Client, key: &str) -> Result<AuditLog<'a>, Error> {
    let since = SystemTime::now().checked_sub(SPAN);
    client.audit_log(Some(key), since.unwrap_or(SystemTime::UNIX_EPOCH))
}

/// Adds a page of entries. Answers whether there may be more.
async fn read_page(
    log: &mut AuditLog<'_>,
    newest: &mut Vec<EntryView>,
    load: &mut LoadLimit,
) -> Result<bool, Error> {
    let asked = Instant::now();
    let page = log.next().await?;
    load.record(asked.elapsed(), 1);
    add(newest, &page);
    Ok(!page.is_empty())
}

fn add(newest: &mut Vec<EntryView>, page: &[AuditRecord]) {
    newest.splice(0..0, page.iter().rev().map(EntryView::from));
    // The servers of a set come one after the other.
    newest.sort_by_key(|entry| Reverse(entry.at));
    newest.truncate(MOST_ENTRIES);
}

#[cfg(test)]
mod tests {
    use leasehold::audit::{AuditEntry, AuditEvent};
    use leasehold::core::{Key, StoreTime};

    use super::*;

    #[test]
    fn entries_of_all_servers_are_sorted_by_their_time() {
        let mut newest = Vec::new();
        for seconds in [[1, 4], [2, 3]] {
            let page = seconds.map(|second| {
                let (at, key) = (StoreTime(second * 1_000_000), Key::new("k").unwrap());
                AuditRecord::new(key, AuditEntry::new(at, AuditEvent::Returned, None))
            });
            add(&mut newest, &page);
        }
        let seconds = newest.iter().map(|entry| entry.at.as_second());
        assert_eq!(seconds.collect::<Vec<_>>(), [4, 3, 2, 1]);
    }

    #[tokio::test]
    async fn one_reader_for_all_who_show_a_key() {
        let client = leasehold::connect("memory:?audit=100").await.unwrap();
        let histories = Histories::new(client.clone(), Duration::from_millis(1));
        let follow = |key: &str| histories.follow(key).unwrap();
        let (mut one, mut other) = (follow("k"), follow("k"));
        assert_eq!(histories.followed().len(), 1);
        let lease = client.mutex("k").unwrap().lock().await.unwrap();
        let shows = |known: &History| matches!(known, Some(Ok(entries)) if !entries.is_empty());
        one.wait_for(shows).await.unwrap();
        other.wait_for(shows).await.unwrap();
        // Who comes later has what is known.
        assert!(shows(&follow("k").borrow()));
        drop((one, other));
        while !histories.followed().is_empty() {
            tokio::task::yield_now().await;
        }
        let followed: Vec<_> = (0..MOST_KEYS).map(|n| follow(&n.to_string())).collect();
        assert!(histories.follow("k").is_none(), "there is no room");
        drop(followed);
        while !histories.followed().is_empty() {
            tokio::task::yield_now().await;
        }
        let mut again = follow("k");
        again.wait_for(shows).await.unwrap();
        let _ = lease.release().await.unwrap();
    }

    /// However often somebody asks, and hangs up.
    #[cfg(feature = "serve")]
    #[tokio::test(start_paused = true)]
    async fn what_one_reading_owes_the_next_one_pays() {
        let client = leasehold::connect("memory:?audit=100").await.unwrap();
        let (looks, begun) = (crate::feed::Load::default(), Instant::now());
        // It owes nineteen times as much: nearly the longest pause.
        let mut load = looks.turn(Duration::ZERO).await;
        load.record(LONGEST_PAUSE / 20, 1);
        drop(load);
        let hung_up = look(&client, "k", &looks);
        let hung_up = timeout(LONGEST_PAUSE / 2, hung_up).await;
        assert!(hung_up.is_err());
        look(&client, "k", &looks).await.unwrap();
        assert!(begun.elapsed() >= LONGEST_PAUSE * 7 / 5);
    }

    #[cfg(feature = "serve")]
    #[tokio::test(start_paused = true)]
    async fn a_look_that_was_answered_late_pays_for_what_others_have_read() {
        let store = leasehold::testing::TestStore::new();
        let client = store.connect().await.unwrap();
        store.make_slow(LONGEST_TURN * 2);
        let (looks, begun) = (crate::feed::Load::default(), Instant::now());
        let other = async {
            tokio::time::sleep(LONGEST_TURN * 3 / 2).await;
            let mut load = looks.turn(Duration::ZERO).await;
            load.record(LONGEST_PAUSE / 20, 1);
        };
        let (seen, ()) = tokio::join!(look(&client, "k", &looks), other);
        seen.unwrap();
        assert!(begun.elapsed() >= LONGEST_TURN * 2 + LONGEST_PAUSE * 19 / 20);
    }

    /// Its server may hang, while those of other keys do not.
    #[cfg(feature = "serve")]
    #[tokio::test(start_paused = true)]
    async fn a_key_without_an_answer_delays_looks_at_others_by_a_second() {
        let store = leasehold::testing::TestStore::new();
        let client = store.connect().await.unwrap();
        store.make_slow(Duration::from_secs(60 * 60));
        let (looks, begun) = (crate::feed::Load::default(), Instant::now());
        let all = (0..8).map(|_| look(&client, "k", &looks));
        let seen = futures_util::future::join_all(all).await;
        assert!(seen.iter().all(Result::is_err));
        // The last one has begun after a turn of each other, and then waited for its own answer.
        let limit = leasehold::Settings::default().operation_timeout;
        assert!(begun.elapsed() < limit + LONGEST_TURN * 8);
    }
}
