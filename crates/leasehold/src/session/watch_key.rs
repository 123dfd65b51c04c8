//! Watches a key without a claim: reads it repeatedly, whenever it may have changed. That is after
//! a push, and when a lease may have expired.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Backoff, HintLimit, Key, Moment, Snapshot};

use super::keys::{KeySlot, Watched};
use super::shutdown::under_way;
use super::timing::{LOOK_AFTER_LAPSE, WATCH_LOOK, WATCH_TTL};
use super::{Session, random_u64};
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::store::Verbs as _;
use crate::sync::{Ordering, sleep, timeout};

/// One who watches a key, until it is dropped.
pub(crate) struct KeyWatcher {
    session: Arc<Session>,
    home: Arc<KeySlot>,
    /// What it shares with the other watchers of the key.
    pub(super) watched: Arc<Watched>,
    /// Limits how often pushes cause a read, since anybody may send them.
    hints: HintLimit,
    /// Pauses while the store cannot be asked.
    failing: Option<Backoff>,
}

impl KeyWatcher {
    /// Starts to watch: from now on pushes about the key are heard.
    pub(crate) fn start(session: &Arc<Session>, key: &Key) -> Self {
        let (home, watched) = session.keys.begin(key, |home, state| {
            let watched = state.watched.get_or_insert_default();
            watched.watchers.fetch_add(1, Ordering::SeqCst);
            (home.clone(), watched.clone())
        });
        session.keys.listeners.fetch_add(1, Ordering::SeqCst);
        let now = clock::now();
        session.ensure_awake(now, now);
        Self {
            session: session.clone(),
            home,
            watched,
            hints: HintLimit::default(),
            failing: None,
        }
    }

    /// A store that grants forgets that its client waits.
    pub(super) fn forgotten(&self) {
        let _no_other_begins = self.home.lock();
        // Others may have asked it to tell them since.
        if self.watched.watchers.load(Ordering::SeqCst) == 1 {
            self.watched.known.store(false, Ordering::SeqCst);
        }
    }

    /// Reads the key until `found` breaks with what was looked for; else `found` says in what time
    /// a lease that it has seen expires, if there is one.
    ///
    /// # Errors
    /// Why the store could not be asked, once for an outage, and each time for what stays. The
    /// next call goes on.
    pub(crate) async fn until<T>(
        &mut self,
        mut found: impl FnMut(Snapshot) -> ControlFlow<T, Option<Duration>>,
    ) -> Result<T, StoreError> {
        let watched = self.watched.clone();
        loop {
            if let Some(pauses) = &mut self.failing {
                sleep(pauses.pause()).await;
            }
            // From before the request on, so that no change falls between.
            let change = watched.changed.notified();
            let (seen, ask_again) = match self.ask().await {
                Ok(asked) => asked,
                Err(error) => {
                    if self.failing.is_some() && error.kind() == ErrorKind::Unavailable {
                        continue;
                    }
                    let (base, cap) = (Duration::from_millis(50), Duration::from_secs(2));
                    let pauses = || Backoff::new(base, cap, random_u64());
                    self.failing.get_or_insert_with(pauses);
                    return Err(error);
                }
            };
            self.failing = None;
            let expires_in = match found(seen) {
                ControlFlow::Break(found) => return Ok(found),
                ControlFlow::Continue(expires_in) => expires_in,
            };
            let lapse = expires_in.map(|left| clock::now() + left + LOOK_AFTER_LAPSE);
            let wake_at = lapse.map_or(ask_again, |lapse| lapse.min(ask_again));
            tokio::select! {
                () = change => {
                    let now = clock::now();
                    sleep(self.hints.ask_at(now).since(now)).await;
                }
                () = sleep(wake_at.since(clock::now())) => {}
            }
        }
    }

    /// Asks the store to tell of changes, if it can, and reads the key. Says what is seen, and when
    /// to ask again at the latest.
    async fn ask(&self) -> Result<(Snapshot, Moment), StoreError> {
        let (session, key) = (&self.session, &self.home.key);
        let mut pause = WATCH_LOOK;
        let can = session.store.capabilities();
        if can.push {
            self.watched.known.store(true, Ordering::SeqCst);
            match session.ask(session.store.watch(key, WATCH_TTL)).await {
                // On epoch zero nothing is heard; several servers without a queue have no other.
                Ok(answer) if answer.epoch == 0 && can.queueing => {}
                Ok(_) => pause = WATCH_TTL / 3,
                // A server that takes no writes now can be read, and told of the watch later.
                Err(error) if error.retry_after.is_some() => {}
                Err(error) => return Err(error),
            }
        }
        let seen = session.snapshot(key).await?;
        Ok((seen, clock::now() + pause))
    }
}

impl Drop for KeyWatcher {
    fn drop(&mut self) {
        let session = &self.session;
        if session.is_inherited() {
            return;
        }
        session.keys.listeners.fetch_sub(1, Ordering::SeqCst);
        let mut state = self.home.lock();
        if self.watched.watchers.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        state.watched = None;
        session.keys.list(&self.home, &mut state);
        drop(state);
        if self.watched.known.load(Ordering::SeqCst) {
            let ending = under_way(session.clone(), |it| &it.ending);
            let (session, home) = (session.clone(), self.home.clone());
            self.session.runtime.spawn(async move {
                let _ending = ending;
                // If it is not heard, it ends by itself.
                let stop = session.store.watch(&home.key, Duration::ZERO);
                let limit = session.settings.operation_timeout;
                timeout(limit, stop).await.ok();
                // It may have come behind what somebody asks who has begun to watch since.
                if let Some(home) = session.keys.find(&home.key) {
                    home.wake_watchers();
                }
            });
        }
    }
}
