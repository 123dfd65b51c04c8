use std::time::Duration;

use super::{Acquire, Extend, Part, Told, Vote};
use crate::mutant::mutated;
use crate::{ClaimId, ClientInfo, Closed, Inbox, Note, StoreTime, Token};

/// How many waiting clients one server remembers for a key. Other clients are not notified, and
/// poll.
pub const WAITERS: usize = 64;

/// How long a server remembers that a client waits, unless it asks again.
pub const WAITING_LIFE: Duration = Duration::from_secs(3);

/// The state of one key at one server. Its rules are Algorithm F: a token is accepted once, from
/// one claim, and only if it is higher than all tokens accepted or released before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Node {
    /// The highest token accepted.
    pub accepted: Token,
    /// The claim that proposed it, until that claim is released.
    pub proposer: Option<ClaimId>,
    /// The highest token released or given up: no token up to it is accepted any more. It is
    /// separate from `accepted`, so that the tombstone of a claim that only gave up does not
    /// affect the claim that holds.
    pub released: Token,
    /// The claim that this server votes for, until it expires.
    pub hold: Option<Hold>,
    /// The inboxes to notify when the key is released, in order.
    pub waiting: Vec<Ear>,
    /// The inboxes that are notified of every change.
    pub watchers: Vec<Ear>,
}

/// A vote that was given.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hold {
    /// For which claim.
    pub id: ClaimId,
    /// With which token.
    pub token: Token,
    /// Until when, by the server's clock.
    pub until: StoreTime,
    /// Since when.
    pub since: StoreTime,
    /// The data of the claim, for display.
    pub body: Body,
}

impl Hold {
    fn of(ask: &Acquire, now: StoreTime) -> Self {
        Self {
            id: ask.id.clone(),
            token: ask.token,
            until: now + ask.ttl,
            since: now,
            body: ask.body.clone(),
        }
    }
}

/// The data of a claim, for display.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Body {
    /// The inbox of its client at this server.
    pub inbox: Inbox,
    /// The client, for display.
    pub owner: ClientInfo,
    /// The note.
    pub note: Option<Note>,
}

/// A subscription of an inbox to a key, for a limited time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ear {
    /// The inbox.
    pub inbox: Inbox,
    /// For how long, by the server's clock.
    pub until: StoreTime,
}

impl From<Closed> for Vote {
    fn from(closed: Closed) -> Self {
        match closed {
            Closed::Quarantined { left } => Self::Quarantined { left },
            Closed::Foreign => Self::Foreign,
        }
    }
}

impl Node {
    /// Returns the highest token accepted or released.
    #[must_use]
    pub fn highest(&self) -> Token {
        self.accepted.max(self.released)
    }

    /// Returns the vote, if it has not expired.
    #[must_use]
    pub fn live(&self, now: StoreTime) -> Option<&Hold> {
        self.hold.as_ref().filter(|hold| hold.until > now)
    }

    /// Handles a request for a vote. The server must have been admitted: see
    /// [`crate::Marker::admit`].
    pub fn acquire(
        &mut self,
        ask: &Acquire,
        now: StoreTime,
        mut tell: impl FnMut(&Inbox, Told) -> bool,
    ) -> Vote {
        self.forget(now);
        let live = self.live(now);
        if let Some(hold) = live.filter(|hold| hold.id == ask.id) {
            if hold.body.inbox != ask.body.inbox {
                return Vote::Taken;
            }
            let passed = mutated("one-register") && ask.token < self.accepted;
            if hold.token == ask.token && !passed {
                self.raise(ask, now, &mut tell);
                return Vote::Yes;
            }
        }
        let highest = self.highest();
        let ceiling = (highest.0 + 1).max((now + ask.ahead).0);
        if ask.token.0 > ceiling {
            return Vote::Skewed {
                by: Duration::from_micros(ask.token.0 - ceiling),
            };
        }
        let other = live.filter(|hold| hold.id != ask.id);
        if let Some(other) = other.filter(|_| !mutated("votes-for-two")) {
            let left = other.until.since(now);
            if ask.wait {
                self.wait(&ask.body.inbox, now);
            }
            return Vote::Busy { left, highest };
        }
        let proposed = self.proposer.as_ref() == Some(&ask.id) || mutated("token-shared");
        let again = ask.token == self.accepted && proposed;
        let passes = ask.token > self.accepted || again || mutated("token-lower");
        if ask.token <= self.released || !passes {
            return Vote::Stale { highest };
        }
        let upgraded = live.is_some();
        self.accepted = ask.token;
        self.proposer = Some(ask.id.clone());
        self.hold = Some(Hold::of(ask, now));
        self.waiting.retain(|ear| ear.inbox != ask.body.inbox);
        if !upgraded {
            self.tell_watchers(&mut tell);
        }
        Vote::Yes
    }

    /// Returns whether this server still votes for the claim: then [`Node::extend`] needs no
    /// admission.
    #[must_use]
    pub fn votes_for(&self, id: &ClaimId, token: Token, now: StoreTime) -> bool {
        self.live(now)
            .is_some_and(|hold| hold.id == *id && hold.token == token)
    }

