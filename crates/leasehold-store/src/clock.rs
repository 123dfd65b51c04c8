//! The client's clock.
//!
//! Stores use it too, so that all parts have the same clock, and a simulation can replace it.

#[cfg(not(shuttle))]
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(all(not(shuttle), any(debug_assertions, feature = "testing")))]
use std::time::Instant;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(not(shuttle))]
use leasehold_core::Moment;
#[cfg(not(shuttle))]
use rustix::time::{ClockId, clock_gettime};

#[cfg(all(not(shuttle), any(debug_assertions, feature = "testing")))]
use crate::fork::Lazy;

/// Runs on while the machine sleeps, unlike `std::time::Instant`
/// (rust-lang/rust#87906): a lease does not wait for a laptop to wake up.
#[cfg(all(not(shuttle), any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(all(not(shuttle), not(any(target_os = "linux", target_os = "android"))))]
const CLOCK: ClockId = ClockId::Monotonic;

/// By how many microseconds tests have set the clock ahead.
#[cfg(not(shuttle))]
static AHEAD: AtomicU64 = AtomicU64::new(0);

/// Returns the current time of the client's clock.
#[cfg(shuttle)]
pub use crate::sync::now;

/// Returns the current time of the client's clock.
#[cfg(not(shuttle))]
#[must_use]
pub fn now() -> Moment {
    #[cfg(feature = "simulation")]
    if let Some(world) = crate::simulation::world() {
        return world.now();
    }
    #[cfg(any(debug_assertions, feature = "testing"))]
    if let Some(paused) = paused() {
        return paused;
    }
    Moment(real().0.saturating_add(AHEAD.load(Ordering::Relaxed)))
}

/// The time of all processes of this machine: the same, unless tests have set ours ahead.
#[cfg(not(shuttle))]
#[must_use]
pub fn of_machine() -> Moment {
    match AHEAD.load(Ordering::Relaxed) {
        0 => now(),
        _ => real(),
    }
}

/// Sets the clock of this process ahead. For tests that set Tokio's ahead by as much: timers wait for
/// that one.
#[cfg(not(shuttle))]
pub fn advance(by: Duration) {
    AHEAD.fetch_add(micros(by), Ordering::Relaxed);
}

#[cfg(not(shuttle))]
fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(not(shuttle))]
fn real() -> Moment {
    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000;
    Moment(seconds * 1_000_000 + micros)
}

/// The time of a runtime that a test has paused (`tokio::time::pause`). Timers wait for that one, and a
/// client with another clock would wait for hours of theirs.
#[cfg(all(not(shuttle), any(debug_assertions, feature = "testing")))]
#[allow(clippy::disallowed_methods, reason = "it is compared with Tokio's")]
fn paused() -> Option<Moment> {
    static ORIGIN: Lazy<(Instant, Moment)> = Lazy::new(|| (Instant::now(), real()));
    // Outside of a runtime there is none; and Tokio's clock panics in a thread that ends.
    tokio::runtime::Handle::try_current().ok()?;
    let tokio = || tokio::time::Instant::now().into_std();
    let (before, between, after) = (tokio(), Instant::now(), tokio());
    // Of one clock that runs, these are in order.
    if before <= between && between <= after {
        return None;
    }
    let (instant, moment) = *ORIGIN;
    Some(match after.checked_duration_since(instant) {
        Some(since) => Moment(moment.0.saturating_add(micros(since))),
        None => Moment(moment.0.saturating_sub(micros(instant - after))),
    })
}

/// Returns the wall-clock time since 1970, for display and ids. It may step, so it is never used
/// for deadlines.
#[must_use]
pub fn wall() -> Duration {
    #[cfg(feature = "simulation")]
    if let Some(world) = crate::simulation::world() {
        return world.wall();
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO)
}
