//! How a step gets the locks of its keys: at once where they are free, else in a thread that waits.

use std::sync::Arc;
use std::time::Duration;

use leasehold_store::{ErrorKind, StoreError};
use tokio::sync::oneshot;
use tokio::task::coop::consume_budget;
use tokio::time::timeout;

use super::Inner;
use super::key_lock::KeyLock;
use super::place::Place;

/// How long a key may be in the middle of other steps. One takes well under a
/// millisecond, but a process may have been stopped there.
const PATIENCE: Duration = Duration::from_secs(4);

/// How many steps of one client wait in threads of their own at a time.
pub(super) const THREADS: usize = 16;

/// Does work while it has the locks of some keys, which are sorted: at once where nobody else is
/// at them, as a step takes some microseconds.
///
/// The future can be dropped: the work is then done or not, and no lock stays.
pub(super) async fn in_turn<T: Send + 'static>(
    store: &Arc<Inner>,
    places: Vec<Place>,
    work: impl Fn(&Inner, &mut [KeyLock<'_>]) -> Result<T, StoreError> + Send + Sync + 'static,
) -> Result<T, StoreError> {
    // Nothing else here waits for anybody: other tasks have their turn, too.
    consume_budget().await;
    if let Ok(mut locks) = lock_each(store, &places, Vec::new())? {
        return work(store, &mut locks);
    }
    let inner = store.clone();
    let waiting = in_thread(store, move |is_wanted| {
        match wait_for_each(&inner, &places, is_wanted) {
            Ok(locks) => locks.map(|mut locks| work(&inner, &mut locks)),
            Err(error) => Some(Err(error)),
        }
    });
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| {
        Err(StoreError::new(
            ErrorKind::Unavailable,
            format!("could not lock the record of this key within {PATIENCE:?}"),
        )
        .with_hint(
            "a process that uses the same directory may be stopped in mid-step, \
             or very many use the key",
        ))
    })
}

/// Locks one key after the other; stops at the first that others have locked.
fn lock_each<'a>(
    store: &'a Inner,
    places: &'a [Place],
    mut locks: Vec<KeyLock<'a>>,
) -> Result<Result<Vec<KeyLock<'a>>, &'a Place>, StoreError> {
    for place in &places[locks.len()..] {
        match place.lock(store)? {
            Some(lock) => locks.push(lock),
            None => return Ok(Err(place)),
        }
    }
    Ok(Ok(locks))
}

/// Locks all keys, however long that takes. Holds none while it waits: so no
/// two can wait for each other, and a process that was stopped in mid-step
/// holds up its own key only.
fn wait_for_each<'a>(
    store: &'a Inner,
    places: &'a [Place],
    is_wanted: &dyn Fn() -> bool,
) -> Result<Option<Vec<KeyLock<'a>>>, StoreError> {
    let Some(first) = places.first() else {
        return Ok(Some(Vec::new()));
    };
    loop {
        let locked = first.wait(store)?;
        // By now nobody may be waiting for it, and have asked elsewhere.
        if !is_wanted() {
            return Ok(None);
        }
        match lock_each(store, places, vec![locked])? {
            Ok(locks) => return Ok(Some(locks)),
            // Not kept: all begin with the first, so that one of them gets through.
            Err(taken) => drop(taken.wait(store)?),
        }
    }
}

/// Waits in a thread, as no lock can be waited for otherwise. Not in one of the
/// runtime's: those must end before the program can, and a lock that a stopped
/// process has may never be let go. The work learns whether it is still wanted.
async fn in_thread<T: Send + 'static>(
    store: &Inner,
    work: impl FnOnce(&dyn Fn() -> bool) -> Option<Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let permit = store.waiting.clone().acquire_owned().await;
    let (answer, answered) = oneshot::channel();
    let run = move || {
        let _permit = permit;
        if let Some(done) = work(&|| !answer.is_closed()) {
            answer.send(done).ok();
        }
    };
    let thread = std::thread::Builder::new().name("leasehold-step".into());
    thread
        .spawn(run)
        .map_err(|error| unavailable("there are no more threads").with_source(error))?;
    finished(answered).await
}

/// The answer of work that is under way elsewhere.
pub(super) async fn finished<T>(
    answered: oneshot::Receiver<Result<T, StoreError>>,
) -> Result<T, StoreError> {
    answered
        .await
        .unwrap_or_else(|error| Err(unavailable("the step was not finished").with_source(error)))
}

/// Runs file work where it holds nobody up.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(unavailable("the runtime is shutting down").with_source(error)))
}

fn unavailable(message: &str) -> StoreError {
    StoreError::new(ErrorKind::Unavailable, message)
}
