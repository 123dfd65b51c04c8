//! Synchronisation under a test scheduler that decides which task continues at each lock and
//! atomic.
//!
//! Time does not pass until [`advance`] is called. So code that completes needs no timer, and
//! code that hangs is reported as a deadlock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::Moment;
pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub use shuttle::sync::{Mutex, MutexGuard};
pub use std::sync::PoisonError;

/// Any moment does, as long as it is not the origin.
const START: Moment = Moment(1_000_000_000);

struct Time {
    now: Moment,
    sleeping: BTreeMap<(Moment, u64), Waker>,
    next: u64,
}

thread_local! {
    // The scheduler runs all tasks of an execution on one thread.
    static TIME: RefCell<Time> = const {
        RefCell::new(Time { now: START, sleeping: BTreeMap::new(), next: 0 })
    };
}

fn time<T>(look: impl FnOnce(&mut Time) -> T) -> T {
    TIME.with_borrow_mut(look)
}

pub fn now() -> Moment {
    time(|time| time.now)
}

/// Lets time pass, and wakes those who have slept long enough.
pub fn advance(by: Duration) {
    let due = time(|time| {
        time.now = time.now + by;
        let later = time.sleeping.split_off(&(time.now, u64::MAX));
        std::mem::replace(&mut time.sleeping, later)
    });
    due.into_values().for_each(Waker::wake);
}

/// Sleeps until time has been moved as far.
pub fn sleep(duration: Duration) -> Sleep {
    let (until, place) = (now() + duration, None);
    Sleep { until, place }
}

/// No runtime has a number here.
pub fn id_of(_: &Runtime) -> Option<tokio::runtime::Id> {
    None
}

#[derive(Debug)]
pub struct Sleep {
    until: Moment,
    place: Option<(Moment, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let until = self.until;
        let place = time(|time| {
            if time.now >= until {
                return None;
            }
            time.next += 1;
            let place = (until, time.next);
            time.sleeping.insert(place, context.waker().clone());
            Some(place)
        });
        self.leave();
        self.place = place;
        if place.is_some() {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}

impl Sleep {
    fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            time(|time| time.sleeping.remove(&place));
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Time is up.
#[derive(Debug)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

pub async fn timeout<F: Future>(limit: Duration, work: F) -> Result<F::Output, Elapsed> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = sleep(limit) => Err(Elapsed),
    }
}

/// Where tasks are started.
#[derive(Debug, Clone)]
pub struct Runtime;

impl Runtime {
    pub fn try_current() -> Result<Self, ()> {
        Ok(Self)
    }

    pub fn spawn<F>(&self, work: F)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        drop(shuttle::future::spawn(work));
    }
}
