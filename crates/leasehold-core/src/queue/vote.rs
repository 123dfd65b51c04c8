//! The vote of a member of a set of servers: claims that propose their own token, and what makes
//! tokens void. `docs/proof/quorum.md` says why a quorum of such votes is enough.
//!
//! The record's last token is the highest that was accepted. What was voided is kept apart from
//! it: a claim that only gives up must not shut out the one that holds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Queue, Step};
use crate::{Arrival, Claim, Event, Inbox, Proposal, Reply, StoreTime, Token, Void, Voided};

/// How many clients that asked in vain a key remembers. Others poll.
const CALLERS: usize = 64;

/// For how long, unless they ask again.
const CALLER_LIFE: Duration = Duration::from_secs(3);

/// What a record keeps besides, at a member of a set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Votes {
    /// The highest token that was voided.
    pub void: Token,
    /// Who asked in vain, in order: one of them is told when the key becomes free.
    pub callers: Vec<(Inbox, StoreTime)>,
}

impl Votes {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Queue {
    /// A claim that proposes its token. Its own vote is found again, and prolonged.
    pub(super) fn propose(&mut self, claim: &Claim, proposal: Proposal, step: &mut Step) -> Reply {
        let Proposal { token, ahead } = proposal;
        if let Some(entry) = self.entry(&claim.id) {
            if entry.inbox != claim.inbox {
                return Reply::Taken;
            }
            if self.token_of(&claim.id) == Some(token) {
                if let Some(note) = &claim.note {
                    self.set_note(&claim.id, note, step);
                }
                return self.raise(&claim.id, claim.lease_ttl, claim.waiter_ttl, step);
            }
        } else if self.is_buried(&claim.id, step.now) {
            return Reply::Gone;
        }
        if let Some(until) = step.opens {
            return Reply::Quarantined { until };
        }
        self.promote(step);
        self.reclaim(step);
        let highest = self.last_token.max(self.votes.void);
        let most = Token((highest.0 + 1).max((step.clock + ahead).0));
        let outbid = Reply::Outbid { highest, most };
        if token > most {
            return outbid;
        }
        let others = self.places.len() - usize::from(self.entry(&claim.id).is_some());
        if others > 0 {
            if let Some(inbox) = claim.inbox.as_ref().filter(|_| claim.wait) {
                self.remember_caller(inbox, step.now);
            }
            let blocked_until = self.blocked_until(step);
            return Reply::Busy { blocked_until };
        }
        if token <= self.last_token || token <= self.votes.void {
            return outbid;
        }
        let before = self.granted.values().map(|entry| entry.id.clone());
        for id in before.collect::<Vec<_>>() {
            self.remove(&id);
        }
        let last_arrival = self.last_arrival;
        let mut entry = self.new_entry(claim, None, true, step);
        // The same at every member.
        entry.arrival = Arrival(token.0);
        self.last_arrival = last_arrival.max(entry.arrival);
        self.last_token = token;
        self.capacity = Some(claim.mode.capacity());
        self.used += claim.mode.weight();
        self.hold(entry, token);
        let callers = &mut self.votes.callers;
        callers.retain(|(inbox, _)| Some(inbox) != claim.inbox.as_ref());
        self.standing(&claim.id, step)
    }

    /// Makes tokens void, and ends what was granted by them.
    pub(super) fn void(&mut self, void: &Void, step: &mut Step) -> Reply {
        self.votes.void = self.votes.void.max(void.up_to);
        match &void.whose {
            Voided::Claim { id, released } => {
                step.actor = Some(id.clone());
                self.drop_if_lapsed(id, step.now);
                let place = self.places.get(id).copied();
                let held = self.token_of(id).is_some();
                self.remove(id);
                if *released {
                    self.bury_id(id, false, step.now);
                }
                self.forget_buried(step.now);
                self.promote(step);
                if held && *released {
                    self.call(step);
                }
                match place {
                    Some(_) => Reply::Released { held },
                    None => Reply::Absent,
                }
            }
            Voided::Key { .. } => {
                self.reclaim(step);
                let token = void.up_to;
                let holders = self.revoke(|held| held <= token, step);
                self.promote(step);
                self.call(step);
                Reply::Broken { holders, token }
            }
        }
    }

    fn remember_caller(&mut self, inbox: &Inbox, now: StoreTime) {
        let callers = &mut self.votes.callers;
        callers.retain(|(_, until)| *until > now);
        let until = now + CALLER_LIFE;
        if let Some(caller) = callers.iter_mut().find(|(caller, _)| caller == inbox) {
            caller.1 = until;
        } else if callers.len() < CALLERS {
            callers.push((inbox.clone(), until));
        }
    }

    /// Tells the first of those who asked in vain that the key is free, if it is.
    pub(super) fn call(&mut self, step: &mut Step) {
        let now = step.now;
        self.votes.callers.retain(|(_, until)| *until > now);
        if self.is_empty() && !self.votes.callers.is_empty() {
            let (inbox, _) = self.votes.callers.remove(0);
            step.events.push(Event::Changed { inbox });
        }
    }
}
