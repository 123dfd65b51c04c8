//! The stream of an election's leaders.

use std::future::ready;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{BoxStream, once, unfold};
use futures_util::{Stream, StreamExt};
use leasehold_core::{Arrival, Key, Mode, Snapshot, Token};
use leasehold_store::debug;

use super::Leader;
use crate::error::{Error, ErrorKind, Operation};
use crate::inspection::Inspection;
use crate::session::Session;
use crate::session::watch_key::KeyWatcher;

/// A stream of the leaders of an election, one after the other. It ends only when its client is
/// closed.
///
/// An outage is reported once; then the stream retries by itself. What waiting does not repair
/// (`Refused`, `Corrupt`) is reported each time.
pub struct Leaders(Told);

struct Told {
    leaders: BoxStream<'static, Result<Option<Leader>, Error>>,
    /// What was told last. Where the stream has ended, that is why.
    last: Result<Option<Leader>, Error>,
}

impl Leaders {
    pub(super) fn of(session: &Arc<Session>, key: &Key) -> Self {
        if let Err(forked) = session.check_process() {
            // Watching would wait for locks that are held for ever.
            let failed = Operation::Observe.failed_on(key)(forked);
            return Self::new(once(ready(Err(failed))));
        }
        let observer = Observer {
            watcher: KeyWatcher::start(session, key),
            session: session.clone(),
            key: key.clone(),
            told: None,
        };
        // None once its client was closed, and it has said so.
        let next = |observer: Option<Observer>| async move {
            let mut observer = observer?;
            let told = observer.next().await;
            let closed = |error: &Error| error.kind() == ErrorKind::Closed;
            let goes_on = !told.as_ref().is_err_and(closed);
            Some((told, goes_on.then_some(observer)))
        };
        Self::new(unfold(Some(observer), next))
    }

    fn new(leaders: impl Stream<Item = Result<Option<Leader>, Error>> + Send + 'static) -> Self {
        Self(Told {
            // Fused: whoever calls again is told the last again.
            leaders: Box::pin(leaders.fuse()),
            last: Ok(None),
        })
    }

    /// Returns the next change. The first is the current leader.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change.
    ///
    /// # Errors
    /// Same as [`Client::inspect`](crate::Client::inspect). The next call continues. `Closed` if the
    /// client was shut down: all further calls fail too.
    ///
    /// # Examples
    /// See [`Election::observe`](crate::Election::observe).
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        let told = StreamExt::next(self).await;
        told.unwrap_or_else(|| self.0.last.clone())
    }
}

impl Stream for Leaders {
    type Item = Result<Option<Leader>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let told = self.0.leaders.as_mut().poll_next(cx);
        if let Poll::Ready(Some(told)) = &told {
            self.0.last = told.clone();
        }
        told
    }
}

debug!(Leaders);

struct Observer {
    watcher: KeyWatcher,
    session: Arc<Session>,
    key: Key,
    /// What was told last: the claim, the term and the note.
    told: Option<Option<(Arrival, Token, Option<String>)>>,
}

impl Observer {
    async fn next(&mut self) -> Result<Option<Leader>, Error> {
        let (key, told) = (&self.key, &mut self.told);
        let change = self.watcher.until(|seen| {
            let leader = leader(key, seen);
            let seen = leader.as_ref().map(|l| (l.arrival, l.term, l.note.clone()));
            if told.as_ref() != Some(&seen) {
                *told = Some(seen);
                return ControlFlow::Break(leader);
            }
            ControlFlow::Continue(leader.map(|leader| leader.expires_in))
        });
        let change = self.session.while_open(change).await;
        change.map_err(Operation::Observe.failed_on(key))
    }
}

/// Who leads, by what was seen of the key.
pub(super) fn leader(key: &Key, seen: Snapshot) -> Option<Leader> {
    let arrivals: Vec<_> = seen.holders.iter().map(|it| it.claim.arrival).collect();
    let seen = Inspection::new(key.clone(), seen);
    let mut holders = seen.holders.into_iter().zip(arrivals);
    let leader = holders.find(|(holder, _)| holder.mode == Mode::EXCLUSIVE && !holder.kept);
    leader.map(|(holder, arrival)| Leader {
        arrival,
        term: holder.token,
        note: holder.note,
        owner: holder.owner,
        since: holder.since,
        expires_in: holder.expires_in,
    })
}
