//! Steps on keys whose locks are held: read, apply, replace, notify.

use std::sync::Arc;

use leasehold_core::{Command, Key, Outcome, Queue};
use leasehold_store::{ErrorKind, Step, StoreError, Taken};

use super::directory::Locked;
use super::place::{Place, Prepared};
use super::turn::in_turn;
use super::{Inner, dead, inbox};

/// Takes a step on one key, unless others are taking theirs. Without a command it only
/// removes the dead.
pub(super) fn try_take(
    store: &Inner,
    key: &Key,
    command: Option<&Command>,
) -> Result<Option<(Queue, Outcome)>, StoreError> {
    let place = Place::of_key(key);
    let locked = place.lock(&store.directory);
    let Some(locked) = locked.map_err(|errno| store.directory.failed("write to", errno))? else {
        return Ok(None);
    };
    let at = [(key.clone(), place)];
    let (queue, mut outcomes) = take(store, &[locked], &at, [command])?;
    Ok(outcomes.pop().map(|outcome| (queue, outcome)))
}

/// Takes steps on one key, one after the other: all of them are in the record, or
/// none. `None` only removes the dead.
pub(super) fn take<'a>(
    store: &Inner,
    locks: &[Locked],
    at: &[(Key, Place); 1],
    commands: impl IntoIterator<Item = Option<&'a Command>>,
) -> Result<(Queue, Vec<Outcome>), StoreError> {
    let is_dead = |inbox: &_| store.session.sees_dead(inbox);
    let (queues, taken) = transact(store, locks, at, |queues| {
        let [queue] = queues else {
            return Ok(Vec::new());
        };
        let step = |command| dead::apply(queue, command, store.clock.now(), is_dead);
        Ok(commands.into_iter().map(step).collect())
    })?;
    let queue = queues.into_iter().next();
    Ok((queue.unwrap_or_default(), taken.unwrap_or_default()))
}

/// Takes one step on several keys, waiting for its turn on each: claims that are granted
/// together or not at all.
pub(super) async fn take_all(
    store: &Arc<Inner>,
    keys: &[&Key],
    claims: &[Command],
) -> Result<Taken, StoreError> {
    let at = |key: &&Key| ((*key).clone(), Place::of_key(key));
    let (at, claims): (Vec<_>, _) = (keys.iter().map(at).collect(), claims.to_vec());
    // Where all who lock several keys begin, and go on: sorted.
    let mut places: Vec<_> = at.iter().map(|(_, place)| place.clone()).collect();
    places.sort();
    let step = move |store: &Inner, locks: &[Locked]| {
        let clock = store.clock.now();
        let is_dead = |inbox: &_| store.session.sees_dead(inbox);
        let (_, taken) = transact(store, locks, &at, |queues| {
            Step::All(&claims).apply_by(queues, |queue, claim| {
                dead::apply(queue, Some(claim), clock, is_dead)
            })
        })?;
        Ok(taken)
    };
    in_turn(store, places, step).await
}

/// Reads the queues of these keys, changes them, and puts them back if all was taken.
fn transact(
    store: &Inner,
    _locks: &[Locked],
    at: &[(Key, Place)],
    change: impl FnOnce(&mut [Queue]) -> Taken,
) -> Result<(Vec<Queue>, Taken), StoreError> {
    store.go_on()?;
    let read = |(key, place): &(Key, Place)| place.read_key(&store.directory, &store.clock, key);
    let mut queues = at.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let taken = change(&mut queues);
    if let Ok(outcomes) = &taken {
        put_back(store, at, &queues)?;
        // Sent under the locks, and after the grants are in the files: pushes come in
        // the order of the steps, and none before what it says is true. The dead
        // are removed, so whoever does not hear is alive, and asks by itself.
        for ((key, _), outcome) in at.iter().cycle().zip(outcomes) {
            inbox::notify(&store.directory, key, outcome.at, &outcome.events);
        }
    }
    Ok((queues, taken))
}

/// Puts all records in place. What is likely to fail, a full disk above all,
/// fails before the first of them is.
///
/// Between the first and the last, a process that is killed leaves some of its
/// claims and not the others. They are claims of a dead client: whoever wants
/// such a key removes them, and until then nobody misses it.
fn put_back(store: &Inner, at: &[(Key, Place)], queues: &[Queue]) -> Result<(), StoreError> {
    let (directory, clock) = (&store.directory, store.clock.now());
    let discard = |prepared: Vec<Prepared<'_>>| {
        for one in prepared {
            one.discard(directory);
        }
    };
    let mut prepared = Vec::with_capacity(queues.len());
    for ((key, place), queue) in at.iter().zip(queues) {
        let expires = clock + queue.keep_for(clock, store.retention);
        match place.prepare(directory, &store.clock, key, queue, expires) {
            Ok(one) => prepared.push(one),
            Err(error) => {
                discard(prepared);
                return Err(error);
            }
        }
    }
    let mut prepared = prepared.into_iter();
    let mut written = 0;
    while let Some(one) = prepared.next() {
        if let Err(error) = one.commit(directory) {
            discard(prepared.collect());
            return Err(match written {
                0 => error,
                // The client asks again, or releases what it may have.
                _ => StoreError::new(ErrorKind::Unavailable, "not all keys could be written")
                    .with_source(error),
            });
        }
        written += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
