//! Closed clients: after a shutdown, or when no runtime renews their leases.
//!
//! Each operation that makes or releases claims first increments a count, then checks whether the
//! client is open. A client that closes reads the count after it was marked closed. So each
//! operation either sees that the client is closed, or the client waits for it.

use std::ops::Deref;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

use super::Session;
use crate::background::{drives, held_up, nudge, wait_elsewhere};
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::sync::{
    AtomicBool, AtomicU64, AtomicUsize, OnDrop, Ordering, Runtime, check_runtime, id_of, timeout,
};

/// Why a client takes no more claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Its user has shut it down.
    ShutDown = 1,
    /// The runtime in which it was connected has ended: leases would not be renewed.
    NoRuntime = 2,
    /// That runtime exists but is not running.
    NotDriven,
    /// This process was forked from the one that connected it.
    Forked,
}

impl Closed {
    pub(crate) fn error(self) -> StoreError {
        let (message, hint) = match self {
            Self::ShutDown => ("the client was shut down", "connect again"),
            Self::NoRuntime => (
                "the Tokio runtime of the client has ended, so its leases are not renewed",
                "connect again, in a runtime that lives as long as the client",
            ),
            Self::NotDriven => (
                "the Tokio runtime of the client is not running, so its leases are not renewed",
                "connect in a runtime that keeps running, such as that of #[tokio::main]",
            ),
            Self::Forked => (
                "this process was forked, and the client belongs to the process that connected it",
                "connect again in the forked process",
            ),
        };
        StoreError::new(ErrorKind::Closed, message).with_hint(hint)
    }
}

/// Whether the client takes claims, and who is to be waited for when it closes.
#[derive(Default)]
pub(super) struct ShutdownState {
    /// Zero while it is open, then why not.
    closed: AtomicUsize,
    pub(super) under_way: AtomicUsize,
    closing: Notify,
    /// One that was under way has ended, or a claim has left.
    pub(super) departed: Notify,
    /// Requests under way that end a watch.
    pub(super) ending: AtomicUsize,
    /// All claims are released, also those that are granted from now on.
    pub(super) releases: AtomicBool,
    /// Releases that were confirmed since it was closed.
    pub(super) confirmed: AtomicU64,
    /// The only thread of the runtime in which it was connected.
    home: Option<ThreadId>,
}

impl ShutdownState {
    /// Of a client that is connected now.
    pub(super) fn here(runtime: &Runtime) -> Self {
        let single = id_of(runtime).is_some()
            && Handle::try_current()
                .is_ok_and(|here| here.runtime_flavor() == RuntimeFlavor::CurrentThread);
        Self {
            home: single.then(|| thread::current().id()),
            ..Self::default()
        }
    }

    pub(super) fn closed(&self) -> Option<Closed> {
        match self.closed.load(Ordering::SeqCst) {
            0 => None,
            1 => Some(Closed::ShutDown),
            _ => Some(Closed::NoRuntime),
        }
    }
}

/// What makes or releases claims, or ends a watch, until this is dropped, also with its runtime: a
/// shutdown waits for it.
pub(super) fn under_way<S: Deref<Target = Session>>(
    session: S,
    count: fn(&ShutdownState) -> &AtomicUsize,
) -> OnDrop<impl FnOnce()> {
    count(&session.shutdown).fetch_add(1, Ordering::SeqCst);
    OnDrop::new(move || {
        let state = &session.shutdown;
        count(state).fetch_sub(1, Ordering::SeqCst);
        if state.closed().is_some() {
            state.departed.notify_waiters();
        }
    })
}

/// A blocking call on a thread that has to do what the call waits for.
pub(crate) fn would_block() -> StoreError {
    let message =
        "a blocking call on the only thread of the client's Tokio runtime would block forever";
    let hint =
        "call it on another thread, as in spawn_blocking, or connect with leasehold::blocking";
    StoreError::new(ErrorKind::Invalid, message).with_hint(hint)
}

