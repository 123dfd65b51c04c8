//! A claim that its caller owns; dropping it leaves in the background.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Change, ChangeId, Changed, ClaimId, Key, Life, Moment, Transmit};

use super::Session;
use super::closing::UnderWay;
use super::live::LiveClaim;
use super::state::{Carried, State, Step};
use super::wish::Wish;
use crate::clock;
use crate::error::StoreError;
use crate::sync::{Ordering, timeout};

/// One claim, owned by its caller. When this is dropped, the claim is released in the background.
pub(crate) struct Claimed {
    session: Arc<Session>,
    claim: Arc<LiveClaim>,
    /// Its caller has released it.
    released: bool,
}

impl Claimed {
    /// A claim that is not asked for yet: the registry knows it from its first step.
    pub(super) fn new(
        session: &Arc<Session>,
        wish: &Wish,
        life: Life,
        tells_position: bool,
    ) -> Self {
        let number = session.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let hash = session.key_hasher.hash_one(&wish.key);
        let claim = LiveClaim::new(wish, hash, life, (number, session.process), tells_position);
        Self {
            session: session.clone(),
            claim: Arc::new(claim),
            released: false,
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn key(&self) -> &Key {
        &self.claim.key
    }

    pub(crate) fn claim(&self) -> &Arc<LiveClaim> {
        &self.claim
    }

    /// Its id at the store, and how often that was replaced: for its caller, who may tell others.
    pub(crate) fn identity(&self) -> (ClaimId, u64) {
        let mut state = self.claim.lock();
        let (id, version) = state.life.expose();
        (id.clone(), version)
    }

    /// Hands the lease to its caller, who may begin to work.
    pub(crate) fn hand_out(&self) {
        self.claim.lock().life.hand_out();
    }

    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Life, Moment) -> T) -> T {
        let change = |state: &mut State, now| change(&mut state.life, now);
        self.session.change(&self.claim, change)
    }

    /// Polls the claim and sends its requests, in this task, until `done` returns a value. `done`
    /// is checked again after `limit` at the latest.
    ///
    /// Dropping the future leaves the rest to the watchdog.
    pub(super) async fn drive<T>(
        &self,
        limit: Option<Duration>,
        mut done: impl FnMut(&mut State, Moment) -> Option<T>,
    ) -> T {
        let Self { session, claim, .. } = self;
        let mut driving = Driving {
            claimed: self,
            sending: None,
            over: false,
        };
        let mut step = |answered: Option<(Transmit, Carried)>, begins: bool| {
            session.change_of(claim, answered.is_some(), |state, now| {
                if begins {
                    state.begin_to_drive();
                }
                if let Some((sent, answer)) = answered {
                    state.answer(&sent, answer, now);
                }
                state.step(now, &session.ids, &mut done)
            })
        };
        let mut next = step(None, true);
        let mut began = None;
        loop {
            match next {
                Step::Done(result) => {
                    driving.over = true;
                    return result;
                }
                Step::Send(transmit) => {
                    let sending = driving.sending.insert(transmit);
                    let began = *began.get_or_insert(sending.sent);
                    if let Some(limit) = limit {
                        let left = (began + limit).since(sending.sent);
                        sending.limit = sending.limit.min(left);
                    }
                    let answer = session.carry(&claim.key, sending).await;
                    let answered = driving.sending.take().map(|sent| (sent, answer));
                    next = step(answered, false);
                }
                Step::Wait(_) => {
                    let changed = claim.changed();
                    tokio::pin!(changed);
                    // Enlisted before looking again, so that no change falls between.
                    changed.as_mut().enable();
                    next = step(None, false);
                    if let Step::Wait(due) = next {
                        let now = clock::now();
                        let late = limit.map(|limit| *began.get_or_insert(now) + limit);
                        let due = due.into_iter().chain(late).min();
                        wait(changed, due.map(|due| due.since(now))).await;
                        next = step(None, false);
                    }
                }
            }
        }
    }

    /// Returns the request to send now, to send it together with others.
    pub(super) fn poll_transmit(&self) -> Option<Transmit> {
        let Self { session, claim, .. } = self;
        session.change(claim, |state, now| {
            state.life.handle_timeout(now);
            state.poll_transmit(now, &session.ids)
        })
    }

    /// What came of it.
    pub(super) fn answer(&self, to: &Transmit, answer: Carried) {
        self.session
            .change(&self.claim, |state, now| state.answer(to, answer, now));
    }

    /// Changes the lease; returns when that was answered, or could not be in time.
    pub(crate) async fn change(&self, change: Change) -> Changed {
        self.settled(|life, now| life.change(change, now)).await
    }

    /// Ends the validity, makes sure that the claim has one id for a whole TTL from now, and
    /// leaves it at the store for another client.
    pub(crate) async fn hand_over(&self) -> Changed {
        let settled = self.settled(Life::hand_over).await;
        if settled == Changed::Done {
            self.with(|life, _| life.forget());
        }
        settled
    }

    /// Requests a change of the lease, and waits for the result. It also sends the first request,
    /// which the watchdog would send otherwise.
    async fn settled(&self, want: impl FnOnce(&mut Life, Moment) -> ChangeId) -> Changed {
        let mut want = Some(want);
        let mut wanted = Wanted {
            claimed: self,
            change: None,
        };
        let changed = self.drive(None, |State { life, .. }, now| {
            if let Some(want) = want.take() {
                wanted.change = Some(want(life, now));
            }
            life.changed(wanted.change?)
        });
        let changed = changed.await;
        wanted.change = None;
        changed
    }

    /// Releases it now. If no answer arrives, or the future is dropped, the release continues in
    /// the background.
    ///
    /// Says whether the lease was held up to then.
    pub(crate) async fn release(&mut self) -> Result<bool, StoreError> {
        self.session.check_caller()?;
        let _under_way = UnderWay::new(&self.session);
        let limit = self.session.settings.operation_timeout;
        let mut begun = None;
        let released = self.drive(Some(limit), |state, now| {
            let begun = *begun.get_or_insert_with(|| {
                state.release(&self.claim, now);
                now
            });
            let in_vain = state.life.is_refused() || now.since(begun) >= limit;
            let released = state.life.released().map(Some);
            released.or_else(|| in_vain.then_some(None))
        });
        let released = released.await;
        self.released = true;
        released.ok_or_else(|| self.last_error(|| super::unanswered(limit)))
    }

    /// Why the store could not be asked.
    pub(crate) fn last_error(&self, silent: impl FnOnce() -> StoreError) -> StoreError {
        let said = self.claim.said();
        said.unwrap_or_else(silent)
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if !self.released && !self.session.is_inherited() {
            let claim = &self.claim;
            self.session
                .change(claim, |state, now| state.let_go(claim, now));
        }
    }
}

impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claimed")
            .field("key", self.key())
            .field("number", &self.claim.number)
            .finish_non_exhaustive()
    }
}

/// Waits for a change, for at most `limit`.
async fn wait(changed: impl Future<Output = ()>, limit: Option<Duration>) {
    match limit {
        Some(limit) => drop(timeout(limit, changed).await),
        None => changed.await,
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
        let Claimed { session, claim, .. } = self.claimed;
        if !self.over && !session.is_inherited() {
            session.change(claim, |state, now| {
                state.abandon(self.sending.as_ref(), now);
            });
        }
    }
}

/// A change for whose result a caller waits.
struct Wanted<'a> {
    claimed: &'a Claimed,
    change: Option<ChangeId>,
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        if let Some(change) = self.change
            && !self.claimed.session.is_inherited()
        {
            self.claimed.with(|life, _| life.drop_change(change));
        }
    }
}
