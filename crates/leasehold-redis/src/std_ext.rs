//! Locks, hashes and tasks, with what is the same wherever this crate uses them.

use std::sync::Mutex;

pub(crate) use leasehold_store::sync::lock;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// FNV-1a, 64 bits: gives things numbers or names, and guards nothing.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A task in the background, which ends with its owner.
#[derive(Debug, Default)]
pub(crate) struct BackgroundTask(Mutex<Option<AbortHandle>>);

impl BackgroundTask {
    /// Starts it on the current runtime, if there is one, in place of the one before.
    pub(crate) fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Held meanwhile: the task may come here itself, at once.
        replace(&mut lock(&self.0), task);
    }

    /// Whether it is over, or its runtime is.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.0).as_ref().is_none_or(AbortHandle::is_finished)
    }

    /// The same, unless it runs already: it ends with the runtime on which it was started.
    pub(crate) fn ensure(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Held meanwhile: of two who come at once, the second leaves the task of the first alone.
        let mut running = lock(&self.0);
        if running.as_ref().is_none_or(AbortHandle::is_finished) {
            replace(&mut running, task);
        }
    }
}

fn replace(running: &mut Option<AbortHandle>, task: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        let before = running.replace(runtime.spawn(task).abort_handle());
        before.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        lock(&self.0).iter().for_each(AbortHandle::abort);
    }
}
