//! One claim of the client, shared by the tasks that wait for it or hold its lease.

use leasehold_core::{Fact, Key, Life, Loss, Mode, Moment, Phase, Standpoint, Token};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tracing::Span;

use super::state::{Listed, State};
use super::timing::LONGEST_SLEEP;
use super::wish::Wish;
use crate::clock;
use crate::error::StoreError;
use crate::fork::Process;
use crate::observe::ObservedClaim;
use crate::store::Acknowledged;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, PoisonError, sleep_anywhere};

/// Tells the claims of one client apart.
pub(super) type Number = u64;

/// A claim, as long as anything of it may be left.
///
/// Its tasks, the watchdog and pushes change it by [`Session::change`](super::Session), each
/// under the claim's own lock.
#[derive(Debug)]
pub(crate) struct LiveClaim {
    pub(super) key: Key,
    /// By which the registry finds claims on the key.
    pub(super) key_hash: u64,
    mode: Mode,
    pub(super) number: Number,
    /// Whether the caller wants progress for each position in the queue.
    tells_position: bool,
    process: Process,
    changed: Notify,
    /// Until when the lease may be relied on; zero once lost.
    valid_until: AtomicU64,
    /// The token of the grant: it rises when the claim's hold is adopted.
    token: AtomicU64,
    state: Mutex<State>,
}

/// What happened to a waiting claim.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Progress {
    Over,
    Position(u64),
}

impl LiveClaim {
    /// A claim that is not asked for yet.
    pub(super) fn new(
        wish: &Wish,
        key_hash: u64,
        life: Life,
        (number, process): (Number, Process),
        tells_position: bool,
    ) -> Self {
        Self {
            key: wish.key.clone(),
            key_hash,
            mode: wish.mode,
            number,
            tells_position,
            process,
            changed: Notify::new(),
            valid_until: AtomicU64::new(0),
            token: AtomicU64::new(0),
            state: Mutex::new(State::new(life)),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As observers see it.
    pub(super) fn observed(&self) -> ObservedClaim {
        ObservedClaim {
            key: self.key.clone(),
            mode: self.mode,
            number: self.number,
        }
    }

    /// Called after each change: wakes its tasks and reports facts. Returns the new entry for the
    /// registry. `wakes`: also wakes its driver.
    pub(super) fn show(
        &self,
        state: &mut State,
        now: Moment,
        wakes: bool,
        tell: impl FnMut(Fact, Span),
    ) -> Listed {
        let life = &state.life;
        if !state.given_back && state.lost.is_none() {
            self.valid_until
                .store(life.valid_until().0, Ordering::Release);
        }
        if let Some(token) = life.token() {
            self.token.fetch_max(token.0, Ordering::AcqRel);
        }
        let position = life.position().filter(|_| self.tells_position);
        let position = position.unwrap_or(state.position);
        let seen = (life.standpoint(), position);
        let listing = state.listing();
        let was = (state.standpoint, state.position);
        let moved = seen != was || listing.phase != state.listed.phase;
        (state.standpoint, state.position) = seen;
        state.told.look(&state.life, now, tell);
        if moved || wakes && state.driven > 0 {
            self.changed.notify_waiters();
        }
        listing
    }

    /// Whether the claim is that of the process from which this one was forked. There its lock may
    /// be held for ever: a thread that did so is not here.
    pub(super) fn is_inherited(&self) -> bool {
        self.process.has_forked()
    }

    /// The lease may be relied on: two comparisons, no lock.
    pub(crate) fn valid_until(&self) -> Moment {
        if self.is_inherited() {
            return Moment(0);
        }
        Moment(self.valid_until.load(Ordering::Acquire))
    }

    /// The lease is not to be relied on any more.
    pub(super) fn distrust(&self) {
        self.valid_until.store(0, Ordering::Release);
    }

    pub(crate) fn token(&self) -> Token {
        Token(self.token.load(Ordering::Acquire))
    }

    pub(crate) fn standpoint(&self) -> Standpoint {
        if self.is_inherited() {
            return Standpoint::Lost(Loss::Forked);
        }
        self.lock().standpoint(self, clock::now)
    }

    /// What completes with the next change.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Why the lease is lost, if it is. A released lease is not lost.
    pub(crate) fn loss(&self) -> Option<Loss> {
        if self.is_inherited() {
            return Some(Loss::Forked);
        }
        let state = self.lock();
        match state.standpoint(self, clock::now) {
            Standpoint::Lost(loss) if !state.given_back => Some(loss),
            _ => None,
        }
    }

    /// Waits until the lease is lost or released.
    pub(crate) async fn over(&self) -> Option<Loss> {
        if self.is_inherited() {
            return Some(Loss::Forked);
        }
        let given_back = self.wait_for(|state| state.given_back.then_some(()));
        tokio::select! {
            biased;
            () = given_back => None,
            loss = self.lost() => Some(loss),
        }
    }

    /// Why the last request came to nothing; `None` if it was answered.
    pub(crate) fn last_error(&self) -> Option<StoreError> {
        if self.is_inherited() {
            return None;
        }
        self.lock().last_error()
    }

    /// The same, as the store or the connection said it.
    pub(super) fn said(&self) -> Option<StoreError> {
        if self.is_inherited() {
            return None;
        }
        self.lock().said()
    }

    /// Who else has the grant, or its last renewal.
    pub(crate) fn acknowledged(&self) -> Option<Acknowledged> {
        if self.is_inherited() {
            return None;
        }
        self.lock().acknowledged.as_deref().copied()
    }

    /// Waits until a claim that is on its way out has left.
    pub(super) async fn left(&self) {
        self.wait_for(|state| (state.life.phase() == Phase::Over).then_some(()))
            .await;
    }

    /// Waits for the next of: the end of waiting in line, or a change of the position.
    pub(super) async fn next(&self, seen: u64) -> Progress {
        self.wait_for(|state| {
            let waits = state.life.phase() == Phase::Waiting;
            let moved = || (state.position != seen).then_some(Progress::Position(state.position));
            if waits { moved() } else { Some(Progress::Over) }
        })
        .await
    }

    /// Waits until the lease is lost: until it is reported, or until its validity ends by the
    /// waiting task's clock. So it also completes if nothing renews the lease any more.
    pub(crate) async fn lost(&self) -> Loss {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
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
        if self.is_inherited() {
            return Some(Loss::Forked);
        }
        let mut state = self.lock();
        let Standpoint::Lost(loss) = state.standpoint(self, clock::now) else {
            return None;
        };
        if state.lost.replace(loss).is_none() {
            self.distrust();
            self.changed.notify_waiters();
        }
        Some(loss)
    }

    async fn wait_for<T>(&self, look: impl Fn(&State) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Enlist before looking, so that no change falls between.
            changed.as_mut().enable();
            if let Some(found) = look(&self.lock()) {
                return found;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client may hold them by the hundred thousand.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_claim_is_small() {
        let bytes = size_of::<LiveClaim>();
        assert!(bytes <= 656, "{bytes}");
    }
}
