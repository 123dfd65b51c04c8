//! The session: drives the claims of one client and sends their commands to the store.
//!
//! It makes no decisions: each claim is a state machine of the core, [`Life`].
//!
//! - [`Session`]: the state that all handles of a client share.
//! - `claimed`: a claim that its caller owns, and how the caller's task drives it.
//! - `live`: one claim, shared by the tasks that wait or hold.
//! - `state`: the locked part of a claim: its state machine, and who drives it.
//! - `registry`: all claims of the client, and when each is due.
//! - `watchdog`: the task that drives all claims that no caller drives, and keeps the inbox open.
//! - `telling`: delivers facts about claims to the observers.
//! - `timing`: all time limits and pauses.
//! - `wish`: the request for a key.
//! - `acquire`: acquires a key, one claim after the other.
//! - `together`: acquires several keys in one step.
//! - `asking`: polls for a key without a place in the queue.
//! - `closing`: closed clients, and how their running operations end.
//! - `watches`: subscriptions to keys without a claim.

pub(crate) mod acquire;
mod asking;
pub(crate) mod claimed;
pub(crate) mod closing;
pub(crate) mod live;
pub(crate) mod looks;
mod registry;
mod state;
mod telling;
pub(crate) mod timing;
pub(crate) mod together;
mod watchdog;
pub(crate) mod watches;
pub(crate) mod wish;

use std::collections::hash_map::RandomState;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ClaimId, Key, Life, Moment, Phase, RenewalPolicy, Terms, Transmit, written};
use tokio::sync::Notify;

use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::fork::Process;
use crate::ids::ClaimIds;
use crate::observe::Observers;
use crate::settings::Settings;
use crate::store::{LockStore, Push, PushSink};
use crate::sync::{
    AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, PoisonError, Runtime, timeout,
};
use closing::Openness;
use live::LiveClaim;
use registry::{Registry, RunNews};
use state::{Carried, State};
use telling::Teller;
use watches::Watches;

/// What all handles, leases and tasks of one client share.
pub(crate) struct Session {
    pub(crate) store: Arc<dyn LockStore>,
    pub(crate) settings: Settings,
    /// The default settings of claims.
    pub(crate) terms: Arc<Terms>,
    registry: Mutex<Registry>,
    /// The registry's, for those who make claims.
    key_hasher: RandomState,
    /// How many claims were made.
    numbers: AtomicU64,
    /// The client is shut down: claims granted from now on must be released.
    shut: AtomicBool,
    teller: Teller,
    /// When the watchdog means to wake next; zero while none runs.
    wake_at: AtomicU64,
    wake: Notify,
    /// Whether the inbox is open, or being opened.
    listening: AtomicBool,
    openness: Openness,
    pub(crate) watches: Watches,
    turns: asking::Turns,
    ids: ClaimIds,
    pub(crate) runtime: Runtime,
    process: Process,
}

impl Session {
    pub(crate) fn new(
        store: Arc<dyn LockStore>,
        settings: Settings,
        ids: ClaimIds,
        observers: Observers,
        runtime: Runtime,
    ) -> Arc<Self> {
        let terms = Terms {
            ttl: settings.ttl,
            waiter_ttl: settings.waiter_ttl.min(settings.ttl),
            policy: RenewalPolicy::Automatic(settings.renew_at),
            hand_off: true,
            max_hold: None,
            rotate_every: settings.rotate_every,
            acknowledges: store.capabilities().acknowledges,
        };
        let registry = Registry::default();
        Arc::new(Self {
            store,
            settings,
            terms: Arc::new(terms),
            key_hasher: registry.hasher().clone(),
            registry: Mutex::new(registry),
            numbers: AtomicU64::new(0),
            shut: AtomicBool::new(false),
            teller: Teller::to(observers),
            ids,
            wake_at: AtomicU64::new(0),
            wake: Notify::new(),
            listening: AtomicBool::new(false),
            openness: Openness::here(&runtime),
            watches: Watches::default(),
            turns: asking::Turns::default(),
            runtime,
            process: Process::this(),
        })
    }

    /// Changes a claim: its tasks see it, the registry knows where to find it, facts are told,
    /// and the watchdog wakes in time for it.
    fn change<T>(
        self: &Arc<Self>,
        claim: &Arc<LiveClaim>,
        change: impl FnOnce(&mut State, Moment) -> T,
    ) -> T {
        self.change_of(claim, true, change)
    }

    /// The same, by a task that drives it if not `wakes`: then it need not wake itself.
    fn change_of<T>(
        self: &Arc<Self>,
        claim: &Arc<LiveClaim>,
        wakes: bool,
        change: impl FnOnce(&mut State, Moment) -> T,
    ) -> T {
        let (result, due, now) = self.apply(claim, wakes, change);
        if let Some(due) = due {
            watchdog::ensure_awake(self, due, now);
        }
        result
    }

