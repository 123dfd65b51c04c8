//! Changes of a lease that its caller requested, until they are answered.

use std::sync::Arc;

use super::ClaimMachine;
use super::claim::Stage;
use super::timing::{CHANGE_AGAIN, CHANGE_AGAIN_PART};
use super::types::{
    Aim, Change, ChangeId, Changed, Changing, Failure, LeaseState, RequestKind, Response, Transmit,
};
use crate::{Acknowledges, Backoff, ClaimId, Command, Moment, Renew, Reply};

impl ClaimMachine {
    /// Requests a change of the lease. It is repeated until [`ClaimMachine::changed`] returns a result.
    pub fn change(&mut self, change: Change, now: Moment) -> ChangeId {
        self.aim(Aim::Caller(change), now)
    }

    /// Returns the result of a change, once it is known.
    pub fn changed(&mut self, id: ChangeId) -> Option<Changed> {
        let outcome = self.outcome(id)?;
        self.drop_change(id);
        Some(outcome)
    }

    /// Forgets a change for whose result nobody waits any more.
    pub fn drop_change(&mut self, id: ChangeId) {
        self.changes.retain(|change| change.id != id);
    }

    pub(super) fn aim(&mut self, aim: Aim, now: Moment) -> ChangeId {
        self.last_change = ChangeId(self.last_change.0.wrapping_add(1));
        if !matches!(self.stage, Stage::Held(_)) {
            // Nothing is there to be changed, and whoever asks is told that it is lost.
            return self.last_change;
        }
        let operation = self.terms.operation;
        self.changes.push(Changing {
            id: self.last_change,
            aim,
            until: now + operation,
            due: now,
            in_flight: false,
            pauses: Backoff::new(CHANGE_AGAIN, operation / CHANGE_AGAIN_PART, self.seed),
            outcome: None,
        });
        self.last_change
    }

    pub(super) fn outcome(&self, id: ChangeId) -> Option<Changed> {
        let change = self.changes.iter().find(|change| change.id == id);
        change.map_or(Some(Changed::Lost), |change| change.outcome)
    }

    /// The id has been replaced by this one: whoever asked for that need not ask again, also once it
    /// is replaced by another.
    pub(super) fn end_rotation(&mut self, to: &ClaimId) {
        let aim = Aim::Caller(Change::Rotate(to.clone()));
        for change in self.changes.iter_mut().filter(|change| change.aim == aim) {
            change.outcome.get_or_insert(Changed::Done);
        }
    }

    /// Ends all changes of a lost lease.
    pub(super) fn end_changes(&mut self) {
        if matches!(self.state(), Some(LeaseState::Lost(_))) {
            for change in self.changes.iter_mut().filter(|it| it.aim != Aim::Settle) {
                change.outcome.get_or_insert(Changed::Lost);
            }
        }
    }

    pub(super) fn poll_change(&mut self, now: Moment) -> Option<Transmit> {
        let is_due = |change: &Changing| change.due().is_some_and(|due| now >= due);
        let at = self.changes.iter().position(is_due)?;
        let renew = self.renewal_for(at, now)?;
        let limit = self.request_limit();
        if renew.ttl > self.terms.ttl {
            // The store may do this also where no answer comes, or comes after the release.
            self.lapses = self.lapses.max(now + limit + renew.ttl);
        }
        let change = &mut self.changes[at];
        change.in_flight = true;
        Some(Transmit {
            errand: RequestKind::Change(change.id),
            command: Arc::new(Command::Renew(renew)),
            sent: now,
            // Its last request does not outlast it.
            limit: limit.min(change.until.since(now)),
        })
    }

    fn renewal_for(&mut self, at: usize, now: Moment) -> Option<Renew> {
        let Stage::Held(renewal) = &self.stage else {
            return None;
        };
        let (ttl, policy) = (self.terms.ttl, self.terms.acknowledges);
        let always = policy == Acknowledges::GrantsAndRenewals;
        let aim = self.changes[at].aim.clone();
        let (ttl, confirms) = match &aim {
            Aim::Caller(Change::Renew(longer)) => {
                (renewal.allowed(now, longer.unwrap_or(ttl)), always)
            }
            Aim::Confirm => (renewal.allowed(now, ttl), policy != Acknowledges::Nothing),
            Aim::Settle => (ttl, false),
            Aim::Caller(_) | Aim::TopUp => (renewal.ttl_at(now), always),
        };
        // Another renewal may have carried it there meanwhile.
        if let Aim::Caller(Change::Rotate(to)) = &aim
            && self.identity.id() != to
        {
            self.identity.rotate(to.clone());
        }
        let mut renew = self.identity.renew(ttl, confirms);
        match aim {
            Aim::Caller(Change::Downgrade) => renew.downgrade = true,
            Aim::Caller(Change::Note(note)) => renew.note = Some(note),
            _ => {}
        }
        Some(renew)
    }

    pub(super) fn handle_changed(
        &mut self,
        now: Moment,
        to: &Transmit,
        id: ChangeId,
        renew: &Renew,
        heard: Result<Response, Failure>,
    ) {
        let said = heard.ok().filter(|heard| !heard.is_short());
        // What it says of the claim counts even if nobody waits for it any more.
        let counts = said.is_some_and(|heard| self.note_identity(renew, &heard.reply, now));
        // That a store has no notes, or does not downgrade, says nothing of the lease.
        let asks_more = renew.note.is_some() || renew.downgrade;
        let is_refused = asks_more && matches!(heard, Err(Failure::Refused));
        if let Stage::Held(renewal) = &mut self.stage
            && !is_refused
        {
            renewal.handle_other(|renewal| match said.filter(|_| counts) {
                Some(heard) => renewal.handle_reply(now, to.sent, renew.ttl, &heard.reply),
                None => renewal.handle_unanswered(now, self.seed),
            });
        }
        let reply = said.map(|heard| heard.reply);
        // What is handed over is given up already: nothing else looks whether that is its grant.
        let forgotten = matches!(
            (&self.stage, reply),
            (Stage::Held(renewal), Some(Reply::Standing(standing)))
                if !renewal.is_ours(&standing, false)
        );
        let Some(change) = self.changes.iter_mut().find(|change| change.id == id) else {
            return;
        };
        change.in_flight = false;
        if change.outcome.is_some() {
            return;
        }
        change.outcome = match (&change.aim, heard, reply) {
            (Aim::Settle, ..) if forgotten => Some(Changed::Lost),
            // The release of the lease ahead in its run may still be under way.
            (Aim::Caller(Change::Downgrade) | Aim::Settle, _, Some(Reply::Standing(standing)))
                if !standing.holds() =>
            {
                None
            }
            (_, _, Some(Reply::Standing(_))) => Some(Changed::Done),
            (Aim::TopUp, ..) => Some(Changed::Done),
            (_, Err(Failure::Refused), _) => Some(Changed::Refused),
            (Aim::Confirm, Ok(_), None) => Some(Changed::Unacknowledged),
            (Aim::Caller(Change::Rotate(_)), _, Some(Reply::Taken)) => Some(Changed::Taken),
            (Aim::Settle, _, Some(reply)) if reply != Reply::Taken => Some(Changed::Lost),
            _ => None,
        };
        if change.outcome.is_some() {
            return;
        }
        if reply == Some(Reply::Taken) {
            // A rotation of the watchdog travelled with it, to an id that is taken. The next
            // renewal does without.
            change.due = now;
        } else {
            // It was not answered, or not acknowledged.
            change.due = now + change.pauses.pause();
            if change.due >= change.until {
                change.outcome = Some(Changed::Unanswered);
            }
        }
    }
}
