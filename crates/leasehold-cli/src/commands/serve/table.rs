//! What the page shows, as a value: answers of the store go in, and tables come out.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use leasehold::store::glob;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::commands::deadlocks::DeadlockView;
use crate::feed::Update;
use crate::view::{ClaimView, KeyView};

/// How many waiters of a lock stand in a table.
const FIRST_WAITERS: usize = 5;
/// How many holders, and how many waiters, of one lock are kept and shown: a record of others can
/// have any number, and is sent to all who show its key.
const MOST_CLAIMS: usize = 1000;

/// The locks of the store, as they were read.
#[derive(Debug, Default)]
pub(super) struct Table {
    locks: BTreeMap<String, Lock>,
    /// The pass that reads all locks now.
    pass: u64,
    /// Whether a pass has ended since somebody looks.
    pub(super) complete: bool,
    read: Option<Instant>,
    pub(super) error: Option<String>,
    pub(super) deadlocks: Vec<DeadlockView>,
    /// Goes up with each change.
    pub(super) version: u64,
}

/// A lock with its first claims.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) view: KeyView,
    /// Of all that wait.
    pub(super) waiting: usize,
    /// The pass that saw it last.
    seen: u64,
}

/// By what a table is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SortBy {
    #[default]
    Waiters,
    Age,
    Key,
}

/// Which part of the locks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(super) struct Selection {
    pub(super) pattern: String,
    pub(super) sort: SortBy,
    pub(super) limit: usize,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            pattern: "*".to_owned(),
            sort: SortBy::default(),
            limit: 100,
        }
    }
}

/// A table, and how old it is.
#[derive(Debug, Serialize)]
pub(super) struct AgedTable<'a> {
    pub(super) at: Timestamp,
    #[serde(flatten)]
    pub(super) table: &'a TableView,
    /// How old the data is; null before the first.
    pub(super) read_ms_ago: Option<u64>,
}

/// A table, as the API has it. It is made once for all who ask for the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct TableView {
    pattern: String,
    /// Of all that match.
    total: usize,
    waiting: usize,
    pub(super) rows: Vec<RowView>,
    /// Why the store could not be read the last time.
    error: Option<String>,
    deadlocks: usize,
    /// The first of them, as a sentence.
    deadlock: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct RowView {
    #[serde(flatten)]
    pub(super) view: KeyView,
    waiting: usize,
}

impl Table {
    /// Takes an answer of the store.
    pub(super) fn take(&mut self, update: Update) {
        self.version += 1;
        match update {
            Update::Asked => self.version -= 1,
            Update::Began => self.pass += 1,
            Update::Page(views, _) | Update::Shown(views) => {
                self.answered();
                for view in views {
                    self.see(view);
                }
            }
            Update::Deadlocks(found) => {
                self.answered();
                self.deadlocks = found;
            }
            Update::Ended => {
                let pass = self.pass;
                self.locks.retain(|_, lock| lock.seen >= pass);
                self.complete = true;
                self.answered();
            }
            Update::Failed(failure) => self.error = Some(failure.message),
        }
    }

    fn answered(&mut self) {
        (self.error, self.read) = (None, Some(Instant::now()));
    }

    fn see(&mut self, view: KeyView) {
        if !view.is_used() {
            self.locks.remove(&view.key);
            return;
        }
        let lock = Lock {
            waiting: view.waiters.len(),
            view: shortened(view),
            seen: self.pass,
        };
        self.locks.insert(lock.view.key.clone(), lock);
    }

    pub(super) fn lock(&self, key: &str) -> Option<&KeyView> {
        self.locks.get(key).map(|lock| &lock.view)
    }

    pub(super) fn locks(&self) -> impl Iterator<Item = &Lock> {
        self.locks.values()
    }

    pub(super) fn age(&self) -> Option<Duration> {
        self.read.map(|read| read.elapsed())
    }

    /// The part that was chosen.
    pub(super) fn select(&self, selection: &Selection) -> TableView {
        let all = selection.pattern == "*";
        let fits = |lock: &&Lock| all || glob::matches(&selection.pattern, &lock.view.key);
        let mut matching: Vec<_> = self.locks().filter(fits).collect();
        let (total, waiting) = (
            matching.len(),
            matching.iter().map(|lock| lock.waiting).sum(),
        );
        match selection.sort {
            // The map has them by key, and the sort is stable.
            SortBy::Key => {}
            SortBy::Waiters => matching.sort_by_key(|lock| std::cmp::Reverse(lock.waiting)),
            SortBy::Age => matching.sort_by_key(|lock| held_since(&lock.view)),
        }
        matching.truncate(selection.limit);
        TableView {
            pattern: selection.pattern.clone(),
            total,
            waiting,
            rows: matching.into_iter().map(RowView::from).collect(),
            error: self.error.clone(),
            deadlocks: self.deadlocks.len(),
            deadlock: self.deadlocks.first().map(|first| first.sentence.clone()),
        }
    }
}

/// Without the claims for which there is no room.
pub(super) fn shortened(mut view: KeyView) -> KeyView {
    for claims in [&mut view.holders, &mut view.waiters] {
        claims.truncate(MOST_CLAIMS);
        claims.shrink_to_fit();
    }
    view
}

/// The longest hold comes first, and what nobody holds last.
fn held_since(view: &KeyView) -> (bool, Option<Timestamp>) {
    let since = view.holders.first().and_then(|holder| holder.since);
    (since.is_none(), since)
}

