//! How a step gets the locks of its keys.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Key, written};
use leasehold_store::{ErrorKind, StoreError};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout_at};

use super::Inner;
use super::key_lock::KeyLock;
use super::place::Place;

/// How long a key may be in the middle of other steps. One takes well under a
/// millisecond, but a process may have been stopped there.
const PATIENCE: Duration = Duration::from_secs(4);

/// Locks some keys: at once where nobody else is at them, as a step takes some microseconds. The
/// future can be dropped: no lock stays.
///
/// Holds none while it waits, so no two can wait for each other, and a process that was stopped in
/// mid-step holds up its own key only.
pub(super) async fn in_turn(store: &Arc<Inner>, keys: &[&Key]) -> Result<Vec<KeyLock>, StoreError> {
    // Nothing else here waits for anybody: other tasks have their turn, too.
    consume_budget().await;
    // Where all who lock several keys begin, and go on: sorted.
    let places = keys.iter().map(|key| Place::of_key(store, key));
    let mut places: Vec<_> = places.enumerate().collect();
    places.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
    let (mut locks, mut until) = (Vec::with_capacity(places.len()), None);
    while let Some((_, next)) = places.get(locks.len()) {
        if let Some(lock) = next.try_lock()? {
            locks.push(lock);
            continue;
        }
        let first = locks.is_empty();
        locks.clear();
        let until = *until.get_or_insert_with(|| Instant::now() + PATIENCE);
        let lock = timeout_at(until, next.lock()).await.map_err(|_| {
            let limit = written(PATIENCE);
            let message = format!("could not lock the record of this key within {limit}");
            unavailable(&message).with_hint(
                "a process that uses the directory may be stopped in the middle of a step, or very many use the key",
            )
        })??;
        // Else not kept: all begin with the first, so that one of them gets through.
        first.then(|| locks.push(lock));
    }
    let mut locks: Vec<_> = places.iter().map(|(at, _)| at).zip(locks).collect();
    locks.sort_by_key(|(at, _)| *at);
    Ok(locks.into_iter().map(|(_, lock)| lock).collect())
}

/// Runs file work where it holds nobody up.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(unavailable("the runtime is shutting down").with_source(error)))
}

pub(super) fn unavailable(message: &str) -> StoreError {
    StoreError::new(ErrorKind::Unavailable, message)
}
