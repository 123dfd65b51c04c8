//! One step on one key: lock, read, apply, replace, tell.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Command, Key, Outcome, Queue};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::directory::Locked;
use super::name::file_name;
use super::place::Place;
use super::{Inner, bury, inbox};
use crate::error::{ErrorKind, StoreError};

/// How long a key may be in the middle of other steps. One takes well under a
/// millisecond, but a process may have been stopped there.
const PATIENCE: Duration = Duration::from_secs(4);

/// How many steps of one client wait in threads of their own at a time.
pub(super) const THREADS: usize = 16;

/// Takes one step, waiting for its turn.
///
/// The future can be dropped: the step is then taken or not, and no lock stays.
pub(super) async fn run(
    store: &Arc<Inner>,
    key: &Key,
    command: Arc<Command>,
) -> Result<Outcome, StoreError> {
    let (inner, name, asked) = (store.clone(), key.clone(), command.clone());
    match blocking(move || try_take(&inner, &name, Some(&asked))).await? {
        Some((_, outcome)) => Ok(outcome),
        None => timeout(PATIENCE, wait(store, key, command))
            .await
            .unwrap_or_else(|_| {
                Err(StoreError::new(
                    ErrorKind::Unavailable,
                    "another process does not finish its step on this key",
                )
                .with_hint("look for a stopped process that uses the same directory"))
            }),
    }
}

/// Takes one step, unless others are taking theirs. Without a command it only
/// buries the dead.
pub(super) fn try_take(
    store: &Inner,
    key: &Key,
    command: Option<&Command>,
) -> Result<Option<(Queue, Outcome)>, StoreError> {
    let place = Place::of(&file_name(key.as_str()));
    let locked = place
        .lock(&store.directory)
        .map_err(|errno| store.directory.failed("write to", errno))?;
    locked
        .map(|locked| take(store, &place, locked, key, command))
        .transpose()
}

/// Waits in a thread, as no lock can be waited for otherwise. Not in one of the
/// runtime's: those must end before the program can, and a lock that a stopped
/// process has may never be let go.
async fn wait(store: &Arc<Inner>, key: &Key, command: Arc<Command>) -> Result<Outcome, StoreError> {
    let failed = |error| {
        StoreError::new(ErrorKind::Unavailable, "there are no more threads").with_source(error)
    };
    let permit = store.waiting.clone().acquire_owned().await;
    let (answer, answered) = oneshot::channel();
    let (inner, key) = (store.clone(), key.clone());
    let work = move || {
        let _permit = permit;
        let place = Place::of(&file_name(key.as_str()));
        let step = match place.wait(&inner.directory) {
            // By now nobody may be waiting for it, and have asked elsewhere.
            Ok(_) if answer.is_closed() => return,
            Ok(locked) => take(&inner, &place, locked, &key, Some(&command)),
            Err(errno) => Err(inner.directory.failed("write to", errno)),
        };
        answer.send(step.map(|(_, outcome)| outcome)).ok();
    };
    let thread = std::thread::Builder::new().name("leasehold-step".into());
    thread.spawn(work).map_err(failed)?;
    answered.await.unwrap_or_else(|error| {
        Err(StoreError::new(ErrorKind::Unavailable, "the step was not finished").with_source(error))
    })
}

fn take(
    store: &Inner,
    place: &Place,
    _locked: Locked,
    key: &Key,
    command: Option<&Command>,
) -> Result<(Queue, Outcome), StoreError> {
    let mut queue = place.read_key(&store.directory, &store.clock, key)?;
    let clock = store.clock.now();
    let is_dead = |inbox: &_| store.session.sees_dead(inbox);
    let outcome = bury::apply(&mut queue, command, clock, is_dead);
    let expires = clock + queue.keep_for(clock, store.retention);
    place.write(&store.directory, &store.clock, key, &queue, expires)?;
    // Told under the lock, and after the grant is in the file: pushes come in
    // the order of the steps, and none before what it tells is true. The dead
    // are buried, so whoever does not hear is alive, and asks by itself.
    inbox::tell(&store.directory, key, outcome.at, &outcome.events);
    Ok((queue, outcome))
}

/// Runs file work where it holds nobody up.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| {
            Err(
                StoreError::new(ErrorKind::Unavailable, "the runtime is shutting down")
                    .with_source(error),
            )
        })
}
