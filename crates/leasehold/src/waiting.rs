//! How to acquire: the options of the verb, for every kind of lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How to acquire: one struct for every option of the verb.
#[derive(Clone, Default)]
pub struct Acquire {
    /// How long to wait.
    pub wait: Wait,
    /// Called when the claim begins to wait and whenever its place changes.
    pub progress: Option<OnProgress>,
}

impl From<Wait> for Acquire {
    fn from(wait: Wait) -> Self {
        Self {
            wait,
            progress: None,
        }
    }
}

/// Hears of a waiting claim's progress, on the task that waits.
pub type OnProgress = Arc<dyn Fn(&Progress) + Send + Sync>;

/// How long to wait for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// Not at all: busy is an answer.
    No,
    /// So long, then fail with `Timeout`.
    For(Duration),
    /// As long as it takes.
    #[default]
    Forever,
}

/// Where a waiting claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// 1 is next in line; an upper bound.
    pub position: u64,
    /// For how long it has been waiting.
    pub waited: Duration,
    /// How often it lost its place and joined again at the tail.
    pub rejoined: u32,
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
