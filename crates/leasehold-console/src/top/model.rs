//! What `top` knows and shows, as a value: keys and answers of the store go in. Nothing is asked
//! and nothing is drawn here.

use std::time::Duration;

use leasehold::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::histories::History;
use crate::lock_table::{Lock, LockTable, SortBy, Update, is_passing};
use crate::view::{KeyView, same_holders};

/// For how long the outcome of a command stays on the screen.
const NOTICE: Duration = Duration::from_secs(10);

/// What lies over the table or the details, and takes the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Overlay {
    Help,
    /// A filter that is being typed.
    Filter(String),
    /// The question whether to break this lock.
    Confirm(Box<KeyView>),
}

/// The state of `top`.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) pattern: String,
    pub(super) sort: SortBy,
    pub(super) over: Option<Overlay>,
    /// The key whose details are shown, and the first of its claims on the screen.
    pub(super) details: Option<(String, usize)>,
    pub(super) table: LockTable,
    /// The keys as they are sorted, and of which version of the table, by what.
    pub(super) order: Vec<String>,
    sorted: Option<(u64, SortBy)>,
    /// The lock that was chosen; at first the one on top, whichever that is.
    pub(super) chosen: Option<String>,
    pub(super) at: usize,
    /// The first line of the table on the screen, and how many there are.
    pub(super) top: usize,
    pub(super) height: usize,
    /// A key, and what the audit log says of it.
    pub(super) history: Option<(String, watch::Receiver<History>)>,
    pub(super) notice: Option<(String, Instant)>,
}

impl Model {
    pub(super) fn new(pattern: &str) -> Self {
        Self {
            pattern: pattern.to_owned(),
            ..Self::default()
        }
    }

    /// Sorts the table for a screen with so many lines for it, and keeps the chosen lock on it.
    pub(super) fn arrange(&mut self, height: usize, now: Instant) {
        self.height = height.max(1);
        let sorted = Some((self.table.version, self.sort));
        if self.sorted != sorted {
            self.sorted = sorted;
            let locks = self.table.sorted(self.sort, now, |_| true);
            self.order = locks.iter().map(|lock| lock.view.key.clone()).collect();
            match &self.chosen {
                None => self.at = 0,
                Some(chosen) => match self.order.iter().position(|key| key == chosen) {
                    Some(at) => self.at = at,
                    // The lock is gone: the one in its place is the next.
                    None => self.chosen = self.order.get(self.at).cloned(),
                },
            }
        }
        self.at = self.at.min(self.order.len().saturating_sub(1));
        let lowest = self.at.saturating_sub(self.height - 1);
        self.top = self.top.clamp(lowest, self.at);
        let furthest = self.order.len().saturating_sub(self.height);
        self.top = self.top.min(furthest.max(lowest));
    }

    /// The lines of the table on the screen; true for the chosen one.
    pub(super) fn lines(&self) -> impl Iterator<Item = (&Lock, bool)> {
        let shown = self.order.iter().enumerate().skip(self.top);
        let shown = shown.take(self.height);
        shown.filter_map(|(at, key)| Some((self.table.lock(key)?, at == self.at)))
    }

    /// The keys on the screen that can be read.
    pub(super) fn shown(&self) -> Vec<String> {
        let lines = self.lines().map(|(lock, _)| &lock.view.key);
        let mut shown: Vec<_> = match &self.details {
            Some((key, _)) => vec![key.clone()],
            None => lines.cloned().collect(),
        };
        shown.retain(|key| !self.table.unreadable.contains_key(key));
        shown
    }

    /// The outcome of a command, for a while.
    pub(super) fn notice(&self, now: Instant) -> Option<&str> {
        let (text, since) = self.notice.as_ref()?;
        (now.saturating_duration_since(*since) < NOTICE).then_some(text)
    }

    /// Who waits for whom, and never ends.
    pub(super) fn deadlock(&self) -> Option<String> {
        let (first, more) = self.table.deadlocks.split_first()?;
        let first = &first.sentence;
        Some(match more.len() {
            0 => format!("deadlock: {first}"),
            more => format!("{} deadlocks, such as: {first}", more + 1),
        })
    }

    /// Takes an answer of the store. Fails if the store refuses from the beginning.
    pub(super) fn take(&mut self, update: Update, now: Instant) -> Result<(), Error> {
        if let Update::Failed(error) = &update
            && self.table.data_age(now).is_none()
            && !is_passing(error.kind(), error.retry_after())
        {
            return Err(error.clone());
        }
        self.table.take(update, now);
        if let Some(Overlay::Confirm(asked)) = &self.over {
            let lock = self.table.lock(&asked.key);
            if lock.is_none_or(|lock| !same_holders(&lock.view.holders, &asked.holders)) {
                let key = &asked.key;
                let said = format!("the holders of {key} have changed: nothing was broken");
                self.tell(said, now);
                self.over = None;
            }
        }
        Ok(())
    }

    /// Shows the outcome of a command.
    pub(super) fn tell(&mut self, text: String, now: Instant) {
        self.notice = Some((text, now));
    }
}
