//! Waiting where the store keeps no queue: asking again and again, with pauses
//! drawn at random, at once when the store says that the key may be free, and when
//! what blocks it can lapse.
//!
//! The tasks of one client take turns: only the first in line asks. So however
//! many wait here, the servers see one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{HintLimit, Key, Retry};

use super::acquire::{Tried, acquire_in_line};
use super::watches::Watch;
use super::wish::{Grant, Patience, Wish, timed_out};
use super::{Driver, GRACE, random_u64, unanswered};
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::sync::{Mutex, MutexGuard, PoisonError, sleep, timeout};

/// The pauses where nobody tells that a key is free: what a waiter may lose of its
/// turn, and still few requests. Other libraries ask about as often.
pub(super) const POLLING: Retry = Retry::FullJitter {
    base: Duration::from_millis(10),
    cap: Duration::from_millis(150),
};

/// After the time at which what blocks the key can lapse, ask this much later at
/// most.
const AFTER_LAPSE: Duration = Duration::from_millis(10);

/// Whose turn it is to ask for a key, among the tasks of one client.
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
    /// Somebody has the key.
    Taken,
    /// The store could not be asked.
    Failed(StoreError),
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Turn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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

/// Gets the key of a store without a queue, or fails when `patience` is over.
///
/// Dropping the future at any point leaves nothing behind but what the
/// background releases.
pub(super) async fn acquire_by_asking(
    driver: &Arc<Driver>,
    wish: &Wish,
    retry: Retry,
    patience: Patience,
) -> Result<Option<Grant>, StoreError> {
    let left = || match patience {
        Patience::Until(moment) => moment.since(clock::now()),
        Patience::No | Patience::Forever => Duration::MAX,
    };
    let in_line = InLine::join(&driver.turns, &wish.key);
    let began = clock::now();
    let mut turn = timeout(left(), in_line.asking.lock()).await;
    if turn.is_err() && matches!(*in_line.heard(), Heard::Nothing) {
        // Whether the store is out of reach shows with the first answer of those ahead.
        turn = timeout(GRACE, in_line.asking.lock()).await;
    }
    let Ok(_turn) = turn else {
        return Err(match in_line.heard().clone() {
            Heard::Taken => timed_out(),
            Heard::Nothing => unanswered(clock::now().since(began)),
            Heard::Failed(error) => error,
        });
    };
    let pushes = driver.store.capabilities().push;
    let mut watch = pushes.then(|| Watch::start(driver, &wish.key));
    let changed = watch.as_ref().map(Watch::changed).unwrap_or_default();
    let mut pauses = retry.pauses(random_u64());
    let mut hints = HintLimit::default();
    loop {
        let change = changed.notified();
        tokio::pin!(change);
        // Enlist before asking, so that no push falls between.
        change.as_mut().enable();
        let tried = acquire_in_line(driver, wish, patience, true, |_, _| {}).await;
        *in_line.heard() = match &tried {
            Err(error) if error.kind() == ErrorKind::Unavailable => Heard::Failed(error.clone()),
            _ => Heard::Taken,
        };
        let busy_for = match tried? {
            Tried::Granted(grant) => {
                // A server that grants forgets that we wait.
                if let Some(watch) = &mut watch {
                    watch.forgotten();
                }
                return Ok(Some(grant));
            }
            Tried::Busy(busy_for) => busy_for,
        };
        if let Some(watch) = &watch {
            watch.enlisted();
        }
        let (Some(pause), left) = (pauses.next(), left()) else {
            return Ok(None);
        };
        if left.is_zero() {
            return Err(timed_out());
        }
        // Those who wait for one lapse should not all ask at once.
        let lapse = busy_for.saturating_add(pause.min(AFTER_LAPSE));
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