impl From<&Lock> for RowView {
    fn from(Lock { view, waiting, .. }: &Lock) -> Self {
        let first: Vec<ClaimView> = view.waiters.iter().take(FIRST_WAITERS).cloned().collect();
        Self {
            waiting: *waiting,
            view: KeyView {
                waiters: first,
                holders: view.holders.clone(),
                key: view.key.clone(),
                ..*view
            },
        }
    }
}

impl TableView {
    /// Whether it shows the same, however much time has passed.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let timeless = |table: &Self| {
            (
                table.total,
                table.waiting,
                table.deadlocks,
                table.deadlock.clone(),
                table.error.clone(),
            )
        };
        let same_row = |(one, other): (&RowView, &RowView)| {
            one.waiting == other.waiting && one.view.is_same(&other.view)
        };
        timeless(self) == timeless(other)
            && self.rows.len() == other.rows.len()
            && self.rows.iter().zip(&other.rows).all(same_row)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::failure::Failure;
    use crate::view::tests::claim;

    /// A lock that was taken in that second of the minute, with so many that wait.
    pub(in crate::commands::serve) fn lock(key: &str, second: u64, waiting: u64) -> KeyView {
        let since: Timestamp = format!("2026-01-31T12:00:{second:02}Z").parse().unwrap();
        let claim = || ClaimView {
            since: Some(since),
            ..claim(None)
        };
        let waiter = |position| ClaimView {
            position: Some(position),
            ..claim()
        };
        KeyView {
            key: key.to_owned(),
            kind: "lock",
            permits: None,
            last_token: 7,
            at: since,
            holders: vec![claim()],
            waiters: (1..=waiting).map(waiter).collect(),
        }
    }

    /// A table as after a pass.
    pub(in crate::commands::serve) fn table(locks: Vec<KeyView>) -> Table {
        let mut table = Table::default();
        pass(&mut table, locks);
        table
    }

    fn pass(table: &mut Table, locks: Vec<KeyView>) {
        for update in [Update::Began, Update::Page(locks, 0), Update::Ended] {
            table.take(update);
        }
    }

    fn keys(table: &Table, pattern: &str, sort: SortBy, limit: usize) -> Vec<String> {
        let pattern = pattern.to_owned();
        let selection = Selection {
            pattern,
            sort,
            limit,
        };
        let rows = table.select(&selection).rows.into_iter();
        rows.map(|row| row.view.key).collect()
    }

    #[test]
    fn the_part_that_was_chosen() {
        let mut free = lock("orders/free", 0, 1);
        free.holders.clear();
        let locks = vec![
            lock("orders/2", 9, 0),
            lock("jobs", 5, 7),
            lock("orders/1", 1, 2),
            free,
        ];
        let table = table(locks);
        let by = |pattern, sort| keys(&table, pattern, sort, 9);
        let all = ["jobs", "orders/1", "orders/2", "orders/free"];
        assert_eq!(by("*", SortBy::Key), all);
        assert_eq!(
            by("*", SortBy::Waiters),
            ["jobs", "orders/1", "orders/free", "orders/2"]
        );
        assert_eq!(by("orders/?", SortBy::Age), ["orders/1", "orders/2"]);
        assert_eq!(
            by("orders/*", SortBy::Age),
            ["orders/1", "orders/2", "orders/free"]
        );
        assert_eq!(keys(&table, "*", SortBy::Key, 1), ["jobs"]);
        let view = table.select(&Selection::default());
        assert_eq!((view.total, view.waiting, view.rows[0].waiting), (4, 10, 7));
        assert_eq!(view.rows[0].view.waiters.len(), FIRST_WAITERS);
    }

    #[test]
    fn a_lock_with_very_many_claims_is_counted_and_shortened() {
        let mut many = lock("k", 1, 1234);
        many.holders = many.waiters.clone();
        let table = table(vec![many]);
        let kept = table.lock("k").unwrap();
        assert_eq!((kept.holders.len(), kept.waiters.len()), (1000, 1000));
        let view = table.select(&Selection::default());
        assert_eq!((view.waiting, view.rows[0].waiting), (1234, 1234));
    }

    #[test]
    fn what_is_not_found_any_more_goes() {
        let mut table = table(vec![lock("a", 1, 0), lock("b", 1, 0)]);
        table.take(Update::Began);
        let mut free = lock("a", 1, 0);
        free.holders.clear();
        table.take(Update::Shown(vec![free, lock("c", 2, 0)]));
        assert_eq!(keys(&table, "*", SortBy::Key, 9), ["b", "c"]);
        table.take(Update::Ended);
        assert_eq!(keys(&table, "*", SortBy::Key, 9), ["c"]);
    }

    #[test]
    fn an_error_stays_until_there_is_an_answer() {
        let mut table = table(vec![lock("a", 1, 0)]);
        table.take(Update::Failed(Failure::new(69, "no answer")));
        let failed = table.select(&Selection::default());
        assert_eq!(
            (failed.total, failed.error.as_deref()),
            (1, Some("no answer"))
        );
        pass(&mut table, vec![lock("a", 1, 0)]);
        assert_eq!(table.select(&Selection::default()).error, None);
    }

    #[test]
    fn time_alone_is_no_change() {
        let seen = |lock: KeyView| table(vec![lock]).select(&Selection::default());
        let before = seen(lock("a", 1, 1));
        let mut later = lock("a", 1, 1);
        later.holders[0].expires_in_ms = Some(1);
        assert!(before.is_same(&seen(later)));
        assert!(!before.is_same(&seen(lock("a", 2, 1))));
        // One that is not among the first.
        let many = seen(lock("a", 1, 8));
        assert!(!many.is_same(&seen(lock("a", 1, 9))));
    }
}
