//! The verb `renew`, and the changes of a claim in the same step.

use super::{Queue, Step};
use crate::{Adopt, Arrival, ClaimId, Event, Mode, Renew, Reply, Rotate};

impl Queue {
    pub(super) fn renew(&mut self, renew: &Renew, step: &mut Step) -> Reply {
        let rotate = renew.rotate.as_ref();
        let asked_again = rotate.filter(|rotate| self.has_rotated(&renew.id, rotate));
        let id = asked_again.map_or(&renew.id, |rotate| &rotate.to);
        step.actor = Some(id.clone());
        self.drop_if_lapsed(id, step.now);
        if self.entry(id).is_none_or(|entry| entry.kept) {
            self.promote(step);
            return match self.tombstone(&renew.id, step.now) {
                Some(buried) if buried.rotated => Reply::Superseded,
                _ => Reply::Gone,
            };
        }
        if let Some(unfit) = self.drop_unfit(id, step) {
            return unfit;
        }
        self.drop_lapsed_ahead(id, step);
        if let Some(rotate) = rotate.filter(|_| asked_again.is_none())
            && let Some(refused) = self.rotate(id, rotate, step)
        {
            // The answer says nothing about a grant: that is for a push.
            step.actor = None;
            self.promote(step);
            return refused;
        }
        let id = rotate.map_or(&renew.id, |rotate| &rotate.to);
        if renew.downgrade {
            self.downgrade(id);
        }
        if let Some(note) = &renew.note {
            self.set_note(id, note, step);
        }
        self.promote(step);
        self.raise(id, renew.ttl, renew.ttl, step)
    }

    /// Whether that very rotation was done before.
    fn has_rotated(&self, id: &ClaimId, rotate: &Rotate) -> bool {
        self.entry(&rotate.to).is_some_and(|entry| {
            entry.previous.as_ref() == Some(id) && entry.version == rotate.version.saturating_add(1)
        })
    }

    /// Replaces the id, and perhaps the client; or says why not.
    fn rotate(&mut self, id: &ClaimId, rotate: &Rotate, step: &mut Step) -> Option<Reply> {
        let version = self.entry(id)?.version;
        // Who takes it over does not know of a release that the store may have forgotten.
        let is_doubtful = step.opens.is_some() && rotate.adopt.is_some();
        if version != rotate.version || is_doubtful {
            return Some(Reply::Superseded);
        }
        if self.places.contains_key(&rotate.to) || self.is_buried(&rotate.to, step.now) {
            return Some(Reply::Taken);
        }
        let place = self.places.remove(id)?;
        self.places.insert(rotate.to.clone(), place);
        if let Some(entry) = self.entry_mut(&rotate.to) {
            entry.id = rotate.to.clone();
            entry.previous = Some(id.clone());
            entry.version = entry.version.saturating_add(1);
        }
        self.bury_id(id, true, step.now);
        self.forget_buried(step.now);
        step.actor = Some(rotate.to.clone());
        if let Some(adopt) = &rotate.adopt {
            self.adopt(id, &rotate.to, adopt, step);
        }
        None
    }

    fn adopt(&mut self, before: &ClaimId, id: &ClaimId, adopt: &Adopt, step: &mut Step) {
        if let Some(token) = self.token_of(id) {
            self.disband(token);
        }
        if let Some(entry) = self.entry_mut(id) {
            entry.runs = false;
            let former = std::mem::replace(&mut entry.inbox, adopt.inbox.clone());
            entry.owner = adopt.owner.clone();
            if former != entry.inbox
                && let Some(inbox) = former
            {
                let (arrival, id) = (entry.arrival, before.clone());
                step.events.push(Event::Adopted { inbox, arrival, id });
            }
        }
        let Some(old) = self.token_of(id) else {
            return;
        };
        // All claims of the hold get the new token, so that the former client's
        // writes are fenced whichever of them it uses. What has expired is not taken over.
        let token = self.next_token(step);
        self.last_token = token;
        let hold = (old, Arrival(0))..=(old, Arrival(u64::MAX));
        let hold = self.granted.extract_if(hold, |_, _| true);
        for ((_, arrival), entry) in hold.collect::<Vec<_>>() {
            if entry.deadline <= step.now {
                self.places.remove(&entry.id);
                continue;
            }
            let place = (Some(token), arrival);
            self.places.insert(entry.id.clone(), place);
            self.granted.insert((token, arrival), entry);
        }
    }

    /// Makes a writer a reader: those next to it may come in.
    fn downgrade(&mut self, id: &ClaimId) {
        if self.token_of(id).is_none() || self.behind(id).is_some() {
            return;
        }
        let Some(entry) = self.entry_mut(id) else {
            return;
        };
        if entry.mode == Mode::EXCLUSIVE && entry.secret.is_none() {
            entry.mode = Mode::SHARED;
            self.used -= Mode::EXCLUSIVE.weight() - Mode::SHARED.weight();
        }
    }

    pub(super) fn set_note(&mut self, id: &ClaimId, note: &crate::Note, step: &mut Step) {
        let first = self.first_holder();
        if let Some(entry) = self.entry_mut(id)
            && entry.note.as_ref() != Some(note)
        {
            entry.note = Some(note.clone());
            // Those who watch look at the first holder only.
            step.noted |= first.is_some_and(|(_, arrival)| arrival == entry.arrival);
        }
    }
}
