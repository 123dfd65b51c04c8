//! The locks of a store, as they were read: one model for all that show them.
//!
//! A value: answers of the store go in ([`LockTable::take`]), and locks come out, filtered and
//! sorted. Nothing is asked here, and the time comes as an argument.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use leasehold::Error;
use tokio::time::Instant;

use crate::deadlocks::DeadlockView;
use crate::view::{ClaimView, KeyView, same_claims};

/// For how long a lock that is free is remembered. So the changes of one that is free at many looks
/// are counted, too.
const REMEMBERED: Duration = Duration::from_secs(10);
/// The time in which a change of holders loses most of its weight.
const FADE: Duration = Duration::from_secs(60);

/// What the store answered, or did not.
#[derive(Debug)]
pub enum Update {
    /// A request was sent.
    Asked,
    /// A pass over all locks has begun.
    Began,
    /// A part of a pass: the locks that were found, and the names that cannot be read, with why.
    Page(Vec<KeyView>, Vec<String>),
    /// The pass is complete.
    Ended,
    /// Locks that are shown, looked at between parts of a pass.
    Shown(Vec<KeyView>),
    /// The deadlocks among the locks of a pass.
    Deadlocks(Vec<DeadlockView>),
    /// A request failed; it is made again.
    Failed(Error),
}

/// By what locks are sorted: the largest first, and those that have none of it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SortBy {
    /// How many wait.
    #[default]
    Waiters,
    /// For how long the first holder has it.
    Age,
    /// How often the holders change.
    #[serde(skip)]
    Rate,
    /// The name.
    Key,
}

/// The locks of a store that match one pattern.
#[derive(Debug)]
pub struct LockTable {
    locks: BTreeMap<Arc<str>, Lock>,
    /// How many holders, and how many waiters, of one lock are kept.
    most_claims: usize,
    /// The pass under way: when it began, and how many names were passed over.
    began: Option<Instant>,
    skipped: usize,
    /// How many passes were completed.
    pub(crate) passes: u64,
    /// How long the last complete pass took from beginning to beginning, and what it passed over.
    pub(crate) cycle: Option<Duration>,
    pub(crate) unreadable: usize,
    /// Whether a pass was completed since somebody looks.
    pub(crate) complete: bool,
    asked: Option<Instant>,
    answered: Option<Instant>,
    failure: Option<Error>,
    pub(crate) deadlocks: Vec<DeadlockView>,
    /// Goes up with each change.
    pub(crate) version: u64,
}

/// A lock, with what successive looks have told.
#[derive(Debug)]
pub struct Lock {
    /// What was seen of it last.
    pub view: KeyView,
    /// How many wait, also those that are not kept.
    pub waiting: usize,
    /// When that was seen, and when the lock was seen first.
    pub(crate) seen: Instant,
    first: Instant,
    /// Whether the last look found nobody: `view` is from before that.
    free: bool,
    /// Those who held it last, if nobody in `view` does.
    last_holders: Vec<ClaimView>,
    /// The longest time to live that the first holder was seen with.
    ttl: Option<Duration>,
    /// Whether its holders changed since changes were counted, and when that was.
    changed: bool,
    counted: Instant,
    /// The changes that were counted, each with less weight as time goes by.
    changes: f64,
}

impl Default for LockTable {
    fn default() -> Self {
        Self::of_at_most(usize::MAX)
    }
}

impl LockTable {
    /// A table that keeps so many holders, and so many waiters, of each lock.
    pub fn of_at_most(most_claims: usize) -> Self {
        Self {
            locks: BTreeMap::new(),
            most_claims,
            began: None,
            skipped: 0,
            passes: 0,
            cycle: None,
            unreadable: 0,
            complete: false,
            asked: None,
            answered: None,
            failure: None,
            deadlocks: Vec::new(),
            version: 0,
        }
    }

