//! Steps on keys that are locked: read, apply, write, notify.

use std::borrow::Cow;
use std::sync::Arc;

use leasehold_core::{Command, Key, Outcome};
use leasehold_store::{ErrorKind, StoreError, Taken};

use super::key_lock::KeyLock;
use super::place::Place;
use super::record::{Change, Record};
use super::turn::in_turn;
use super::{Inner, dead, inbox};

/// Takes a step on one key, when its turn comes.
pub(super) async fn take(
    store: &Arc<Inner>,
    key: &Key,
    command: &Command,
) -> Result<Outcome, StoreError> {
    let mut locks = in_turn(store, &[Place::of_key(key)]).await?;
    take_locked(store, &mut locks, key, Some(command))
}

/// Takes a step on a key that is locked. Without a command it only removes the dead.
pub(super) fn take_locked(
    store: &Inner,
    locks: &mut [KeyLock],
    key: &Key,
    command: Option<&Command>,
) -> Result<Outcome, StoreError> {
    let taken = transact(store, locks, &[(key, 0)], &[command], false)?;
    let outcome = taken.map_or_else(|(_, one)| Some(one), |mut outcomes| outcomes.pop());
    outcome.ok_or_else(|| StoreError::new(ErrorKind::Unavailable, "the step was not taken"))
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
    let (places, locked): (Vec<_>, Vec<_>) = sorted.into_iter().unzip();
    let locked_at = |key: &Key| locked.iter().position(|other| *other == key);
    let parts: Vec<_> = keys
        .iter()
        .map(|key| (*key, locked_at(key).unwrap_or_default()))
        .collect();
    let claims: Vec<_> = claims.iter().map(Some).collect();
    let mut locks = in_turn(store, &places).await?;
    transact(store, &mut locks, &parts, &claims, true)
}

/// Applies a command to the queue of each of these keys, which come with the places of their
/// locks, and writes them. Without a command only the dead are removed. Claims that have to be
/// granted `together` change nothing if one of them is not.
fn transact(
    store: &Inner,
    locks: &mut [KeyLock],
    parts: &[(&Key, usize)],
    commands: &[Option<&Command>],
    together: bool,
) -> Result<Taken, StoreError> {
    store.go_on()?;
    let at = store.clock.now();
    let (mut outcomes, mut changed) = (Vec::new(), Vec::new());
    for ((key, lock), command) in parts.iter().zip(commands) {
        let lock = &mut locks[*lock];
        let mut record = lock.read(key)?;
        let is_dead = |inbox: &_| store.session.sees_dead(inbox);
        // What is written is as it was: reading it again undoes what was tried.
        let again = || Ok(lock.read(key)?.queue);
        let (outcome, dead) = dead::apply(&mut record.queue, *command, at, is_dead, again)?;
        if together && !outcome.reply.is_grant() {
            return Ok(Err((outcomes.len(), outcome)));
        }
        if command.is_none() && dead.is_empty() {
            lock.keep(record);
            return Ok(Ok(vec![outcome]));
        }
        let change = Change {
            at,
            dead,
            command: command.map(Cow::Borrowed),
            expires: at + record.queue.keep_for(at, store.retention),
        };
        outcomes.push(outcome);
        changed.push((record, change));
    }
    put_back(locks, parts, changed)?;
    // Sent under the locks, and after the grants are in the files: pushes come in
    // the order of the steps, and none before what it says is true. The dead
    // are removed, so whoever does not hear is alive, and asks by itself.
    for ((key, _), outcome) in parts.iter().zip(&outcomes) {
        inbox::notify(store, key, outcome.at, &outcome.events);
    }
    Ok(Ok(outcomes))
}

/// Writes all steps. What is likely to fail, a full disk above all, fails before the first of
/// them is written.
///
/// Between the first and the last, a process that is killed leaves some of its
/// claims and not the others. They are claims of a dead client: whoever wants
/// such a key removes them, and until then nobody misses it.
fn put_back(
    locks: &mut [KeyLock],
    parts: &[(&Key, usize)],
    changed: Vec<(Record, Change<'_>)>,
) -> Result<(), StoreError> {
    let mut prepared = Vec::with_capacity(parts.len());
    for ((_, lock), (mut record, change)) in parts.iter().zip(changed) {
        let writes = locks[*lock].prepare(&mut record, &change)?;
        prepared.push((*lock, record, writes));
    }
    for (written, (lock, record, writes)) in prepared.into_iter().enumerate() {
        locks[lock]
            .commit(record, &writes)
            .map_err(|error| match written {
                0 => error,
                // The client asks again, or releases what it may have.
                _ => StoreError::new(ErrorKind::Unavailable, "not all keys could be written")
                    .with_source(error),
            })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
