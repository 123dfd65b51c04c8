//! The runtime of this process: one thread, started with the first connection.

use std::future::pending;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use leasehold_store::fork::PerProcess;
use tokio::runtime::{Builder, Handle};

use crate::failure::Failure;

/// A forked child has none of its parent's threads. It never uses, joins or drops what its parent
/// had, and starts a thread of its own with its first call.
static RUNTIME: PerProcess<Background> = PerProcess::new();

#[derive(Default)]
struct Background {
    handle: OnceLock<Handle>,
    starting: Mutex<()>,
}

/// The runtime, if this process has started it.
pub(crate) fn running() -> Option<&'static Handle> {
    RUNTIME.get()?.handle.get()
}

/// Starts the thread, if it does not run yet. It lives as long as the process: leases that are
/// garbage late are still released by it.
pub(crate) fn handle() -> Result<&'static Handle, Failure> {
    let background = RUNTIME.get_or_init(Background::default);
    if let Some(handle) = background.handle.get() {
        return Ok(handle);
    }
    let starting = background.starting.lock();
    let _one_starts_it = starting.unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = background.handle.get() {
        return Ok(handle);
    }
    let failed = |error: std::io::Error| Failure::no_thread(&error);
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("leasehold".into())
        .spawn(move || runtime.block_on(pending::<()>()))
        .map_err(failed)?;
    Ok(background.handle.get_or_init(|| handle))
}
