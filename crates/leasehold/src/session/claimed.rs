//! A claim in its caller's hands.

use std::fmt;
use std::sync::Arc;

use leasehold_core::{Change, ChangeId, Changed, ClaimId, Key, Life, Moment, Transmit};

use super::Session;
use super::closing::UnderWay;
use super::entry::Carried;
use super::own_id::OwnId;
use super::registry::{EntryId, Step};
use super::signal::Signal;
use super::wish::Wish;
use crate::clock;
use crate::error::StoreError;
use crate::sync::{sleep, timeout};

/// One claim, as long as its caller wants it: whatever is left of it when this is dropped
/// leaves in the background.
pub(crate) struct Claimed {
    session: Arc<Session>,
    entry: EntryId,
    key: Key,
    signal: Arc<Signal>,
}

impl Claimed {
    /// A claim that is not asked for yet.
    pub(super) fn new(
        session: &Arc<Session>,
        wish: &Wish,
        life: Life,
        own: OwnId,
        signal: Signal,
    ) -> Self {
        let (key, signal) = (&wish.key, Arc::new(signal));
        let (known, shown) = (key.clone(), signal.clone());
        let entry = session.lock().insert(known, wish.mode, life, own, shown);
        Self {
            session: session.clone(),
            entry,
            key: key.clone(),
            signal,
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// Its id at the store, and how often that was replaced.
    pub(crate) fn identity(&self) -> (ClaimId, u64) {
        self.with(|life, _| {
            let (id, version) = life.identity();
            (id.clone(), version)
        })
    }

    /// No other claim of the client gets this id while this one may have it.
    pub(crate) fn keep_id(&self, own: OwnId) {
        self.session.lock().keep_id(self.entry, own);
    }

    /// Its caller gets it now, and may begin to work.
    pub(crate) fn hand_out(&self) {
        self.with(|life, _| life.hand_out());
    }

    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Life, Moment) -> T) -> T {
        self.session
            .with_registry(|registry, now| registry.with(self.entry, now, change))
    }

    /// Polls the claim and sends what it wants sent, in this task, until `done` has an answer.
    ///
    /// Dropping the future leaves the rest to the watchdog.
    pub(super) async fn drive<T>(&self, mut done: impl FnMut(&mut Life, Moment) -> Option<T>) -> T {
        let mut driving = Driving {
            claimed: self,
            sending: None,
            over: false,
        };
        let mut begins = true;
        let mut step = || {
            let begins = std::mem::take(&mut begins);
            self.session
                .with_registry(|registry, now| registry.step(self.entry, now, begins, &mut done))
        };
        loop {
            let mut next = step();
            if let Step::Wait(_) = next {
                let changed = self.signal.changed();
                tokio::pin!(changed);
                // Enlisted before looking again, so that no change falls between.
                changed.as_mut().enable();
                next = step();
                if let Step::Wait(due) = next {
                    let left = due.map(|due| due.since(clock::now()));
                    tokio::select! {
                        () = changed => {}
                        () = sleep(left.unwrap_or_default()), if left.is_some() => {}
                    }
                    continue;
                }
            }
            match next {
                Step::Done(result) => {
                    driving.over = true;
                    return result;
                }
                Step::Send(transmit) => {
                    let sending = driving.sending.insert(transmit);
                    let answer = self.session.carry(&self.key, sending).await;
                    if let Some(sent) = driving.sending.take() {
                        self.answer(&sent, answer);
                    }
                }
                Step::Wait(_) => {}
            }
        }
    }

    /// What it wants sent now, for whoever sends it together with others.
    pub(super) fn poll_transmit(&self) -> Option<Transmit> {
        let session = &self.session;
        let step = session.with_registry(|registry, now| {
            let step = registry.step::<()>(self.entry, now, true, &mut |_, _| None);
            registry.abandon(self.entry, None, now);
            step
        });
        match step {
            Step::Send(transmit) => Some(transmit),
            _ => None,
        }
    }

    /// What came of it.
    pub(super) fn answer(&self, to: &Transmit, answer: Carried) {
        self.session
            .with_registry(|registry, now| registry.answer(self.entry, to, answer, now));
    }

    /// Changes the lease; returns when that was answered, or could not be in time.
    pub(crate) async fn change(&self, change: Change) -> Changed {
        self.settled(|life, now| life.change(change, now)).await
    }

    /// Ends the validity, sees that the claim stands under one id for a whole TTL from now,
    /// and leaves it at the store for somebody else.
    pub(crate) async fn hand_over(&self) -> Changed {
        let settled = self.settled(Life::hand_over).await;
        if settled == Changed::Done {
            self.with(|life, _| life.forget());
        }
        settled
    }

    /// Wants something of the lease, and waits for what comes of it. In one step with its first
    /// request, which the watchdog would send otherwise.
    async fn settled(&self, want: impl FnOnce(&mut Life, Moment) -> ChangeId) -> Changed {
        let mut want = Some(want);
        let mut wanted = Wanted {
            claimed: self,
            change: None,
        };
        let changed = self
            .drive(|life, now| {
                if let Some(want) = want.take() {
                    wanted.change = Some(want(life, now));
                }
                life.changed(wanted.change?)
            })
            .await;
        wanted.change = None;
        changed
    }

    /// Releases it now. If no answer comes, or the future is dropped, the background goes on.
    ///
    /// Says whether the lease was held up to then.
    pub(crate) async fn release(&self) -> Result<bool, StoreError> {
        let _under_way = UnderWay::new(&self.session);
        let limit = self.session.settings.operation_timeout;
        let mut begun = false;
        let released = self.drive(|life, now| {
            if !std::mem::replace(&mut begun, true) {
                life.release(now);
            }
            let refused = life.is_refused().then_some(None);
            life.released().map(Some).or(refused)
        });
        let released = timeout(limit, released).await.ok().flatten();
        released.ok_or_else(|| self.last_error(limit))
    }

    /// Why the store could not be asked.
    pub(crate) fn last_error(&self, limit: std::time::Duration) -> StoreError {
        let error = self.signal.last_error();
        error.unwrap_or_else(|| super::unanswered(limit))
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.signal.end();
        self.session
            .with_registry(|registry, now| registry.let_go(self.entry, now));
    }
}

impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claimed")
            .field("key", &self.key)
            .field("entry", &self.entry)
            .finish_non_exhaustive()
    }
}

/// A task that drives its claim. If it stops before it is done, its request counts as not
/// answered.
struct Driving<'a> {
    claimed: &'a Claimed,
    sending: Option<Transmit>,
    over: bool,
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        if !self.over {
            let Claimed { session, entry, .. } = self.claimed;
            session.with_registry(|registry, now| {
                registry.abandon(*entry, self.sending.as_ref(), now);
            });
        }
    }
}

/// A change that somebody waits for.
struct Wanted<'a> {
    claimed: &'a Claimed,
    change: Option<ChangeId>,
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        if let Some(change) = self.change {
            self.claimed.with(|life, _| life.drop_change(change));
        }
    }
}
