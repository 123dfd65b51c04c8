//! The one door to the client's time.
//!
//! Stores take the time from here too, so that it is one clock for all, and a simulation
//! can bring its own.

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

/// The time now, by the client's clock.
#[cfg(shuttle)]
pub use crate::sync::now;

/// The time now, by the client's clock.
#[cfg(not(shuttle))]
#[must_use]
pub fn now() -> Moment {
    #[cfg(feature = "simulation")]
    if let Some(now) = crate::simulation::now() {
        return now;
    }
    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000;
    Moment(seconds * 1_000_000 + micros)
}

/// The time of day, since 1970: for what people read and for ids, never for a
/// deadline. It may step.
#[must_use]
pub fn wall() -> Duration {
    #[cfg(feature = "simulation")]
    if let Some(wall) = crate::simulation::wall() {
        return wall;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO)
}
