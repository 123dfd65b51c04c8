//! Notifications and replies of a step.

use std::time::Duration;

use super::{Queue, Step};
use crate::{Arrival, ClaimId, Event, Inbox, Reply, Standing, StoreTime};

impl Queue {
    pub(super) fn raise(
        &mut self,
        id: &ClaimId,
        held: Duration,
        waiting: Duration,
        step: &Step,
    ) -> Reply {
        let alone = self.granted.len() == 1;
        let granted = self.token_of(id).is_some();
        let holds = granted && self.behind(id).is_none();
        let ttl = if holds { held } else { waiting };
        if let Some(entry) = self.entry_mut(id) {
            entry.deadline = entry.deadline.max(step.now + ttl);
            if granted {
                // `Unheard` may have cut it below that.
                entry.deadline = entry.deadline.max(entry.keep_until());
                entry.note_renewal(step.now + ttl);
            } else {
                entry.listens = step.listens;
            }
            let deadline = entry.deadline;
            self.furthest = self.furthest.max(deadline);
            if granted && alone {
                self.earliest = deadline;
            }
        }
        self.standing(id, step)
    }

    pub(super) fn standing(&self, id: &ClaimId, step: &Step) -> Reply {
        let Some(entry) = self.entry(id) else {
            return Reply::Gone;
        };
        let (token, behind) = (self.token_of(id), self.behind(id));
        let position = match token {
            Some(_) if behind.is_some() => self.place_in_run(entry.arrival),
            Some(_) => 0,
            None => self.position(entry.arrival),
        };
        Reply::Standing(Standing {
            arrival: entry.arrival,
            token,
            behind,
            position,
            deadline: entry.deadline,
            blocked_until: token.is_none().then(|| self.blocked_until(step)),
        })
    }

    fn position(&self, arrival: Arrival) -> u64 {
        let ahead = arrival.0 - self.first_waiting().unwrap_or(arrival).0;
        (ahead + 1).min(self.waiting.len() as u64) + self.followers()
    }

    pub(super) fn blocked_until(&self, step: &Step) -> StoreTime {
        let is_free = self.granted.is_empty();
        let free = if is_free { step.now } else { self.earliest };
        step.opens.map_or(free, |opens| opens.max(free))
    }

    /// Tells the claim that is next in line when to look: one that has become
    /// it, or was told of a time that is too late now.
    pub(super) fn hint(&self, step: &mut Step) {
        let Some(first) = self.first_in_line() else {
            return;
        };
        let knows = step.first_before == Some(first.arrival) && !step.shortened;
        if knows || step.actor.as_ref() == Some(&first.id) {
            return;
        }
        step.tell_next(first, self.blocked_until(step));
    }

    pub(super) fn watch(&mut self, inbox: &Inbox, ttl: Duration, step: &Step) -> Reply {
        self.watchers
            .retain(|(watcher, until)| watcher != inbox && *until > step.now);
        if ttl.is_zero() {
            self.votes.callers.retain(|(caller, _)| caller != inbox);
        } else {
            let until = step.now + ttl;
            self.watchers.push((inbox.clone(), until));
            self.furthest = self.furthest.max(until);
        }
        Reply::Done
    }

    /// Tells those who watch, if another holds first or its note has changed.
    pub(super) fn tell_watchers(&mut self, step: &mut Step) {
        if !step.noted && self.first_holder() == step.holder_before {
            return;
        }
        // Those who have died without a word must not stay in the record.
        self.watchers.retain(|(_, until)| *until > step.now);
        for (inbox, _) in &self.watchers {
            let inbox = inbox.clone();
            step.events.push(Event::Changed { inbox });
        }
    }
}
