//! The shell around the core's machines: sends what they want sent, feeds them
//! what came of it, and wakes whoever waits.
//!
//! - [`Driver`]: what one client's handles share.
//! - `closing`: a client that takes no more claims, and how what is under way ends.
//! - `retry`: waiting where the store keeps no queue.
//! - `registry`: every claim of the client, and when each wants attention.
//! - `acknowledged`: what counts only once others have acknowledged it.
//! - `wish`: what is wanted of a key, and what was got.
//! - `acquire`: from "I want this key" to a lease.
//! - `acquire_all`: the same for several keys at once.
//! - `adopt`: from another process's lease to ours.
//! - `watchdog`: the one task that keeps all claims of the client.
//! - `signal`: what the watchdog tells the tasks that wait or hold.
//! - `subject`: which claim it is, while its id may change.
//! - `watches`: who wants to hear of a key without claiming it.

mod acknowledged;
pub(crate) mod acquire;
pub(crate) mod acquire_all;
pub(crate) mod adopt;
pub(crate) mod closing;
pub(crate) mod own_id;
pub(crate) mod registry;
pub(crate) mod retry;
pub(crate) mod signal;
pub(crate) mod subject;
mod watchdog;
pub(crate) mod watches;
pub(crate) mod wish;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Backoff, Key, Moment, Release, Renew, Reply};
use tokio::sync::Notify;

use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::ids::ClaimIds;
use crate::settings::Settings;
use crate::store::Answer;
use crate::store::{LockStore, Push, PushSink, Verbs as _};
use crate::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError, Runtime, sleep,
    timeout,
};
use closing::{Openness, UnderWay};
use own_id::{OwnId, OwnIds};
use registry::{Done, EntryId, Errand, Registry};
use subject::Subject;
use watches::Watches;

/// How much longer than its time to wait a call may take: so long it waits for the
/// store's answer to a first request, and for its own claims to leave.
const GRACE: Duration = Duration::from_millis(500);

/// What all handles, leases and tasks of one client share.
pub(crate) struct Driver {
    pub(crate) store: Arc<dyn LockStore>,
    pub(crate) settings: Settings,
    registry: Mutex<Registry>,
    /// Claims under way that are not registered yet.
    asking: AtomicUsize,
    /// When the watchdog means to wake next; zero while none runs.
    wake_at: AtomicU64,
    wake: Notify,
    /// Whether the inbox is open, or being opened.
    listening: AtomicBool,
    /// How often pushes may have been missed so far.
    resets: AtomicU64,
    openness: Openness,
    pub(crate) watches: Watches,
    turns: retry::Turns,
    ids: OwnIds,
    pub(crate) runtime: Runtime,
}

