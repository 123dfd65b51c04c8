//! Runs: claims of one client that are granted one behind the other.
//!
//! Only the first claim of a run holds. Its client keeps the order of the others, and passes the
//! hold on without asking the store ([`Standing::behind`](crate::Standing::behind)). The claims
//! of a run are next to each other in the queue, so nobody is overtaken: a claim that arrives
//! later waits for the same claims as without runs.

use super::{Entry, Queue, RUN, Step};
use crate::{Arrival, Capacity, ClaimId, Mode, Token};

impl Queue {
    /// The claim right ahead of one that is granted, and does not hold yet. A granted claim that
    /// would bear no other beside it can only have been granted in a run.
    pub(super) fn behind(&self, id: &ClaimId) -> Option<Arrival> {
        let (Some(token), arrival) = *self.places.get(id)? else {
            return None;
        };
        let exclusive = self.granted.get(&(token, arrival))?.mode == Mode::EXCLUSIVE;
        let mut ahead = self.granted.range(..(token, Arrival(0)));
        let (_, ahead) = ahead.next_back().filter(|_| exclusive)?.0;
        Some(*ahead)
    }

    /// How many are granted and do not hold yet.
    pub(super) fn followers(&self) -> u64 {
        match self.capacity {
            Some(Capacity::Lock) => self.used.saturating_sub(1) / Mode::EXCLUSIVE.weight(),
            _ => 0,
        }
    }

    /// How many are ahead of one that is granted and does not hold yet; an upper bound.
    pub(super) fn place_in_run(&self, arrival: Arrival) -> u64 {
        let first = self.granted.values().next();
        let ahead = first.map_or(0, |first| arrival.0 - first.arrival.0);
        ahead.min(self.granted.len() as u64 - 1)
    }

    /// One that is granted behind others holds once those have lapsed; nobody else may look.
    pub(super) fn drop_lapsed_ahead(&mut self, id: &ClaimId, step: &mut Step) {
        if self.behind(id).is_some() {
            self.reclaim(step);
        }
    }

    /// Whether the last granted claim may have this one granted behind it. One that has passed it,
    /// as an unfair claim does, may not: a run is in order of arrival.
    pub(super) fn is_followed_by(&self, entry: &Entry) -> bool {
        let last = self.granted.values().next_back();
        last.is_some_and(|last| {
            let same = last.inbox == entry.inbox;
            let run = last.runs && entry.runs && last.mode == Mode::EXCLUSIVE;
            let later = last.arrival < entry.arrival;
            run && same && later && entry.inbox.is_some() && self.granted.len() < RUN
        })
    }

    /// Whether the first in line may be granted behind the last granted claim, in this step.
    pub(super) fn lets_follow(&self, step: &mut Step) -> bool {
        let first = self.first_in_line().filter(|_| step.followers_left > 0);
        let follows = first.is_some_and(|first| self.is_followed_by(first));
        step.followers_left -= usize::from(follows);
        follows
    }

    /// Ends the run of the claim with this token: whoever is to hold it from now on does not keep
    /// the order of the others, or the store may have forgotten who holds. Those who do not hold
    /// yet go back to the front of the line.
    pub(super) fn disband(&mut self, token: Token) {
        let after = (token, Arrival(0));
        let first = self.first_holder().map(|(token, _)| token);
        let behind = self.granted.extract_if(after.., |(token, _), entry| {
            entry.mode == Mode::EXCLUSIVE && Some(*token) != first
        });
        for (_, entry) in behind.collect::<Vec<_>>() {
            self.used -= entry.mode.weight();
            self.enqueue(entry);
        }
    }
}
