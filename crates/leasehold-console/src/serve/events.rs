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
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::api::{LockView, Problem};
use super::reader::Look;
use super::selection::{Selection, TableView};
use crate::histories::{History, no_room};
use crate::lock_table::LockTable;
use crate::view::KeyView;

/// So often at least, as times go on.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// So often at most.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);

pub(super) async fn events(
    State(shared): State<Arc<Shared>>,
    selection: Result<Query<Selection>, QueryRejection>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let Query(mut selection) = selection?;
    selection.check()?;
    // The table of the locks is the same with any key beside it.
    let key = selection.key.take();
    key.as_ref().map(Key::new).transpose()?;
    let permit = Arc::clone(&shared.streams).try_acquire_owned();
    let permit = permit.map_err(|_| {
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open");
        problem.hint("close some of them")
    })?;
    let look = shared.reader.look();
    look.shows(key.as_slice());
    let page = Page {
        details: key.map(|key| Details {
            history: shared.histories.follow(&key),
            key,
            sent: None,
        }),
        shared,
        selection,
        look,
        sent: None,
        _permit: permit,
    };
    let events = unfold(page, async |mut page| {
        let event = page.next().await?;
        Some((Ok(event), page))
    });
    Ok(Sse::new(Box::pin(events)).keep_alive(KeepAlive::new()))
}

/// One page that is kept up to date.
struct Page {
    shared: Arc<Shared>,
    selection: Selection,
    look: Look,
    details: Option<Details>,
    /// The table that was sent last, and when.
    sent: Option<(Arc<TableView>, Instant)>,
    _permit: OwnedSemaphorePermit,
}

/// The key whose details it shows.
struct Details {
    key: String,
    /// What the audit log says of it; `None` while there is no room for that.
    history: Option<watch::Receiver<History>>,
    sent: Option<(LockView, Instant)>,
}

impl Page {
    /// The next event: a table, or a key.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.sent.is_none() {
                self.look.ready().await;
            }
            if let Some(event) = self.lock_event() {
                return Some(event);
            }
            let table = self.shared.reader.page(&self.selection).await;
            let due = match &self.sent {
                Some((sent, at)) if *sent == table => *at + LONGEST_PAUSE,
                _ => Instant::now(),
            };
            if due <= Instant::now() {
                let mut keys: Vec<_> = table.rows.iter().map(|row| row.view.key.clone()).collect();
                keys.extend(self.details.as_ref().map(|details| details.key.clone()));
                self.look.shows(&keys);
                let event = data("locks", &self.shared.reader.aged(&table));
                self.sent = Some((table, Instant::now()));
                return Some(event);
            }
            self.change(due).await?;
        }
    }

    /// Waits until there may be something new.
    async fn change(&mut self, due: Instant) -> Option<()> {
        let details = self.details.as_mut();
        let history = details.and_then(|details| details.history.as_mut());
        let history = history.map(watch::Receiver::changed);
        tokio::select! {
            changed = self.look.changed() => {
                changed?;
                // More may change at the same time.
                if let Some((_, sent)) = &self.sent {
                    sleep_until(*sent + SHORTEST_PAUSE).await;
                }
            }
            Some(changed) = OptionFuture::from(history) => changed.ok()?,
            () = sleep_until(due) => {}
        }
        Some(())
    }

    /// The key whose details are shown, if it has changed or was sent long ago.
    fn lock_event(&mut self) -> Option<Event> {
        let details = self.details.as_mut()?;
        let key = &details.key;
        if details.history.is_none() {
            details.history = self.shared.histories.follow(key);
        }
        let history = match &details.history {
            Some(known) => known.borrow().clone(),
            None => Some(Err(no_room())),
        };
        let lock = self.shared.reader.with(|table| seen(table, key));
        let lock = LockView::new(key.clone(), lock, history);
        if let Some((sent, at)) = &details.sent
            && *sent == lock
            && at.elapsed() < LONGEST_PAUSE
        {
            return None;
        }
        let event = data("lock", &lock);
        details.sent = Some((lock, Instant::now()));
        Some(event)
    }
}

/// A lock that is in use, or why it cannot be said whether it is.
fn seen(table: &LockTable, key: &str) -> (Option<KeyView>, Option<String>) {
    let lock = table.lock(key).map(|lock| lock.view.clone());
    let unknown = || table.error().filter(|_| lock.is_none());
    let why = table.unreadable.get(key).cloned().or_else(unknown);
    (lock, why)
}

fn data(name: &str, value: &impl serde::Serialize) -> Event {
    // Strings and numbers can always be written.
    let text = serde_json::to_string(value).unwrap_or_default();
    Event::default().event(name).data(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_table::tests::{held_since, table};

    #[test]
    fn a_lock_that_was_not_read_is_not_said_to_be_free() {
        let (lock, why) = seen(&LockTable::default(), "k");
        assert!(lock.is_none() && why.is_some(), "{lock:?}");
        let table = table(vec![held_since("k", 1, 0)]);
        assert!(matches!(seen(&table, "k"), (Some(_), None)));
        assert!(matches!(seen(&table, "free"), (None, None)));
    }
}
