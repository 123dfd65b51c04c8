//! Subscriptions to changes of a key without a claim.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Key;
use tokio::sync::{Notify, watch};

use super::timing::{WATCH_LOOK, WATCH_TTL};
use super::{Session, driver};
use crate::clock;
use crate::error::StoreError;
use crate::store::Verbs as _;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError, timeout};

/// The keys that this client watches, and whom to wake.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    keys: Mutex<HashMap<Key, Watched>>,
    /// The number of requests in flight that end a watch.
    ending: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Watched {
    watchers: usize,
    changed: Arc<Notify>,
}

impl Watches {
    /// The key has changed.
    pub(super) fn wake(&self, key: &Key) {
        if let Some(watched) = self.lock().get(key) {
            watched.changed.notify_waiters();
        }
    }

    /// Any key may have changed.
    pub(super) fn wake_all(&self) {
        for watched in self.lock().values() {
            watched.changed.notify_waiters();
        }
    }

    /// Waits until the store knows of all who do not watch any more.
    pub(crate) async fn ended(&self) {
        self.ending
            .subscribe()
            .wait_for(|ending| *ending == 0)
            .await
            .ok();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Watched>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who watches a key, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    session: Arc<Session>,
    key: Key,
    changed: Arc<Notify>,
    /// Whether the store knows of it.
    known: AtomicBool,
}

impl Watch {
    /// Starts to watch. [`Watch::ask`] makes the store take part.
    pub(crate) fn start(session: &Arc<Session>, key: &Key) -> Self {
        let changed = {
            let mut watches = session.watches.lock();
            let watched = watches.entry(key.clone()).or_default();
            watched.watchers += 1;
            watched.changed.clone()
        };
        session.keys.watching.fetch_add(1, Ordering::SeqCst);
        let now = clock::now();
        driver::ensure_awake(session, now, now);
        session.want_inbox();
        Self {
            session: session.clone(),
            key: key.clone(),
            changed,
            known: AtomicBool::new(false),
        }
    }

    /// Asks the store to tell, if it can, and says how soon to ask again.
    pub(crate) async fn ask(&self) -> Result<Duration, StoreError> {
        if !self.session.store.capabilities().push {
            return Ok(WATCH_LOOK);
        }
        self.enlisted();
        self.session.store.watch(&self.key, WATCH_TTL).await?;
        Ok(WATCH_TTL / 3)
    }

    /// Notes that the store may have a watch. It must be ended when there is no watcher any more.
    pub(super) fn enlisted(&self) {
        self.known.store(true, Ordering::Relaxed);
    }

    /// The store has forgotten it.
    pub(super) fn forgotten(&mut self) {
        self.known.store(false, Ordering::Relaxed);
    }

    /// What completes with the next change after this call.
    pub(crate) fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.session.is_inherited() {
            return;
        }
        self.session.keys.watching.fetch_sub(1, Ordering::SeqCst);
        let last = {
            let mut watches = self.session.watches.lock();
            let last = watches.get_mut(&self.key).is_some_and(|watched| {
                watched.watchers -= 1;
                watched.watchers == 0
            });
            if last {
                watches.remove(&self.key);
            }
            last
        };
        if last && self.known.load(Ordering::Relaxed) {
            let (session, key) = (self.session.clone(), self.key.clone());
            let limit = session.settings.operation_timeout;
            session.watches.ending.send_modify(|ending| *ending += 1);
            self.session.runtime.spawn(async move {
                // If it is not heard, it ends by itself.
                let stop = session.store.watch(&key, Duration::ZERO);
                timeout(limit, stop).await.ok();
                session.watches.ending.send_modify(|ending| *ending -= 1);
            });
        }
    }
}
