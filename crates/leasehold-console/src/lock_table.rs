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
use leasehold::{Error, ErrorKind};
use tokio::time::Instant;

use crate::deadlocks::DeadlockView;
use crate::view::{ClaimView, KeyView, same_holders};

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
    Page(Vec<KeyView>, Vec<(String, String)>),
    /// The pass is complete, and these are the deadlocks among its locks.
    Ended(Vec<DeadlockView>),
    /// Locks that are shown, looked at between parts of a pass.
    Shown(Vec<KeyView>),
    /// A request failed; it is made again, of one key in the next pass.
    Failed(Error),
}

/// Whether a request that failed so may be answered later: of a refusal, if it says when.
pub fn is_passing(kind: ErrorKind, retry_after: Option<Duration>) -> bool {
    match kind {
        ErrorKind::Unavailable => true,
        // A quarantine.
        ErrorKind::Refused => retry_after.is_some(),
        _ => false,
    }
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
#[derive(Debug, Default)]
pub struct LockTable {
    locks: BTreeMap<Arc<str>, Lock>,
    /// How many holders, and how many waiters, of one lock are kept; all unless said.
    most_claims: Option<usize>,
    /// The pass under way: when it began, and the names that were passed over, with why.
    began: Option<Instant>,
    skipped: BTreeMap<String, String>,
    /// How long the last complete pass took from beginning to beginning.
    pub cycle: Option<Duration>,
    /// The keys that cannot be read, with why.
    pub unreadable: BTreeMap<String, String>,
    /// Whether a pass was completed since somebody looks.
    pub complete: bool,
    asked: Option<Instant>,
    answered: Option<Instant>,
    /// Why the store does not answer, if it does not.
    pub failure: Option<Error>,
    /// Those among the locks of the last pass.
    pub deadlocks: Vec<DeadlockView>,
    /// Goes up with each change.
    pub version: u64,
}

/// A lock, with what successive looks have told.
#[derive(Debug)]
pub struct Lock {
    /// What was seen of it last.
    pub view: KeyView,
    /// How many wait, also those that are not kept.
    pub waiting: usize,
    /// When that was seen.
    pub seen: Instant,
    /// When the lock was seen first.
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

impl LockTable {
    /// A table that keeps so many holders, and so many waiters, of each lock.
    pub fn of_at_most(most_claims: usize) -> Self {
        Self {
            most_claims: Some(most_claims),
            ..Self::default()
        }
    }

    /// Forgets the locks: others are wanted.
    pub fn clear(&mut self) {
        *self = Self {
            most_claims: self.most_claims,
            asked: self.asked,
            answered: self.answered,
            failure: self.failure.take(),
            version: self.version + 1,
            ..Self::default()
        };
    }

    // ---- answers of the store ----

    /// Takes an answer of the store.
    pub fn take(&mut self, update: Update, now: Instant) {
        self.version += u64::from(!matches!(update, Update::Asked));
        if !matches!(update, Update::Asked | Update::Began | Update::Failed(_)) {
            (self.asked, self.failure, self.answered) = (None, None, Some(now));
        }
        match update {
            Update::Asked => self.asked = Some(now),
            Update::Began => {
                if self.complete {
                    self.cycle = self.began.map(|began| now - began);
                }
                self.began = Some(now);
                self.skipped.clear();
            }
            Update::Page(views, skipped) => {
                self.skipped.extend(skipped);
                for view in views {
                    if let Some(lock) = self.see(view, now) {
                        lock.count(now);
                    }
                }
            }
            Update::Shown(views) => {
                for view in views {
                    self.see(view, now);
                }
            }
            Update::Ended(deadlocks) => {
                (self.complete, self.deadlocks) = (true, deadlocks);
                self.unreadable = std::mem::take(&mut self.skipped);
                let began = self.began;
                self.locks.retain(|_, lock| {
                    lock.free |= began.is_some_and(|began| lock.seen < began);
                    !lock.free || now - lock.seen < REMEMBERED
                });
            }
            Update::Failed(failure) => {
                self.asked = None;
                let of_key = failure.key();
                match of_key.filter(|_| !is_passing(failure.kind(), failure.retry_after())) {
                    None => self.failure = Some(failure),
                    Some(key) => {
                        self.locks.remove(key.as_str());
                        let why = failure.reason().to_owned();
                        self.unreadable.insert(key.to_string(), why);
                    }
                }
            }
        }
    }

    /// Takes what was seen of a lock; `None` if it is not known and free.
    fn see(&mut self, mut view: KeyView, now: Instant) -> Option<&mut Lock> {
        let waiting = view.waiters.len();
        shorten(&mut view, self.most_claims.unwrap_or(usize::MAX));
        self.unreadable.remove(&view.key);
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
            SortBy::Rate => locks.sort_by_cached_key(|lock| Reverse((lock.rate(now) * 1e6) as u64)),
        }
        locks
    }

    /// For how long the request under way has not been answered.
    pub fn unanswered(&self, now: Instant) -> Option<Duration> {
        self.asked.map(|asked| now.saturating_duration_since(asked))
    }

    /// Why the locks may be others by now, if they may.
    pub fn error(&self) -> Option<String> {
        let unread = || "not all locks have been read yet".to_owned();
        let failure = self.failure.as_ref().map(ToString::to_string);
        failure.or_else(|| (!self.complete).then(unread))
    }

    /// How old the last answer is; `None` before the first.
    pub fn data_age(&self, now: Instant) -> Option<Duration> {
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
        let changed = !view.holders.is_empty() && !same_holders(&view.holders, before);
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
    pub fn rate(&self, now: Instant) -> f64 {
        let faded = self.changes * weight(now - self.counted);
        let watched = FADE.as_secs_f64() * (1.0 - weight(now - self.first));
        match watched > 0.0 {
            true => 60.0 * faded / watched,
            false => 0.0,
        }
    }

    /// The longest hold comes first, and what nobody holds last.
    fn held_since(&self) -> (bool, Option<Timestamp>) {
        let since = self.view.holders.first().and_then(|holder| holder.since);
        (since.is_none(), since)
    }

    /// For how long its first holder has it; `None` if nobody has, or the store does not keep it.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        let holder = self.view.holders.first()?;
        holder.since?;
        Some(holder.age? + (now - self.seen))
    }

    /// What is left of the lease of its first holder, and the share that this is of the longest
    /// that was seen; `None` if nobody holds it, or it does not expire.
    pub fn left(&self, now: Instant) -> Option<(Duration, f64)> {
        let left = self.view.holders.first()?.expires_in()?;
        let left = left.saturating_sub(now - self.seen);
        let ttl = self.ttl.unwrap_or_default().max(Duration::from_millis(1));
        Some((left, left.as_secs_f64() / ttl.as_secs_f64()))
    }
}

/// Leaves so many holders, and so many waiters.
pub fn shorten(view: &mut KeyView, most_claims: usize) {
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
pub(crate) mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::view::example as claim;

    /// So many seconds from the start.
    pub(crate) fn at(seconds: u64) -> Instant {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        *START + Duration::from_secs(seconds)
    }

    /// A lock that build7 holds for a minute with a lease of 30 s, and so many that wait for it.
    pub(crate) fn held(key: &str, token: u64, waiting: u64) -> KeyView {
        let claim = |label| ClaimView {
            expires_in_ms: Some(30_000),
            since: Some("2026-01-31T12:00:00Z".parse().unwrap()),
            age: Some(Duration::from_secs(60)),
            ..claim(label)
        };
        let waiter = |position| ClaimView {
            position: Some(position),
            ..claim(None)
        };
        KeyView {
            key: key.to_owned(),
            kind: "lock",
            permits: None,
            last_token: token,
            at: "2026-01-31T12:01:00Z".parse().unwrap(),
            holders: vec![ClaimView {
                token: Some(token),
                ..claim(Some("deploy"))
            }],
            waiters: (1..=waiting).map(waiter).collect(),
        }
    }

    /// The same without a label, taken in that second of the minute.
    pub(crate) fn held_since(key: &str, second: u64, waiting: u64) -> KeyView {
        let mut view = held(key, 7, waiting);
        let since = format!("2026-01-31T12:00:{second:02}Z").parse().unwrap();
        for claim in view.holders.iter_mut().chain(&mut view.waiters) {
            (claim.since, claim.token) = (Some(since), None);
            claim.owner.as_mut().unwrap().label = None;
        }
        view
    }

    pub(crate) fn free(key: &str) -> KeyView {
        KeyView {
            holders: vec![],
            ..held(key, 7, 0)
        }
    }

    /// A whole pass.
    pub(crate) fn pass(locks: Vec<KeyView>) -> [Update; 4] {
        let page = Update::Page(locks, vec![]);
        [Update::Asked, Update::Began, page, Update::Ended(vec![])]
    }

    /// A table as after a pass.
    pub(crate) fn table(locks: Vec<KeyView>) -> LockTable {
        let mut table = LockTable::of_at_most(1000);
        take_all(&mut table, pass(locks), at(0));
        table
    }

    fn take_all(table: &mut LockTable, updates: impl IntoIterator<Item = Update>, now: Instant) {
        for update in updates {
            table.take(update, now);
        }
    }

    fn keys(table: &LockTable, sort: SortBy) -> Vec<&str> {
        let sorted = table.sorted(sort, at(9), |_| true);
        sorted.iter().map(|lock| &*lock.view.key).collect()
    }

    #[test]
    fn a_lock_with_very_many_claims_is_counted_and_shortened() {
        let mut many = held("k", 1, 1234);
        many.holders = many.waiters.clone();
        let table = table(vec![many]);
        let kept = table.lock("k").unwrap();
        assert_eq!(
            (kept.view.holders.len(), kept.view.waiters.len()),
            (1000, 1000)
        );
        assert_eq!(kept.waiting, 1234);
    }

    #[test]
    fn what_is_not_found_any_more_goes() {
        let mut table = table(vec![held("a", 1, 0), held("b", 1, 0)]);
        table.take(Update::Began, at(1));
        // Looked at by themselves meanwhile.
        let shown = vec![free("a"), held("c", 2, 0)];
        table.take(Update::Shown(shown), at(2));
        assert_eq!(keys(&table, SortBy::Key), ["b", "c"]);
        table.take(Update::Ended(vec![]), at(3));
        assert_eq!(keys(&table, SortBy::Key), ["c"]);
        // It is forgotten in the end.
        take_all(&mut table, pass(vec![]), at(20));
        assert!(table.locks.is_empty());
    }

    #[test]
    fn a_key_that_cannot_be_read_says_why_until_it_is_read() {
        let mut table = table(vec![held("a", 1, 0), held("b", 1, 0)]);
        let damaged = vec![("a".to_owned(), "damaged".to_owned())];
        let page = Update::Page(vec![held("b", 1, 0)], damaged);
        take_all(
            &mut table,
            [Update::Began, page, Update::Ended(vec![])],
            at(1),
        );
        assert_eq!(keys(&table, SortBy::Key), ["b"]);
        assert_eq!(table.unreadable["a"], "damaged");
        take_all(&mut table, pass(vec![held("a", 2, 0)]), at(2));
        assert!(table.unreadable.is_empty());
    }

    #[tokio::test]
    async fn an_error_stays_until_there_is_an_answer() {
        let mut table = table(vec![held("a", 1, 0)]);
        let error = leasehold::connect("no-store:").await.unwrap_err();
        table.take(Update::Failed(error), at(1));
        assert!(table.failure.is_some());
        assert_eq!(keys(&table, SortBy::Key), ["a"]);
        take_all(&mut table, pass(vec![held("a", 1, 0)]), at(2));
        assert!(table.failure.is_none());
    }

    #[test]
    fn changes_of_holders_are_counted_once_a_pass() {
        let mut lock = Lock::new(held("k", 1, 0), 0, at(0));
        assert_eq!(lock.rate(at(0)), 0.0);
        for second in 1..=60 {
            lock.update(held("k", 2 * second, 0), 0, at(second));
            lock.update(held("k", 2 * second + 1, 0), 0, at(second));
            lock.count(at(second));
        }
        let rate = lock.rate(at(60));
        assert!((59.0..61.5).contains(&rate), "{rate}");
        for second in 61..=300 {
            // What a leader tells of itself makes it no other holder.
            let mut same = held("k", 121, 0);
            same.holders[0].note = Some(second.to_string());
            lock.update(same, 0, at(second));
            lock.count(at(second));
        }
        let rate = lock.rate(at(300));
        assert!((0.5..1.5).contains(&rate), "{rate}");
    }

    #[test]
    fn a_lock_that_is_free_between_looks_changes_its_holders_too() {
        let mut lock = Lock::new(held("k", 1, 0), 0, at(0));
        for second in 1..=60 {
            lock.free = second % 2 == 1;
            if !lock.free {
                lock.update(held("k", second, 0), 0, at(second));
            }
            lock.count(at(second));
        }
        let rate = lock.rate(at(60));
        assert!((29.0..31.0).contains(&rate), "{rate}");
        // The same holder as before is none that is new, also if only waiters were seen meanwhile.
        lock.free = true;
        lock.update(
            KeyView {
                holders: vec![],
                ..held("k", 60, 1)
            },
            1,
            at(61),
        );
        lock.update(held("k", 60, 0), 0, at(61));
        lock.count(at(61));
        assert!(lock.rate(at(61)) < rate);
    }

    #[test]
    fn times_go_on_between_looks() {
        let mut lock = Lock::new(held("k", 1, 0), 0, at(5));
        let (half_a_minute, ten) = (Duration::from_secs(30), Duration::from_secs(10));
        let age = lock.age(at(5)).unwrap();
        assert_eq!(lock.left(at(5)).unwrap(), (half_a_minute, 1.0));
        assert_eq!(lock.age(at(20)), Some(age + half_a_minute / 2));
        assert_eq!(lock.left(at(20)), Some((half_a_minute / 2, 0.5)));
        assert_eq!(lock.left(at(99)), Some((Duration::ZERO, 0.0)));
        // The bar of the next holder begins with its own lease.
        let mut next = held("k", 2, 0);
        next.holders[0].expires_in_ms = Some(10_000);
        lock.update(next, 0, at(20));
        assert_eq!(lock.left(at(20)), Some((ten, 1.0)));
    }
}
