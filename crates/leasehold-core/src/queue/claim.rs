//! The verb `claim`.

use super::{Entry, Place, Queue, Step};
use crate::mutant::mutated;
use crate::{Arrival, Claim, Mode, OwnerSecret, Reply};

impl Queue {
    pub(super) fn claim(&mut self, claim: &Claim, step: &mut Step) -> Reply {
        step.actor = Some(claim.id.clone());
        self.drop_if_lapsed(&claim.id, step.now);
        if let Some(entry) = self.entry(&claim.id) {
            let taken = entry.inbox != claim.inbox && !mutated("stranger-enters");
            let kept = entry.kept;
            if taken {
                // Its client does not hear this answer.
                step.actor = None;
            } else if let Some(unfit) = self.drop_unfit(&claim.id, step) {
                return unfit;
            }
            self.promote(step);
            return match (kept, taken) {
                (true, _) => Reply::Gone,
                (_, true) => Reply::Taken,
                _ => self.raise(&claim.id, claim.lease_ttl, claim.waiter_ttl, step),
            };
        }
        let buried = self.is_buried(&claim.id, step.now);
        let secret = claim.secret.filter(|_| claim.mode == Mode::EXCLUSIVE);
        let ahead = claim.ahead && secret.is_none();
        // An unfair claim is asked first: else it could never win a vacant key.
        let open = step.opens.is_none();
        let barges = open
            && ahead
            && !buried
            && self.capacity == Some(claim.mode.capacity())
            && self.make_room(claim.mode.weight(), step);
        if !barges {
            self.promote(step);
        }
        if buried {
            return Reply::Gone;
        }
        if self
            .capacity
            .is_some_and(|in_use| in_use != claim.mode.capacity())
        {
            self.reclaim(step);
        }
        if !self.is_empty()
            && let Some(in_use) = self.capacity.filter(|c| *c != claim.mode.capacity())
        {
            return Reply::Mismatch { in_use };
        }
        self.capacity = Some(claim.mode.capacity());

        let carrier = secret
            .filter(|_| open)
            .and_then(|secret| self.carrier(secret, step));
        let may_pass = (open || mutated("closed-claim"))
            && (ahead
                || self.waiting.is_empty()
                || claim.mode == Mode::SHARED && mutated("reader-passes"));
        let now =
            barges || carrier.is_some() || (may_pass && self.make_room(claim.mode.weight(), step));
        if !now && !claim.wait {
            return step.opens.map_or_else(
                || Reply::Busy {
                    blocked_until: self.blocked_until(step),
                },
                |until| Reply::Quarantined { until },
            );
        }
        let arrival = self.next_arrival(step);
        let ttl = if now {
            claim.lease_ttl.max(claim.min_hold)
        } else {
            claim.waiter_ttl
        };
        let mut entry = Entry {
            id: claim.id.clone(),
            arrival,
            mode: claim.mode,
            deadline: step.now + ttl,
            since: step.now,
            inbox: claim.inbox.clone(),
            owner: claim.owner.clone(),
            secret,
            min_hold: claim.min_hold,
            renewed: None,
            note: claim.note.clone(),
            version: 0,
            previous: None,
            kept: false,
        };
        self.furthest = self.furthest.max(entry.deadline);
        if now {
            entry.note_renewal(step.now + claim.lease_ttl);
        }
        if let Some(token) = carrier {
            self.hold(entry, token);
        } else if now {
            self.grant(entry, step);
            if barges {
                self.promote(step);
            }
        } else {
            self.enqueue(entry);
        }
        self.standing(&claim.id, step)
    }

    /// The token under which this owner holds the key.
    pub(super) fn carrier(&mut self, secret: OwnerSecret, step: &mut Step) -> Option<crate::Token> {
        self.reclaim(step);
        // Only an exclusive hold has an owner, and then there is no other.
        let exclusive = self.granted.values().next()?.mode == Mode::EXCLUSIVE;
        let mut held = self
            .granted
            .iter()
            .take(if exclusive { usize::MAX } else { 0 });
        held.find(|(_, entry)| entry.secret == Some(secret) && !mutated("owner-shut-out"))
            .map(|((token, _), _)| *token)
    }

    fn enqueue(&mut self, entry: Entry) {
        let arrival = entry.arrival;
        if let Some(secret) = entry.secret {
            self.siblings.entry(secret).or_default().insert(arrival);
        }
        self.places
            .insert(entry.id.clone(), Place::Waiting(arrival));
        self.waiting.insert(arrival, entry);
    }

    /// Contiguous while the queue is not empty, so that the difference of two
    /// numbers bounds a position; floored by the clock when it starts anew.
    fn next_arrival(&mut self, step: &Step) -> Arrival {
        let floor = if self.is_empty() { step.clock.0 } else { 0 };
        self.last_arrival = Arrival((self.last_arrival.0 + 1).max(floor));
        self.last_arrival
    }
}
