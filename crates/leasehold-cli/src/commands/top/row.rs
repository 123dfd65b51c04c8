//! One lock as `top` follows it: what was seen of it last, and how often its holders changed.

use std::time::Duration;

use crate::view::{ClaimView, KeyView, same_claims};

/// The time in which a change of holders loses most of its weight.
const FADE: Duration = Duration::from_secs(60);

/// A lock, with what successive looks have told. Times count from the start of `top`.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) view: KeyView,
    /// When that was seen.
    pub(super) seen: Duration,
    /// When the lock was seen first.
    first: Duration,
    /// Whether the last look found nobody: `view` is from before that.
    pub(super) free: bool,
    /// Those who held it last, and the longest time to live that the first was seen with.
    holders: Vec<ClaimView>,
    ttl: Option<Duration>,
    /// Whether its holders changed since changes were counted, and when that was.
    changed: bool,
    counted: Duration,
    /// The changes that were counted, each with less weight as time goes by.
    changes: f64,
}

impl Row {
    pub(super) fn new(view: KeyView, now: Duration) -> Self {
        Self {
            ttl: view.holders.first().and_then(ClaimView::expires_in),
            holders: view.holders.clone(),
            view,
            seen: now,
            first: now,
            free: false,
            changed: false,
            counted: now,
            changes: 0.0,
        }
    }

    /// Takes what a look has found.
    pub(super) fn update(&mut self, view: KeyView, now: Duration) {
        let changed = !view.holders.is_empty() && !same_claims(&self.holders, &view.holders);
        let left = view.holders.first().and_then(ClaimView::expires_in);
        self.ttl = if changed { left } else { self.ttl.max(left) };
        self.changed |= changed;
        if !view.holders.is_empty() {
            self.holders.clone_from(&view.holders);
        }
        self.view = view;
        self.seen = now;
        self.free = false;
    }

    /// Counts a change, if there was one. Done once a pass over all locks: those on the screen are
    /// looked at more often, and would count for more.
    pub(super) fn count(&mut self, now: Duration) {
        let changed = f64::from(u8::from(std::mem::take(&mut self.changed)));
        self.changes = self.changes * weight(now.saturating_sub(self.counted)) + changed;
        self.counted = now;
    }

    /// How often its holders changed of late, in changes a minute that were seen.
    pub(super) fn rate(&self, now: Duration) -> f64 {
        let faded = self.changes * weight(now.saturating_sub(self.counted));
        let watched = FADE.as_secs_f64() * (1.0 - weight(now.saturating_sub(self.first)));
        if watched > 0.0 {
            60.0 * faded / watched
        } else {
            0.0
        }
    }

    /// For how long its first holder has it; `None` if nobody has, or the store does not keep it.
    pub(super) fn age(&self, now: Duration) -> Option<Duration> {
        let holder = self.view.holders.first()?;
        holder.since?;
        Some(self.view.age(holder) + now.saturating_sub(self.seen))
    }

    /// What is left of the lease of its first holder, and the share that this is of the longest
    /// that was seen; `None` if nobody holds it, or it does not expire.
    pub(super) fn left(&self, now: Duration) -> Option<(Duration, f64)> {
        let left = self.view.holders.first()?.expires_in()?;
        let left = left.saturating_sub(now.saturating_sub(self.seen));
        let ttl = self.ttl.unwrap_or_default().max(Duration::from_millis(1));
        Some((left, left.as_secs_f64() / ttl.as_secs_f64()))
    }

    pub(super) fn waiting(&self) -> usize {
        self.view.waiters.len()
    }
}

/// What a change counts for after so long.
fn weight(after: Duration) -> f64 {
    (-after.as_secs_f64() / FADE.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::tests::{held, secs};

    #[test]
    fn changes_of_holders_are_counted_once_a_pass() {
        let mut row = Row::new(held("k", 1, 0), Duration::ZERO);
        assert_eq!(row.rate(Duration::ZERO), 0.0);
        for second in 1..=60 {
            row.update(held("k", 2 * second, 0), secs(second));
            row.update(held("k", 2 * second + 1, 0), secs(second));
            row.count(secs(second));
        }
        let rate = row.rate(secs(60));
        assert!((59.0..61.5).contains(&rate), "{rate}");
        for second in 61..=300 {
            row.update(held("k", 121, 0), secs(second));
            row.count(secs(second));
        }
        let rate = row.rate(secs(300));
        assert!((0.5..1.5).contains(&rate), "{rate}");
    }

    #[test]
    fn a_lock_that_is_free_between_looks_changes_its_holders_too() {
        let mut row = Row::new(held("k", 1, 0), Duration::ZERO);
        for second in 1..=60 {
            row.free = second % 2 == 1;
            if !row.free {
                row.update(held("k", second, 0), secs(second));
            }
            row.count(secs(second));
        }
        let rate = row.rate(secs(60));
        assert!((29.0..31.0).contains(&rate), "{rate}");
        // The same holder as before is none that is new.
        row.free = true;
        row.update(held("k", 60, 0), secs(61));
        row.count(secs(61));
        assert!(row.rate(secs(61)) < rate);
    }

    #[test]
    fn times_go_on_between_looks() {
        let mut row = Row::new(held("k", 1, 0), secs(5));
        let age = row.age(secs(5)).unwrap();
        let (left, share) = row.left(secs(5)).unwrap();
        assert_eq!((left, share), (secs(30), 1.0));
        assert_eq!(row.age(secs(20)), Some(age + secs(15)));
        assert_eq!(row.left(secs(20)), Some((secs(15), 0.5)));
        assert_eq!(row.left(secs(99)), Some((Duration::ZERO, 0.0)));
        // The bar of the next holder begins with its own lease.
        let mut next = held("k", 2, 0);
        next.holders[0].expires_in_ms = Some(10_000);
        row.update(next, secs(20));
        assert_eq!(row.left(secs(20)), Some((secs(10), 1.0)));
    }
}
