//! The record engine: makes a [`LockStore`] of a backend that keeps a record per key and changes
//! records in atomic steps.
//!
//! A store that runs the rules of the queue next to its data, as Redis does, implements
//! [`LockStore`] itself.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{Claim, Command, Inbox, Key, Now, Outcome, Queue, Snapshot, StoreTime};

use crate::acknowledged::Acknowledged;
use crate::answer::{AllAnswer, Answer};
use crate::audit::AuditLog;
use crate::error::{StoreError, unavailable};
use crate::listing::Listing;
use crate::port::{Capabilities, Listening, LockStore, PushSink, check_parts};

/// A backend that keeps a [`Queue`] per key and changes queues in atomic steps. Each
/// implementation is a [`LockStore`]: the queue makes the decisions, and the backend only stores
/// it.
///
/// # Errors
/// Those of [`LockStore`].
#[async_trait]
pub trait Records: Send + Sync + fmt::Debug + 'static {
    /// Same as [`LockStore::capabilities`].
    fn capabilities(&self) -> Capabilities;

    /// Changes the records of these keys, without duplicates, in one atomic step:
    ///
    /// 1. read their queues, [`Queue::default`] if there is no record;
    /// 2. let the step change them, at the store's time: [`Step::apply`];
    /// 3. if all commands were applied, write the queues back, so that nobody sees only some of
    ///    them;
    /// 4. push the [`events`](Outcome::events) to their inboxes, in that order. A backend that
    ///    knows which inboxes received them uses [`Queue::deliver`], before the queues are
    ///    written back.
    ///
    /// On a conflict with another client it starts again. A record may be deleted after
    /// [`Queue::keep_for`].
    async fn transact(&self, keys: &[&Key], step: Step<'_>) -> Result<Transacted, StoreError>;

    /// Returns the acknowledgements of each step that succeeds, if the backend has a policy for them:
    /// [`Answer::acknowledged`].
    fn acknowledged(&self) -> Option<Acknowledged> {
        None
    }

    /// Reads the queue of a key as a snapshot; changes nothing: [`Queue::look`].
    async fn look(&self, key: &Key) -> Result<Snapshot, StoreError>;

    /// Same as [`LockStore::listing`].
    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a>;

    /// Same as [`LockStore::audit_log`]. A place that keeps one says so to each step
    /// ([`Now::audited`]), and keeps what the outcomes say ([`Outcome::audit`]).
    fn audit_log<'a>(
        &'a self,
        key: Option<&Key>,
        since: StoreTime,
    ) -> Option<Box<dyn AuditLog + 'a>> {
        let _ = (key, since);
        None
    }

    /// Same as [`LockStore::inbox`].
    fn inbox(&self) -> &Inbox;

    /// Same as [`LockStore::listen`].
    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError>;

    /// Same as [`LockStore::child_fds`].
    #[cfg(unix)]
    fn child_fds(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        Vec::new()
    }
}

/// The commands of one [`Records::transact`].
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// One command on one key.
    One(&'a Command),
    /// A claim on each of several keys: all are granted, or nothing is changed.
    All(&'a [Command]),
}

impl Step<'_> {
    /// Applies the commands to the queues, which are in the order of the keys.
    pub fn apply(self, queues: &mut [Queue], now: impl Into<Now>) -> Taken {
        let now = now.into();
        match self {
            Self::One(_) => self.apply_by(queues, |queue, command| queue.apply(command, now)),
            Self::All(claims) => Queue::claim_all(queues, claims, now),
        }
    }

    /// The same, with a function that applies each command.
    pub fn apply_by(
        self,
        queues: &mut [Queue],
        mut apply: impl FnMut(&mut Queue, &Command) -> Outcome,
    ) -> Taken {
        match self {
            Self::One(command) => {
                let applied = |queue| apply(queue, command);
                Ok(queues.first_mut().map(applied).into_iter().collect())
            }
            Self::All(claims) => Queue::claim_all_by(queues, claims, apply),
        }
    }
}

/// The outcomes of the commands of a step, in order; or the first of several claims that was not
/// granted, and then nothing was changed.
pub type Taken = Result<Vec<Outcome>, (usize, Box<Outcome>)>;

/// The result of a transaction.
#[derive(Debug)]
pub struct Transacted {
    /// The outcomes of the queues.
    pub taken: Taken,
    /// The [`epoch`](Answer::epoch) of the answers, as it was before the step was taken.
    pub epoch: u64,
}

/// The outcome of a step of one command.
pub(crate) fn the_only(taken: Taken) -> Result<Outcome, StoreError> {
    let outcome = match taken {
        Ok(outcomes) => outcomes.into_iter().next(),
        Err((_, outcome)) => Some(*outcome),
    };
    outcome.ok_or_else(|| unavailable("the store has not taken the step"))
}

#[async_trait]
impl<R: Records> LockStore for R {
    fn capabilities(&self) -> Capabilities {
        Records::capabilities(self)
    }

    async fn step(&self, key: &Key, command: &Command) -> Result<Answer, StoreError> {
        let Transacted { taken, epoch } = self.transact(&[key], Step::One(command)).await?;
        let Outcome { reply, at, .. } = the_only(taken)?;
        Ok(Answer::new(reply, at, epoch).with_acknowledged(self.acknowledged()))
    }

    async fn claim_all(&self, parts: &[(Key, Claim)]) -> Result<Option<AllAnswer>, StoreError> {
        check_parts(parts)?;
        if !Records::capabilities(self).multi {
            return Ok(None);
        }
        let keys: Vec<_> = parts.iter().map(|(key, _)| key).collect();
        let claim = |(_, claim): &(_, Claim)| Command::Claim(claim.clone());
        let claims: Vec<_> = parts.iter().map(claim).collect();
        let Transacted { taken, epoch } = self.transact(&keys, Step::All(&claims)).await?;
        let answer = |Outcome { reply, at, .. }: Outcome| {
            Answer::new(reply, at, epoch).with_acknowledged(self.acknowledged())
        };
        Ok(Some(match taken {
            Ok(outcomes) => AllAnswer::All(outcomes.into_iter().map(answer).collect()),
            Err((part, outcome)) => AllAnswer::NotAll {
                part,
                answer: answer(*outcome),
            },
        }))
    }

    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        self.look(key).await
    }

    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        Records::listing(self, pattern)
    }

    fn audit_log<'a>(
        &'a self,
        key: Option<&Key>,
        since: StoreTime,
    ) -> Option<Box<dyn AuditLog + 'a>> {
        Records::audit_log(self, key, since)
    }

    fn inbox(&self) -> &Inbox {
        Records::inbox(self)
    }

    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        Records::listen(self, sink).await
    }

    #[cfg(unix)]
    fn child_fds(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        Records::child_fds(self)
    }
}
