//! Steps on keys that are locked: read, apply, write, notify.

use std::sync::Arc;

use leasehold_core::{Command, Key, Outcome, Queue};
use leasehold_store::{ErrorKind, Step, StoreError, Taken};

use super::key_lock::{KeyLock, Prepared};
use super::place::Place;
use super::record::At;
use super::turn::in_turn;
use super::{Inner, dead, inbox};

/// Takes a step on one key, unless others are taking theirs. Without a command it only
/// removes the dead.
pub(super) fn try_take(
    store: &Inner,
    key: &Key,
    command: Option<&Command>,
) -> Result<Option<Outcome>, StoreError> {
    let place = Place::of_key(key);
    let Some(mut locked) = place.lock(store)? else {
        return Ok(None);
    };
    Ok(take(store, &mut locked, key, [command])?.pop())
}

/// Takes steps on one key, one after the other: all of them are in the record, or
/// none. `None` only removes the dead.
pub(super) fn take<'a>(
    store: &Inner,
    locked: &mut KeyLock<'_>,
    key: &Key,
    commands: impl IntoIterator<Item = Option<&'a Command>>,
) -> Result<Vec<Outcome>, StoreError> {
    let is_dead = |inbox: &_| store.session.sees_dead(inbox);
    let locks = std::slice::from_mut(locked);
    let taken = transact(store, locks, &[(key.clone(), 0)], |queues| {
        let [queue] = queues else {
            return Ok(Vec::new());
        };
        let step = |command| {
            dead::apply(
                queue,
                command,
                store.clock.now(),
                store.session.inbox(),
                is_dead,
            )
        };
        Ok(commands.into_iter().map(step).collect())
    })?;
    Ok(taken.unwrap_or_default())
}

/// Takes one step on several keys, waiting for its turn on each: claims that are granted
/// together or not at all.
pub(super) async fn take_all(
    store: &Arc<Inner>,
    keys: &[&Key],
    claims: &[Command],
) -> Result<Taken, StoreError> {
    // Where all who lock several keys begin, and go on: sorted.
    let mut sorted: Vec<_> = keys.iter().map(|key| (Place::of_key(key), *key)).collect();
    sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
    let locked_at = |key: &&Key| sorted.iter().position(|(_, other)| other == key);
    let at = |key: &&Key| ((*key).clone(), locked_at(key).unwrap_or_default());
    let parts: Vec<_> = keys.iter().map(at).collect();
    let places = sorted.into_iter().map(|(place, _)| place).collect();
    let claims = claims.to_vec();
    let step = move |store: &Inner, locks: &mut [KeyLock<'_>]| {
        let clock = store.clock.now();
        let is_dead = |inbox: &_| store.session.sees_dead(inbox);
        transact(store, locks, &parts, |queues| {
            Step::All(&claims).apply_by(queues, |queue, claim| {
                dead::apply(queue, Some(claim), clock, store.session.inbox(), is_dead)
            })
        })
    };
    in_turn(store, places, step).await
}

/// A key, and which of the locks is its own.
type Part = (Key, usize);

/// Reads the queues of these keys, changes them, and puts them back if all was taken.
fn transact(
    store: &Inner,
    locks: &mut [KeyLock<'_>],
    parts: &[Part],
    change: impl FnOnce(&mut [Queue]) -> Taken,
) -> Result<Taken, StoreError> {
    store.go_on()?;
    let read = |(key, lock): &Part| locks[*lock].read(key);
    let read: Result<Vec<_>, _> = parts.iter().map(read).collect();
    let (mut queues, found): (Vec<_>, Vec<_>) = read?.into_iter().unzip();
    let taken = change(&mut queues);
    if let Ok(outcomes) = &taken {
        put_back(store, locks, parts, queues.into_iter().zip(found))?;
        // Sent under the locks, and after the grants are in the files: pushes come in
        // the order of the steps, and none before what it says is true. The dead
        // are removed, so whoever does not hear is alive, and asks by itself.
        for ((key, _), outcome) in parts.iter().cycle().zip(outcomes) {
            inbox::notify(store, key, outcome.at, &outcome.events);
        }
    }
    Ok(taken)
}

/// Writes all queues. What is likely to fail, a full disk above all, fails before the first of
/// them is written.
///
/// Between the first and the last, a process that is killed leaves some of its
/// claims and not the others. They are claims of a dead client: whoever wants
/// such a key removes them, and until then nobody misses it.
fn put_back(
    store: &Inner,
    locks: &mut [KeyLock<'_>],
    parts: &[Part],
    queues: impl Iterator<Item = (Queue, Option<At>)>,
) -> Result<(), StoreError> {
    let clock = store.clock.now();
    let mut prepared: Vec<(usize, Prepared)> = Vec::with_capacity(parts.len());
    for ((key, lock), (queue, found)) in parts.iter().zip(queues) {
        let expires = clock + queue.keep_for(clock, store.retention);
        match locks[*lock].prepare(key, queue, found, expires) {
            Ok(one) => prepared.push((*lock, one)),
            Err(error) => {
                discard(locks, prepared);
                return Err(error);
            }
        }
    }
    let mut prepared = prepared.into_iter();
    let mut written = 0;
    while let Some((lock, one)) = prepared.next() {
        if let Err(error) = locks[lock].commit(one) {
            discard(locks, prepared);
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

fn discard(locks: &[KeyLock<'_>], prepared: impl IntoIterator<Item = (usize, Prepared)>) {
    for (lock, _) in prepared {
        locks[lock].discard();
    }
}

#[cfg(test)]
mod tests;
