//! Brings everything to rest while the process forks.
//!
//! A child has no other thread than the one that forks. What another thread has locked or begun to
//! initialise at that time stays so in the child for ever. So a fork waits until no thread is inside
//! of the library, and keeps the thread that drives the runtime in a task that does nothing.
//!
//! The C library calls the hooks, as the last before the fork and the first after it. Hooks of Python
//! let code of others run in between, which may fork or make calls: other hooks, handlers of signals.

use std::cell::Cell;
use std::mem::forget;
use std::sync::mpsc::{self, Sender};
use std::sync::{Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

use leasehold::background;
use leasehold_store::fork::around_forks;

/// Threads that wait for a call read it, while they drive that. Who forks writes.
static DRIVING: RwLock<()> = RwLock::new(());

/// The runtime runs nothing that takes long: if it does not pause within this time, the process
/// forks all the same.
const PATIENCE: Duration = Duration::from_secs(1);

thread_local! {
    static FORKING: Cell<Option<Rest>> = const { Cell::new(None) };
}

/// That nobody drives, and what lets the runtime go on.
struct Rest(RwLockWriteGuard<'static, ()>, Sender<()>);

/// Until dropped, no thread forks: this one is inside of the library. `None`: one is about to.
pub(crate) fn driving() -> Option<RwLockReadGuard<'static, ()>> {
    match DRIVING.try_read() {
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Ok(driving) => Some(driving),
    }
}

/// Once, also where the module is imported anew: called twice, `begins` would wait for itself.
pub(crate) fn rest_at_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| around_forks(begins, forked_here, forked_there));
}

/// On the thread that forks. Another may make the first call of this process before it forks: so
/// nobody drives then, whether or not the runtime is there by now.
extern "C" fn begins() {
    // Those who drive a call have let go of the interpreter, and do not need it to go on.
    let nobody_drives = DRIVING.write().unwrap_or_else(PoisonError::into_inner);
    let (paused, is_paused) = mpsc::channel();
    let (resume, resumed) = mpsc::channel();
    // Where there is no runtime this is dropped, and nobody waits for it.
    background::spawn(async move {
        let _ = paused.send(());
        let _ = resumed.recv();
    });
    let _ = is_paused.recv_timeout(PATIENCE);
    let rest = Some(Rest(nobody_drives, resume));
    // Where the thread ends nothing can be kept: it forks all the same.
    let _ = FORKING.try_with(|forking| forking.set(rest));
}

/// In the process that has forked.
extern "C" fn forked_here() {
    drop(FORKING.try_with(Cell::take));
}

/// In the child: nobody is there to be resumed.
extern "C" fn forked_there() {
    if let Ok(Some(Rest(nobody_drives, resume))) = FORKING.try_with(Cell::take) {
        drop(nobody_drives);
        forget(resume);
    }
}
