//! The options of acquiring, for every kind of lock.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use leasehold_core::Deadlines;
use leasehold_store::{debug, setters};

use crate::clock;
use crate::deadlock::{Deadlock, DeadlockCheck, Hear, no_context};
use crate::error::StoreError;
use crate::session::request::AcquireRequest;
use crate::session::{Session, random_u64};
use crate::sync::AtomicBool;

/// The options of waiting for a lock, for [`Mutex::lock_opts`](crate::Mutex::lock_opts) and its kin.
/// Without any, it waits without a time limit.
///
/// # Examples
/// See [`Mutex::lock_opts`](crate::Mutex::lock_opts).
#[derive(Clone, Default)]
#[must_use = "options do nothing until a lock is taken with them"]
pub struct LockOptions {
    pub(crate) wait: Wait,
    pub(crate) progress: Option<OnProgress>,
    /// Who hears of a deadlock, and after how long the claim gives up in one.
    hears: Option<DeadlockCheck>,
    gives_up: Option<DeadlockCheck>,
}

/// Hears of a waiting claim's progress.
type OnProgress = Arc<dyn Fn(&Progress) + Send + Sync>;

setters! { LockOptions {
    /// Waits for at most this time, then fails with [`ErrorKind::Timeout`](crate::ErrorKind::Timeout).
    /// Zero asks the store once.
    within(limit: Duration): wait = Wait::For(limit);
    /// Calls `hear` when the claim begins to wait and whenever its position changes, on the task
    /// that waits. Blocking calls of the same client are refused there.
    on_progress(hear: impl Fn(&Progress) + Send + Sync + 'static): progress = Some(Arc::new(hear));
    /// Fails with [`ErrorKind::Deadlock`](crate::ErrorKind::Deadlock) if the claim is part of a
    /// deadlock. It checks for deadlocks as [`LockOptions::on_deadlock`] does. If several claims of a
    /// deadlock would give up, only the one that began to wait last does; those of one context
    /// for one key count as one.
    deadlock_timeout(after: Duration): gives_up = Some(DeadlockCheck { after, hear: None });
}}

impl LockOptions {
    /// Makes options that wait without a time limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Does not wait.
    pub(crate) fn at_once() -> Self {
        Self {
            wait: Wait::No,
            ..Self::default()
        }
    }

    /// Checks for a deadlock when the claim has waited for `after`. Calls `hear` with the
    /// deadlock that the claim is part of, repeatedly while it lasts.
    ///
    /// The lock must have [a context](crate::Lock::with_context). A check reads all keys that
    /// have waiters, if a holder of this key has a context too. While there is a deadlock, the
    /// next check comes `after` later. Otherwise the pause doubles each time, up to a minute.
    ///
    /// # Examples
    /// See [`Client::deadlocks`](crate::Client::deadlocks).
    pub fn on_deadlock(
        mut self,
        after: Duration,
        hear: impl Fn(&Deadlock) + Send + Sync + 'static,
    ) -> Self {
        let hear: Option<Hear> = Some(Arc::new(hear));
        self.hears = Some(DeadlockCheck { after, hear });
        self
    }

    /// Its checks for deadlocks. A claim that does not wait has none.
    fn checks(&self) -> impl Iterator<Item = &DeadlockCheck> {
        [&self.hears, &self.gives_up].into_iter().flatten()
    }

    /// Refuses what cannot be asked for, or checked.
    pub(crate) fn check(&self, request: &AcquireRequest) -> Result<(), StoreError> {
        if request.owner.context.is_none() && self.checks().next().is_some() {
            return Err(no_context());
        }
        request.check()
    }

    /// Completes if the claim of `request` is to give up in a deadlock.
    pub(crate) async fn deadlocked(
        &self,
        session: &Session,
        request: &AcquireRequest,
    ) -> StoreError {
        let checks = self.checks().zip(request.owner.context.iter().cycle());
        let (key, told) = (&request.key, AtomicBool::new(false));
        // What few need does not make every acquisition larger.
        let watches = checks.map(|(it, context)| Box::pin(it.watch(session, key, context, &told)));
        let watches: Vec<_> = watches.collect();
        if watches.is_empty() {
            return std::future::pending().await;
        }
        select_all(watches).await.0
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

/// How long to wait for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Wait {
    No,
    For(Duration),
    #[default]
    Forever,
}

impl Wait {
    /// The deadlines of a call that begins now.
    pub(crate) fn deadlines(self, session: &Session) -> Deadlines {
        let deadlines = Deadlines::new(clock::now(), random_u64());
        match self {
            Self::No => deadlines.without_waiting(session.settings.operation_timeout),
            Self::For(limit) => deadlines.within(limit),
            Self::Forever => deadlines,
        }
    }
}

/// The progress of a waiting claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// An upper bound of the position in the queue; 1 is next.
    pub position: u64,
    /// How long it has been waiting.
    pub waited: Duration,
    /// How often it lost its place and joined the queue again at the end.
    pub rejoined: u32,
}

debug!(LockOptions; |it| wait: it.wait);
