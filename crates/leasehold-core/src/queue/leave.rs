//! Removal of claims: releases, breaks, dead clients, and unheard grants.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::{DROPS_PER_STEP, Entry, Queue, Step, UNHEARD_CUT};
use crate::{Arrival, ClaimId, Event, Inbox, Release, Reply, StoreTime, Token};

impl Queue {
    pub(super) fn release(&mut self, release: &Release, step: &mut Step) -> Reply {
        step.actor = Some(release.id.clone());
        self.drop_if_lapsed(&release.id, step.now);
        let is_there = self.entry(&release.id).is_some_and(|entry| !entry.kept);
        let held = is_there && self.token_of(&release.id).is_some();
        if release.unused
            && is_there
            && let Some(entry) = self.entry_mut(&release.id)
        {
            entry.min_hold = Duration::ZERO;
        }
        let kept = is_there && self.vacate_in(&release.id, step);
        if !release.settled {
            self.bury_id(&release.id, false, step.now);
        }
        self.forget_buried(step.now);
        if release.hand_off || !held {
            self.promote(step);
        } else if let Some(first) = self.first_in_line().filter(|_| !kept) {
            // It may come and take the key.
            step.tell_next(first, step.opens.unwrap_or(step.now));
        }
        match is_there {
            true => Reply::Released { held },
            false => Reply::Absent,
        }
    }

    /// [`Queue::vacate`], remembering whether the key may be free sooner now.
    fn vacate_in(&mut self, id: &ClaimId, step: &mut Step) -> bool {
        let before = self.entry(id).map(|entry| entry.deadline);
        let kept = self.vacate(id, step.now);
        let after = self.entry(id).map(|entry| entry.deadline);
        step.shortened |= kept && after < before;
        kept
    }

    /// Removes a claim, or leaves its minimum hold in its place. Says which.
    pub(super) fn vacate(&mut self, id: &ClaimId, now: StoreTime) -> bool {
        let granted = self.token_of(id).is_some();
        let Some(entry) = self
            .entry_mut(id)
            // A claim that was cut and has lapsed keeps nothing: the key was free.
            .filter(|entry| granted && entry.deadline > now && entry.keep_until() > now)
        else {
            self.remove(id);
            return false;
        };
        entry.deadline = entry.keep_until();
        entry.kept = true;
        entry.inbox = None;
        entry.secret = None;
        entry.renewed = None;
        let deadline = entry.deadline;
        self.earliest = self.earliest.min(deadline);
        true
    }

    pub(super) fn break_holds(&mut self, only: Option<Token>, step: &mut Step) -> Reply {
        if let Some(token) = only {
            self.promote(step);
            self.reclaim(step);
            let holds = |((held, _), entry): (&(Token, Arrival), &Entry)| {
                *held == token && self.behind(&entry.id).is_none()
            };
            if !self.granted.iter().any(holds) {
                let (holders, token) = (0, self.last_token);
                return Reply::Broken { holders, token };
            }
        }
        let token = self.next_token(step);
        self.last_token = token;
        // In a run the first who has not lapsed holds. What the others have is void, too.
        self.reclaim(step);
        self.disband(Token::NONE);
        let holders = self.revoke(|held| only.is_none_or(|only| held == only), step);
        self.promote(step);
        Reply::Broken { holders, token }
    }

    /// Takes the key from the holders with such a token, and tells them. Says how many they were.
    pub(super) fn revoke(&mut self, such: impl Fn(Token) -> bool, step: &mut Step) -> u64 {
        let held = self.granted.iter().filter(|((token, _), _)| such(*token));
        let held: Vec<_> = held.map(|(_, entry)| entry.clone()).collect();
        for entry in &held {
            self.remove(&entry.id);
            self.bury_id(&entry.id, false, step.now);
            self.forget_buried(step.now);
            if let Some(inbox) = entry.inbox.clone() {
                let (arrival, id) = (entry.arrival, entry.id.clone());
                step.events.push(Event::Revoked { inbox, arrival, id });
            }
        }
        held.len() as u64
    }

    pub(super) fn unheard(
        &mut self,
        silent: &[Inbox],
        granted: &[(Arrival, Duration)],
        passed: &[Inbox],
        step: &mut Step,
    ) -> Reply {
        let cut = step.now + UNHEARD_CUT;
        let is_silent = |entry: &Entry| entry.inbox.as_ref().is_some_and(|i| silent.contains(i));
        self.watchers.retain(|(inbox, _)| !silent.contains(inbox));
        for entry in self.waiting.values_mut().take(DROPS_PER_STEP) {
            if is_silent(entry) {
                entry.deadline = entry.deadline.min(cut);
            }
        }
        let granted: HashMap<_, _> = granted.iter().copied().collect();
        let mut unheard = Vec::new();
        for (place, entry) in self.granted.iter_mut().filter(|(_, e)| is_silent(e)) {
            if let Some(waited) = granted.get(&place.1) {
                entry.deadline = entry.deadline.min(cut);
                self.earliest = self.earliest.min(entry.deadline);
                unheard.push((*place, *waited));
            }
        }
        step.passed = passed.to_vec();
        self.pass_over(&unheard, step);
        let blocked_until = self.blocked_until(step);
        let mut waiting = self.waiting.values().take(DROPS_PER_STEP);
        if let Some(next) = waiting.find(|entry| entry.deadline > cut && entry.inbox.is_some()) {
            step.tell_next(next, blocked_until);
        }
        step.first_before = self.first_waiting();
        self.call(step);
        Reply::Done
    }

    /// Takes back what those who are passed over were granted just now, and grants to the next.
    fn pass_over(&mut self, unheard: &[((Token, Arrival), Duration)], step: &mut Step) {
        let before = self.granted.len();
        for (place, waited) in unheard {
            let granted = self.granted.get(place);
            if granted.is_some_and(|entry| step.passes(entry))
                && let Some(mut entry) = self.granted.remove(place)
            {
                self.used -= entry.mode.weight();
                entry.since = entry.since.before(*waited);
                entry.renewed = None;
                self.enqueue(entry);
            }
        }
        if self.granted.len() < before {
            self.promote(step);
        }
    }

    pub(super) fn bury(&mut self, inboxes: &[Inbox], step: &mut Step) -> Reply {
        let dead: BTreeSet<_> = inboxes.iter().collect();
        self.watchers.retain(|(watcher, _)| !dead.contains(watcher));
        let theirs = |entry: &&Entry| entry.inbox.as_ref().is_some_and(|i| dead.contains(i));
        let all = self.granted.values().chain(self.waiting.values());
        let left: Vec<_> = all.filter(theirs).map(|entry| entry.id.clone()).collect();
        for id in &left {
            self.vacate_in(id, step);
        }
        self.promote(step);
        Reply::Done
    }
}
