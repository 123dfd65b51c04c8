//! A claim in its caller's hands; dropping it leaves in the background.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Change, ChangeId, Changed, ClaimId, ClaimMachine, ClaimNumber, End, Failure, GRACE, Key,
    Moment, Phase, Transmit, written,
};

use super::claim_slot::{Carried, ClaimSlot};
use super::keys::KeySlot;
use super::request::AcquireRequest;
use super::shutdown::under_way;
use super::{Machine, Session};
use crate::background::wait_elsewhere;
use crate::clock;
use crate::error::StoreError;
use crate::sync::{Ordering, timeout};

/// One claim, owned by its caller. When this is dropped, the claim is released in the background.
pub(crate) struct ClaimHandle {
    pub(crate) session: Arc<Session>,
    home: Arc<KeySlot>,
    /// What is seen of it.
    pub(crate) slot: Arc<ClaimSlot>,
    /// Whether its owner may claim the key again.
    pub(crate) reentrant: bool,
    /// How often a claim of its call had lost its place before.
    pub(crate) rejoined: u32,
}

impl ClaimHandle {
    /// A claim that is not asked for yet, as `begin` puts it into the machine of its key.
    pub(super) fn new(
        session: &Arc<Session>,
        request: &AcquireRequest,
        tells_position: bool,
        begin: impl FnOnce(&mut Machine, ClaimNumber, Arc<ClaimSlot>, Moment),
    ) -> Self {
        let (home, slot) = session.keys.begin(&request.key, |home, state| {
            let number = session.keys.numbers.fetch_add(1, Ordering::Relaxed) + 1;
            let number = ClaimNumber(number);
            let slot = ClaimSlot::new(number, request.mode, session.process, tells_position);
            let slot = Arc::new(slot);
            begin(&mut state.machine, number, slot.clone(), clock::now());
            (home.clone(), slot)
        });
        Self {
            session: session.clone(),
            home,
            slot,
            reentrant: request.secret.is_some(),
            rejoined: 0,
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.home.key
    }

    /// Its id at the store, and how often that was replaced: for its caller, who may tell others.
    pub(crate) fn identity(&self) -> (ClaimId, u64) {
        self.with(|claim, _| {
            let (id, version) = claim.expose();
            (id.clone(), version)
        })
    }

    /// Hands the lease to its caller, who may begin to work: nobody else has to know.
    pub(crate) fn deliver(&self) {
        let (mut state, now) = (self.home.lock(), clock::now());
        let number = self.slot.number;
        state.machine.update(now, number, ClaimMachine::deliver);
    }

    /// Changes the claim, and what that means to others.
    #[allow(
        clippy::expect_used,
        reason = "its machine keeps a claim while its handle lives"
    )]
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut ClaimMachine, Moment) -> T) -> T {
        let number = self.slot.number;
        let changed = self.session.change(&self.home, None, |machine, now| {
            machine.update(now, number, |claim| change(claim, now))
        });
        changed.expect("a claim with a handle")
    }

    /// Sends the claim's requests, in this task, until `done` returns a value. `begin` is called
    /// once before: it may request a change. `done` hears of that change, and whether `limit` is
    /// over: it is called again at that time at the latest.
    ///
    /// Dropping the future leaves the rest to the client's driver.
    pub(super) async fn drive<T>(
        &self,
        limit: Option<Duration>,
        begin: impl FnOnce(&mut ClaimMachine, Moment) -> Option<ChangeId>,
        mut done: impl FnMut(&mut ClaimMachine, Moment, Option<ChangeId>, bool) -> Option<T>,
    ) -> T {
        let _elsewhere = wait_elsewhere(&self.session.runtime);
        let mut driving = Driving {
            handle: self,
            until: None,
            change: None,
            sending: None,
            over: false,
        };
        let (mut begin, mut answered) = (Some(begin), None);
        loop {
            // From before the look on, so that no change falls between.
            let changed = self.slot.changed();
            let due = match driving.step(limit, answered.take(), begin.take(), &mut done) {
                Ok(result) => return result,
                Err(due) => due,
            };
            if let Some(sending) = &driving.sending {
                // It need not be kept while the answer is under way.
                drop(changed);
                let answer = self.session.carry(&self.home.key, sending).await;
                answered = driving.sending.take().map(|sent| (sent, answer));
            } else if let Some(due) = due {
                timeout(due.since(clock::now()), changed).await.ok();
            } else {
                changed.await;
            }
        }
    }

    /// Returns the request to send now, to send it together with others.
    ///
    /// # Errors
    /// How it ended, if it has.
    pub(super) fn poll_transmit(&self) -> Result<Option<Transmit>, End> {
        self.with(|claim, now| {
            claim.handle_timeout(now);
            match claim.end() {
                Some(end) => Err(end),
                None => Ok(claim.poll_transmit(now, || None)),
            }
        })
    }

    /// What came of it.
    pub(super) fn answer(&self, to: &Transmit, answer: Carried) {
        let slot = &self.slot;
        self.session.change(&self.home, None, |machine, now| {
            machine.handle_answer(now, slot.number, to, slot.note(to, answer));
        });
    }

    /// Changes the lease; returns when that was answered, or could not be in time.
    pub(crate) async fn change(&self, change: Change) -> Changed {
        self.settled(|claim, now| claim.change(change, now)).await
    }

    /// Ends the validity, makes sure that the claim has one id for a whole TTL from now, and
    /// leaves it at the store for another client.
    pub(crate) async fn hand_over(&self) -> Changed {
        let settled = self.settled(ClaimMachine::hand_over).await;
        if settled == Changed::Done {
            self.with(|claim, _| claim.forget());
        }
        settled
    }

    /// Requests a change of the lease, and waits for the result. It also sends the first request,
    /// which the client's driver would send otherwise.
    async fn settled(&self, want: impl FnOnce(&mut ClaimMachine, Moment) -> ChangeId) -> Changed {
        let begin = |claim: &mut ClaimMachine, now| Some(want(claim, now));
        // The driver may have sent it and have ended with its runtime: then no answer comes.
        let limit = self.session.settings.operation_timeout + GRACE;
        let changed = self.drive(Some(limit), begin, |claim, _, change, is_late| {
            let changed = claim.changed(change?);
            changed.or_else(|| is_late.then_some(Changed::Unanswered))
        });
        changed.await
    }

    /// Releases it now. If no answer arrives, or the future is dropped, the release continues in
    /// the background.
    ///
    /// Says whether the lease was held up to then.
    pub(crate) async fn release(&self) -> Result<bool, StoreError> {
        self.session.check_caller()?;
        let _under_way = under_way(&*self.session, |it| &it.under_way);
        let (limit, began) = (self.session.settings.operation_timeout, clock::now());
        let begin = |claim: &mut ClaimMachine, now| {
            self.slot.give_back(now);
            claim.release(now);
            None
        };
        let released = self.drive(Some(limit), begin, |claim, _, _, is_late| {
            let in_vain = claim.phase() == Phase::Over || claim.is_refused() || is_late;
            let released = claim.released().map(Some);
            released.or_else(|| in_vain.then_some(None))
        });
        let released = released.await;
        let silent = || match clock::now().since(began) {
            // It has expired before.
            took if took < limit => super::no_answer(&written(took)),
            _ => super::unanswered(limit),
        };
        released.ok_or_else(|| self.last_error(silent))
    }

    /// Why the store could not be asked.
    pub(crate) fn last_error(&self, silent: impl FnOnce() -> StoreError) -> StoreError {
        self.slot.said().unwrap_or_else(silent)
    }
}