    /// The same, and says when the claim wants attention. One lock within the other: the
    /// claim's, then the registry's.
    fn apply<T>(
        &self,
        claim: &Arc<LiveClaim>,
        wakes: bool,
        change: impl FnOnce(&mut State, Moment) -> T,
    ) -> (T, Option<Moment>, Moment) {
        let mut state = claim.lock();
        let now = clock::now();
        let result = change(&mut state, now);
        if self.shut.load(Ordering::SeqCst) && state.life.phase() == Phase::Held {
            state.life.shut_down(now);
        }
        let listing = claim.show(&mut state, now, wakes, |fact, span| {
            self.teller.keep(|| claim.observed(), fact, span);
        });
        let was = std::mem::replace(&mut state.listed, listing);
        let news = if was == listing {
            Vec::new()
        } else {
            self.registry().list(claim, was, listing)
        };
        drop(state);
        // Before what others are told, which may take as long as they like.
        for (claim, news) in news {
            self.tell_run(&claim, news);
        }
        self.teller.tell();
        (result, listing.due, now)
    }

    /// Another claim in its run has moved.
    fn tell_run(&self, claim: &Arc<LiveClaim>, news: RunNews) {
        let (_, due, _) = self.apply(claim, true, |state, now| match news {
            RunNews::Turn(ahead, token) => state.life.handle_turn(now, (ahead, token)),
            RunNews::Ended(ahead) => state.life.handle_run_ended(now, ahead),
            RunNews::Unknown(ahead) => state.life.handle_run_unknown(now, ahead),
            RunNews::Known => state.life.handle_run_known(),
        });
        self.wake_for(due);
    }

    /// The watchdog runs while anything is registered.
    fn wake_for(&self, due: Option<Moment>) {
        if due.is_some_and(|due| due.0 < self.wake_at.load(Ordering::Acquire)) {
            self.wake.notify_one();
        }
    }

    /// Changes each of these.
    fn change_all(self: &Arc<Self>, claims: &[Arc<LiveClaim>], change: impl Fn(&mut Life, Moment)) {
        for claim in claims {
            self.change(claim, |state, now| change(&mut state.life, now));
        }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim waits from now on: the watchdog must not sleep on a closed inbox.
    fn want_inbox(&self) {
        if !self.listening.load(Ordering::Acquire) {
            self.wake.notify_one();
        }
    }

    /// A new claim id.
    pub(crate) fn claim_id(&self) -> Result<ClaimId, StoreError> {
        Ok(self.ids.next()?)
    }

    /// Waits until what this client has on its way out of `key` now has left, until `end` at
    /// the latest: its own claims are no reason to find the key busy.
    async fn own_departures(&self, key: &Key, end: Moment) {
        let mut leaving = self.registry().passing_on(key);
        leaving.retain(|claim| claim.lock().life.phase() == Phase::Leaving);
        if leaving.is_empty() {
            return;
        }
        let all_left = async {
            for claim in leaving {
                claim.left().await;
            }
        };
        // Whoever asks then may find them, as it may others' claims.
        let limit = end.since(clock::now());
        Box::pin(timeout(limit, all_left)).await.ok();
    }

    /// Asks the store for what is no claim, for the operation time-out at most.
    pub(crate) async fn ask<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.check_caller()?;
        let limit = self.settings.operation_timeout;
        let asked = timeout(limit, work).await;
        asked.unwrap_or_else(|_| Err(unanswered(limit)))
    }

    /// Carries one request to the store and back.
    async fn carry(&self, key: &Key, transmit: &Transmit) -> Carried {
        let answer = match timeout(transmit.limit, self.store.step(key, &transmit.command)).await {
            Ok(answer) => answer.map_err(Some),
            Err(_) => Err(None),
        };
        let observers = self.teller.observers();
        observers.request(key, transmit.command.verb(), transmit.sent, &answer);
        answer
    }
}

impl PushSink for Session {
    fn push(&self, push: Push) {
        match &push {
            Push::Disconnected => self.registry().forget_passed(),
            Push::Reset => {
                self.teller.observers().reconnected();
                self.registry().forget_passed();
                self.watches.wake_all();
            }
            Push::Changed { key } => return self.watches.wake(key),
            _ => {}
        }
        let claims = match push.claim() {
            Some((key, arrival)) => self.registry().hearers(key, arrival),
            // Every claim leaves its run. Later it asks where it stands, since pushes may have been
            // missed.
            None => self.registry().all(),
        };
        for claim in claims {
            let (_, due, _) = self.apply(&claim, true, |state, now| match &push {
                Push::Disconnected => state.life.handle_disconnection(),
                Push::Reset => state.life.handle_reconnection(now),
                push => _ = state.life.handle_push(now, push),
            });
            self.wake_for(due);
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

/// That the store gave no answer within the operation time-out.
pub(crate) fn unanswered(limit: Duration) -> StoreError {
    no_answer(&format!("{}, the operation time-out", written(limit)))
}

/// That it gave none within a limit, which says what it is.
fn no_answer(limit: &str) -> StoreError {
    StoreError::new(
        ErrorKind::Unavailable,
        format!("the store gave no answer within {limit}"),
    )
    .with_hint("check that it is running and reachable")
}

pub(crate) use leasehold_store::random::{random_u64, random_u128};
