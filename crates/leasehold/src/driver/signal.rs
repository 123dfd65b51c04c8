//! What the driver tells the task that waits for a claim or holds a lease.

use leasehold_core::{Loss, Moment, Standpoint, Token, Verdict};
use tokio::sync::Notify;

use crate::clock;
use crate::error::StoreError;
use crate::store::Acknowledged;
use crate::sync::{AtomicU64, Mutex, Ordering, PoisonError};

/// One claim's state as others may read it, without a lock of the driver.
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
    verdict: Option<Verdict>,
    standpoint: Option<Standpoint>,
    last_error: Option<StoreError>,
    acknowledged: Option<Acknowledged>,
    closed: bool,
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

    pub(crate) fn set_token(&self, token: Token) {
        self.token.fetch_max(token.0, Ordering::AcqRel);
    }

    pub(crate) fn standpoint(&self) -> Standpoint {
        let known = self
            .read(|state| state.standpoint)
            .unwrap_or(Standpoint::Held);
        let over = clock::now() >= self.valid_until();
        match known {
            // Time is up although nobody has noticed yet.
            Standpoint::Held | Standpoint::Unknown if over => Standpoint::Lost(Loss::Unanswered),
            known => known,
        }
    }

    #[cfg(test)]
    pub(crate) fn standpoint_told(&self) -> Option<Standpoint> {
        self.read(|state| state.standpoint)
    }

    pub(crate) fn set_standpoint(&self, standpoint: Standpoint, valid_until: Moment) {
        self.valid_until.store(valid_until.0, Ordering::Release);
        if self.write(|state| state.standpoint.replace(standpoint)) != Some(standpoint) {
            self.changed.notify_waiters();
        }
    }

    /// A release was sent: the lease is not to be relied on any more.
    pub(crate) fn end(&self) {
        self.valid_until.store(0, Ordering::Release);
    }

    pub(crate) fn set_position(&self, position: u64) {
        if !self.tells_position {
            return;
        }
        let before = self.write(|state| std::mem::replace(&mut state.position, position));
        if before != position {
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn set_verdict(&self, verdict: Verdict) {
        self.write(|state| state.verdict = Some(verdict));
        self.changed.notify_waiters();
    }

    pub(crate) fn set_error(&self, error: StoreError) {
        self.write(|state| state.last_error = Some(error));
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

    /// The client is shut down: whoever waits is to go.
    pub(crate) fn close(&self) {
        self.write(|state| state.closed = true);
        self.changed.notify_waiters();
    }

    /// Waits for the next of: a verdict, a closed client, or a change of the position.
    pub(crate) async fn next(&self, seen: u64) -> Progress {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Enlist before looking, so that no change falls between.
            changed.as_mut().enable();
            let (verdict, position, closed) = self.read(|s| (s.verdict, s.position, s.closed));
            if closed {
                return Progress::Closed;
            }
            if let Some(verdict) = verdict {
                return Progress::Verdict(verdict);
            }
            if position != seen {
                return Progress::Position(position);
            }
            changed.await;
        }
    }

    /// Waits until the lease is lost.
    pub(crate) async fn lost(&self) -> Loss {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(Standpoint::Lost(loss)) = self.read(|state| state.standpoint) {
                return loss;
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

/// What happened to a waiting claim.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Progress {
    Verdict(Verdict),
    Position(u64),
    Closed,
}