impl Driver {
    pub(crate) fn new(
        store: Arc<dyn LockStore>,
        settings: Settings,
        ids: ClaimIds,
        runtime: Runtime,
    ) -> Arc<Self> {
        let ids = OwnIds::new(ids);
        Arc::new(Self {
            store,
            settings,
            registry: Mutex::new(Registry::new(random_u64(), ids.clone())),
            ids,
            asking: AtomicUsize::new(0),
            wake_at: AtomicU64::new(0),
            wake: Notify::new(),
            listening: AtomicBool::new(false),
            resets: AtomicU64::new(0),
            openness: Openness::here(&runtime),
            watches: Watches::default(),
            turns: retry::Turns::default(),
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

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new claim id for `key`, which no other claim of this client has.
    pub(crate) async fn claim_id(&self, key: &Key) -> Result<OwnId, StoreError> {
        self.ids.next(key).await
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

    /// Gives a claim to the background: released until that is confirmed or the
    /// claim has lapsed. Never blocks.
    pub(crate) fn leave(self: &Arc<Self>, entry: Option<EntryId>, subject: Subject) {
        self.with_registry(|registry, now| {
            if let Some(entry) = entry {
                registry.remove(entry);
            }
            let until = now + subject.terms.ttl;
            registry.insert_leaving(subject, now, until);
        });
    }

    /// Stops keeping a claim, and releases it now. If no answer comes, or the
    /// future is dropped, the background goes on.
    ///
    /// Says whether the claim still held the key.
    pub(crate) async fn release(
        self: &Arc<Self>,
        entry: Option<EntryId>,
        subject: Subject,
    ) -> Result<bool, StoreError> {
        let _under_way = UnderWay::new(self);
        if let Some(entry) = entry {
            self.with_registry(|registry, _| registry.remove(entry));
        }
        let departure = Departure::new(self, subject.clone());
        let limit = self.settings.operation_timeout;
        let mut pause = Backoff::new(Duration::from_millis(10), limit / 4, random_u64());
        let mut last = unanswered(limit);
        let mut sends = 0;
        let ask = async {
            loop {
                sends += 1;
                match self.release_once(&subject).await {
                    Err(error) if error.kind() == ErrorKind::Unavailable => last = error,
                    answer => return answer,
                }
                // No answer, outcome unknown: a release may be repeated.
                sleep(pause.pause()).await;
            }
        };
        let Ok(answer) = timeout(limit, ask).await else {
            return Err(last);
        };
        let reply = answer?.reply;
        departure.confirmed();
        Ok(match reply {
            // Our first release may have done its work, and its answer was lost.
            Reply::Absent => sends > 1,
            reply => matches!(reply, Reply::Released { held: true }),
        })
    }

    /// One request to release a claim; two if its id may have been replaced.
    async fn release_once(&self, subject: &Subject) -> Result<Answer, StoreError> {
        let mut answers = Vec::new();
        for id in subject.ids() {
            let release = Release {
                id,
                hand_off: subject.terms.hand_off,
                settled: subject.settled,
                unused: !subject.was_used(),
            };
            answers.push(self.store.release(&subject.key, &release).await?);
        }
        let left = |answer: &Answer| matches!(answer.reply, Reply::Released { .. });
        let at = answers.iter().position(left).unwrap_or(0);
        Ok(answers.swap_remove(at))
    }

    /// Renews a lease now, and may change it. The answer raises its validity.
    pub(crate) async fn renew(
        self: &Arc<Self>,
        entry: EntryId,
        subject: &Subject,
        renew: Renew,
    ) -> Result<Reply, StoreError> {
        let asked = self.renew_held(&subject.key, renew.clone());
        let answer = self.told(entry, subject, &renew, asked).await?;
        answer.shortfall().map_or(Ok(answer.reply), Err)
    }

    /// The first renewal of a grant, which is acknowledged as a grant is.
    async fn confirm(
        self: &Arc<Self>,
        entry: EntryId,
        subject: &Subject,
        renew: Renew,
    ) -> Result<Answer, StoreError> {
        let asked = self.renew_granted(&subject.key, renew.clone());
        self.told(entry, subject, &renew, asked).await
    }

    /// Tells the registry what a renewal was answered.
    async fn told(
        self: &Arc<Self>,
        entry: EntryId,
        subject: &Subject,
        renew: &Renew,
        asked: impl Future<Output = Result<Answer, StoreError>>,
    ) -> Result<Answer, StoreError> {
        let sent = clock::now();
        // It must fail early enough to be repeated within the lease.
        let limit = self.settings.operation_timeout.min(subject.terms.ttl / 3);
        let answer = timeout(limit, asked).await;
        let result = answer.unwrap_or_else(|_| Err(unanswered(limit)));
        let done = Done {
            entry,
            errand: Errand::Renew(renew.clone()),
            sent,
            result: result.clone(),
        };
        self.with_registry(|registry, now| registry.complete(&done, now));
        result
    }

    /// Sees that a claim which nobody keeps any more stands under one id, for a
    /// whole TTL from now.
    pub(crate) async fn settle_identity(&self, subject: &Subject) -> Result<(), StoreError> {
        let limit = self.settings.operation_timeout;
        let mut pause = Backoff::new(Duration::from_millis(10), limit / 4, random_u64());
        let mut last = unanswered(limit);
        let ask = async {
            loop {
                let renew = subject.renewal(subject.terms.ttl);
                match self.store.renew(&subject.key, &renew).await {
                    Ok(answer) => match (answer.reply, &renew.rotate) {
                        (Reply::Standing(_), Some(rotate)) => {
                            subject.handle_rotated(&rotate.to);
                            return Ok(());
                        }
                        (Reply::Standing(_), None) => return Ok(()),
                        (Reply::Taken, _) => subject.handle_taken(),
                        _ => {
                            return Err(StoreError::new(
                                ErrorKind::Lost,
                                "the lease was lost: the store has no such claim any more",
                            ));
                        }
                    },
                    Err(error) if error.kind() == ErrorKind::Unavailable => last = error,
                    Err(error) => return Err(error),
                }
                sleep(pause.pause()).await;
            }
        };
        timeout(limit, ask).await.unwrap_or(Err(last))
    }

    /// How much of `ttl` a renewal of this lease may ask for now; without one,
    /// how much it asks for by itself.
    pub(crate) fn allowed(&self, entry: EntryId, ttl: Option<Duration>) -> Duration {
        self.lock().allowed(entry, clock::now(), ttl)
    }

    /// Stops keeping a claim that stays at the store: somebody else takes it.
    pub(crate) fn forsake(self: &Arc<Self>, entry: EntryId) {
        self.with_registry(|registry, _| registry.remove(entry));
    }
}

impl PushSink for Driver {
    fn push(&self, push: Push) {
        let now = clock::now();
        match &push {
            Push::Reset => {
                self.resets.fetch_add(1, Ordering::AcqRel);
                self.watches.wake_all();
            }
            Push::Changed { key } => return self.watches.wake(key),
            _ => {}
        }
        let due = {
            let mut registry = self.lock();
            // Under the lock: else a claim begins, its grant is put by, and is forgotten here.
            let asking = self.asking.load(Ordering::Acquire) > 0;
            if !asking {
                registry.forget_early_pushes();
            }
            registry.handle_push(&push, now, asking);
            registry.next_due()
        };
        // The watchdog runs while anything is registered.
        if due.is_some_and(|due| due.0 < self.wake_at.load(Ordering::Acquire)) {
            self.wake.notify_one();
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// A claim that must not be left behind: unless confirmed, dropping it hands
/// the claim to the background.
pub(crate) struct Departure {
    driver: Arc<Driver>,
    subject: Subject,
    armed: bool,
}

impl Departure {
    pub(crate) fn new(driver: &Arc<Driver>, subject: Subject) -> Self {
        Self {
            driver: driver.clone(),
            subject,
            armed: true,
        }
    }

    /// Nothing is left at the store, or somebody else sees to it.
    pub(crate) fn confirmed(mut self) {
        self.armed = false;
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        if self.armed {
            self.driver.leave(None, self.subject.clone());
        }
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
