//! Steps on keys that are locked: read, apply, write, notify.

use std::borrow::Cow;
use std::slice;
use std::sync::Arc;

use leasehold_core::{Command, Key, Now, Snapshot};
use leasehold_store::{StoreError, Taken};

use super::acquire_record::{acquire, blocking};
use super::errors::unavailable;
use super::log::Log;
use super::record::Change;
use super::record_file::RecordFile;
use super::record_guard::RecordGuard;
use super::{Inner, inbox, remove_dead};

/// Takes one step on these keys, when its turn comes on each. Claims that have to be granted
/// `together` change nothing if one of them is not.
pub(super) async fn take(
    store: &Arc<Inner>,
    keys: &[&Key],
    commands: &[Command],
    together: bool,
) -> Result<Taken, StoreError> {
    let commands: Vec<_> = commands.iter().map(Some).collect();
    let mut locks = acquire(store, keys).await?;
    let taken = transact(store, &mut locks, keys, &commands, together);
    drop(locks);
    if store.audit.as_ref().is_some_and(Log::has_ended) {
        let store = store.clone();
        let removed = blocking(move || {
            if let Some(log) = &store.audit {
                log.remove_old(store.clock.now());
            }
            Ok(())
        });
        // Where the runtime is shutting down, it is left to the next who ends a file.
        removed.await.ok();
    }
    taken
}

/// The queue of a key from which the dead have been removed; none if others are at it.
pub(super) fn without_dead(store: &Arc<Inner>, key: &Key) -> Result<Option<Snapshot>, StoreError> {
    let Some(mut lock) = RecordFile::of_key(store, key).try_lock()? else {
        return Ok(None);
    };
    transact(store, slice::from_mut(&mut lock), &[key], &[None], false)?.ok();
    let record = lock.read(key)?;
    let seen = record.queue.look(store.clock.now());
    lock.keep(record);
    Ok(Some(seen))
}

/// Applies a command to the queue of each of these keys, which are locked, and writes them. Without
/// a command only the dead are removed.
///
/// What is likely to fail, a full disk above all, fails before the first record is written.
/// Between the first and the last, a process that is killed leaves some of its
/// claims and not the others. They are claims of a dead client: whoever wants
/// such a key removes them, and until then nobody misses it.
pub(super) fn transact(
    store: &Arc<Inner>,
    locks: &mut [RecordGuard],
    keys: &[&Key],
    commands: &[Option<&Command>],
    together: bool,
) -> Result<Taken, StoreError> {
    // Who only lets go need not be seen to live.
    let releases = |command: &Option<&Command>| matches!(command, Some(Command::Release(_)));
    if !commands.iter().all(releases) && store.session.go_on()? {
        inbox::bind_again(store);
    }
    let at = store.clock.now();
    let now = Now {
        audited: store.audit.is_some(),
        ..Now::from(at)
    };
    let (mut outcomes, mut prepared) = (Vec::new(), Vec::new());
    for ((key, lock), command) in keys.iter().zip(&mut *locks).zip(commands) {
        let mut record = lock.read(key)?;
        let is_dead = |inbox: &_| store.session.sees_dead(inbox);
        // What is written is as it was: reading it again undoes what was tried.
        let again = || Ok(lock.read(key)?.queue);
        let (outcome, dead) = remove_dead::apply(&mut record.queue, *command, now, is_dead, again)?;
        if together && !outcome.reply.is_grant() {
            return Ok(Err((outcomes.len(), Box::new(outcome))));
        }
        if command.is_none() && dead.is_empty() {
            lock.keep(record);
            return Ok(Ok(vec![outcome]));
        }
        let change = Change {
            at,
            dead,
            command: command.map(Cow::Borrowed),
            expires: at + record.queue.keep_for(at, store.options.retention),
        };
        let writes = lock.prepare(&mut record, &change)?;
        outcomes.push(outcome);
        prepared.push((record, writes));
    }
    for (written, (lock, (record, writes))) in locks.iter_mut().zip(prepared).enumerate() {
        let done = lock.commit(record, &writes);
        done.map_err(|error| match written {
            0 => error,
            // The client asks again, or releases what it may have.
            _ => unavailable("not all keys could be written").with_source(error),
        })?;
    }
    // After the records, so that the log is never untrue.
    if let Some(audit) = &store.audit {
        for (key, outcome) in keys.iter().zip(&mut outcomes) {
            audit.add(key, std::mem::take(&mut outcome.audit));
        }
    }
    // Sent under the locks, and after the grants are in the files: pushes come in
    // the order of the steps, and none before what it says is true. The dead
    // are removed, so whoever does not hear is alive, and asks by itself.
    for (key, outcome) in keys.iter().zip(&outcomes) {
        inbox::notify(store, key, outcome.at, &outcome.events);
    }
    Ok(Ok(outcomes))
}

#[cfg(test)]
mod tests;
