//! The session: drives the claims of one client and sends their commands to the store.
//!
//! It makes no decisions: all claims of the client on one key are one state machine of the core,
//! [`KeyMachine`].
//!
//! ```text
//!   lock() ── ClaimHandle ─┐ drives its own claim        a push, a reset, a shutdown
//!                          ▼                                       │ one key, or all
//!   Keys: 64 shards ── KeySlot { lock { KeyMachine } } ◀───────────┘
//!          │ deadlines     ▲ drive(key): takes its lock once, sends what is due
//!          └─────────── driver ── in flight, inbox
//! ```
//!
//! A task that acquires or releases sends its claim's requests itself, so an uncontended lock
//! crosses no task. The driver, one task for all keys, does the rest: it renews, retries, releases
//! what was dropped, and keeps the inbox open. Both change a key in one way, [`Session::apply`],
//! which shows the change to the tasks of each claim, lists the key's next deadline, and tells
//! observers after the lock was released.
//!
//! - [`Session`]: the state that all handles of a client share.
//! - `keys`: the map of keys and the index of their deadlines; `driver`: the task that drives them.
//! - `claim_handle`: a claim that its caller owns; `claim_slot`: what its tasks see of it.
//! - `events`: delivers facts about claims to the observers.
//! - `request`: the request for a key; `acquire`: acquires it, one claim after the other.
//! - `acquire_all`: acquires several keys in one step.
//! - `polling`: polls for a key without a place in the queue, one task of a client at a time.
//! - `watch_key`: reads a key whenever it may have changed, without a claim.
//! - `shutdown`: closed clients, and how their running operations end.
//! - `timing`: all time limits and pauses.

pub(crate) mod acquire;
pub(crate) mod acquire_all;
pub(crate) mod claim_handle;
pub(crate) mod claim_slot;
mod driver;
mod events;
mod keys;
mod polling;
pub(crate) mod request;
pub(crate) mod shutdown;
pub(crate) mod timing;
pub(crate) mod watch_key;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    ClaimId, ClaimNumber, ClaimReply, Command, Key, KeyMachine, Moment, Phase, ReleaseReply,
    RenewReply, RenewalPolicy, Snapshot, Terms, Transmit, written,
};
use tokio::sync::Notify;

use crate::background::wait_elsewhere;
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::fork::Process;
use crate::ids::ClaimIds;
use crate::observe::{ObservedClaim, Observers};
use crate::settings::Settings;
use crate::store::{Answer, LockStore, Push, PushSink, check_reply};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, Runtime, timeout};
use claim_slot::{Carried, ClaimSlot};
use driver::SubscribeBackoff;
use events::EventQueue;
use keys::{KeySlot, Keys};
use shutdown::ShutdownState;

pub(super) type Machine = KeyMachine<Arc<ClaimSlot>>;

