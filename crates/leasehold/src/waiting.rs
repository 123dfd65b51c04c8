//! How to acquire: the options of the verb, for every kind of lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::deadlock::{Deadlock, DeadlockCheck};

/// How to acquire: every option of the verb. Made from how long to wait.
///
/// # Examples
/// See [`Mutex::acquire`](crate::Mutex::acquire).
#[derive(Clone, Default)]
pub struct Acquire {
    pub(crate) wait: Wait,
    pub(crate) progress: Option<OnProgress>,
    pub(crate) deadlock: Option<DeadlockCheck>,
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

    /// Looks for a deadlock when the claim has waited for `after`, and calls `hear` with the one
    /// that it is part of, again and again while that lasts.
    ///
    /// Takes a lock [with a context](crate::Lock::with_context). A look reads the keys that
    /// somebody waits for, if a holder of this key has a context too. The next look comes `after`
    /// later while there is a deadlock, and else each time twice as late, up to a minute.
    ///
    /// # Examples
    /// See [`Client::deadlocks`](crate::Client::deadlocks).
    #[must_use]
    pub fn on_deadlock(
        mut self,
        after: Duration,
        hear: impl Fn(&Deadlock) + Send + Sync + 'static,
    ) -> Self {
        let check = self.deadlock.get_or_insert_default();
        check.after = after;
        check.hear = Some(Arc::new(hear));
        self
    }

    /// Gives up with [`ErrorKind::Deadlock`](crate::ErrorKind::Deadlock) if the claim is part of
    /// a deadlock, for which it looks as [`Acquire::on_deadlock`] does. Of several claims that
    /// would give up the one that began to wait last does.
    #[must_use]
    pub fn deadlock_timeout(mut self, after: Duration) -> Self {
        let check = self.deadlock.get_or_insert_default();
        (check.after, check.gives_up) = (after, true);
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
            deadlock: None,
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
