//! Polling for a key: retries with random pauses, for stores without a queue and callers that do
//! not want to queue.
//!
//! On a store without a queue it also retries when the store pushes that the key may be free, and
//! when the blocking claim can have expired. The tasks of one client take turns: only the first
//! of them polls. So the servers see one request, however many tasks wait.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Deadlines, End, GRACE, HintLimit, Retry};
use tokio::sync::MutexGuard;

use super::acquire::Outcome;
use super::keys::Watched;
use super::request::{AcquireRequest, timed_out};
use super::timing::{ASK_AFTER_LAPSE, POLLING, SHORTEST_PAUSE};
use super::watch_key::KeyWatcher;
use super::{Session, random_u64};
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::store::Capabilities;
use crate::sync::{Ordering, lock, sleep, timeout};

impl Watched {
    /// Waits until the task is the first of the client's, which polls until it drops what it gets.
    /// `None`: its time is over, and whether others have the key, or the store is out of reach,
    /// shows only if it polls itself.
    async fn permit(&self, deadlines: Deadlines) -> Result<Option<MutexGuard<'_, ()>>, StoreError> {
        let limit = deadlines.left_to_wait(clock::now());
        if let Ok(permit) = timeout(limit, self.turn.lock()).await {
            return Ok(Some(permit));
        }
        match &*lock(&self.polled) {
            Some(Ok(busy_at)) if clock::now().since(*busy_at) < GRACE => Err(timed_out()),
            Some(Ok(_)) | None => Ok(None),
            Some(Err(error)) => Err(error.clone()),
        }
    }

    /// Tells those behind what the store has said.
    fn note(&self, polled: &Outcome) {
        *lock(&self.polled) = Some(match polled {
            Err(error) if error.kind() == ErrorKind::Unavailable => Err(error.clone()),
            _ => Ok(clock::now()),
        });
    }
}

impl Session {
    /// Acquires the key by polling, or fails when the time of the call is over.
    ///
    /// If the future is dropped, the background releases what was granted.
    pub(super) async fn acquire_by_polling(
        self: &Arc<Self>,
        request: &AcquireRequest,
        deadlines: Deadlines,
    ) -> Outcome {
        let Capabilities { queueing, push, .. } = self.store.capabilities();
        let usual = if push { Retry::default() } else { POLLING };
        let retry = request.retry.unwrap_or(usual);
        let watcher = (!queueing).then(|| KeyWatcher::start(self, &request.key));
        let watched = watcher.as_ref().map(|it| it.watched.clone());
        let watched = watched.unwrap_or_default();
        // With a queue nobody shares it: its turn is free.
        let _permit = watched.permit(deadlines).await?;
        let mut pauses = retry.pauses(random_u64());
        let mut hints = HintLimit::default();
        loop {
            // From before the request on, so that no push falls between.
            let change = watched.changed.notified();
            let polled = self.acquire_in_line(request, deadlines, !queueing, None);
            let polled = polled.await;
            watched.note(&polled);
            let (busy_for, pause, refused) = match polled {
                Ok(Err(End::Busy(_))) if queueing => (Duration::MAX, pauses.next(), None),
                Ok(Err(End::Busy(left))) => (left, pauses.next(), None),
                Ok(acquired) => {
                    if let Some(watcher) = &watcher {
                        watcher.forgotten();
                    }
                    return Ok(acquired);
                }
                // Asking sooner is of no use: a quarantine, or what passes by itself.
                Err(refused) if queueing && refused.retry_after.is_some() => {
                    (Duration::MAX, refused.retry_after, Some(refused))
                }
                Err(error) => return Err(error),
            };
            if watcher.is_some() && push {
                watched.known.store(true, Ordering::SeqCst);
            }
            // Pauses have no end.
            let pause = pause.unwrap_or(ASK_AFTER_LAPSE).max(SHORTEST_PAUSE);
            let left = deadlines.left_to_wait(clock::now());
            if left.is_zero() {
                return Err(refused.unwrap_or_else(timed_out));
            }
            // Those who wait for one lapse should not all ask at once.
            let lapse = busy_for.saturating_add(pause.min(ASK_AFTER_LAPSE));
            tokio::select! {
                () = change => {
                    pauses = retry.pauses(random_u64());
                    let now = clock::now();
                    sleep(hints.ask_at(now).since(now).min(left)).await;
                }
                () = sleep(pause.min(lapse).min(left)) => {}
            }
        }
    }
}
