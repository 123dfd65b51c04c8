//! How to acquire: the options of the verb, for every kind of lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How to acquire: every option of the verb. Made from how long to wait.
///
/// # Examples
/// See [`Mutex::acquire`](crate::Mutex::acquire).
#[derive(Clone, Default)]
pub struct Acquire {
    pub(crate) wait: Wait,
    pub(crate) progress: Option<OnProgress>,
}

/// Hears of a waiting claim's progress.
type OnProgress = Arc<dyn Fn(&Progress) + Send + Sync>;

impl Acquire {
    /// Calls `hear` when the claim begins to wait and whenever its place changes, on the task
    /// that waits.
    #[must_use]
    pub fn on_progress(mut self, hear: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(hear));
        self
    }

    pub(crate) fn tell(&self, position: u64, waited: Duration, rejoined: u32) {
        if let Some(hear) = &self.progress {
            hear(&Progress {
                position,
                waited,
                rejoined,
            });
        }
    }
}

impl From<Wait> for Acquire {
    fn from(wait: Wait) -> Self {
        Self {
            wait,
            progress: None,
        }
    }
}

/// How long to wait for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
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
#[non_exhaustive]
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
