//! Steps on a key: lock, read, apply, replace, tell.
//!
//! And how a step on any number of keys waits for its turn.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Command, Key, Outcome, Queue};
use leasehold_store::{ErrorKind, StoreError};
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::directory::{Directory, Locked};
use super::name::file_name;
use super::place::Place;
use super::{Inner, bury, inbox};

/// How long a key may be in the middle of other steps. One takes well under a
/// millisecond, but a process may have been stopped there.
const PATIENCE: Duration = Duration::from_secs(4);

/// How many steps of one client wait in threads of their own at a time.
pub(super) const THREADS: usize = 16;

/// Does work while it has the locks of some keys, which are sorted.
///
/// The future can be dropped: the work is then done or not, and no lock stays.
pub(super) async fn in_turn<T: Send + 'static>(
    store: &Arc<Inner>,
    places: Vec<Place>,
    work: impl Fn(&Inner, &[Locked]) -> Result<T, StoreError> + Send + Sync + 'static,
) -> Result<T, StoreError> {
    let turn = Arc::new(Turn { places, work });
    let (inner, tried) = (store.clone(), turn.clone());
    match blocking(move || tried.take_now(&inner)).await? {
        Some(done) => Ok(done),
        None => timeout(PATIENCE, wait(store, turn))
            .await
            .unwrap_or_else(|_| {
                Err(StoreError::new(
                    ErrorKind::Unavailable,
                    format!("there was no turn on this key within {PATIENCE:?}"),
                )
                .with_hint(
                    "a process that uses the same directory may be stopped in mid-step, \
                     or very many use the key",
                ))
            }),
    }
}

/// Work that wants the locks of some keys.
struct Turn<W> {
    places: Vec<Place>,
    work: W,
}

impl<T, W> Turn<W>
where
    W: Fn(&Inner, &[Locked]) -> Result<T, StoreError>,
{
    /// Does it unless others have one of the locks.
    fn take_now(&self, store: &Inner) -> Result<Option<T>, StoreError> {
        let mut locks = Vec::with_capacity(self.places.len());
        let taken = lock_each(&store.directory, &self.places, &mut locks)
            .map_err(|errno| store.directory.failed("write to", errno))?;
        if taken.is_some() {
            return Ok(None);
        }
        (self.work)(store, &locks).map(Some)
    }

    /// Does it however long the locks take, unless nobody wants it any more.
    fn take_in_turn(
        &self,
        store: &Inner,
        is_wanted: impl Fn() -> bool,
    ) -> Option<Result<T, StoreError>> {
        match wait_for_each(&store.directory, &self.places, is_wanted) {
            Ok(locks) => locks.map(|locks| (self.work)(store, &locks)),
            Err(errno) => Some(Err(store.directory.failed("write to", errno))),
        }
    }
}

/// Locks one key after the other; stops at the first that others have locked.
fn lock_each<'a>(
    directory: &Directory,
    places: &'a [Place],
    locks: &mut Vec<Locked>,
) -> Result<Option<&'a Place>, Errno> {
    for place in places {
        match place.lock(directory)? {
            Some(lock) => locks.push(lock),
            None => return Ok(Some(place)),
        }
    }
    Ok(None)
}

/// Locks all keys, however long that takes. Holds none while it waits: so no
/// two can wait for each other, and a process that was stopped in mid-step
/// holds up its own key only.
fn wait_for_each(
    directory: &Directory,
    places: &[Place],
    is_wanted: impl Fn() -> bool,
) -> Result<Option<Vec<Locked>>, Errno> {
    let mut locks = Vec::with_capacity(places.len());
    let Some((first, rest)) = places.split_first() else {
        return Ok(Some(locks));
    };
    loop {
        locks.push(first.wait(directory)?);
        // By now nobody may be waiting for it, and have asked elsewhere.
        if !is_wanted() {
            return Ok(None);
        }
        let Some(taken) = lock_each(directory, rest, &mut locks)? else {
            return Ok(Some(locks));
        };
        locks.clear();
        // Not kept: all begin with the first, so that one of them gets through.
        drop(taken.wait(directory)?);
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
    let Some(locked) = locked else {
        return Ok(None);
    };
    let (queue, mut outcomes) = take(store, &place, &[locked], key, [command])?;
    Ok(outcomes.pop().map(|outcome| (queue, outcome)))
}

/// Waits in a thread, as no lock can be waited for otherwise. Not in one of the
/// runtime's: those must end before the program can, and a lock that a stopped
/// process has may never be let go.
async fn wait<T, W>(store: &Arc<Inner>, turn: Arc<Turn<W>>) -> Result<T, StoreError>
where
    T: Send + 'static,
    W: Fn(&Inner, &[Locked]) -> Result<T, StoreError> + Send + Sync + 'static,
{
    let failed = |error| {
        StoreError::new(ErrorKind::Unavailable, "there are no more threads").with_source(error)
    };
    let permit = store.waiting.clone().acquire_owned().await;
    let (answer, answered) = oneshot::channel();
    let inner = store.clone();
    let work = move || {
        let _permit = permit;
        if let Some(done) = turn.take_in_turn(&inner, || !answer.is_closed()) {
            answer.send(done).ok();
        }
    };
    let thread = std::thread::Builder::new().name("leasehold-step".into());
    thread.spawn(work).map_err(failed)?;
    answered.await.unwrap_or_else(|error| {
        Err(StoreError::new(ErrorKind::Unavailable, "the step was not finished").with_source(error))
    })
}

/// Takes steps on one key, one after the other: all of them are in the record, or
/// none. `None` only buries the dead.
pub(super) fn take<'a>(
    store: &Inner,
    place: &Place,
    _lock: &[Locked],
    key: &Key,
    commands: impl IntoIterator<Item = Option<&'a Command>>,
) -> Result<(Queue, Vec<Outcome>), StoreError> {
    store.go_on()?;
    let mut queue = place.read_key(&store.directory, &store.clock, key)?;
    let is_dead = |inbox: &_| store.session.sees_dead(inbox);
    let step = |command| bury::apply(&mut queue, command, store.clock.now(), is_dead);
    let outcomes: Vec<_> = commands.into_iter().map(step).collect();
    let clock = store.clock.now();
    let expires = clock + queue.keep_for(clock, store.retention);
    place.write(&store.directory, &store.clock, key, &queue, expires)?;
    // Told under the lock, and after the grant is in the file: pushes come in
    // the order of the steps, and none before what it tells is true. The dead
    // are buried, so whoever does not hear is alive, and asks by itself.
    for outcome in &outcomes {
        inbox::tell(&store.directory, key, outcome.at, &outcome.events);
    }
    Ok((queue, outcomes))
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