impl Drop for ClaimHandle {
    fn drop(&mut self) {
        if self.session.is_inherited() {
            return;
        }
        let slot = &self.slot;
        self.session.change(&self.home, None, |machine, now| {
            // One that was released has left already, or is on its way out.
            slot.give_back(now);
            machine.update(now, slot.number, |claim| claim.leave(now));
            machine.detach(now, slot.number);
        });
    }
}

/// A task that drives its claim. If it stops before it is done, its request counts as not
/// answered, and nobody waits for its change any more.
struct Driving<'a> {
    handle: &'a ClaimHandle,
    /// When its limit is over.
    until: Option<Moment>,
    change: Option<ChangeId>,
    sending: Option<Transmit>,
    over: bool,
}

impl Driving<'_> {
    /// Returns what it waited for, once that has come. Else `sending` is to be sent now, or there
    /// is nothing to do before a change, or the time that is the error.
    fn step<T>(
        &mut self,
        limit: Option<Duration>,
        answered: Option<(Transmit, Carried)>,
        begin: Option<impl FnOnce(&mut ClaimMachine, Moment) -> Option<ChangeId>>,
        done: &mut impl FnMut(&mut ClaimMachine, Moment, Option<ChangeId>, bool) -> Option<T>,
    ) -> Result<T, Option<Moment>> {
        let handle = self.handle;
        let (session, slot, number) = (&handle.session, &handle.slot, handle.slot.number);
        // Who only looks need not be woken by that.
        let own = answered.is_none().then_some(number);
        session.change(&handle.home, own, |machine, now| {
            if begin.is_some() {
                machine.set_driven(now, number, true);
            }
            if let Some((sent, answer)) = answered {
                machine.handle_answer(now, number, &sent, slot.note(&sent, answer));
            }
            let step = machine.update(now, number, |claim| {
                claim.handle_timeout(now);
                if let Some(begin) = begin {
                    self.until = limit.map(|limit| now + limit);
                    self.change = begin(claim, now);
                }
                let left = self.until.map_or(Duration::MAX, |until| until.since(now));
                if let Some(result) = done(claim, now, self.change, left.is_zero()) {
                    if let Some(change) = self.change {
                        claim.drop_change(change);
                    }
                    return Ok(result);
                }
                self.sending = claim.poll_transmit(now, || session.ids.next().ok());
                if let Some(sending) = &mut self.sending {
                    sending.limit = sending.limit.min(left);
                }
                Err(claim.poll_timeout().into_iter().chain(self.until).min())
            });
            if matches!(step, Some(Ok(_))) {
                machine.set_driven(now, number, false);
                self.over = true;
            }
            step.unwrap_or(Err(None))
        })
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        let (handle, number) = (self.handle, self.handle.slot.number);
        if !self.over && !handle.session.is_inherited() {
            handle.session.change(&handle.home, None, |machine, now| {
                machine.set_driven(now, number, false);
                if let Some(sent) = &self.sending {
                    machine.handle_answer(now, number, sent, Err(Failure::Unanswered));
                }
                if let Some(change) = self.change {
                    machine.update(now, number, |claim| claim.drop_change(change));
                }
            });
        }
    }
}
