//! Waiting where the store keeps no queue: asking again and again, with pauses
//! drawn at random, and at once when the store says that the key may be free.
//!
//! The tasks of one client take turns: only the first in line asks. So however
//! many wait here, the servers see one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Key, Retry};
use tokio::time::{sleep, timeout};

use super::acquire::acquire_in_line;
use super::watches::Watch;
use super::wish::{Grant, Patience, Wish, timed_out};
use super::{Driver, random_u64};
use crate::clock;
use crate::error::StoreError;

/// Whose turn it is to ask for a key, among the tasks of one client.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<Key, Turn>>);

#[derive(Debug, Default)]
struct Turn {
    tasks: usize,
    asking: Arc<tokio::sync::Mutex<()>>,
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
}

impl<'a> InLine<'a> {
    fn join(turns: &'a Turns, key: &'a Key) -> Self {
        let mut all = turns.lock();
        let turn = all.entry(key.clone()).or_default();
        turn.tasks += 1;
        let asking = Arc::clone(&turn.asking);
        drop(all);
        Self { turns, key, asking }
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
    let turn = timeout(left(), in_line.asking.lock()).await;
    let Ok(_turn) = turn else {
        return Err(timed_out());
    };
    let mut watch = Watch::start(driver, &wish.key);
    let changed = watch.changed();
    let mut pauses = retry.pauses(random_u64());
    loop {
        let change = changed.notified();
        tokio::pin!(change);
        // Enlist before asking, so that no push falls between.
        change.as_mut().enable();
        let tried = acquire_in_line(driver, wish, Patience::No, true, |_, _| {}).await?;
        if tried.is_some() {
            // A server that grants forgets that we wait.
            watch.forgotten();
            return Ok(tried);
        }
        watch.enlisted();
        let (Some(pause), left) = (pauses.next(), left()) else {
            return Ok(None);
        };
        if left.is_zero() {
            return Err(timed_out());
        }
        tokio::select! {
            () = change => pauses = retry.pauses(random_u64()),
            () = sleep(pause.min(left)) => {}
        }
    }
}
