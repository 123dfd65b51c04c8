//! The client's table of its own claims, for stores whose records cannot keep what is noted here.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::std_ext::lock;
use leasehold_core::{ClaimId, Key, Moment};

/// How long a claim is remembered after it has expired: longer than any retry.
const REMEMBERED: Duration = Duration::from_secs(60);

/// What is known of a claim id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known<T> {
    /// This client has claimed with it, and has noted that.
    Here(T),
    /// The claim has left, and does not come back.
    Left,
}

/// What is noted of each claim, and when it has expired at the latest.
#[derive(Debug)]
pub(crate) struct ClaimTable<T>(Mutex<HashMap<(Key, ClaimId), (T, Moment)>>);

impl<T> Default for ClaimTable<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> ClaimTable<T> {
    pub(crate) fn get(&self, key: &Key, id: &ClaimId) -> Option<(T, Moment)> {
        lock(&self.0).get(&(key.clone(), id.clone())).cloned()
    }

    /// Notes a claim that expires then or later, by what is known of it. Returns the latter.
    pub(crate) fn note(
        &self,
        (key, id): (&Key, &ClaimId),
        (lapses, now): (Moment, Moment),
        noted: impl FnOnce(Option<&T>) -> T,
    ) -> Option<T> {
        let mut rows = lock(&self.0);
        // Each time the table would grow.
        if rows.len() == rows.capacity() {
            rows.retain(|_, (_, lapses)| *lapses + REMEMBERED > now);
        }
        let claim = (key.clone(), id.clone());
        let (known, lapsed) = rows.remove(&claim).unzip();
        let noted = noted(known.as_ref());
        rows.insert(claim, (noted, lapses.max(lapsed.unwrap_or(lapses))));
        known
    }

    pub(crate) fn remove(&self, key: &Key, id: &ClaimId) -> Option<(T, Moment)> {
        lock(&self.0).remove(&(key.clone(), id.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_expired_is_remembered_for_a_while() {
        let (table, key) = (ClaimTable::default(), Key::new("k").unwrap());
        let note = |number, now: Moment| {
            let id = ClaimId::from_random(number);
            let lapses = now + Duration::from_secs(1);
            table.note((&key, &id), (lapses, now), |_| number)
        };
        assert_eq!(note(0, Moment(0)), None);
        assert_eq!(note(0, Moment(0)), Some(0));
        let later = Moment(0) + REMEMBERED * 2;
        for other in 1..1_000 {
            note(other, later);
        }
        assert_eq!(note(0, later), None);
        assert_eq!(table.remove(&key, &ClaimId::from_random(0)).unwrap().0, 0);
        assert_eq!(note(0, later), None);
    }
}
