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