impl Session {
    /// Runs `work`, unless the client is closed before or during it. Then `work` is dropped, which
    /// releases the claims that it has made. Its result is dropped too, since the registry releases
    /// all held claims. A shutdown waits for it only if it is [`under_way`].
    pub(crate) async fn while_open<T>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.check_caller()?;
        let closing = self.shutdown.closing.notified();
        let _elsewhere = wait_elsewhere(&self.runtime);
        // Starts the driver if none runs.
        if self.wake_at.load(Ordering::SeqCst) == 0 {
            let now = clock::now();
            self.ensure_awake(now, now);
        }
        let check_open = || self.shutdown.closed().map_or(Ok(()), |it| Err(it.error()));
        check_open()?;
        let done = tokio::select! {
            biased;
            done = work => Some(done),
            () = closing => None,
        };
        check_open()?;
        done.unwrap_or_else(|| Err(Closed::ShutDown.error()))
    }

    /// Refuses what could never be answered: calls in a forked process, outside of a runtime, and
    /// blocking ones on the only thread of ours.
    pub(crate) fn check_caller(&self) -> Result<(), StoreError> {
        self.check_process()?;
        self.check_thread()?;
        check_runtime().map(drop)
    }

    /// Refuses calls in a forked process, also those that need no runtime.
    pub(crate) fn check_process(&self) -> Result<(), StoreError> {
        if self.is_inherited() {
            return Err(Closed::Forked.error());
        }
        Ok(())
    }

    /// Whether it is that of the process from which this one was forked. Nothing of it may be sent,
    /// and its locks may be held for ever, by threads that are not here.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process.has_forked()
    }

    /// A blocking call on the only thread of our runtime, or in a callback of another, whose thread
    /// drives it, would wait for what only that thread can do.
    fn check_thread(&self) -> Result<(), StoreError> {
        let is_ours = held_up().is_some_and(|it| Some(it) == id_of(&self.runtime));
        let is_home = || self.shutdown.home == Some(thread::current().id());
        match is_ours && (drives() || is_home()) {
            true => Err(would_block()),
            false => Ok(()),
        }
    }

    /// Takes no more claims, and ends those that are under way.
    pub(super) fn close(&self, why: Closed) {
        // Without its runtime nobody releases what a shutdown waits for.
        let closed = &self.shutdown.closed;
        closed.fetch_max(why as usize, Ordering::SeqCst);
        self.shutdown.closing.notify_waiters();
        self.shutdown.departed.notify_waiters();
    }

    /// Gives every claim back, and waits until all have left, and the store knows of all who do
    /// not watch any more. Says how many releases were confirmed, and how many claims are not known to have left.
    pub(crate) async fn shut_down(self: &Arc<Self>, within: Duration) -> (u64, u64) {
        let before = self.shutdown.confirmed.load(Ordering::SeqCst);
        self.close(Closed::ShutDown);
        self.shutdown.releases.store(true, Ordering::SeqCst);
        for home in self.keys.all() {
            // Whatever is changed is shut down.
            self.change(&home, None, |_, _| ());
        }
        let left = || {
            // In this order: what ends meanwhile has left its claims to their keys.
            let under_way = self.shutdown.under_way.load(Ordering::SeqCst);
            let homes = self.keys.all();
            let leaving = homes.iter().map(|it| it.lock().machine.leaving().count());
            let leaving: usize = leaving.sum();
            let confirmed = self.shutdown.confirmed.load(Ordering::SeqCst);
            // What is under way has its claims among those that leave, or none yet.
            (confirmed - before, under_way.max(leaving) as u64)
        };
        // A blocking call, which holds up those who would confirm it.
        let holds_up = self.check_thread().is_err();
        let all_left = async {
            loop {
                // From before the look on, so that no departure falls between.
                let departed = self.shutdown.departed.notified();
                let (released, unconfirmed) = left();
                let ending = self.shutdown.ending.load(Ordering::SeqCst);
                // With nobody to release them, they lapse.
                let lapse = self.shutdown.closed() == Some(Closed::NoRuntime);
                if lapse || unconfirmed + ending as u64 == 0 {
                    return (released, unconfirmed);
                }
                departed.await;
            }
        };
        // Out of time is an outcome here, told by the numbers.
        let done = match holds_up {
            true => left(),
            false => timeout(within, all_left).await.unwrap_or_else(|_| left()),
        };
        // The driver may sleep, and has nothing to stay for.
        self.wake.notify_one();
        nudge();
        done
    }
}
