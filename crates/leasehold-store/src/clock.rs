//! The client's clock.
//!
//! Stores use it too, so that all parts have the same clock, and a simulation can replace it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(not(shuttle))]
use leasehold_core::Moment;
#[cfg(not(shuttle))]
use rustix::time::{ClockId, clock_gettime};

/// Runs on while the machine sleeps, unlike `std::time::Instant`
/// (rust-lang/rust#87906): a lease does not wait for a laptop to wake up.
#[cfg(all(not(shuttle), any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(all(not(shuttle), not(any(target_os = "linux", target_os = "android"))))]
const CLOCK: ClockId = ClockId::Monotonic;

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
    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000;
    Moment(seconds * 1_000_000 + micros)
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
