//! A page is kept up to date: server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::future::OptionFuture;
use futures_util::stream::unfold;
use leasehold::Key;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};

use super::api::{LockView, Problem};
use super::histories::Known;
use super::reader::Look;
use super::table::{Selection, SortBy, TableView};
use super::{MOST_STREAMS, Shared};
use crate::failure::Failure;

/// So often at least, as times go on.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// So often at most.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);

/// The part of the locks, and the key whose details are shown.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct Watched {
    pattern: String,
    sort: SortBy,
    limit: usize,
    key: Option<String>,
}

impl Default for Watched {
    fn default() -> Self {
        let Selection {
            pattern,
            sort,
            limit,
        } = Selection::default();
        Self {
            pattern,
            sort,
            limit,
            key: None,
        }
    }
}

pub(super) async fn events(
    State(shared): State<Arc<Shared>>,
    watched: Result<Query<Watched>, QueryRejection>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let Query(watched) = watched?;
    let selection = Selection {
        pattern: watched.pattern,
        sort: watched.sort,
        limit: watched.limit,
    };
    selection.check()?;
    if let Some(key) = &watched.key {
        Key::new(key).map_err(Failure::from)?;
    }
    let permit = Arc::clone(&shared.streams)
        .try_acquire_owned()
        .map_err(|_| {
            let message = format!("the limit of {MOST_STREAMS} open pages is reached");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, message).hint("close some of them")
        })?;
    let watching = Watching::begin(shared, selection, watched.key, permit);
    let events = unfold(watching, async |mut watching| {
        let event = watching.next().await?;
        Some((Ok(event), watching))
    });
    Ok(Sse::new(Box::pin(events)).keep_alive(KeepAlive::new()))
}

/// One page that is kept up to date.
struct Watching {
    shared: Arc<Shared>,
    selection: Selection,
    key: Option<String>,
    look: Look,
    changes: watch::Receiver<u64>,
    /// What the audit log says of the key.
    history: Option<Known>,
    table: Option<Arc<TableView>>,
    lock: Option<LockView>,
    sent: Option<Instant>,
    lock_due: bool,
    lock_sent: Option<Instant>,
    _permit: OwnedSemaphorePermit,
}

impl Watching {
    fn begin(
        shared: Arc<Shared>,
        selection: Selection,
        key: Option<String>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let look = shared.reader.look();
        let history = key.as_ref().map(|key| shared.histories.follow(key));
        look.shows(key.as_slice());
        Self {
            changes: look.changes(),
            lock_due: key.is_some(),
            lock_sent: None,
            shared,
            selection,
            key,
            look,
            history,
            table: None,
            lock: None,
            sent: None,
            _permit: permit,
        }
    }

    /// The next event: a table, or a key.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.sent.is_none() {
                self.look.ready().await;
            }
            if std::mem::take(&mut self.lock_due)
                && let Some(event) = self.lock_event()
            {
                return Some(event);
            }
            let longest = LONGEST_PAUSE.max(self.shared.reader.pause());
            let due = self.sent.map(|sent| sent + longest);
            if due.is_none_or(|due| due <= Instant::now()) || self.has_changed() {
                return Some(self.table_event());
            }
            self.change(due).await?;
        }
    }

    /// Waits until there may be something new.
    async fn change(&mut self, due: Option<Instant>) -> Option<()> {
        let history = self.history.as_mut().map(watch::Receiver::changed);
        tokio::select! {
            changed = self.changes.changed() => {
                changed.ok()?;
                // More may change at the same time.
                let shortest = SHORTEST_PAUSE.max(self.shared.reader.pause());
                let soon = self.sent.map(|sent| sent + shortest);
                sleep_until(soon.unwrap_or_else(Instant::now)).await;
            }
            Some(changed) = OptionFuture::from(history) => changed.ok()?,
            () = sleep_until(due.unwrap_or_else(Instant::now)) => {}
        }
        self.lock_due = self.key.is_some();
        Some(())
    }

    fn has_changed(&self) -> bool {
        let table = self.shared.reader.select(&self.selection);
        self.table.as_ref().is_none_or(|sent| !sent.is_same(&table))
    }

    fn table_event(&mut self) -> Event {
        let table = self.shared.reader.select(&self.selection);
        let keys = table.rows.iter().map(|row| row.view.key.clone());
        let keys: Vec<_> = keys.chain(self.key.clone()).collect();
        self.look.shows(&keys);
        self.sent = Some(Instant::now());
        self.lock_due = self.key.is_some();
        let event = data("locks", &self.shared.reader.aged(&table));
        self.table = Some(table);
        event
    }

    fn lock_event(&mut self) -> Option<Event> {
        let key = self.key.clone()?;
        let view = self.shared.reader.with(|table| table.lock(&key).cloned());
        let (history, history_error) = match self
            .history
            .as_ref()
            .and_then(|known| known.borrow().clone())
        {
            Some((_, Ok(entries))) => (entries, None),
            Some((_, Err(why))) => (Vec::new(), Some(why)),
            None => (Vec::new(), None),
        };
        let lock = LockView {
            key,
            lock: view,
            history,
            history_error,
        };
        let is_same = self.lock.as_ref().is_some_and(|sent| sent.is_same(&lock));
        let due = self.lock_sent.map(|sent| sent + LONGEST_PAUSE);
        if is_same && due.is_some_and(|due| due > Instant::now()) {
            return None;
        }
        self.lock_sent = Some(Instant::now());
        let event = data("lock", &lock);
        self.lock = Some(lock);
        Some(event)
    }
}

fn data(name: &str, value: &impl serde::Serialize) -> Event {
    // Strings and numbers can always be written.
    let text = serde_json::to_string(value).unwrap_or_default();
    Event::default().event(name).data(text)
}
