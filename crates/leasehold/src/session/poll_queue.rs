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
    /// What the last poll has found: when somebody had the key, or why the store could not be asked.
    last: Mutex<Option<Result<Moment, StoreError>>>,
}

/// The right to poll, until it is dropped.
pub(super) type PollPermit<'a> = tokio::sync::MutexGuard<'a, ()>;

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
            Some(Ok(busy_at)) if clock::now().since(*busy_at) < GRACE => Err(timed_out()),
            Some(Ok(_)) | None => Ok(None),
            Some(Err(error)) => Err(error.clone()),
        }
    }

    /// Tells those behind what the store has said.
    pub(super) fn note<T>(&self, polled: &Result<Result<T, End>, StoreError>) {
        *lock(&self.last) = Some(match polled {
            Err(error) if error.kind() == ErrorKind::Unavailable => Err(error.clone()),
            _ => Ok(clock::now()),
        });
    }
}
