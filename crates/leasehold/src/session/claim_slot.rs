//! What the tasks that wait for a claim, or hold its lease, see of it.

use leasehold_core::{
    ClaimMachine, ClaimNumber, Command, Fact, Facts, Failure, LeaseState, Loss, Mode, Moment,
    Phase, Response, Token, Transmit, written,
};
use tokio::sync::Notify;
use tracing::Span;

use super::no_answer;
use super::timing::LONGEST_SLEEP;
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::fork::Process;
use crate::store::{Acknowledged, Answer};
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, lock, sleep_anywhere};

/// What came of a request: an answer, what the store or the connection said, or nothing in time.
pub(super) type Carried = Result<Answer, Option<StoreError>>;

/// What is seen of a claim, as long as anybody looks. It is updated under the lock of its key.
#[derive(Debug)]
pub(crate) struct ClaimSlot {
    pub(super) number: ClaimNumber,
    /// In which it was claimed.
    pub(super) mode: Mode,
    /// Whether the writer has become a reader.
    downgraded: AtomicBool,
    /// Whether the caller wants progress for each position in the queue.
    tells_position: bool,
    process: Process,
    changed: Notify,
    /// Until when the lease may be relied on; zero once lost.
    valid_until: AtomicU64,
    /// The token of the grant: it rises when the claim's hold is adopted.
    token: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    phase: Phase,
    state: Option<LeaseState>,
    position: u64,
    loss_at_end: Option<Loss>,
    facts: Facts,
    /// The span of the acquisition, until that is over: a span ends with its last handle.
    acquisition: Option<Box<Span>>,
    /// Its holder has released or dropped it.
    given_back: bool,
    /// The loss that was reported. It stays, since a caller may have stopped because of it.
    lost: Option<Loss>,
    trouble: Option<Box<Trouble>>,
    acknowledged: Option<Box<Acknowledged>>,
}

/// Why the last request came to nothing.
#[derive(Debug)]
struct Trouble {
    error: StoreError,
    /// Whether the store or the connection said so; else there was no answer.
    said: bool,
}

impl Seen {
    fn state(&self, valid_until: Moment, now: Moment) -> LeaseState {
        if let Some(loss) = self.lost {
            return LeaseState::Lost(loss);
        }
        match self.state.unwrap_or(LeaseState::Held) {
            // Time is up although nobody has noticed yet.
            LeaseState::Held | LeaseState::Unknown if now >= valid_until => {
                LeaseState::Lost(self.loss_at_end.unwrap_or(Loss::Unanswered))
            }
            known => known,
        }
    }
}

impl ClaimSlot {
    /// Of a claim that is not asked for yet.
    pub(super) fn new(
        number: ClaimNumber,
        mode: Mode,
        process: Process,
        tells_position: bool,
    ) -> Self {
        let acquisition = Span::current();
        Self {
            number,
            mode,
            downgraded: AtomicBool::new(false),
            tells_position,
            process,
            changed: Notify::new(),
            valid_until: AtomicU64::new(0),
            token: AtomicU64::new(0),
            seen: Mutex::new(Seen {
                phase: Phase::Over,
                state: None,
                position: 0,
                loss_at_end: None,
                facts: Facts::default(),
                acquisition: (!acquisition.is_none()).then(|| Box::new(acquisition)),
                given_back: false,
                lost: None,
                trouble: None,
                acknowledged: None,
            }),
        }
    }

