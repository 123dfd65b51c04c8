//! The runtime of the blocking API, and how a blocking call waits for a future.
//!
//! Whoever waits drives the runtime meanwhile: an answer is read by the thread that waits for it, and
//! crosses no other. While nobody waits, a background thread drives, so that leases are renewed. It
//! leaves the runtime to the first caller, and takes it back when no call has ended for a moment, or at
//! once where something is begun that nobody waits for. So a program that calls again and again does
//! not wake it each time.
//!
//! Hidden: only for the crates of this repository.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use leasehold_store::sync::{self, OnDrop};
use tokio::runtime::{Builder, Handle, Id, Runtime, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::task::unconstrained;

use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::fork::PerProcess;

static BACKGROUND: PerProcess<Background> = PerProcess::new();
static BEGINS: OnceLock<fn()> = OnceLock::new();

/// The background thread takes the runtime back when no call has ended for so long. Nothing that is
/// due meanwhile is hurt by it: leases are renewed long before they end.
const LINGER: Duration = Duration::from_millis(10);

/// A call during which it has looked so often is a long one: it sleeps until that ends.
const LOOKS: u32 = 10;

/// That of this process. A forked child has to start another: it has no copy of threads.
#[derive(Debug, Default)]
struct Background {
    runtime: OnceLock<Runtime>,
    /// For calls in callbacks, which may go on with a future that has begun in another.
    timers: OnceLock<Runtime>,
    thread: OnceLock<Thread>,
    starting: Mutex<()>,
    /// Threads that wait, one of which drives.
    callers: AtomicUsize,
    /// Calls that have ended.
    calls: AtomicUsize,
    /// Whether the background thread drives; `come` tells it that there are callers.
    drives: AtomicBool,
    come: Notify,
    /// Whether it sleeps until the last caller has left.
    sleeps: AtomicBool,
    /// Whether something was begun that nobody waits for.
    needed: AtomicBool,
    /// Those who wait in futures that are polled elsewhere.
    elsewhere: AtomicUsize,
}

/// Starts the background thread, if it does not run yet. It lives as long as
/// the process: leases that are dropped late are still released by it.
///
/// # Errors
/// `Unavailable`: the system has no thread to spare.
pub fn enter() -> Result<&'static Handle, Error> {
    started().map(|(_, runtime)| runtime.handle())
}

/// Each thread of the runtime calls this first; those that run already do not.
pub fn on_thread_start(begin: fn()) {
    let _one_has_said_so: Result<(), _> = BEGINS.set(begin);
}

fn begin_thread() {
    BEGINS.get().into_iter().for_each(|begin| begin());
}

/// Begins work that nobody waits for: on the runtime, if this process has started it.
pub fn spawn(work: impl Future<Output: Send + 'static> + Send + 'static) {
    if let Some(runtime) = running() {
        runtime.spawn(work);
        nudge();
    }
}

/// The runtime, if this process has started it.
fn running() -> Option<&'static Handle> {
    BACKGROUND.get()?.runtime.get().map(Runtime::handle)
}

/// Something was begun on a thread that does not wait for it.
pub(crate) fn nudge() {
    if let Some(background) = BACKGROUND.get() {
        background.nudge();
    }
}

fn started() -> Result<(&'static Background, &'static Runtime), Error> {
    let background = BACKGROUND.get_or_init(Background::default);
    if let (Some(runtime), Some(_)) = (background.runtime.get(), background.thread.get()) {
        return Ok((background, runtime));
    }
    let starting = background.starting.lock();
    let _one_starts_it = starting.unwrap_or_else(PoisonError::into_inner);
    let started = background.start().map_err(|error| {
        let message = "the background thread of the blocking API cannot be started";
        let error = StoreError::new(ErrorKind::Unavailable, message).with_source(error);
        Error::new(Operation::Connect, None, error)
    });
    started.map(|runtime| (background, runtime))
}

