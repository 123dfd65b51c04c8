//! The client's table of its own claims, for stores whose records cannot keep them: which claims
//! it has made, and which were released.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::std_ext::lock;
use leasehold_core::{ClaimId, Key, Moment};

/// How long a claim is remembered after it has expired, so that its id cannot claim again: longer
/// than any retry.
const REMEMBERED: Duration = Duration::from_secs(60);

/// What is known of a claim id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known<T, L> {
    /// This client has never claimed with it.
    Nothing,
    /// It has; with what is noted of the claim.
    Here(T),
    /// The claim has left, and does not come back.
    Left(L),
}

#[derive(Debug)]
struct Row<T, L> {
    known: Known<T, L>,
    /// The latest time at which the claim has expired.
    lapses: Moment,
}

#[derive(Debug)]
struct Rows<T, L> {
    claims: HashMap<(Key, ClaimId), Row<T, L>>,
    /// How many claims make it worth looking for old ones.
    sweep_at: usize,
}

/// The claims of a client: of those who are here it notes a `T`, of those who have left an `L`.
#[derive(Debug)]
pub(crate) struct ClaimTable<T, L>(Mutex<Rows<T, L>>);

impl<T, L> Default for ClaimTable<T, L> {
    fn default() -> Self {
        Self(Mutex::new(Rows {
            claims: HashMap::new(),
            sweep_at: 0,
        }))
    }
}

impl<T: Clone, L: Clone> ClaimTable<T, L> {
    fn rows(&self) -> MutexGuard<'_, Rows<T, L>> {
        lock(&self.0)
    }

    pub(crate) fn look(&self, key: &Key, id: &ClaimId) -> Known<T, L> {
        let rows = self.rows();
        let row = rows.claims.get(&(key.clone(), id.clone()));
        row.map_or(Known::Nothing, |row| row.known.clone())
    }

    /// Adds or updates a claim that expires then or later, unless it was released. Returns what
    /// was known of it before.
    pub(crate) fn put(
        &self,
        key: &Key,
        id: &ClaimId,
        noted: T,
        lapses: Moment,
        now: Moment,
    ) -> Known<T, L> {
        let mut rows = self.rows();
        rows.sweep(now);
        let claim = (key.clone(), id.clone());
        let Some(row) = rows.claims.get_mut(&claim) else {
            let known = Known::Here(noted);
            rows.claims.insert(claim, Row { known, lapses });
            return Known::Nothing;
        };
        row.lapses = row.lapses.max(lapses);
        match row.known {
            Known::Left(_) => row.known.clone(),
            _ => std::mem::replace(&mut row.known, Known::Here(noted)),
        }
    }

    /// Changes what is noted of a claim that is still here.
    pub(crate) fn change(&self, key: &Key, id: &ClaimId, change: impl FnOnce(&mut T)) {
        let mut rows = self.rows();
        let row = rows.claims.get_mut(&(key.clone(), id.clone()));
        if let Some(Known::Here(noted)) = row.map(|row| &mut row.known) {
            change(noted);
        }
    }

    /// Extends its expiry.
    pub(crate) fn keep(&self, key: &Key, id: &ClaimId, lapses: Moment) {
        let mut rows = self.rows();
        if let Some(row) = rows.claims.get_mut(&(key.clone(), id.clone())) {
            row.lapses = row.lapses.max(lapses);
        }
    }

    /// Marks the claim as released: returns what was noted of it, and when it expires.
    pub(crate) fn leave(
        &self,
        key: &Key,
        id: &ClaimId,
        left: L,
        now: Moment,
    ) -> Option<(T, Moment)> {
        let mut rows = self.rows();
        rows.sweep(now);
        let claim = (key.clone(), id.clone());
        let before = rows.claims.remove(&claim);
        let lapses = before.as_ref().map_or(now, |row| row.lapses.max(now));
        let known = Known::Left(left);
        rows.claims.insert(claim, Row { known, lapses });
        match before {
            Some(Row {
                known: Known::Here(noted),
                lapses,
            }) => Some((noted, lapses)),
            _ => None,
        }
    }

    /// Forgets a claim that was never granted: its id may be used again.
    pub(crate) fn forget(&self, key: &Key, id: &ClaimId) {
        self.rows().claims.remove(&(key.clone(), id.clone()));
    }
}

impl<T, L> Rows<T, L> {
    fn sweep(&mut self, now: Moment) {
        if self.claims.len() >= self.sweep_at.max(64) {
            self.claims.retain(|_, row| row.lapses + REMEMBERED > now);
            self.sweep_at = 2 * self.claims.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_left_does_not_come_back_for_a_while() {
        let (table, key) = (ClaimTable::<(), ()>::default(), Key::new("k").unwrap());
        let id = |number| ClaimId::from_random(number);
        let ask = |number, now: Moment| {
            let lapses = now + Duration::from_secs(1);
            table.put(&key, &id(number), (), lapses, now)
        };
        assert_eq!(ask(0, Moment(0)), Known::Nothing);
        assert_eq!(ask(0, Moment(0)), Known::Here(()));
        table.leave(&key, &id(0), (), Moment(0));
        assert_eq!(ask(0, Moment(0)), Known::Left(()));
        assert_eq!(table.look(&key, &id(0)), Known::Left(()));
        let later = Moment(0) + REMEMBERED * 2;
        for other in 1..1_000 {
            ask(other, later);
        }
        assert_eq!(ask(0, later), Known::Nothing);
        table.forget(&key, &id(0));
        assert_eq!(ask(0, later), Known::Nothing);
    }
}