/// What all handles, leases and tasks of one client share.
pub(crate) struct Session {
    pub(crate) store: Arc<dyn LockStore>,
    pub(crate) settings: Settings,
    /// The default settings of claims.
    pub(crate) terms: Arc<Terms>,
    keys: Keys,
    observers: Observers,
    events: EventQueue,
    /// When the driver means to wake next; zero while none runs.
    wake_at: AtomicU64,
    wake: Notify,
    /// Whether the inbox is open, or being opened.
    listening: AtomicBool,
    unsubscribed: Mutex<SubscribeBackoff>,
    shutdown: ShutdownState,
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
            operation: settings.operation_timeout,
            policy: RenewalPolicy::Automatic(settings.renew_at),
            hand_off: true,
            max_hold: None,
            rotate_every: settings.rotate_every,
            acknowledges: store.capabilities().acknowledges,
        };
        Arc::new(Self {
            store,
            settings,
            terms: Arc::new(terms),
            keys: Keys::default(),
            observers,
            events: EventQueue::default(),
            ids,
            wake_at: AtomicU64::new(0),
            wake: Notify::new(),
            listening: AtomicBool::new(false),
            unsubscribed: Mutex::default(),
            shutdown: ShutdownState::here(&runtime),
            runtime,
            process: Process::this(),
        })
    }

    /// Changes a key, and sees to it that the driver wakes in time for it. `own` is a claim whose
    /// task makes the change, and need not be woken by it.
    fn change<T>(
        self: &Arc<Self>,
        home: &Arc<KeySlot>,
        own: Option<ClaimNumber>,
        change: impl FnOnce(&mut Machine, Moment) -> T,
    ) -> T {
        let (result, due, now) = self.apply(home, own, change);
        if let Some(due) = due {
            self.ensure_awake(due, now);
        }
        result
    }

    /// The same, and says when the key wants attention.
    fn apply<T>(
        &self,
        home: &Arc<KeySlot>,
        own: Option<ClaimNumber>,
        change: impl FnOnce(&mut Machine, Moment) -> T,
    ) -> (T, Option<Moment>, Moment) {
        let mut state = home.lock();
        let now = clock::now();
        let result = change(&mut state.machine, now);
        if self.shutdown.releases.load(Ordering::SeqCst) {
            state.machine.shut_down(now);
        }
        while state.machine.poll_changed(|number, slot, claim, drivers| {
            let wakes = drivers > 0 && own != Some(number);
            let was = slot.show(claim, now, wakes, |fact, span| {
                if self.observers.hear(&fact) {
                    let observed = ObservedClaim {
                        key: home.key.clone(),
                        mode: slot.mode,
                        number: number.0,
                    };
                    self.events.keep(observed, fact, span);
                }
            });
            let is = claim.phase();
            if was != Phase::Waiting && is == Phase::Waiting {
                self.keys.listeners.fetch_add(1, Ordering::SeqCst);
            } else if was == Phase::Waiting && is != Phase::Waiting {
                self.keys.listeners.fetch_sub(1, Ordering::SeqCst);
            }
            let leaves = was != Phase::Over && is == Phase::Over && claim.has_left();
            if leaves && self.shutdown.closed().is_some() {
                self.shutdown.confirmed.fetch_add(1, Ordering::SeqCst);
            }
        }) {}
        let due = self.keys.list(home, &mut state);
        drop(state);
        // Observers may take as long as they like.
        self.events.deliver(&self.observers);
        (result, due, now)
    }

    /// Whether nothing is to be kept, where this is the next deadline.
    fn is_idle(&self, next_due: Option<Moment>) -> bool {
        next_due.is_none() && !self.wants_inbox()
    }

    fn wants_inbox(&self) -> bool {
        let listens = self.keys.listeners.load(Ordering::SeqCst) > 0;
        listens && !self.shutdown.releases.load(Ordering::SeqCst)
    }

    /// A new claim id.
    pub(crate) fn claim_id(&self) -> Result<ClaimId, StoreError> {
        Ok(self.ids.next()?)
    }

    /// Asks the store for what is no claim, for the operation time-out at most.
    pub(crate) async fn ask<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.check_caller()?;
        let limit = self.settings.operation_timeout;
        let _elsewhere = wait_elsewhere(&self.runtime);
        let asked = timeout(limit, work).await;
        asked.unwrap_or_else(|_| Err(unanswered(limit)))
    }

    /// Reads a key.
    pub(crate) async fn snapshot(&self, key: &Key) -> Result<Snapshot, StoreError> {
        self.ask(self.store.inspect(key)).await
    }

    /// Carries one request to the store and back.
    async fn carry(&self, key: &Key, transmit: &Transmit) -> Carried {
        let answer = timeout(transmit.limit, self.store.step(key, &transmit.command)).await;
        let answer = answer.map_or(Err(None), |answer| {
            let checked = answer.and_then(|answer| check_answer(&transmit.command, answer));
            checked.map_err(|error| Some(of_store(error)))
        });
        let verb = transmit.command.verb();
        self.observers.request(key, verb, transmit.sent, &answer);
        answer
    }
}

impl PushSink for Session {
    fn push(&self, push: Push) {
        if let Push::Reset = push {
            self.observers.each(|observer| observer.reconnected());
        }
        let homes = match (&push, push.claim()) {
            (Push::Changed { key }, _) | (_, Some((key, _))) => {
                self.keys.find(key).into_iter().collect()
            }
            _ => self.keys.all(),
        };
        for home in homes {
            if matches!(push, Push::Changed { .. } | Push::Reset) {
                home.wake_watchers();
            }
            let (_, due, _) = self.apply(&home, None, |machine, now| match &push {
                Push::Disconnected => machine.handle_lost_connection(now),
                Push::Reset => machine.handle_reconnection(now),
                Push::Changed { .. } => {}
                push => machine.handle_push(now, push),
            });
            // The driver runs while any deadline is listed.
            if due.is_some_and(|due| due.0 < self.wake_at.load(Ordering::SeqCst)) {
                self.wake.notify_one();
            }
        }
    }
}

/// Refuses an answer to another command: it would pass for a claim that is gone, and others would be
/// made in its place for ever.
fn check_answer(to: &Command, answer: Answer) -> Result<Answer, StoreError> {
    match to {
        Command::Claim(_) => drop(check_reply::<ClaimReply>(answer.reply, "a claim")?),
        Command::Renew(_) => drop(check_reply::<RenewReply>(answer.reply, "a renewal")?),
        Command::Release(_) => drop(check_reply::<ReleaseReply>(answer.reply, "a release")?),
        // No claim sends others.
        _ => {}
    }
    Ok(answer)
}

/// The error of a store. Only its client says that a key did not become free: a store that runs out
/// of time leaves the outcome unknown.
fn of_store(error: StoreError) -> StoreError {
    match error.kind() {
        ErrorKind::Timeout => error.into_unavailable(),
        _ => error,
    }
}

/// That the store gave no answer within the operation time-out.
pub(crate) fn unanswered(limit: Duration) -> StoreError {
    no_answer(&format!("{}, the operation time-out", written(limit)))
}

/// That it gave none within a limit, which says what it is.
fn no_answer(limit: &str) -> StoreError {
    let message = format!("the store gave no answer within {limit}");
    StoreError::new(ErrorKind::Unavailable, message)
        .with_hint("check that it is running and reachable")
}

pub(crate) use leasehold_store::random::{random_u64, random_u128};
