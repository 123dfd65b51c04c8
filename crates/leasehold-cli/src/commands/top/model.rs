//! What `top` knows and shows, as a value: keys and answers of the store go in. Nothing is asked
//! and nothing is drawn here.

mod keys;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::keys::Action;
use super::row::Row;
use crate::commands::deadlocks::DeadlockView;
use crate::failure::Failure;
use crate::feed::{History, Update};
use crate::history::EntryView;
use crate::view::{KeyView, same_claims};

/// For how long the outcome of a command stays on the screen.
const NOTICE: Duration = Duration::from_secs(10);

/// For how long a lock that is free is remembered. So the changes of one that is free at many looks
/// are counted, too.
const REMEMBERED: Duration = Duration::from_secs(10);

/// By what the table is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SortBy {
    Waiters,
    Age,
    Rate,
}

/// What lies over the table or the details, and takes the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Overlay {
    Help,
    /// A filter that is being typed.
    Filter(String),
    /// The question whether to break this lock.
    Confirm(Box<KeyView>),
}

/// The state of `top`. Times count from its start.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) pattern: String,
    /// How often the filter was set: answers for another one come too late.
    pub(super) round: u64,
    pub(super) sort: SortBy,
    pub(super) over: Option<Overlay>,
    /// The key whose details are shown, and the first of its claims on the screen.
    pub(super) details: Option<(Arc<str>, usize)>,
    rows: HashMap<Arc<str>, Row>,
    /// The keys as they are sorted, if that is known.
    order: Vec<Arc<str>>,
    unsorted: bool,
    /// The lock that was chosen; at first the one on top, whichever that is.
    chosen: Option<Arc<str>>,
    at: usize,
    /// The first line of the table on the screen, and how many there are.
    top: usize,
    height: usize,
    /// The pass under way: when it began, and how many names were passed over.
    began: Duration,
    skipped: usize,
    /// How long the last complete pass took from beginning to beginning, and what it passed over.
    pub(super) cycle: Option<Duration>,
    pub(super) unreadable: usize,
    /// Whether a pass was completed since the filter was set.
    pub(super) complete: bool,
    asked: Option<Duration>,
    answered: Option<Duration>,
    failure: Option<String>,
    deadlocks: Vec<DeadlockView>,
    /// The newest entries of a key in the audit log.
    pub(super) history: Option<History>,
    notice: Option<(String, Duration)>,
}

impl Model {
    pub(super) fn new(pattern: &str) -> Self {
        Self {
            pattern: pattern.to_owned(),
            round: 0,
            sort: SortBy::Waiters,
            over: None,
            details: None,
            rows: HashMap::new(),
            order: Vec::new(),
            unsorted: false,
            chosen: None,
            at: 0,
            top: 0,
            height: 0,
            began: Duration::ZERO,
            skipped: 0,
            cycle: None,
            unreadable: 0,
            complete: false,
            asked: None,
            answered: None,
            failure: None,
            deadlocks: Vec::new(),
            history: None,
            notice: None,
        }
    }

    // ---- what is shown ----

    /// Sorts the table for a screen with so many lines for it, and keeps the chosen lock on it.
    pub(super) fn arrange(&mut self, height: usize, now: Duration) {
        self.height = height.max(1);
        if std::mem::take(&mut self.unsorted) {
            self.sort_rows(now);
        }
        self.at = self.at.min(self.order.len().saturating_sub(1));
        let lowest = self.at.saturating_sub(self.height - 1);
        self.top = self.top.clamp(lowest, self.at);
        let furthest = self.order.len().saturating_sub(self.height);
        self.top = self.top.min(furthest.max(lowest));
    }

    fn sort_rows(&mut self, now: Duration) {
        let sort = self.sort;
        // The largest first; who has none comes last.
        let rank = |row: &Row| match sort {
            SortBy::Waiters => Some(row.waiting() as f64),
            SortBy::Age => row.age(now).map(|age| age.as_secs_f64()),
            SortBy::Rate => Some(row.rate(now)),
        };
        let ranked = |(key, row): (&Arc<str>, &Row)| (rank(row), Arc::clone(key));
        let used = self.rows.iter().filter(|(_, row)| !row.free);
        let mut ranked: Vec<_> = used.map(ranked).collect();
        ranked.sort_unstable_by(|(a, one), (b, other)| {
            let order = b.partial_cmp(a).unwrap_or(Ordering::Equal);
            order.then_with(|| one.cmp(other))
        });
        self.order = ranked.into_iter().map(|(_, key)| key).collect();
        let chosen = self.chosen.as_ref();
        match chosen.map(|chosen| self.order.iter().position(|key| key == chosen)) {
            Some(Some(at)) => self.at = at,
            // The lock is gone: the one in its place is the next.
            Some(None) => self.chosen = self.order.get(self.at).cloned(),
            None => self.at = 0,
        }
    }

