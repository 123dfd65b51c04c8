//! What a claim shows to the tasks that wait for it or hold its lease.

use std::time::Duration;

use leasehold_core::{Life, Loss, Moment, Phase, Standpoint, Token};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::timing::LONGEST_SLEEP;
use super::unanswered;
use crate::clock;
use crate::error::StoreError;
use crate::store::Acknowledged;
use crate::sync::{AtomicU64, Mutex, Ordering, PoisonError, sleep_anywhere};

/// One claim's state as others may read it, without a lock of the session.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    changed: Notify,
    /// Whether anybody wants to hear of places in the queue.
    tells_position: bool,
    /// Until when the lease may be relied on; zero once lost.
    valid_until: AtomicU64,
    /// The token of the grant: it rises when the claim's hold is adopted.
    token: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default, Clone)]
struct State {
    position: u64,
    phase: Option<Phase>,
    standpoint: Option<Standpoint>,
    /// Why the lease is lost if its validity ends and nobody has said anything.
    loss_at_end: Option<Loss>,
    /// Its holder has released or dropped it.
    given_back: bool,
    last_error: Option<StoreError>,
    acknowledged: Option<Acknowledged>,
}

impl State {
    fn loss_at_end(&self) -> Loss {
        self.loss_at_end.unwrap_or(Loss::Unanswered)
    }
}

impl Signal {
    pub(crate) fn new(tells_position: bool) -> Self {
        Self {
            tells_position,
            ..Self::default()
        }
    }

    /// The lease may be relied on: a comparison, no lock.
    pub(crate) fn valid_until(&self) -> Moment {
        Moment(self.valid_until.load(Ordering::Acquire))
    }

    pub(crate) fn token(&self) -> Token {
        Token(self.token.load(Ordering::Acquire))
    }

    pub(crate) fn standpoint(&self) -> Standpoint {
        self.read(|state| match state.standpoint.unwrap_or(Standpoint::Held) {
            // Time is up although nobody has noticed yet.
            Standpoint::Held | Standpoint::Unknown if clock::now() >= self.valid_until() => {
                Standpoint::Lost(state.loss_at_end())
            }
            known => known,
        })
    }

    /// The claim is as its life says.
    pub(super) fn show(&self, life: &Life) {
        let phase = life.phase();
        let position = life.position().filter(|_| self.tells_position);
        let moved = self.write(|state| {
            let position = position.unwrap_or(state.position);
            let moved = state.phase != Some(phase) || state.position != position;
            (state.phase, state.position) = (Some(phase), position);
            moved
        });
        if let Some(token) = life.token() {
            self.token.fetch_max(token.0, Ordering::AcqRel);
        }
        match life.standpoint() {
            Some(standpoint) if phase == Phase::Held => {
                self.change(standpoint, life.valid_until(), life.loss_at_end());
            }
            Some(Standpoint::Lost(loss)) => self.lose(loss),
            _ => {}
        }
        if moved {
            self.wake();
        }
    }

    /// What completes with the next change.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Whoever waits is to look again.
    pub(super) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// The lease is lost.
    pub(crate) fn lose(&self, loss: Loss) {
        self.change(Standpoint::Lost(loss), Moment::default(), None);
    }

    /// What is lost stays so: whoever has heard of it has stopped.
    fn change(&self, standpoint: Standpoint, valid_until: Moment, loss_at_end: Option<Loss>) {
        let changed = self.write(|state| {
            if matches!(state.standpoint, Some(Standpoint::Lost(_))) {
                return false;
            }
            self.valid_until.store(valid_until.0, Ordering::Release);
            state.loss_at_end = loss_at_end.or(state.loss_at_end);
            state.standpoint.replace(standpoint) != Some(standpoint)
        });
        if changed {
            self.changed.notify_waiters();
        }
    }

    /// The lease is given back, and not to be relied on any more. What was lost before stays so.
    pub(crate) fn end(&self) {
        // First, so that nobody takes the end of the validity for a loss.
        let given_back = !matches!(self.standpoint(), Standpoint::Lost(_));
        if given_back {
            self.write(|state| state.given_back = true);
        }
        self.valid_until.store(0, Ordering::Release);
        if given_back {
            self.changed.notify_waiters();
        }
    }

    /// Why the lease is lost, if it is: one that was given back is not.
    pub(crate) fn loss(&self) -> Option<Loss> {
        match self.standpoint() {
            Standpoint::Lost(loss) if !self.read(|state| state.given_back) => Some(loss),
            _ => None,
        }
    }

    /// Waits until the lease is lost, or given back.
    pub(crate) async fn over(&self) -> Option<Loss> {
        let given_back = self.wait_for(|state| state.given_back.then_some(()));
        tokio::select! {
            biased;
            () = given_back => None,
            loss = self.lost() => Some(loss),
        }
    }

    /// Why the last request came to nothing; `None` if it was answered. That nothing came
    /// says less than what the store has said before.
    pub(super) fn set_error(&self, error: Option<StoreError>) {
        self.write(|state| state.last_error = error);
    }

    pub(super) fn set_unanswered(&self, limit: Duration) {
        let unanswered = || unanswered(limit);
        self.write(|state| {
            state.last_error.get_or_insert_with(unanswered);
        });
    }

    pub(crate) fn last_error(&self) -> Option<StoreError> {
        self.read(|state| state.last_error.clone())
    }

    /// Others have acknowledged the grant, or a renewal.
    pub(crate) fn set_acknowledged(&self, acknowledged: Acknowledged) {
        self.write(|state| state.acknowledged = Some(acknowledged));
    }

    pub(crate) fn acknowledged(&self) -> Option<Acknowledged> {
        self.read(|state| state.acknowledged)
    }

    /// Waits until a claim that is on its way out has left.
    pub(super) async fn left(&self) {
        self.wait_for(|state| (state.phase == Some(Phase::Over)).then_some(()))
            .await;
    }

    /// Waits for the next of: the end of waiting in line, or a change of the position.
    pub(super) async fn next(&self, seen: u64) -> Progress {
        self.wait_for(|state| {
            let waits = state.phase == Some(Phase::Waiting);
            let moved = || (state.position != seen).then_some(Progress::Position(state.position));
            if waits { moved() } else { Some(Progress::Over) }
        })
        .await
    }

    /// Waits until the lease is lost: until somebody says so, or its validity ends by
    /// the clock of whoever waits. So it ends also if nobody keeps the lease any more.
    pub(crate) async fn lost(&self) -> Loss {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Standpoint::Lost(loss) = self.standpoint() {
                self.lose(loss);
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

    async fn wait_for<T>(&self, look: impl Fn(&State) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Enlist before looking, so that no change falls between.
            changed.as_mut().enable();
            if let Some(found) = self.read(&look) {
                return found;
            }
            changed.await;
        }
    }

    fn read<T>(&self, f: impl FnOnce(&State) -> T) -> T {
        f(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What happened to a claim in line.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Progress {
    Over,
    Position(u64),
}
