//! The one rule: a claim is granted when the weights of the claims ahead of it,
//! plus its own, fit the key's capacity.

use std::time::Duration;

use super::{Entry, PROMOTED_FLOOR, Queue, Step};
use crate::{Capacity, ClaimId, Event, OwnerSecret, Reply, StoreTime, Token};

impl Queue {
    fn fits(&self, weight: u64) -> bool {
        self.capacity
            .is_none_or(|capacity| self.used + weight <= capacity.units())
    }

    /// The capacity in use, if a claim of this weight can never fit it.
    fn too_small_for(&self, weight: u64) -> Option<Capacity> {
        self.capacity.filter(|capacity| weight > capacity.units())
    }

    pub(super) fn first_in_line(&self) -> Option<&Entry> {
        self.waiting.values().next()
    }

    /// Gives each claim at the front that fits its token.
    pub(super) fn promote(&mut self, step: &mut Step) {
        self.catch_up(step);
        for entry in self.promote_in_order(step) {
            self.enqueue(entry);
        }
    }

    /// Answers those who were passed over.
    fn promote_in_order(&mut self, step: &mut Step) -> Vec<Entry> {
        let mut aside = Vec::new();
        while let Some(first) = self.first_in_line() {
            let (id, arrival, weight) = (first.id.clone(), first.arrival, first.mode.weight());
            let too_small = self.too_small_for(weight);
            if first.deadline <= step.now || too_small.is_some() {
                if step.drops_left == 0 {
                    return aside;
                }
                step.drops_left -= 1;
                let alive = first.deadline > step.now;
                let inbox = first.inbox.clone().filter(|_| alive);
                self.remove(&id);
                if let (Some(inbox), Some(in_use)) = (inbox, too_small) {
                    step.events.push(Event::Unfit {
                        inbox,
                        arrival,
                        id,
                        in_use,
                    });
                }
                continue;
            }
            if step.passes(first) {
                aside.extend(self.take_waiting(arrival));
                continue;
            }
            if step.opens.is_some() || !(self.make_room(weight, step) || self.lets_follow(step)) {
                return aside;
            }
            let Some(mut entry) = self.take_waiting(arrival) else {
                return aside;
            };
            let (secret, waited) = (entry.secret, step.now.since(entry.since));
            self.lift(&mut entry, step);
            let token = self.grant(entry, step);
            self.tell_granted(&id, token, waited, step);
            if let Some(secret) = secret {
                self.grant_siblings(secret, token, step);
            }
        }
        aside
    }

    /// An owner that held while the store was closed gets its claims that came
    /// meanwhile. At any other time they are granted as they come.
    fn catch_up(&mut self, step: &mut Step) {
        if step.opens.is_some() || self.siblings.is_empty() {
            return;
        }
        let owner = self.granted.values().find_map(|entry| entry.secret);
        let Some(secret) = owner.filter(|secret| self.siblings.contains_key(secret)) else {
            return;
        };
        if let Some(token) = self.carrier(secret, step) {
            self.grant_siblings(secret, token, step);
        }
    }

    /// The owner that now holds gets its other waiting claims too: one of them
    /// may be what the holder waits for.
    fn grant_siblings(&mut self, secret: OwnerSecret, token: Token, step: &mut Step) {
        for arrival in self.siblings.remove(&secret).unwrap_or_default() {
            let Some(mut entry) = self.waiting.remove(&arrival) else {
                continue;
            };
            if entry.deadline <= step.now {
                self.places.remove(&entry.id);
                continue;
            }
            let (id, waited) = (entry.id.clone(), step.now.since(entry.since));
            self.lift(&mut entry, step);
            self.hold(entry, token);
            self.tell_granted(&id, token, waited, step);
        }
    }

    /// A claim that was granted while it waited must not lapse on the way.
    fn lift(&mut self, entry: &mut Entry, step: &Step) {
        entry.deadline = entry.deadline.max(step.now + PROMOTED_FLOOR);
        entry.note_renewal(entry.deadline);
        entry.deadline = entry.deadline.max(step.now + entry.min_hold);
        entry.since = step.now;
        self.furthest = self.furthest.max(entry.deadline);
    }

    fn tell_granted(&self, id: &ClaimId, token: Token, waited: Duration, step: &mut Step) {
        let mine = step.actor.as_ref() == Some(id);
        let entry = self.entry(id).filter(|_| !mine);
        if let Some((entry, inbox)) = entry.and_then(|e| Some((e, e.inbox.clone()?))) {
            step.events.push(Event::Granted {
                inbox,
                arrival: entry.arrival,
                id: id.clone(),
                token,
                behind: self.behind(id),
                deadline: entry.deadline,
                waited,
            });
        }
    }

    /// Whether the weight fits, after dropping lapsed holders if it must.
    pub(super) fn make_room(&mut self, weight: u64, step: &mut Step) -> bool {
        self.fits(weight) || (self.reclaim(step) && self.fits(weight))
    }

    /// Drops the holders that have lapsed. Looks at none while none can have.
    pub(super) fn reclaim(&mut self, step: &mut Step) -> bool {
        if self.granted.is_empty() || step.now < self.earliest {
            return false;
        }
        let mut earliest = StoreTime(u64::MAX);
        let mut lapsed = Vec::new();
        for entry in self.granted.values() {
            if entry.deadline > step.now {
                earliest = earliest.min(entry.deadline);
            } else if step.drops_left == 0 {
                earliest = self.earliest;
                break;
            } else {
                step.drops_left -= 1;
                lapsed.push(entry.id.clone());
            }
        }
        self.earliest = earliest;
        for id in &lapsed {
            self.remove(id);
        }
        !lapsed.is_empty()
    }

    /// Gives a claim a token of its own.
    pub(super) fn grant(&mut self, entry: Entry, step: &Step) -> Token {
        let token = self.next_token(step);
        self.last_token = token;
        self.used += entry.mode.weight();
        self.hold(entry, token);
        token
    }

    /// Lets a claim hold under a token; it weighs nothing if there is another.
    pub(super) fn hold(&mut self, entry: Entry, token: Token) {
        self.earliest = if self.granted.is_empty() {
            entry.deadline
        } else {
            self.earliest.min(entry.deadline)
        };
        let place = (Some(token), entry.arrival);
        self.places.insert(entry.id.clone(), place);
        self.granted.insert((token, entry.arrival), entry);
    }

    /// `max(last + 1, clock)`: strictly increasing, also after the record was lost.
    pub(super) fn next_token(&self, step: &Step) -> Token {
        let next = self.last_token.0 + 1;
        Token(next.max(step.clock.0))
    }

    /// Drops a waiting claim that can never fit any more, and says so.
    pub(super) fn drop_unfit(&mut self, id: &ClaimId, step: &mut Step) -> Option<Reply> {
        if self.token_of(id).is_some() {
            return None;
        }
        let in_use = self.too_small_for(self.entry(id)?.mode.weight())?;
        self.remove(id);
        self.promote(step);
        Some(Reply::Mismatch { in_use })
    }

    pub(super) fn resize(&mut self, from: u32, to: u32, step: &mut Step) -> Reply {
        self.promote(step);
        self.reclaim(step);
        if self.is_empty() {
            return Reply::Absent;
        }
        match self.capacity {
            Some(Capacity::Permits(n)) if n == from || n == to => {
                self.capacity = Some(Capacity::Permits(to));
                self.promote(step);
                Reply::Resized
            }
            Some(in_use) => Reply::Mismatch { in_use },
            None => Reply::Absent,
        }
    }
}