    /// The lines of the table on the screen; true for the chosen one.
    pub(super) fn lines(&self) -> impl Iterator<Item = (&Row, bool)> {
        let shown = self.order.iter().enumerate().skip(self.top);
        let shown = shown.take(self.height);
        shown.filter_map(|(at, key)| Some((self.rows.get(key)?, at == self.at)))
    }

    /// The keys on the screen.
    pub(super) fn shown(&self) -> Vec<String> {
        match &self.details {
            Some((key, _)) => vec![key.to_string()],
            None => self.lines().map(|(row, _)| row.view.key.clone()).collect(),
        }
    }

    /// The lock of that key, if it is in use.
    pub(super) fn row(&self, key: &str) -> Option<&Row> {
        self.rows.get(key).filter(|row| !row.free)
    }

    /// How many locks there are, and how many wait for them.
    pub(super) fn totals(&self) -> (usize, usize) {
        let used = self.rows.values().filter(|row| !row.free);
        used.fold((0, 0), |(locks, waiting), row| {
            (locks + 1, waiting + row.waiting())
        })
    }

    /// The outcome of a command, for a while.
    pub(super) fn notice(&self, now: Duration) -> Option<&str> {
        let (text, since) = self.notice.as_ref()?;
        (now.saturating_sub(*since) < NOTICE).then_some(text)
    }

    /// Who waits for whom, and never ends.
    pub(super) fn deadlock(&self) -> Option<String> {
        let (first, more) = self.deadlocks.split_first()?;
        let first = &first.sentence;
        Some(match more.len() {
            0 => format!("deadlock: {first}"),
            more => format!("{} deadlocks, such as: {first}", more + 1),
        })
    }

    /// What the audit log says of that key.
    pub(super) fn history(&self, key: &str) -> Option<&Result<Vec<EntryView>, String>> {
        let of_key = self.history.as_ref().filter(|(of, _)| of == key);
        of_key.map(|(_, history)| history)
    }

    /// Why the store does not answer, if it does not.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// For how long the request under way has not been answered.
    pub(super) fn unanswered(&self, now: Duration) -> Option<Duration> {
        self.asked.map(|asked| now.saturating_sub(asked))
    }

    /// How old the last answer is; `None` before the first.
    pub(super) fn data_age(&self, now: Duration) -> Option<Duration> {
        self.answered.map(|at| now.saturating_sub(at))
    }

    // ---- answers of the store ----

    /// Takes an answer of the store. Fails if the store refuses from the beginning.
    pub(super) fn take(&mut self, update: Update, now: Duration) -> Result<(), Failure> {
        match update {
            Update::Asked => self.asked = Some(now),
            Update::Began => {
                if self.complete {
                    self.cycle = Some(now.saturating_sub(self.began));
                }
                (self.began, self.skipped) = (now, 0);
            }
            Update::Page(views, skipped) => {
                self.answered(now);
                self.skipped += skipped;
                for view in views {
                    let key = self.see(view, now);
                    if let Some(row) = self.rows.get_mut(&*key) {
                        row.count(now);
                    }
                }
            }
            Update::Ended => {
                (self.asked, self.complete) = (None, true);
                self.unreadable = self.skipped;
                for row in self.rows.values_mut() {
                    row.free |= row.seen < self.began;
                }
                self.rows
                    .retain(|_, row| !row.free || now.saturating_sub(row.seen) < REMEMBERED);
                self.unsorted = true;
            }
            Update::Shown(views) => {
                self.answered(now);
                for view in views {
                    self.see(view, now);
                }
            }
            Update::Deadlocks(found) => {
                self.answered(now);
                self.deadlocks = found;
            }
            Update::Failed(failure) => {
                if self.answered.is_none() && !failure.passing {
                    return Err(failure);
                }
                self.asked = None;
                self.failure = Some(failure.message);
            }
        }
        Ok(())
    }

    fn answered(&mut self, now: Duration) {
        (self.asked, self.failure, self.answered) = (None, None, Some(now));
    }

    fn see(&mut self, view: KeyView, now: Duration) -> Arc<str> {
        self.unsorted = true;
        if let Some(Overlay::Confirm(asked)) = &self.over
            && asked.key == view.key
            && !same_claims(&asked.holders, &view.holders)
        {
            let text = format!(
                "the holders of {} have changed: nothing was broken",
                view.key
            );
            self.over = None;
            self.tell(text, now);
        }
        let key: Arc<str> = Arc::from(&*view.key);
        let free = view.holders.is_empty() && view.waiters.is_empty();
        match self.rows.get_mut(&key) {
            Some(row) if free => row.free = true,
            Some(row) => row.update(view, now),
            None if free => {}
            None => drop(self.rows.insert(Arc::clone(&key), Row::new(view, now))),
        }
        key
    }

    /// Shows the outcome of a command.
    pub(super) fn tell(&mut self, text: String, now: Duration) {
        self.notice = Some((text, now));
    }
}
