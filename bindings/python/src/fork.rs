//! Brings everything to rest while the process forks.
//!
//! A child has no other thread than the one that forks. What another thread has locked or begun to
//! initialise at that time stays so in the child for ever. So a fork waits until no thread is inside
//! of the library, and keeps the thread that drives the runtime in a task that does nothing.

use std::cell::Cell;
use std::mem::forget;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::thread;
use std::time::Duration;

use leasehold::background;
use pyo3::prelude::*;

/// Threads that wait for a call read it, while they drive that. Who forks writes.
static DRIVING: RwLock<()> = RwLock::new(());

/// Whether a thread forks: one at a time.
static FORKS: AtomicBool = AtomicBool::new(false);

/// How often another looks whether that one is done.
const TURN_INTERVAL: Duration = Duration::from_millis(1);

/// The runtime runs nothing that takes long: if it does not pause within this time, the process
/// forks all the same.
const PATIENCE: Duration = Duration::from_secs(1);

thread_local! {
    static FORKING: Cell<Option<Rest>> = const { Cell::new(None) };
}

/// That nobody drives, and what lets the runtime go on, if there is one.
struct Rest(RwLockWriteGuard<'static, ()>, Option<Sender<()>>);

/// Until dropped, no thread forks: this one is inside of the library. `None`: one is about to.
pub(crate) fn driving() -> Option<RwLockReadGuard<'static, ()>> {
    match DRIVING.try_read() {
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Ok(driving) => Some(driving),
    }
}

/// Before a fork, on the thread that forks. Another may make the first call of this process before it
/// forks: so nobody drives then, whether or not the runtime is there by now.
#[pyfunction]
pub(crate) fn fork_begins(py: Python<'_>) {
    // Who forks may need the interpreter to go on, as in hooks of others.
    while FORKS.swap(true, Ordering::Acquire) {
        py.detach(|| thread::park_timeout(TURN_INTERVAL));
    }
    // Those who drive a call have let go of the interpreter, and do not need it to go on.
    let nobody_drives = DRIVING.write().unwrap_or_else(PoisonError::into_inner);
    let resume = background::running().map(|runtime| {
        let (paused, is_paused) = mpsc::channel();
        let (resume, resumed) = mpsc::channel();
        runtime.spawn(async move {
            let _ = paused.send(());
            let _: Result<(), _> = resumed.recv();
        });
        background::nudge();
        let _ = is_paused.recv_timeout(PATIENCE);
        resume
    });
    FORKING.set(Some(Rest(nobody_drives, resume)));
}

/// After a fork, in the process that has forked.
#[pyfunction]
pub(crate) fn forked_here() {
    if FORKING.take().is_some() {
        FORKS.store(false, Ordering::Release);
    }
}

/// After a fork, in the child: nobody is there to be resumed.
#[pyfunction]
pub(crate) fn forked_there() {
    if let Some(Rest(nobody_drives, resume)) = FORKING.take() {
        drop(nobody_drives);
        forget(resume);
        FORKS.store(false, Ordering::Release);
    }
}
