//! Which task of a client polls for a key, and what it has found: the others wait for their turn.

use leasehold_core::{Deadlines, End, GRACE, Moment};

use super::request::timed_out;
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::sync::{Mutex, lock, timeout};

/// The tasks of one client that poll for a key.
#[derive(Debug, Default)]
pub(super) struct PollQueue {
    polling: tokio::sync::Mutex<()>,
    last: Mutex<LastPoll>,
}

/// The right to poll, until it is dropped.
pub(super) type PollPermit<'a> = tokio::sync::MutexGuard<'a, ()>;

/// What the last poll has found.
#[derive(Debug, Default)]
enum LastPoll {
    /// The store has not answered yet.
    #[default]
    Nothing,
    /// Somebody had the key then.
    Busy(Moment),
    /// The store could not be asked.
    Failed(StoreError),
}

impl PollQueue {
    /// Waits until the task is the first of the client's. `None`: its time is over, and whether
    /// others have the key, or the store is out of reach, shows only if it polls itself.
    pub(super) async fn permit(
        &self,
        deadlines: Deadlines,
    ) -> Result<Option<PollPermit<'_>>, StoreError> {
        let limit = deadlines.left_to_wait(clock::now());
        if let Ok(permit) = timeout(limit, self.polling.lock()).await {
            return Ok(Some(permit));
        }
        match &*lock(&self.last) {
            LastPoll::Busy(at) if clock::now().since(*at) < GRACE => Err(timed_out()),
            LastPoll::Busy(_) | LastPoll::Nothing => Ok(None),
            LastPoll::Failed(error) => Err(error.clone()),
        }
    }

    /// Tells those behind what the store has said.
    pub(super) fn note<T>(&self, polled: &Result<Result<T, End>, StoreError>) {
        *lock(&self.last) = match polled {
            Err(error) if error.kind() == ErrorKind::Unavailable => LastPoll::Failed(error.clone()),
            _ => LastPoll::Busy(clock::now()),
        };
    }
}