    /// What is seen of it, unless the claim is that of the process from which this one was forked: there
    /// its lock may be held for ever, by a thread that is not here.
    fn here(&self) -> Option<MutexGuard<'_, Seen>> {
        (!self.process.has_forked()).then(|| lock(&self.seen))
    }

    /// Shows what has become of the claim: wakes its tasks and tells facts. `wakes`: also those
    /// that only drive it. Returns the phase that was shown before.
    pub(super) fn show(
        &self,
        claim: &ClaimMachine,
        now: Moment,
        wakes: bool,
        mut tell: impl FnMut(Fact, Span),
    ) -> Phase {
        let seen = &mut *lock(&self.seen);
        if !seen.given_back && seen.lost.is_none() {
            self.valid_until
                .store(claim.valid_until().0, Ordering::Release);
        }
        if let Some(token) = claim.token() {
            self.token.fetch_max(token.get(), Ordering::AcqRel);
        }
        let position = claim.position().filter(|_| self.tells_position);
        let position = position.unwrap_or(seen.position);
        let moves = std::mem::replace(&mut seen.position, position) != position;
        let is = (claim.phase(), claim.state());
        let was = (seen.phase, seen.state);
        (seen.phase, seen.state) = is;
        seen.loss_at_end = claim.loss_at_end();
        let acquisition = &mut seen.acquisition;
        // Without trouble, a caller has cancelled a renewal: no fact, unless the next one fails.
        let fails = is == (Phase::Held, Some(LeaseState::Unknown));
        if !fails || seen.trouble.is_some() {
            seen.facts.look(claim, now, |fact| {
                let span = acquisition.as_deref().cloned();
                if matches!(fact, Fact::Granted { .. } | Fact::Ended { .. }) {
                    *acquisition = None;
                }
                tell(fact, span.unwrap_or_else(Span::none));
            });
        }
        if is != was || moves || wakes {
            self.changed.notify_waiters();
        }
        was.0
    }

    /// Notes what came of a request, for those who ask why there is no lease.
    pub(super) fn note(&self, to: &Transmit, answer: Carried) -> Result<Response, Failure> {
        let mut seen = lock(&self.seen);
        match answer {
            Ok(answer) => {
                // That it could leave does not say why it was not granted.
                if !matches!(*to.command, Command::Release(_)) {
                    let shortfall = answer.shortfall();
                    seen.trouble = shortfall.map(|error| Box::new(Trouble { error, said: true }));
                }
                if let Some(acknowledged) = answer.acknowledged.filter(Acknowledged::is_enough) {
                    seen.acknowledged = Some(Box::new(acknowledged));
                }
                Ok(Response {
                    reply: answer.reply,
                    at: answer.at,
                    epoch: answer.epoch,
                    enough: answer.acknowledged.as_ref().map(Acknowledged::is_enough),
                })
            }
            // That nothing came says less than what the store has said before.
            Err(None) => {
                seen.trouble.get_or_insert_with(|| {
                    let error = no_answer(&written(to.limit));
                    Box::new(Trouble { error, said: false })
                });
                Err(Failure::Unanswered)
            }
            Err(Some(error)) => {
                let failure = match error.kind() {
                    ErrorKind::Unavailable if error.retry_after.is_some() => Failure::NotNow,
                    ErrorKind::Unavailable => Failure::Unanswered,
                    _ => Failure::Refused,
                };
                seen.trouble = Some(Box::new(Trouble { error, said: true }));
                Err(failure)
            }
        }
    }

    /// Its caller gives it back: the lease is not to be relied on any more. What was lost before
    /// stays so.
    pub(super) fn give_back(&self, now: Moment) {
        let mut seen = lock(&self.seen);
        let state = seen.state(self.valid_until(), now);
        seen.given_back |= !matches!(state, LeaseState::Lost(_));
        self.valid_until.store(0, Ordering::Release);
    }

    /// The lease may be relied on: two comparisons, no lock.
    pub(crate) fn valid_until(&self) -> Moment {
        if self.process.has_forked() {
            return Moment(0);
        }
        Moment(self.valid_until.load(Ordering::Acquire))
    }

    /// Of the lease.
    pub(crate) fn mode(&self) -> Mode {
        match self.downgraded.load(Ordering::Acquire) {
            true => Mode::SHARED,
            false => self.mode,
        }
    }

    pub(crate) fn downgrade(&self) {
        self.downgraded.store(true, Ordering::Release);
    }

    pub(crate) fn token(&self) -> Token {
        Token::from(self.token.load(Ordering::Acquire))
    }

    pub(crate) fn state(&self) -> LeaseState {
        let Some(seen) = self.here() else {
            return LeaseState::Lost(Loss::Forked);
        };
        seen.state(self.valid_until(), clock::now())
    }

    /// Why the lease is lost, if it is. A released lease is not lost.
    pub(crate) fn loss(&self) -> Option<Loss> {
        let Some(seen) = self.here() else {
            return Some(Loss::Forked);
        };
        match seen.state(self.valid_until(), clock::now()) {
            LeaseState::Lost(loss) if !seen.given_back => Some(loss),
            _ => None,
        }
    }

    /// Why the last request came to nothing, as the store or the connection said it.
    pub(super) fn said(&self) -> Option<StoreError> {
        let seen = self.here()?;
        let trouble = seen.trouble.as_deref().filter(|it| it.said);
        trouble.map(|it| it.error.clone())
    }

    /// The same; also if there was no answer. `None` if it was answered.
    pub(crate) fn last_error(&self) -> Option<StoreError> {
        Some(self.here()?.trouble.as_deref()?.error.clone())
    }

    /// Who else has the grant, or its last renewal.
    pub(crate) fn acknowledged(&self) -> Option<Acknowledged> {
        self.here()?.acknowledged.as_deref().copied()
    }

    // ---- waiting ----

    /// What completes with the next change, also with one before it is polled.
    pub(super) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Waits until the lease is lost or released.
    pub(crate) async fn over(&self) -> Option<Loss> {
        if self.process.has_forked() {
            return Some(Loss::Forked);
        }
        tokio::select! {
            biased;
            () = self.wait_for(|seen| seen.given_back.then_some(())) => None,
            // Giving it back ends its validity, too, and may come between the two looks.
            _ = self.lost() => self.loss(),
        }
    }

    /// Waits until a claim that is on its way out has left.
    pub(super) async fn left(&self) {
        self.wait_for(|seen| (seen.phase == Phase::Over).then_some(()))
            .await;
    }

    /// Waits until a claim has another position in the queue than `known`. `None`: it does not
    /// stand there any more.
    pub(super) async fn moved(&self, known: u64) -> Option<u64> {
        self.wait_for(|seen| match seen.phase {
            Phase::Waiting => (seen.position != known).then_some(Some(seen.position)),
            _ => Some(None),
        })
        .await
    }

    /// Waits until the lease is lost: until it is reported, or until its validity ends by the
    /// waiting task's clock. So it also completes if nothing renews the lease any more.
    pub(crate) async fn lost(&self) -> Loss {
        loop {
            // From before the look on, so that no change falls between.
            let changed = self.changed.notified();
            if let Some(loss) = self.see_loss() {
                return loss;
            }
            // In pieces: timers stand still while the machine sleeps.
            let left = self.valid_until().since(clock::now());
            tokio::select! {
                () = changed => {}
                () = sleep_anywhere(left.min(LONGEST_SLEEP)) => {}
            }
        }
    }

    /// Returns whether it is lost. Once a loss was seen, it stays lost.
    fn see_loss(&self) -> Option<Loss> {
        let Some(mut seen) = self.here() else {
            return Some(Loss::Forked);
        };
        let LeaseState::Lost(loss) = seen.state(self.valid_until(), clock::now()) else {
            return None;
        };
        if seen.lost.replace(loss).is_none() {
            self.valid_until.store(0, Ordering::Release);
            self.changed.notify_waiters();
        }
        Some(loss)
    }

    async fn wait_for<T>(&self, look: impl Fn(&Seen) -> Option<T>) -> T {
        loop {
            // From before the look on, so that no change falls between.
            let changed = self.changed.notified();
            if let Some(found) = look(&lock(&self.seen)) {
                return found;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;

    /// Whoever looks before its tasks are woken finds its validity ended.
    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_given_back_is_not_lost() {
        let slot = ClaimSlot::new(ClaimNumber(1), Mode::EXCLUSIVE, Process::this(), false);
        let end = clock::now() + Duration::from_secs(60);
        slot.valid_until.store(end.0, Ordering::Release);
        let mut over = pin!(slot.over());
        assert_eq!(over.as_mut().now_or_never(), None);
        slot.give_back(clock::now());
        assert_eq!(over.await, None);
    }
}