    /// Handles a request to keep the vote. If the server no longer votes for the claim, it votes
    /// again only if asked to, and by the rules of an acquisition. So a renewal never takes a key
    /// that another claim holds.
    pub fn extend(
        &mut self,
        ask: &Extend,
        now: StoreTime,
        mut tell: impl FnMut(&Inbox, Told) -> bool,
    ) -> Vote {
        self.forget(now);
        let passed = mutated("one-register") && ask.vote.token < self.accepted;
        if !passed && self.votes_for(&ask.vote.id, ask.vote.token, now) {
            self.raise(&ask.vote, now, &mut tell);
            return Vote::Yes;
        }
        if mutated("extension-revives") {
            self.hold = Some(Hold::of(&ask.vote, now));
            return Vote::Yes;
        }
        if !ask.repair {
            return Vote::Lost;
        }
        let vote = Acquire {
            wait: false,
            ..ask.vote.clone()
        };
        match self.acquire(&vote, now, tell) {
            Vote::Yes => Vote::Yes,
            _ => Vote::Lost,
        }
    }

    /// Releases a vote and keeps a tombstone, even if there was no vote, so that a request that
    /// arrives after its own release is refused.
    pub fn release(
        &mut self,
        part: &Part,
        now: StoreTime,
        mut tell: impl FnMut(&Inbox, Told) -> bool,
    ) -> Vote {
        self.forget(now);
        let held = self.live(now).is_some_and(|hold| hold.id == part.id);
        if self.hold.as_ref().is_some_and(|hold| hold.id == part.id) {
            self.hold = None;
        }
        if mutated("one-register") {
            self.accepted = self.accepted.max(part.token);
        } else if !mutated("no-tombstone") {
            self.released = self.released.max(part.token);
        }
        if part.token.0 > 0 && self.proposer.as_ref() == Some(&part.id) {
            self.proposer = None;
        }
        if held {
            if part.wake {
                self.wake(&mut tell);
            }
            self.tell_watchers(&mut tell);
        }
        Vote::Released { held }
    }

    /// Takes the key from its holder, for administrators. No token up to `token` is accepted any
    /// more; a hold with a later one stays.
    pub fn break_key(
        &mut self,
        token: Token,
        now: StoreTime,
        mut tell: impl FnMut(&Inbox, Told) -> bool,
    ) -> Vote {
        self.forget(now);
        self.released = self.released.max(token);
        let void = match self.live(now) {
            Some(hold) if hold.token > token => return Vote::Broken { token: Token(0) },
            Some(hold) => {
                tell(&hold.body.inbox, Told::Revoked(hold.token));
                hold.token
            }
            None => Token(0),
        };
        self.hold = None;
        self.proposer = None;
        self.wake(&mut tell);
        self.tell_watchers(&mut tell);
        Vote::Broken { token: void }
    }

    /// Subscribes an inbox to all changes for `ttl`. Zero ends the subscription, also that of a
    /// waiter.
    pub fn watch(&mut self, inbox: &Inbox, ttl: Duration, now: StoreTime) -> Vote {
        self.forget(now);
        self.watchers.retain(|ear| ear.inbox != *inbox);
        if ttl.is_zero() {
            self.waiting.retain(|ear| ear.inbox != *inbox);
        } else if self.watchers.len() < WAITERS {
            self.watchers.push(Ear {
                inbox: inbox.clone(),
                until: now + ttl,
            });
        }
        Vote::Done
    }

    fn raise(
        &mut self,
        ask: &Acquire,
        now: StoreTime,
        tell: &mut impl FnMut(&Inbox, Told) -> bool,
    ) {
        let Some(hold) = &mut self.hold else { return };
        hold.until = hold.until.max(now + ask.ttl);
        let noted = hold.body.note != ask.body.note;
        hold.body.clone_from(&ask.body);
        if noted {
            self.tell_watchers(tell);
        }
    }

    fn forget(&mut self, now: StoreTime) {
        self.waiting.retain(|ear| ear.until > now);
        self.watchers.retain(|ear| ear.until > now);
    }

    fn wait(&mut self, inbox: &Inbox, now: StoreTime) {
        let until = now + WAITING_LIFE;
        let full = self.waiting.len() >= WAITERS;
        match self.waiting.iter_mut().find(|ear| ear.inbox == *inbox) {
            Some(ear) => ear.until = ear.until.max(until),
            None if !full => self.waiting.push(Ear {
                inbox: inbox.clone(),
                until,
            }),
            None => {}
        }
    }

    /// Wakes the first that listens.
    fn wake(&mut self, tell: &mut impl FnMut(&Inbox, Told) -> bool) {
        let mut passed = 0;
        for ear in &self.waiting {
            passed += 1;
            if tell(&ear.inbox, Told::Changed) {
                break;
            }
        }
        self.waiting.drain(..passed);
    }

    fn tell_watchers(&self, tell: &mut impl FnMut(&Inbox, Told) -> bool) {
        for ear in &self.watchers {
            tell(&ear.inbox, Told::Changed);
        }
    }
}

#[cfg(test)]
mod tests;
