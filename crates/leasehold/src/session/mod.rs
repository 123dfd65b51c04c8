//! The session: the claims of one client, polled and carried to the store.
//!
//! Decides nothing: each claim is a [`Life`](leasehold_core::Life) of the core.
//!
//! - [`Session`]: what one client's handles share.
//! - `claimed`: a claim in its caller's hands, and how its task drives it.
//! - `registry`, `entry`: every claim of the client, and when each wants attention.
//! - `watchdog`: the one task that drives what no caller does, and holds the inbox open.
//! - `signal`: what a claim shows to the tasks that wait or hold.
//! - `telling`: what happened to claims, on its way to those who observe the client.
//! - `timing`: every time and pause.
//! - `wish`: what is wanted of a key.
//! - `acquire`: from "I want this key" to a lease, one claim after the other.
//! - `together`: the same for several keys at once.
//! - `asking`: waiting without a place in line.
//! - `closing`: a client that takes no more claims, and how what is under way ends.
//! - `watches`: who wants to hear of a key without claiming it.
//! - `own_id`: claim ids that no two claims of the client have.

pub(crate) mod acquire;
mod asking;
pub(crate) mod claimed;
pub(crate) mod closing;
mod entry;
pub(crate) mod own_id;
mod registry;
pub(crate) mod signal;
mod telling;
pub(crate) mod timing;
pub(crate) mod together;
mod watchdog;
pub(crate) mod watches;
pub(crate) mod wish;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Key, Moment, Transmit};
use tokio::sync::Notify;

use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::ids::ClaimIds;
use crate::observe::Observers;
use crate::settings::Settings;
use crate::store::{LockStore, Push, PushSink};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, Runtime, timeout};
use closing::Openness;
use entry::Carried;
use own_id::{OwnId, OwnIds};
use registry::Registry;
use telling::Teller;
use timing::GRACE;
use watches::Watches;

/// What all handles, leases and tasks of one client share.
pub(crate) struct Session {
    pub(crate) store: Arc<dyn LockStore>,
    pub(crate) settings: Settings,
    registry: Mutex<Registry>,
    teller: Teller,
    /// When the watchdog means to wake next; zero while none runs.
    wake_at: AtomicU64,
    wake: Notify,
    /// Whether the inbox is open, or being opened.
    listening: AtomicBool,
    openness: Openness,
    pub(crate) watches: Watches,
    turns: asking::Turns,
    ids: OwnIds,
    pub(crate) runtime: Runtime,
}

impl Session {
    pub(crate) fn new(
        store: Arc<dyn LockStore>,
        settings: Settings,
        ids: ClaimIds,
        observers: Observers,
        runtime: Runtime,
    ) -> Arc<Self> {
        let ids = OwnIds::new(ids);
        let registry = Registry::new(ids.clone(), observers);
        Arc::new(Self {
            store,
            settings,
            teller: Teller::of(&registry),
            registry: Mutex::new(registry),
            ids,
            wake_at: AtomicU64::new(0),
            wake: Notify::new(),
            listening: AtomicBool::new(false),
            openness: Openness::here(&runtime),
            watches: Watches::default(),
            turns: asking::Turns::default(),
            runtime,
        })
    }

    /// Changes the registry, and sees that the watchdog wakes in time for it.
    fn with_registry<T>(self: &Arc<Self>, change: impl FnOnce(&mut Registry, Moment) -> T) -> T {
        let (result, due) = {
            let mut registry = self.lock();
            let result = change(&mut registry, clock::now());
            (result, registry.next_due())
        };
        if let Some(due) = due {
            watchdog::ensure_awake(self, due);
        }
        result
    }

    /// A claim waits from now on: the watchdog must not sleep on a closed inbox.
    fn want_inbox(&self) {
        if !self.listening.load(Ordering::Acquire) {
            self.wake.notify_one();
        }
    }

    /// A new claim id for `key`, which no other claim of this client has.
    pub(crate) async fn claim_id(&self, key: &Key) -> Result<OwnId, StoreError> {
        self.ids.next(key).await
    }

    /// Whether others may guess its ids: then one proves nothing.
    pub(crate) fn may_be_guessed(&self) -> bool {
        self.ids.may_be_guessed()
    }

    /// Waits until what this client has on its way out of `key` now has left, or for
    /// [`GRACE`]: its own claims are no reason to find the key busy.
    async fn own_departures(&self, key: &Key) {
        let leaving = self.lock().leaving_on(key);
        if leaving.is_empty() {
            return;
        }
        let all_left = async {
            for signal in leaving {
                signal.left().await;
            }
        };
        // Whoever asks then may find them, as it may others' claims.
        timeout(GRACE, all_left).await.ok();
    }

    /// Carries one request to the store and back.
    async fn carry(&self, key: &Key, transmit: &Transmit) -> Carried {
        match timeout(transmit.limit, self.store.step(key, &transmit.command)).await {
            Ok(answer) => answer.map_err(Some),
            Err(_) => Err(None),
        }
    }
}

impl PushSink for Session {
    fn push(&self, push: Push) {
        let now = clock::now();
        match &push {
            Push::Reset => self.watches.wake_all(),
            Push::Changed { key } => return self.watches.wake(key),
            _ => {}
        }
        let due = {
            let mut registry = self.lock();
            registry.handle_push(&push, now);
            registry.next_due()
        };
        // The watchdog runs while anything is registered.
        if due.is_some_and(|due| due.0 < self.wake_at.load(Ordering::Acquire)) {
            self.wake.notify_one();
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

pub(crate) fn unanswered(limit: Duration) -> StoreError {
    StoreError::new(
        ErrorKind::Unavailable,
        format!("the store gave no answer within {limit:?}"),
    )
    .with_hint("is it running and reachable? `operation_timeout` sets how long to wait")
}

pub(crate) use leasehold_store::random::{random_u64, random_u128};
