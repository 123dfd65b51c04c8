//! Polling for a key: retries with random pauses, for stores without a queue and callers that do
//! not want to queue.
//!
//! On a store without a queue it also retries when the store pushes that the key may be free, and
//! when the blocking claim can have expired. The tasks of one client take turns: only the first
//! of them polls. So the servers see one request, however many tasks wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{HintLimit, Key, Moment, Retry};

use super::acquire::{Grant, Tried};
use super::request::{AcquireRequest, Patience, timed_out};
use super::timing::{ASK_AFTER_LAPSE, GRACE, POLLING};
use super::watches::Watch;
use super::{Session, random_u64};
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::store::Capabilities;
use crate::sync::{Mutex, MutexGuard, PoisonError, sleep, timeout};

/// Which task of the client polls for a key.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<Key, Turn>>);

#[derive(Debug, Default)]
struct Turn {
    tasks: usize,
    asking: Arc<tokio::sync::Mutex<()>>,
    heard: Arc<Mutex<Heard>>,
}

/// What the tasks of one client know of a key from the one that asks.
#[derive(Debug, Default, Clone)]
enum Heard {
    /// The store has not answered yet.
    #[default]
    Nothing,
    /// Somebody had the key then.
    Taken(Moment),
    /// The store could not be asked.
    Failed(StoreError),
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Turn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type TurnGuard<'a> = tokio::sync::MutexGuard<'a, ()>;

/// A task that waits for its turn, or has it, until it is dropped.
struct InLine<'a> {
    turns: &'a Turns,
    key: &'a Key,
    asking: Arc<tokio::sync::Mutex<()>>,
    heard: Arc<Mutex<Heard>>,
}

impl<'a> InLine<'a> {
    fn join(turns: &'a Turns, key: &'a Key) -> Self {
        let mut all = turns.lock();
        let turn = all.entry(key.clone()).or_default();
        turn.tasks += 1;
        let (asking, heard) = (Arc::clone(&turn.asking), Arc::clone(&turn.heard));
        drop(all);
        Self {
            turns,
            key,
            asking,
            heard,
        }
    }

    /// Waits until it is the first of the client's tasks. `None`: its time is over, and whether
    /// others have the key, or the store is out of reach, shows only if it asks itself.
    async fn turn(&self, patience: Patience) -> Result<Option<TurnGuard<'_>>, StoreError> {
        if let Ok(turn) = timeout(patience.left(), self.asking.lock()).await {
            return Ok(Some(turn));
        }
        match &*self.heard() {
            Heard::Taken(at) if clock::now().since(*at) < GRACE => Err(timed_out()),
            Heard::Taken(_) | Heard::Nothing => Ok(None),
            Heard::Failed(error) => Err(error.clone()),
        }
    }

    /// Tells those behind what the store has said.
    fn hear(&self, tried: &Result<Tried, StoreError>) {
        *self.heard() = match tried {
            Err(error) if error.kind() == ErrorKind::Unavailable => Heard::Failed(error.clone()),
            _ => Heard::Taken(clock::now()),
        };
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut all = self.turns.lock();
        if let Some(turn) = all.get_mut(self.key) {
            turn.tasks -= 1;
            if turn.tasks == 0 {
                all.remove(self.key);
            }
        }
    }
}

/// Acquires the key by polling, or fails when `patience` is over. `None`: the retry has no more
/// pauses.
///
/// If the future is dropped, the background releases what was granted.
pub(super) async fn acquire_by_asking(
    session: &Arc<Session>,
    request: &AcquireRequest,
    patience: Patience,
) -> Result<Option<Grant>, StoreError> {
    let Capabilities { queueing, push, .. } = session.store.capabilities();
    let usual = if push { Retry::default() } else { POLLING };
    let retry = request.retry.unwrap_or(usual);
    let in_line = (!queueing).then(|| InLine::join(&session.turns, &request.key));
    let _turn = match &in_line {
        Some(in_line) => in_line.turn(patience).await?,
        None => None,
    };
    let mut watch = (push && !queueing).then(|| Watch::start(session, &request.key));
    let changed = watch.as_ref().map(Watch::changed).unwrap_or_default();
    let mut pauses = retry.pauses(random_u64());
    let mut hints = HintLimit::default();
    loop {
        let change = changed.notified();
        tokio::pin!(change);
        // Enlist before asking, so that no push falls between.
        change.as_mut().enable();
        let asked = session.acquire_in_line(request, patience, !queueing, false, |_, _| {});
        let tried = asked.await;
        if let Some(in_line) = &in_line {
            in_line.hear(&tried);
        }
        let busy = match tried {
            Ok(Tried::Granted(grant)) => {
                // A server that grants forgets that we wait.
                if let Some(watch) = &mut watch {
                    watch.forgotten();
                }
                return Ok(Some(grant));
            }
            Ok(Tried::Busy(busy_for)) => Ok(busy_for),
            Err(error) => Err(error),
        };
        let refused = busy.as_ref().err().cloned();
        let (pause, busy_for) = pause_after(busy, queueing, &mut pauses)?;
        if let Some(watch) = &watch {
            watch.enlisted();
        }
        let (Some(pause), left) = (pause, patience.left()) else {
            return Ok(None);
        };
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

/// How long to pause, `None` when the retry is over; and how long the key is busy at least.
fn pause_after(
    busy: Result<Duration, StoreError>,
    queueing: bool,
    pauses: &mut impl Iterator<Item = Duration>,
) -> Result<(Option<Duration>, Duration), StoreError> {
    match busy {
        Ok(_) if queueing => Ok((pauses.next(), Duration::MAX)),
        Ok(busy_for) => Ok((pauses.next(), busy_for)),
        // Asking sooner is of no use: a quarantine, or what passes by itself.
        Err(refused) if queueing && refused.retry_after.is_some() => {
            Ok((refused.retry_after, Duration::MAX))
        }
        Err(error) => Err(error),
    }
}
