use std::time::Duration;

use crate::mutant::mutated;
use crate::{ClaimId, ClientInfo, Closed, Inbox, Note, StoreTime, Token};

/// So many clients that wait are remembered by one server for one key; others
/// are not woken, and ask from time to time.
pub const WAITERS: usize = 64;

/// For how long a server remembers that a client waits, unless it asks again.
pub const WAITING_LIFE: Duration = Duration::from_secs(3);

/// What one server keeps of one key. Its rules are Algorithm F: a token is
/// accepted once, from one claim, and only above all that was accepted or
/// released before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Node {
    /// The highest token accepted.
    pub accepted: Token,
    /// Whose it was, until that claim is released.
    pub proposer: Option<ClaimId>,
    /// The highest token released or given up: nothing up to it is accepted any
    /// more. Kept apart from `accepted`, so that the tombstone of a claim which
    /// merely gave up does not stand against the one that holds.
    pub released: Token,
    /// The claim that this server votes for; over when it has lapsed.
    pub hold: Option<Hold>,
    /// Whom to wake when the key is released, in order.
    pub waiting: Vec<Ear>,
    /// Who hears of every change.
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
    /// What people see of it.
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

/// What a claim says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Body {
    /// Where its client hears, at this server.
    pub inbox: Inbox,
    /// Who it is, for people.
    pub owner: ClientInfo,
    /// What it tells the others.
    pub note: Option<Note>,
}

/// Somebody who wants to hear of a key, for a while.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ear {
    /// Where.
    pub inbox: Inbox,
    /// For how long, by the server's clock.
    pub until: StoreTime,
}

/// A request for a vote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// For which claim.
    pub id: ClaimId,
    /// The token that it proposes.
    pub token: Token,
    /// For how long.
    pub ttl: Duration,
    /// What it says about itself.
    pub body: Body,
    /// Whether to wake it when the key is released, if it is busy now.
    pub wait: bool,
    /// How far ahead of the server's clock a token may be: a client whose clock
    /// has gone mad must not use up the numbers.
    pub ahead: Duration,
}

/// A request to vote on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Extend {
    /// What was asked for when it was acquired; `wait` does not count.
    pub vote: Acquire,
    /// Whether a server that lacks the claim shall take it up again, by the
    /// rules of an acquisition.
    pub repair: bool,
}

/// A request to forget a vote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Part {
    /// Which claim.
    pub id: ClaimId,
    /// Its highest token that may still be under way: it is refused from now on.
    /// Zero where none can be.
    pub token: Token,
    /// Whether the claim held the key, so that one who waits is to be woken.
    pub wake: bool,
}

/// What a server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vote {
    /// It votes for the claim.
    Yes,
    /// It votes for another.
    Busy {
        /// How long that vote lasts.
        left: Duration,
        /// The highest token accepted or released here.
        highest: Token,
    },
    /// The token is too low.
    Stale {
        /// The highest token accepted or released here.
        highest: Token,
    },
    /// The token is too far ahead of this server's clock.
    Skewed {
        /// By how much more than is allowed.
        by: Duration,
    },
    /// It does not vote for the claim any more.
    Lost,
    /// The claim is another client's.
    Taken,
    /// It may have forgotten votes, and gives none for so long.
    Quarantined {
        /// How long it still takes.
        left: Duration,
    },
    /// It belongs to another set of servers.
    Foreign,
    /// The vote is forgotten.
    Released {
        /// Whether there was one that had not lapsed.
        held: bool,
    },
    /// The key was taken from whoever had it.
    Broken {
        /// Whose token is void now; zero if nobody had the vote.
        token: Token,
    },
    /// Nothing to say.
    Done,
}

impl From<Closed> for Vote {
    fn from(closed: Closed) -> Self {
        match closed {
            Closed::Quarantined { left } => Self::Quarantined { left },
            Closed::Foreign => Self::Foreign,
        }
    }
}

/// What an inbox should hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Told {
    /// The key may be free, or has another holder or note: look.
    Changed,
    /// An administrator took the key from the claim with this token.
    Revoked(Token),
}

impl Node {
    /// The highest token accepted or released.
    #[must_use]
    pub fn highest(&self) -> Token {
        self.accepted.max(self.released)
    }

    /// The vote that has not lapsed.
    #[must_use]
    pub fn live(&self, now: StoreTime) -> Option<&Hold> {
        self.hold.as_ref().filter(|hold| hold.until > now)
    }

    /// Asks for a vote. The server was admitted: see [`crate::Marker::admit`].
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

    /// Whether this server still votes for the claim: then [`Node::extend`] needs
    /// no admission.
    #[must_use]
    pub fn votes_for(&self, id: &ClaimId, token: Token, now: StoreTime) -> bool {
        self.live(now)
            .is_some_and(|hold| hold.id == *id && hold.token == token)
    }

    /// Asks to vote on. A server that does not vote for the claim any more takes
    /// it up again only by the rules of an acquisition, if asked to, so that a
    /// renewal never brings back what another holds.
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

    /// Forgets a vote, and leaves a tombstone: also where there was none, so that
    /// a request which comes after its own release is refused.
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

    /// Takes the key from whoever has it, for administrators; nothing up to
    /// `token` is accepted any more.
    pub fn break_key(
        &mut self,
        token: Token,
        now: StoreTime,
        mut tell: impl FnMut(&Inbox, Told) -> bool,
    ) -> Vote {
        self.forget(now);
        let void = match self.live(now) {
            Some(hold) => {
                tell(&hold.body.inbox, Told::Revoked(hold.token));
                hold.token
            }
            None => Token(0),
        };
        self.hold = None;
        self.proposer = None;
        self.released = self.released.max(token);
        self.wake(&mut tell);
        self.tell_watchers(&mut tell);
        Vote::Broken { token: void }
    }

    /// Lets an inbox hear of every change for `ttl`; if that is zero, of nothing
    /// any more, also if it waits.
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
