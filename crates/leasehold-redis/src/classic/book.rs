//! What this client remembers of its claims: the record names nobody, and keeps
//! nothing of who has left.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{ClaimId, Key, Moment};

/// For how long at least a claim is remembered after it was last asked for, or
/// has left: longer than anybody asks again.
const REMEMBERED: Duration = Duration::from_secs(60);

/// What is known of a claim id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// This client has never claimed with it.
    Nothing,
    /// It has.
    Here,
    /// It has left, and does not come back.
    Left,
}

#[derive(Debug)]
struct Entry {
    left: bool,
    until: Moment,
}

#[derive(Debug, Default)]
struct Pages {
    claims: HashMap<(Key, ClaimId), Entry>,
    sweep_at: usize,
}

#[derive(Debug, Default)]
pub(super) struct Book(Mutex<Pages>);

impl Book {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim is asked for: says what was known of it before.
    pub(super) fn ask(&self, key: &Key, id: &ClaimId, ttl: Duration, now: Moment) -> Known {
        let mut pages = self.pages();
        pages.sweep(now);
        let until = now + ttl.max(REMEMBERED);
        let mut known = Known::Nothing;
        pages
            .claims
            .entry((key.clone(), id.clone()))
            .and_modify(|entry| {
                known = if entry.left { Known::Left } else { Known::Here };
                entry.until = entry.until.max(until);
            })
            .or_insert(Entry { left: false, until });
        known
    }

    /// A claim was never made: its id may be asked for again.
    pub(super) fn forget(&self, key: &Key, id: &ClaimId) {
        self.pages().claims.remove(&(key.clone(), id.clone()));
    }

    /// A claim leaves.
    pub(super) fn leave(&self, key: &Key, id: &ClaimId, now: Moment) {
        let mut pages = self.pages();
        pages.sweep(now);
        let until = now + REMEMBERED;
        let left = Entry { left: true, until };
        pages.claims.insert((key.clone(), id.clone()), left);
    }

    pub(super) fn has_left(&self, key: &Key, id: &ClaimId) -> bool {
        let pages = self.pages();
        let entry = pages.claims.get(&(key.clone(), id.clone()));
        entry.is_some_and(|entry| entry.left)
    }
}

impl Pages {
    fn sweep(&mut self, now: Moment) {
        if self.claims.len() >= self.sweep_at.max(64) {
            self.claims.retain(|_, entry| entry.until > now);
            self.sweep_at = 2 * self.claims.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_left_does_not_come_back_for_a_while() {
        let (book, key) = (Book::default(), Key::new("k").unwrap());
        let id = |number| ClaimId::from_random(number);
        let ttl = Duration::from_secs(1);
        assert_eq!(book.ask(&key, &id(0), ttl, Moment(0)), Known::Nothing);
        assert_eq!(book.ask(&key, &id(0), ttl, Moment(0)), Known::Here);
        book.leave(&key, &id(0), Moment(0));
        assert_eq!(book.ask(&key, &id(0), ttl, Moment(0)), Known::Left);
        assert!(book.has_left(&key, &id(0)));
        let later = Moment(0) + REMEMBERED * 2;
        for other in 1..1_000 {
            book.ask(&key, &id(other), ttl, later);
        }
        assert_eq!(book.ask(&key, &id(0), ttl, later), Known::Nothing);
        book.forget(&key, &id(0));
        assert_eq!(book.ask(&key, &id(0), ttl, later), Known::Nothing);
    }
}
