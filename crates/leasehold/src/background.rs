//! The background thread of the blocking API, and how a blocking call waits for a future.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Id, RuntimeFlavor};
use tokio::task::unconstrained;

use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::fork::PerProcess;

static BACKGROUND: PerProcess<Background> = PerProcess::new();

/// The thread of this process. A forked child has to start another: it has no copy of threads.
#[derive(Debug, Default)]
struct Background {
    runs: OnceLock<Handle>,
    starting: Mutex<()>,
}

/// Starts the background thread, if it does not run yet. It lives as long as
/// the process: leases that are dropped late are still released by it.
pub(crate) fn enter() -> Result<&'static Handle, Error> {
    let background = BACKGROUND.get_or_init(Background::default);
    if let Some(handle) = background.runs.get() {
        return Ok(handle);
    }
    let _one_starts_it = background
        .starting
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = background.runs.get() {
        return Ok(handle);
    }
    let failed = |error: std::io::Error| {
        let error = StoreError::new(
            ErrorKind::Unavailable,
            "the background thread of the blocking API cannot be started",
        )
        .with_source(error);
        Error::new(Operation::Connect, None, error)
    };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("leasehold".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .map_err(failed)?;
    Ok(background.runs.get_or_init(|| handle))
}

thread_local! {
    static HELD_UP: Cell<Option<Id>> = const { Cell::new(None) };
}

/// The runtime in which this thread makes a blocking call, if it may be the only thread
/// of that.
pub(crate) fn held_up() -> Option<Id> {
    HELD_UP.get()
}

/// Until dropped, this thread holds up the runtime that it was in.
struct HeldUp(Option<Id>);

impl HeldUp {
    fn here() -> Self {
        let here = Handle::try_current().ok();
        let single = here.filter(|here| here.runtime_flavor() == RuntimeFlavor::CurrentThread);
        Self(HELD_UP.replace(single.map(|here| here.id())))
    }
}

impl Drop for HeldUp {
    fn drop(&mut self) {
        HELD_UP.set(self.0);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, with the timers of the background thread.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let _held_up = HeldUp::here();
    // Without a background thread there was no client to call this for, but for
    // one that came from async code: then its own runtime is at hand or was
    // captured, and starting ours is what its timers need here.
    let _context = enter().ok().map(Handle::enter);
    // Inside a task of another runtime its budget would end, and never be filled
    // again while we wait: the future would be polled for ever.
    let mut future = pin!(unconstrained(future));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

/// The same for at most `limit`; `None` if it is not finished by then.
pub(super) fn block_within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    // The timer is made where there is a context for it.
    block_on(async { tokio::time::timeout(limit, future).await }).ok()
}
