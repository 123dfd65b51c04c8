//! The part of the locks that a page shows, as the API has it.

use leasehold::Invalid;
use leasehold::store::glob;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::lock_table::{Lock, LockTable, SortBy};
use crate::view::KeyView;

/// The longest table that is made.
const LONGEST_TABLE: usize = 500;
/// How long a pattern may be: each key is compared with it, by the only thread.
const LONGEST_PATTERN: usize = 256;
/// How many waiters of a lock stand in a table.
const FIRST_WAITERS: usize = 5;
/// How many holders, and how many waiters, of one lock are kept and shown: a record of others can
/// have any number, and is sent to all who show its key.
pub(super) const MOST_CLAIMS: usize = 1000;

/// Which part of the locks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(super) struct Selection {
    pattern: String,
    sort: SortBy,
    limit: usize,
    /// The key whose details are shown beside it.
    pub(super) key: Option<String>,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            pattern: "*".to_owned(),
            sort: SortBy::default(),
            limit: 100,
            key: None,
        }
    }
}

/// A table, as the API has it. It is made once for all who ask for the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct TableView {
    pattern: String,
    /// Of all that match.
    total: usize,
    waiting: usize,
    pub(super) rows: Vec<RowView>,
    /// Why the store could not be read the last time, or not yet.
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

impl Selection {
    /// Refuses a table that is too long, or takes too long, and a pattern that no key matches.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let message = match (self.limit, self.pattern.len()) {
            (1..=LONGEST_TABLE, 1..=LONGEST_PATTERN) => return Ok(()),
            (1..=LONGEST_TABLE, _) => format!("a pattern has 1 to {LONGEST_PATTERN} bytes"),
            _ => format!("limit is a number from 1 to {LONGEST_TABLE}"),
        };
        Err(Invalid::plain(message))
    }

    /// The part that was chosen.
    pub(super) fn of(&self, locks: &LockTable) -> TableView {
        let all = self.pattern == "*";
        let fits = |lock: &Lock| all || glob::matches(&self.pattern, &lock.view.key);
        let matching = locks.sorted(self.sort, Instant::now(), fits);
        let row = |lock: &&Lock| {
            let KeyView { key, holders, .. } = &lock.view;
            let waiters = lock.view.waiters.iter().take(FIRST_WAITERS);
            RowView {
                waiting: lock.waiting,
                view: KeyView {
                    waiters: waiters.cloned().collect(),
                    holders: holders.clone(),
                    key: key.clone(),
                    ..lock.view
                },
            }
        };
        TableView {
            pattern: self.pattern.clone(),
            total: matching.len(),
            waiting: matching.iter().map(|lock| lock.waiting).sum(),
            rows: matching.iter().take(self.limit).map(row).collect(),
            error: locks.error(),
            deadlocks: locks.deadlocks.len(),
            deadlock: locks.deadlocks.first().map(|first| first.sentence.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_table::tests::{held_since, table};

    fn keys(table: &LockTable, pattern: &str, sort: SortBy, limit: usize) -> Vec<String> {
        let selection = Selection {
            pattern: pattern.to_owned(),
            sort,
            limit,
            key: None,
        };
        let rows = selection.of(table).rows.into_iter();
        rows.map(|row| row.view.key).collect()
    }

    #[test]
    fn the_part_that_was_chosen() {
        let mut unheld = held_since("orders/free", 0, 1);
        unheld.holders.clear();
        let table = table(vec![
            held_since("orders/2", 9, 0),
            held_since("jobs", 5, 7),
            held_since("orders/1", 1, 2),
            unheld,
        ]);
        for (pattern, sort, expected) in [
            ("*", SortBy::Key, "jobs orders/1 orders/2 orders/free"),
            ("*", SortBy::Waiters, "jobs orders/1 orders/free orders/2"),
            ("orders/?", SortBy::Age, "orders/1 orders/2"),
            ("orders/*", SortBy::Age, "orders/1 orders/2 orders/free"),
        ] {
            let keys = keys(&table, pattern, sort, 9).join(" ");
            assert_eq!(keys, expected, "{pattern} by {sort:?}");
        }
        assert_eq!(keys(&table, "*", SortBy::Key, 1), ["jobs"]);
        let view = Selection::default().of(&table);
        assert_eq!((view.total, view.waiting, view.rows[0].waiting), (4, 10, 7));
        assert_eq!(view.rows[0].view.waiters.len(), FIRST_WAITERS);
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        let is_taken = |bytes: usize, limit| {
            let pattern = "x".repeat(bytes);
            let selection = Selection {
                pattern,
                limit,
                ..Selection::default()
            };
            selection.check().is_ok()
        };
        assert!(is_taken(1, 1) && is_taken(LONGEST_PATTERN, LONGEST_TABLE));
        assert!(!is_taken(0, 1) && !is_taken(LONGEST_PATTERN + 1, 1));
        assert!(!is_taken(1, 0) && !is_taken(1, LONGEST_TABLE + 1));
    }

    /// Else a store that does not answer would be one without locks.
    #[test]
    fn a_table_that_was_not_read_has_an_error() {
        let error = |table: &LockTable| Selection::default().of(table).error;
        assert!(error(&LockTable::default()).is_some());
        assert_eq!(error(&table(vec![])), None);
    }

    #[test]
    fn time_alone_is_no_change() {
        let seen = |lock: KeyView| Selection::default().of(&table(vec![lock]));
        let before = seen(held_since("a", 1, 1));
        let mut later = held_since("a", 1, 1);
        later.holders[0].expires_in_ms = Some(1);
        assert_eq!(before, seen(later));
        assert_ne!(before, seen(held_since("a", 2, 1)));
        // One that is not among the first.
        let many = seen(held_since("a", 1, 8));
        assert_ne!(many, seen(held_since("a", 1, 9)));
    }
}
