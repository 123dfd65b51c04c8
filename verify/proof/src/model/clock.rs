use std::time::{Duration, SystemTime};

/// How long a run has taken; nothing is decided by it but when to stop.
pub(super) fn since(began: SystemTime) -> Duration {
    began.elapsed().unwrap_or_default()
}

/// What passes with one tick of a model.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// When a model begins, by any clock: with room to both sides.
pub(super) const START: u64 = 1_000_000_000;

/// How much faster than real the clock of a server runs, in millionths.
pub(super) const SERVER_RATE: i64 = 4_500;

/// What a clock shows after so many ticks that is faster than real by so many millionths.
pub(super) fn shown_at(rate: i64, ticks: u64) -> u64 {
    let run = i64::try_from(ticks).unwrap_or(i64::MAX / 4) * (1_000_000 + rate);
    START.saturating_add_signed(run)
}
