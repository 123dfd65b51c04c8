//! How a step gets the locks of its records.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Key, written};
use leasehold_store::StoreError;
use rustix::fs::{FlockOperation, flock, fstat};
use rustix::io::{Errno, retry_on_intr};
use tokio::sync::OwnedMutexGuard;
use tokio::task::coop::consume_budget;
use tokio::task::{Id, try_id};
use tokio::time::{Instant, sleep, timeout_at};

use super::Inner;
use super::errors::unavailable;
use super::record_file::{OpenRecord, RecordFile, size_of};
use super::record_guard::RecordGuard;

/// How long a key may be in the middle of other steps. One takes well under a
/// millisecond, but a process may have been stopped there.
const PATIENCE: Duration = Duration::from_secs(4);

/// How often a step tries to lock a key before it sleeps: steps are short.
const LOCK_TRIES: usize = 16;

/// How long it sleeps then at first, and at most.
const LOCK_PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(16)];

/// How much of a task's turn a step takes. Tokio's budget for a turn is 128, and counts what takes a
/// fraction of a microsecond: with as little for a step, which takes about five, one of 64 tasks would
/// wait for the next of its turns for tens of milliseconds.
const COST: usize = 32;

/// How much it takes while no other task takes steps in this thread. A worker that has nothing else to
/// run when a task gives up its turn looks for work elsewhere and wakes another worker: that takes as
/// long as two steps.
const COST_ALONE: usize = 2;

/// After how many steps of one task in a row no other takes any: two turns, as Tokio begins with the
/// task that has given up its turn last.
const ALONE_AFTER: usize = 2 * 128 / COST;

thread_local! {
    /// The task that took the last step in this thread, and how many before that.
    static LAST: Cell<(Option<Id>, usize)> = const { Cell::new((None, 0)) };
}

/// Locks the records of some keys: at once where nobody else is at them, as a step takes some
/// microseconds. The future can be dropped: no lock stays.
///
/// Holds none while it waits, so no two can wait for each other, and a process that was stopped in
/// mid-step holds up its own key only.
pub(super) async fn acquire(
    store: &Arc<Inner>,
    keys: &[&Key],
) -> Result<Vec<RecordGuard>, StoreError> {
    // Nothing else here waits for anybody: other tasks have their turn, too.
    let (this, (last, before)) = (try_id(), LAST.get());
    let before = if last == this { before + 1 } else { 0 };
    LAST.set((this, before));
    let cost = match before < ALONE_AFTER {
        true => COST,
        false => COST_ALONE,
    };
    for _ in 0..cost {
        consume_budget().await;
    }
    // Where all who lock several keys begin, and go on: sorted.
    let records = keys.iter().map(|key| RecordFile::of_key(store, key));
    let mut records: Vec<_> = records.enumerate().collect();
    records.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
    let (mut guards, mut until) = (Vec::with_capacity(records.len()), None);
    while let Some((number, next)) = records.get(guards.len()) {
        if let Some(guard) = next.try_lock()? {
            guards.push((*number, guard));
            continue;
        }
        let first = guards.is_empty();
        guards.clear();
        let until = *until.get_or_insert_with(|| Instant::now() + PATIENCE);
        let guard = timeout_at(until, next.lock()).await.map_err(|_| {
            let limit = written(PATIENCE);
            unavailable(format!("could not lock the record of this key within {limit}")).with_hint(
                "a process that uses the directory may be stopped in the middle of a step, or very many use the key",
            )
        })??;
        // Else not kept: all begin with the first, so that one of them gets through.
        first.then(|| guards.push((*number, guard)));
    }
    guards.sort_by_key(|(number, _)| *number);
    Ok(guards.into_iter().map(|(_, guard)| guard).collect())
}

/// Runs file work where it holds nobody up.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(unavailable("the runtime is shutting down").with_source(error)))
}

impl RecordFile {
    /// Locks the record for one step, unless others are at it for long.
    pub(super) fn try_lock(&self) -> Result<Option<RecordGuard>, StoreError> {
        match self.store.records.get(&self.name).try_lock_owned() {
            Ok(turn) => Ok(self.lock_in_turn(turn)?.ok()),
            Err(_) => Ok(None),
        }
    }

    /// Locks the record, however long that takes: first among the steps of this client, then among
    /// those of all. Asks again and again: a system call that waits could not be given up.
    pub(super) async fn lock(&self) -> Result<RecordGuard, StoreError> {
        let mut turn = self.store.records.get(&self.name).lock_owned().await;
        let [mut pause, longest] = LOCK_PAUSES;
        loop {
            match self.lock_in_turn(turn)? {
                Ok(guard) => return Ok(guard),
                Err(taken) => turn = taken,
            }
            sleep(pause).await;
            pause = longest.min(pause * 2);
        }
    }

    /// The record itself carries the lock: it is made if need be, and stays the same file until
    /// it is swept.
    fn lock_in_turn(
        &self,
        mut turn: OwnedMutexGuard<OpenRecord>,
    ) -> Result<Result<RecordGuard, OwnedMutexGuard<OpenRecord>>, StoreError> {
        let failed = |errno| self.failed("write to", errno);
        for _ in 0..LOCK_TRIES {
            let file = match turn.file.take() {
                Some(file) => file,
                None => {
                    turn.known = None;
                    Arc::new(self.open().map_err(failed)?)
                }
            };
            let now = FlockOperation::NonBlockingLockExclusive;
            let locked = retry_on_intr(|| flock(&file.fd, now));
            // One look says that the directory and the file are where they were.
            let size = match inode_and_size(&file.path) {
                Some((inode, size)) if inode == file.inode => size,
                _ => {
                    self.store.directory.check_stands()?;
                    // Removed or moved away: what stands there now is another file.
                    let stands = self.store.directory.has(&file.fd, &self.name);
                    if !stands.map_err(failed)? {
                        continue;
                    }
                    size_of(&fstat(&file.fd).map_err(failed)?)
                }
            };
            turn.file = Some(file.clone());
            match locked {
                Ok(()) => {
                    return Ok(Ok(RecordGuard {
                        record: self.clone(),
                        turn,
                        file,
                        size,
                        used: size,
                    }));
                }
                Err(Errno::WOULDBLOCK) => std::thread::yield_now(),
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(Err(turn))
    }
}

/// What is at that path. Nobody asks for its times: Linux goes on to write down another one with
/// each write after somebody has, which takes longer than the write.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn inode_and_size(path: &Path) -> Option<((u64, u64), usize)> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
    let asked = StatxFlags::INO | StatxFlags::SIZE;
    let seen = statx(CWD, path, AtFlags::empty(), asked).ok()?;
    let device = makedev(seen.stx_dev_major, seen.stx_dev_minor);
    Some(((device, seen.stx_ino), usize::try_from(seen.stx_size).ok()?))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn inode_and_size(_path: &Path) -> Option<((u64, u64), usize)> {
    None
}