impl Background {
    /// Starts what does not run yet.
    fn start(&'static self) -> io::Result<&'static Runtime> {
        let runtime = match self.runtime.get() {
            Some(runtime) => runtime,
            None => {
                let mut runtime = Builder::new_current_thread();
                let runtime = runtime.on_thread_start(begin_thread).enable_all().build()?;
                self.runtime.get_or_init(|| runtime)
            }
        };
        if self.thread.get().is_none() {
            let thread = thread::Builder::new().name("leasehold".into());
            let thread = thread.spawn(|| {
                begin_thread();
                IN_BACKGROUND.set(true);
                self.drive_between_calls(runtime);
            })?;
            self.thread.get_or_init(|| thread.thread().clone());
        }
        Ok(runtime)
    }

    fn timers(&self) -> Option<&Runtime> {
        if self.timers.get().is_none() {
            let timers = Builder::new_current_thread().enable_time().build().ok()?;
            self.timers.get_or_init(|| timers);
        }
        self.timers.get()
    }

    fn drive_between_calls(&self, runtime: &Runtime) {
        loop {
            self.drives.store(true, Ordering::SeqCst);
            runtime.block_on(async {
                while self.callers.load(Ordering::SeqCst) == 0 {
                    self.come.notified().await;
                }
            });
            self.drives.store(false, Ordering::SeqCst);
            self.wait_between_calls();
        }
    }

    /// Waits until no caller drives, and either none has called for a while or the runtime is needed.
    fn wait_between_calls(&self) {
        let (mut ended, mut looks) = (self.calls.load(Ordering::SeqCst), 0);
        loop {
            thread::park_timeout(LINGER);
            let before = std::mem::replace(&mut ended, self.calls.load(Ordering::SeqCst));
            looks = if ended == before { looks + 1 } else { 0 };
            if self.callers.load(Ordering::SeqCst) == 0 {
                let needed = self.needed.swap(false, Ordering::SeqCst);
                if needed || looks > 0 || self.elsewhere.load(Ordering::SeqCst) > 0 {
                    return;
                }
            } else if looks >= LOOKS {
                self.sleeps.store(true, Ordering::SeqCst);
                while self.callers.load(Ordering::SeqCst) > 0 {
                    thread::park();
                }
                self.sleeps.store(false, Ordering::SeqCst);
            }
        }
    }

    fn nudge(&self) {
        let is_driven = self.drives.load(Ordering::SeqCst);
        if !is_driven && self.callers.load(Ordering::SeqCst) == 0 {
            self.needed.store(true, Ordering::SeqCst);
            self.wake();
        }
    }

    fn wake(&self) {
        self.thread.get().into_iter().for_each(Thread::unpark);
    }
}

/// A thread that drives the runtime, or waits for its turn, until this is dropped.
fn caller(background: &Background) -> OnDrop<impl FnOnce()> {
    background.callers.fetch_add(1, Ordering::SeqCst);
    if background.drives.load(Ordering::SeqCst) {
        background.come.notify_one();
    }
    DRIVES.set(true);
    OnDrop::new(|| {
        DRIVES.set(false);
        background.calls.fetch_add(1, Ordering::SeqCst);
        let was_last = background.callers.fetch_sub(1, Ordering::SeqCst) == 1;
        let is_awaited = || background.elsewhere.load(Ordering::SeqCst) > 0;
        if was_last && (background.sleeps.load(Ordering::SeqCst) || is_awaited()) {
            background.wake();
        }
    })
}

/// A future that is polled now, for a session with that runtime, waits for what the runtime does, and
/// does not drive it, until this is dropped.
pub(crate) fn wait_elsewhere(runtime: &sync::Runtime) -> Option<OnDrop<impl FnOnce()>> {
    let ours = |here: &&Handle| sync::id_of(runtime) == Some(here.id());
    running().filter(ours).filter(|_| !DRIVES.get())?;
    count_elsewhere()
}

fn count_elsewhere() -> Option<OnDrop<impl FnOnce()>> {
    let background = BACKGROUND.get()?;
    background.elsewhere.fetch_add(1, Ordering::SeqCst);
    background.nudge();
    Some(OnDrop::new(|| {
        background.elsewhere.fetch_sub(1, Ordering::SeqCst);
    }))
}

thread_local! {
    static HELD_UP: Cell<Option<Id>> = const { Cell::new(None) };
    /// Whether this thread is one of the callers.
    static DRIVES: Cell<bool> = const { Cell::new(false) };
    /// Whether this is the background thread.
    static IN_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread drives the runtime, or may: in a blocking call, or between calls.
pub(crate) fn drives() -> bool {
    DRIVES.get() || IN_BACKGROUND.get()
}

/// The runtime in which this thread makes a blocking call, if it may be the only thread
/// of that.
pub(crate) fn held_up() -> Option<Id> {
    HELD_UP.get()
}

/// Until this is dropped, the thread holds up the runtime that it was in.
fn hold_up() -> OnDrop<impl FnOnce()> {
    // Who waits in place of a thread that drives holds up what that drives.
    let outer = HELD_UP.get().filter(|_| drives());
    let here = Handle::try_current().ok();
    let single = here.filter(|here| here.runtime_flavor() == RuntimeFlavor::CurrentThread);
    let before = HELD_UP.replace(outer.or_else(|| single.map(|here| here.id())));
    OnDrop::new(move || HELD_UP.set(before))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, which drives the runtime meanwhile.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    match (started(), Handle::try_current()) {
        (Ok((background, runtime)), Err(none)) if none.is_missing_context() => {
            let _caller = caller(background);
            runtime.block_on(future)
        }
        (background, _) => {
            let _held_up = hold_up();
            // Without a background thread there was no client to call this for, but for
            // one that came from async code: then its own runtime is at hand or was
            // captured, and starting ours is what its timers need here. Where the thread
            // ends there can be no context, and what needs one is refused.
            let background = background.ok().filter(|_| !thread_ends());
            let _context = background.map(|(_, runtime)| runtime.enter());
            let _elsewhere = count_elsewhere();
            block_on_this_thread(future)
        }
    }
}

/// Inside of another runtime, which is not driven meanwhile, and cannot be.
fn block_on_this_thread<T>(future: impl Future<Output = T>) -> T {
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

/// Whether this thread, or the process, ends, and what a runtime keeps of a thread is gone.
pub(crate) fn thread_ends() -> bool {
    Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}

/// The same as [`block_on`] for at most `limit`; `None` if it is not finished by then.
pub fn block_within<T: Send>(limit: Duration, future: impl Future<Output = T> + Send) -> Option<T> {
    // The timer is made where there is a context for it.
    block_anywhere(async { tokio::time::timeout(limit, future).await.ok() })
}

/// The same as [`block_on`], also where another thread has to wait: where this one ends, and in a callback
/// of a blocking call, during which it does not drive the runtime and no timer of that goes on.
pub(crate) fn block_anywhere<T: Send>(future: impl Future<Output = T> + Send) -> T {
    let driven = Handle::try_current().ok().filter(|_| drives());
    let driven = driven.map(|runtime| held_up().unwrap_or_else(|| runtime.id()));
    let wait = move || {
        let timers = driven.and_then(|_| BACKGROUND.get()?.timers());
        let Some(timers) = timers else {
            return block_on(future);
        };
        // What is refused here is refused there.
        DRIVES.set(true);
        HELD_UP.set(driven);
        timers.block_on(future)
    };
    if driven.is_none() && !thread_ends() {
        return wait();
    }
    let there = || {
        begin_thread();
        wait()
    };
    let waited = thread::scope(|scope| scope.spawn(there).join());
    waited.unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::mpsc;

    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn a_caller_drives_the_runtime() {
        let here = thread::current().id();
        // Other tests call, too: then one of them may drive.
        let drives = (0..10_000).any(|_| {
            let there = block_on(async { tokio::spawn(async { thread::current().id() }).await });
            there.unwrap() == here
        });
        assert!(drives);
    }

    /// Ends after what the runtime keeps of its thread, which is made later.
    struct AtEnd(Option<Box<dyn FnOnce()>>);

    impl Drop for AtEnd {
        fn drop(&mut self) {
            self.0.take().into_iter().for_each(|work| work());
        }
    }

    thread_local! {
        static AT_END: RefCell<AtEnd> = const { RefCell::new(AtEnd(None)) };
    }

    #[test]
    fn a_thread_that_ends_can_wait() {
        let (send, receive) = mpsc::channel();
        let work = move || {
            let gone = Handle::try_current().unwrap_err();
            assert!(gone.is_thread_local_destroyed());
            let done = block_within(LIMIT, async {
                tokio::time::sleep(Duration::from_millis(1)).await;
            });
            send.send(done).unwrap();
        };
        let ends = thread::spawn(|| {
            AT_END.with_borrow_mut(|at_end| at_end.0 = Some(Box::new(work)));
            block_on(async {});
        });
        ends.join().unwrap();
        assert_eq!(receive.recv_timeout(LIMIT), Ok(Some(())));
    }

    /// A panic would end the process there. What is to be given back is, in the background.
    #[test]
    fn a_call_of_a_thread_that_ends_is_refused() {
        let client = crate::blocking::connect("memory:").unwrap();
        // It does not lapse meanwhile.
        let lock = client.mutex("k").unwrap().with_ttl(2 * LIMIT);
        let (lease, next) = (lock.lock().unwrap(), lock.clone());
        let (send, receive) = mpsc::channel();
        let work = move || {
            assert!(thread_ends());
            send.send((lock.is_locked(), lease.release())).unwrap();
        };
        let ends = thread::spawn(|| {
            AT_END.with_borrow_mut(|at_end| at_end.0 = Some(Box::new(work)));
            block_on(async {});
        });
        ends.join().unwrap();
        let (seen, released) = receive.recv_timeout(LIMIT).unwrap();
        assert_eq!(seen.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(released.unwrap_err().kind(), ErrorKind::Invalid);
        drop(next.lock_within(LIMIT).unwrap());
    }

    #[test]
    fn what_nobody_waits_for_is_driven_too() {
        let runtime = enter().unwrap();
        let (send, receive) = mpsc::channel();
        // After calls, during a long one and after it.
        for limit in [0, 1, 50].map(Duration::from_millis) {
            assert!(block_within(limit, std::future::pending::<()>()).is_none());
            let send = send.clone();
            runtime.spawn(async move { send.send(()).unwrap() });
            receive.recv_timeout(LIMIT).unwrap();
        }
        let (release, wait) = tokio::sync::oneshot::channel();
        let caller = thread::spawn(|| block_on(wait).unwrap());
        runtime.spawn(async move { send.send(()).unwrap() });
        receive.recv_timeout(LIMIT).unwrap();
        release.send(()).unwrap();
        caller.join().unwrap();
    }

    thread_local! {
        static BEGUN: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn a_thread_that_waits_for_another_begins_as_all_do() {
        on_thread_start(|| BEGUN.set(true));
        let there = block_on(async { block_anywhere(async { BEGUN.get() }) });
        assert!(there && !BEGUN.get());
    }

    /// Whichever thread drives the task: the call would wait for what only that thread does.
    #[test]
    fn a_blocking_call_of_a_task_is_refused() {
        let client = crate::blocking::connect("memory:").unwrap();
        let (send, receive) = mpsc::channel();
        let task = async move { send.send(client.inspect("k").map(drop)).unwrap() };
        enter().unwrap().spawn(task);
        let refused = receive.recv_timeout(LIMIT).unwrap();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn what_is_needed_is_not_put_off_by_calls() {
        let waits_elsewhere = |it: &Background| {
            it.elsewhere.fetch_add(1, Ordering::SeqCst);
        };
        let needs: [fn(&Background); 2] = [Background::nudge, waits_elsewhere];
        for need in needs {
            let background = Background::default();
            let is_driven = thread::scope(|scope| {
                let waits = scope.spawn(|| background.wait_between_calls());
                need(&background);
                let begin = Instant::now();
                // As by one call after the other: only when they end would it come to its turn.
                while !waits.is_finished() && begin.elapsed() < LIMIT {
                    background.calls.fetch_add(1, Ordering::SeqCst);
                    thread::yield_now();
                }
                waits.is_finished()
            });
            assert!(is_driven);
        }
    }

    #[test]
    fn who_waits_elsewhere_is_served_between_calls() {
        let runtime = enter().unwrap();
        let (send, receive) = tokio::sync::oneshot::channel();
        let other = Builder::new_current_thread().build().unwrap();
        let waits = thread::spawn(move || {
            other.block_on(async {
                let elsewhere = wait_elsewhere(enter().unwrap());
                assert!(elsewhere.is_some());
                receive.await.unwrap();
            });
        });
        block_on(async { assert!(wait_elsewhere(runtime).is_none()) });
        runtime.spawn(async move { send.send(()).unwrap() });
        waits.join().unwrap();
    }
}
