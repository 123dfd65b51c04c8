//! The verb `claim`.

use super::entry::Entry;
use super::{Queue, Step};
use crate::{Arrival, Capacity, Claim, Mode, OwnerSecret, Reply};

impl Queue {
    pub(super) fn claim(&mut self, claim: &Claim, step: &mut Step) -> Reply {
        step.actor = Some(claim.id.clone());
        self.drop_if_lapsed(&claim.id, step.now);
        if let Some(proposal) = claim.proposal {
            return self.propose(claim, proposal, step);
        }
        if self.entry(&claim.id).is_some() {
            return self.claim_again(claim, step);
        }
        let buried = self.is_buried(&claim.id, step.now);
        let secret = claim.secret.filter(|_| claim.mode == Mode::EXCLUSIVE);
        let ahead = claim.ahead && secret.is_none();
        let (capacity, weight) = (claim.mode.capacity(), claim.mode.weight());
        // An unfair claim is asked first: else it could never win a vacant key.
        let open = step.opens.is_none();
        let may_barge = open && ahead && !buried && self.capacity == Some(capacity);
        let barges = may_barge && self.make_room(weight, step);
        if !barges {
            self.promote(step);
        }
        if buried {
            return Reply::Gone;
        }
        if let Some(in_use) = self.other_capacity(capacity, step) {
            return Reply::Mismatch { in_use };
        }
        self.capacity = Some(capacity);

        let owner = secret.filter(|_| open);
        let carrier = owner.and_then(|secret| self.carrier(secret, step));
        let may_pass = open && (ahead || self.waiting.is_empty());
        let now = barges || carrier.is_some() || (may_pass && self.make_room(weight, step));
        if !now && !claim.wait {
            let blocked_until = self.blocked_until(step);
            return match step.opens {
                Some(until) => Reply::Quarantined { until },
                None => Reply::Busy { blocked_until },
            };
        }
        let entry = self.new_entry(claim, secret, now, step);
        let follows = open && self.waiting.is_empty() && self.is_followed_by(&entry);
        match carrier {
            Some(token) => self.hold(entry, token),
            None if now || follows => {
                self.grant(entry, step);
                if barges {
                    self.promote(step);
                }
            }
            None => self.enqueue(entry),
        }
        self.standing(&claim.id, step)
    }

    /// A claim that is in the queue finds itself; another client's id is taken.
    fn claim_again(&mut self, claim: &Claim, step: &mut Step) -> Reply {
        let entry = self.entry(&claim.id);
        let kept = entry.is_some_and(|entry| entry.kept);
        let taken = entry.is_some_and(|entry| entry.inbox != claim.inbox);
        if taken {
            // Its client does not hear this answer.
            step.actor = None;
        } else if let Some(unfit) = self.drop_unfit(&claim.id, step) {
            return unfit;
        }
        self.drop_lapsed_ahead(&claim.id, step);
        self.promote(step);
        match (kept, taken) {
            (true, _) => Reply::Gone,
            (_, true) => Reply::Taken,
            _ => self.raise(&claim.id, claim.lease_ttl, claim.waiter_ttl, step),
        }
    }

    /// The capacity that the key is in use with, if it is another.
    fn other_capacity(&mut self, wanted: Capacity, step: &mut Step) -> Option<Capacity> {
        if self.capacity.is_some_and(|in_use| in_use != wanted) {
            self.reclaim(step);
        }
        let in_use = self.capacity.filter(|_| !self.is_empty());
        in_use.filter(|in_use| *in_use != wanted)
    }

    /// The claim as it joins: at the tail, or granted `now`.
    pub(super) fn new_entry(
        &mut self,
        claim: &Claim,
        secret: Option<OwnerSecret>,
        now: bool,
        step: &Step,
    ) -> Entry {
        let ttl = match now {
            true => claim.lease_ttl.max(claim.min_hold),
            false => claim.waiter_ttl,
        };
        let mut entry = Entry {
            id: claim.id.clone(),
            arrival: self.next_arrival(step),
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
            runs: claim.runs
                && claim.mode == Mode::EXCLUSIVE
                && secret.is_none()
                && claim.min_hold.is_zero(),
            listens: step.listens,
        };
        self.furthest = self.furthest.max(entry.deadline);
        if now {
            entry.note_renewal(step.now + claim.lease_ttl);
        }
        entry
    }

    /// The token under which this owner holds the key.
    pub(super) fn carrier(&mut self, secret: OwnerSecret, step: &mut Step) -> Option<crate::Token> {
        self.reclaim(step);
        // Only an exclusive hold has an owner, and then there is no other.
        if self.granted.values().next()?.mode != Mode::EXCLUSIVE {
            return None;
        }
        let mut held = self.granted.iter();
        let ours = held.find(|(_, entry)| entry.secret == Some(secret));
        ours.map(|((token, _), _)| *token)
    }

    pub(super) fn enqueue(&mut self, entry: Entry) {
        let arrival = entry.arrival;
        if let Some(secret) = entry.secret {
            self.siblings.entry(secret).or_default().insert(arrival);
        }
        self.places.insert(entry.id.clone(), (None, arrival));
        self.waiting.insert(arrival, entry);
    }

    /// Contiguous while the queue is not empty, so that the difference of two
    /// numbers bounds a position. When it starts anew it is the token that would be given
    /// now: a store need keep but one number of a claim that holds alone.
    fn next_arrival(&mut self, step: &Step) -> Arrival {
        let next = self.last_arrival.0 + 1;
        self.last_arrival = Arrival(match self.is_empty() {
            true => next.max(self.next_token(step).0),
            false => next,
        });
        self.last_arrival
    }
}