    /// Forgets the locks: others are wanted.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            asked: self.asked,
            answered: self.answered,
            failure: self.failure.take(),
            version: self.version + 1,
            ..Self::of_at_most(self.most_claims)
        };
    }

    // ---- answers of the store ----

    /// Takes an answer of the store.
    pub fn take(&mut self, update: Update, now: Instant) {
        self.version += 1;
        match update {
            Update::Asked => {
                self.asked = Some(now);
                self.version -= 1;
            }
            Update::Began => {
                if self.complete {
                    self.cycle = self.began.map(|began| now - began);
                }
                (self.began, self.skipped) = (Some(now), 0);
            }
            Update::Page(views, skipped) => {
                self.answered(now);
                self.skipped += skipped.len();
                for view in views {
                    if let Some(lock) = self.see(view, now) {
                        lock.count(now);
                    }
                }
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
            Update::Ended => {
                self.answered(now);
                self.passes += 1;
                self.complete = true;
                self.unreadable = self.skipped;
                let began = self.began;
                self.locks.retain(|_, lock| {
                    lock.free |= began.is_some_and(|began| lock.seen < began);
                    !lock.free || now - lock.seen < REMEMBERED
                });
            }
            Update::Failed(failure) => {
                self.asked = None;
                self.failure = Some(failure);
            }
        }
    }

    fn answered(&mut self, now: Instant) {
        (self.asked, self.failure, self.answered) = (None, None, Some(now));
    }

    /// Takes what was seen of a lock; `None` if it is not known and free.
    fn see(&mut self, mut view: KeyView, now: Instant) -> Option<&mut Lock> {
        let waiting = view.waiters.len();
        shorten(&mut view, self.most_claims);
        let key: Arc<str> = view.key.as_str().into();
        match self.locks.entry(key) {
            Entry::Vacant(vacant) => {
                let is_used = view.is_used();
                is_used.then(|| vacant.insert(Lock::new(view, waiting, now)))
            }
            Entry::Occupied(known) => {
                let lock = known.into_mut();
                match view.is_used() {
                    true => lock.update(view, waiting, now),
                    false => lock.free = true,
                }
                Some(lock)
            }
        }
    }

    // ---- what is known ----

    /// The lock of that key, if it is in use.
    pub fn lock(&self, key: &str) -> Option<&Lock> {
        self.locks.get(key).filter(|lock| !lock.free)
    }

    /// The locks that are in use, by their keys.
    pub fn locks(&self) -> impl Iterator<Item = &Lock> + Clone {
        self.locks.values().filter(|lock| !lock.free)
    }

    /// Those locks that fit, sorted.
    pub fn sorted(&self, sort: SortBy, now: Instant, fits: impl Fn(&Lock) -> bool) -> Vec<&Lock> {
        let mut locks: Vec<_> = self.locks().filter(|lock| fits(lock)).collect();
        // They are in the order of their keys, and the sort is stable.
        match sort {
            SortBy::Key => {}
            SortBy::Waiters => locks.sort_by_key(|lock| Reverse(lock.waiting)),
            SortBy::Age => locks.sort_by_key(|lock| lock.held_since()),
            SortBy::Rate => {
                let rate = |lock: &&Lock| (lock.rate(now) * 1e6) as u64;
                locks.sort_by_cached_key(|lock| Reverse(rate(lock)));
            }
        }
        locks
    }

    /// Why the store does not answer, if it does not.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// For how long the request under way has not been answered.
    pub(crate) fn unanswered(&self, now: Instant) -> Option<Duration> {
        self.asked.map(|asked| now.saturating_duration_since(asked))
    }

    /// How old the last answer is; `None` before the first.
    pub(crate) fn data_age(&self, now: Instant) -> Option<Duration> {
        self.answered.map(|at| now.saturating_duration_since(at))
    }
}

impl Lock {
    fn new(view: KeyView, waiting: usize, now: Instant) -> Self {
        Self {
            ttl: view.holders.first().and_then(ClaimView::expires_in),
            view,
            waiting,
            seen: now,
            first: now,
            free: false,
            last_holders: Vec::new(),
            changed: false,
            counted: now,
            changes: 0.0,
        }
    }

    /// Takes what a look has found.
    fn update(&mut self, view: KeyView, waiting: usize, now: Instant) {
        let before = match &*self.view.holders {
            [] => &self.last_holders,
            _ => &self.view.holders,
        };
        let changed = !view.holders.is_empty() && !same_claims(before, &view.holders);
        let left = view.holders.first().and_then(ClaimView::expires_in);
        self.ttl = if changed { left } else { self.ttl.max(left) };
        self.changed |= changed;
        let before = std::mem::replace(&mut self.view, view).holders;
        if !before.is_empty() {
            self.last_holders = before;
        }
        (self.waiting, self.seen, self.free) = (waiting, now, false);
    }

    /// Counts a change, if there was one. Done once a pass over all locks: those on the screen are
    /// looked at more often, and would count for more.
    fn count(&mut self, now: Instant) {
        let changed = f64::from(u8::from(std::mem::take(&mut self.changed)));
        self.changes = self.changes * weight(now - self.counted) + changed;
        self.counted = now;
    }

    /// How often its holders changed of late, in changes a minute that were seen.
    pub(crate) fn rate(&self, now: Instant) -> f64 {
        let faded = self.changes * weight(now - self.counted);
        let watched = FADE.as_secs_f64() * (1.0 - weight(now - self.first));
        if watched > 0.0 {
            60.0 * faded / watched
        } else {
            0.0
        }
    }

    /// The longest hold comes first, and what nobody holds last.
    fn held_since(&self) -> (bool, Option<Timestamp>) {
        let since = self.view.holders.first().and_then(|holder| holder.since);
        (since.is_none(), since)
    }

    /// For how long its first holder has it; `None` if nobody has, or the store does not keep it.
    pub(crate) fn age(&self, now: Instant) -> Option<Duration> {
        let holder = self.view.holders.first()?;
        holder.since?;
        Some(holder.age? + (now - self.seen))
    }

    /// What is left of the lease of its first holder, and the share that this is of the longest
    /// that was seen; `None` if nobody holds it, or it does not expire.
    pub(crate) fn left(&self, now: Instant) -> Option<(Duration, f64)> {
        let left = self.view.holders.first()?.expires_in()?;
        let left = left.saturating_sub(now - self.seen);
        let ttl = self.ttl.unwrap_or_default().max(Duration::from_millis(1));
        Some((left, left.as_secs_f64() / ttl.as_secs_f64()))
    }
}

/// Leaves so many holders, and so many waiters.
pub(crate) fn shorten(view: &mut KeyView, most_claims: usize) {
    for claims in [&mut view.holders, &mut view.waiters] {
        claims.truncate(most_claims);
        claims.shrink_to_fit();
    }
}

/// What a change counts for after so long.
fn weight(after: Duration) -> f64 {
    (-after.as_secs_f64() / FADE.as_secs_f64()).exp()
}

#[cfg(test)]
pub(crate) mod tests;
