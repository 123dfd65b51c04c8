use std::time::{Duration, SystemTime};

/// Measures how long a run takes; nothing is decided by it but when to stop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopwatch(SystemTime);

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self(SystemTime::now())
    }

    pub(super) fn elapsed(self) -> Duration {
        self.0.elapsed().unwrap_or_default()
    }
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
