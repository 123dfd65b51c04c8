//! The stream of an election's leaders.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::{BoxStream, unfold};
use leasehold_core::{Arrival, Backoff, HintLimit, Key, Mode, Moment, Token};
use tokio::sync::Notify;

use super::Leader;
use crate::clock;
use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::inspection::Inspection;
use crate::session::closing::Closed;
use crate::session::timing::LOOK_AFTER_LAPSE;
use crate::session::watches::Watch;
use crate::session::{Session, random_u64, unanswered};
use crate::sync::{sleep, timeout};

/// A stream of the leaders of an election, one after the other. It ends only when its client is
/// closed.
///
/// An error is reported once; then the stream retries by itself.
pub struct Leaders(BoxStream<'static, Result<Option<Leader>, Error>>);

impl Leaders {
    pub(super) fn of(session: &Arc<Session>, key: &Key) -> Self {
        let observer = Observer {
            watch: Watch::start(session, key),
            session: session.clone(),
            key: key.clone(),
            told: None,
            hints: HintLimit::default(),
            failing: None,
            closed: false,
        };
        let next = |mut observer: Observer| async move {
            if observer.closed {
                return None;
            }
            let told = observer.next().await;
            let closed = |error: &Error| error.kind() == ErrorKind::Closed;
            observer.closed = told.as_ref().is_err_and(closed);
            Some((told, observer))
        };
        Self(Box::pin(unfold(observer, next)))
    }

    /// Returns the next change. The first is the current leader.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`, `Corrupt`: see [`crate::ErrorKind`]. The next call continues.
    /// `Closed`: all further calls fail too.
    ///
    /// # Examples
    /// See [`Election::observe`](crate::Election::observe).
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        match futures_util::StreamExt::next(&mut self.0).await {
            Some(told) => told,
            None => Err(Error::new(
                Operation::Observe,
                None,
                Closed::ShutDown.error(),
            )),
        }
    }
}

impl Stream for Leaders {
    type Item = Result<Option<Leader>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaders").finish_non_exhaustive()
    }
}

struct Observer {
    watch: Watch,
    session: Arc<Session>,
    key: Key,
    /// What was told last: the claim, the term and the note.
    told: Option<Option<(Arrival, Token, Option<String>)>>,
    /// Anybody may say that there is a change.
    hints: HintLimit,
    /// Pauses while the store cannot be asked.
    failing: Option<Backoff>,
    /// Whether its client was closed, and it has said so.
    closed: bool,
}

impl Observer {
    async fn next(&mut self) -> Result<Option<Leader>, Error> {
        let (session, key) = (self.session.clone(), self.key.clone());
        let told = session.while_open(self.next_change()).await;
        told.map_err(|closed| observe_error(&key, closed))?
    }

    async fn next_change(&mut self) -> Result<Option<Leader>, Error> {
        let changed: Arc<Notify> = self.watch.changed();
        loop {
            if let Some(pauses) = &mut self.failing {
                sleep(pauses.pause()).await;
            }
            let change = changed.notified();
            tokio::pin!(change);
            // Enlist before asking, so that no change falls between.
            change.as_mut().enable();
            let (leader, ask_again) = match self.ask().await {
                Ok(asked) => asked,
                Err(error) => {
                    if self.failing.is_none() {
                        let (base, cap) = (Duration::from_millis(50), Duration::from_secs(2));
                        self.failing = Some(Backoff::new(base, cap, random_u64()));
                        return Err(observe_error(&self.key, error));
                    }
                    continue;
                }
            };
            self.failing = None;
            let seen = leader.as_ref().map(|l| (l.arrival, l.term, l.note.clone()));
            if self.told.as_ref() != Some(&seen) {
                self.told = Some(seen);
                return Ok(leader);
            }
            let lapse = leader.map(|leader| clock::now() + leader.expires_in + LOOK_AFTER_LAPSE);
            let wake_at = lapse.map_or(ask_again, |lapse| lapse.min(ask_again));
            tokio::select! {
                () = change => {
                    let now = clock::now();
                    sleep(self.hints.ask_at(now).since(now)).await;
                }
                () = sleep(wake_at.since(clock::now())) => {}
            }
        }
    }

    /// Who leads, and when to ask again at the latest.
    async fn ask(&self) -> Result<(Option<Leader>, Moment), StoreError> {
        let limit = self.session.settings.operation_timeout;
        let asked = timeout(limit, self.watch.ask()).await;
        let pause = asked.unwrap_or_else(|_| Err(unanswered(limit)))?;
        let leader = look(&self.session, &self.key).await?;
        Ok((leader, clock::now() + pause))
    }
}

/// Who leads now.
pub(super) async fn look(session: &Session, key: &Key) -> Result<Option<Leader>, StoreError> {
    let limit = session.settings.operation_timeout;
    let look = timeout(limit, session.store.inspect(key)).await;
    let look = look.unwrap_or_else(|_| Err(unanswered(limit)))?;
    let arrivals: Vec<_> = look.holders.iter().map(|it| it.claim.arrival).collect();
    let seen = Inspection::new(key.clone(), look);
    let mut holders = seen.holders.into_iter().zip(arrivals);
    let leader = holders.find(|(holder, _)| holder.mode == Mode::EXCLUSIVE && !holder.kept);
    Ok(leader.map(|(holder, arrival)| Leader {
        arrival,
        term: holder.token,
        note: holder.note,
        owner: holder.owner,
        since: holder.since,
        expires_in: holder.expires_in,
    }))
}

pub(super) fn observe_error(key: &Key, error: StoreError) -> Error {
    Error::new(Operation::Observe, Some(key.clone()), error)
}
