//! Every claim of one client, and when each wants attention.

mod entry;
mod leaving;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Arrival, Key, LastAnswer, Loss, Moment, Renew, Renewal, Standpoint, Verdict, Waiter,
};

use self::entry::{Course, Entry, Stage};
use self::leaving::Leaving;
use super::own_id::OwnIds;
use super::signal::Signal;
use super::subject::{Subject, Terms};
use crate::error::StoreError;
use crate::store::{Answer, Push};

pub(crate) type EntryId = u64;

/// What is to be sent to the store.
#[derive(Debug, Clone)]
pub(crate) enum Errand {
    /// A renewal of a waiting or held claim, which may change it.
    Renew(Renew),
    /// A release.
    Release,
}

/// One request to send, stamped before it is handed to the store.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) entry: EntryId,
    pub(crate) subject: Subject,
    pub(crate) errand: Errand,
    /// Whether it renews a lease, and not a place in the queue.
    pub(crate) held: bool,
    pub(crate) sent: Moment,
}

/// What came of it.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    pub(crate) entry: EntryId,
    pub(crate) errand: Errand,
    pub(crate) sent: Moment,
    pub(crate) result: Result<Answer, StoreError>,
}

/// Pushes for claims that nobody has registered yet are kept until then, the
/// last so many: one that is dropped costs a heartbeat, nothing more.
const EARLY_PUSHES: usize = 1024;

/// The claims of one client. Decides nothing: the machines do.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    entries: HashMap<EntryId, Entry>,
    by_arrival: HashMap<(Key, Arrival), EntryId>,
    timers: BTreeSet<(Moment, EntryId)>,
    next_id: EntryId,
    early: VecDeque<Push>,
    waiting: usize,
    leaving: usize,
    /// The claims that are on their way out, by key.
    leaving_on: HashMap<Key, Vec<EntryId>>,
    /// The client is shut down: whatever comes is to leave.
    closed: bool,
    /// Those who watch a key, and want the inbox open.
    watching: usize,
    /// Releases that were confirmed since the client was opened.
    confirmed: u64,
    seed: u64,
    ids: OwnIds,
}

impl Registry {
    pub(crate) fn new(seed: u64, ids: OwnIds) -> Self {
        Self {
            seed,
            ids,
            ..Self::default()
        }
    }

    /// Takes over a claim that waits in the queue, as it was answered.
    pub(crate) fn insert_waiting(
        &mut self,
        subject: Subject,
        waiter: Waiter,
        answered: LastAnswer,
        signal: Arc<Signal>,
        now: Moment,
    ) -> EntryId {
        if self.closed {
            let until = now + subject.terms.ttl;
            return self.insert_leaving(subject, now, until);
        }
        let position = waiter.position();
        let id = self.insert(subject, Stage::Waiting(waiter), signal, now);
        self.waiting += 1;
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.answered = answered;
        }
        if let Some((arrival, _)) = position {
            let key = self.entries[&id].subject.key.clone();
            let (early, rest) = std::mem::take(&mut self.early)
                .into_iter()
                .partition::<VecDeque<_>, _>(|push| is_for(push, &key, arrival));
            self.early = rest;
            self.settle(id, now);
            for push in early {
                self.handle_push(&push, now, true);
            }
        }
        id
    }

    /// Takes over a claim that was granted at once.
    pub(crate) fn insert_held(
        &mut self,
        subject: Subject,
        renewal: Renewal,
        signal: Arc<Signal>,
        arrival: Arrival,
        now: Moment,
    ) -> EntryId {
        if self.closed {
            signal.lose(Loss::Shutdown);
            let until = now + subject.terms.ttl;
            return self.insert_leaving(subject, now, until);
        }
        let id = self.insert(subject, Stage::Held(renewal), signal, now);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.arrival = Some(arrival);
            self.by_arrival
                .insert((entry.subject.key.clone(), arrival), id);
        }
        self.settle(id, now);
        id
    }

    /// Takes over a claim that is to leave; `until` is when it has lapsed anyway.
    pub(crate) fn insert_leaving(
        &mut self,
        subject: Subject,
        now: Moment,
        until: Moment,
    ) -> EntryId {
        let key = subject.key.clone();
        let stage = Stage::Leaving(Leaving::new(now, until, self.draw_seed()));
        let id = self.insert(subject, stage, Arc::default(), now);
        self.leaving += 1;
        self.leaving_on.entry(key).or_default().push(id);
        self.settle(id, now);
        id
    }

    /// What tells that the claims have left which are on their way out of `key` now.
    pub(crate) fn leaving_on(&self, key: &Key) -> Vec<Arc<Signal>> {
        let ids = self.leaving_on.get(key).into_iter().flatten();
        let entries = ids.filter_map(|id| self.entries.get(id));
        entries.map(|entry| entry.signal.clone()).collect()
    }

    /// Gives a claim back to its caller, who will see to its release.
    pub(crate) fn remove(&mut self, id: EntryId) {
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        if let Some(timer) = entry.timer {
            self.timers.remove(&(timer, id));
        }
        let key = entry.subject.key;
        match entry.stage {
            Stage::Waiting(_) => self.waiting -= 1,
            Stage::Leaving(_) => {
                self.leaving -= 1;
                if let Some(ids) = self.leaving_on.get_mut(&key) {
                    ids.retain(|leaving| *leaving != id);
                    if ids.is_empty() {
                        self.leaving_on.remove(&key);
                    }
                }
                entry.signal.set_left();
            }
            Stage::Held(_) => {}
        }
        if let Some(arrival) = entry.arrival {
            self.by_arrival.remove(&(key, arrival));
        }
    }

    /// When something is next due.
    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.timers.first().map(|(due, _)| *due)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && (self.watching == 0 || self.closed)
    }

    /// Whether somebody waits or watches: the inbox must be open.
    pub(crate) fn has_listeners(&self) -> bool {
        self.waiting > 0 || self.watching > 0 && !self.closed
    }

    /// Somebody watches a key from now on.
    pub(crate) fn start_watching(&mut self) {
        self.watching += 1;
    }

    /// Somebody does not watch any more.
    pub(crate) fn stop_watching(&mut self) {
        self.watching -= 1;
    }

    /// How many claims are on their way out, and how many have left.
    pub(crate) fn departures(&self) -> (usize, u64) {
        (self.leaving, self.confirmed)
    }

    /// How much of `ttl` a renewal of this lease may ask for; without one, how
    /// much it asks for by itself.
    pub(crate) fn allowed(&self, id: EntryId, now: Moment, ttl: Option<Duration>) -> Duration {
        match self.entries.get(&id).map(|entry| &entry.stage) {
            Some(Stage::Held(renewal)) => {
                ttl.map_or_else(|| renewal.ttl_at(now), |ttl| renewal.allowed(now, ttl))
            }
            // Lost meanwhile: whatever is asked for changes nothing.
            _ => ttl.unwrap_or_default(),
        }
    }

    /// What is to be sent now.
    pub(crate) fn collect_due(&mut self, now: Moment, sends: &mut Vec<Send>) {
        while let Some((due, id)) = self.timers.first().copied() {
            if due > now {
                return;
            }
            self.timers.remove(&(due, id));
            let Some(entry) = self.entries.get_mut(&id) else {
                continue;
            };
            entry.timer = None;
            let errand = entry.poll_transmit(now, &self.ids);
            if let Some(errand) = errand {
                sends.push(Send {
                    entry: id,
                    subject: entry.subject.clone(),
                    errand,
                    held: matches!(entry.stage, Stage::Held(_)),
                    sent: now,
                });
            }
            self.settle(id, now);
        }
    }

    /// An answer, or the lack of one.
    pub(crate) fn complete(&mut self, done: &Done, now: Moment) {
        let Some(entry) = self.entries.get_mut(&done.entry) else {
            return;
        };
        match entry.handle_answer(done, now) {
            Course::On => self.settle(done.entry, now),
            Course::Left { confirmed } => {
                self.confirmed += u64::from(confirmed);
                self.remove(done.entry);
            }
            Course::Nothing => {}
        }
    }

    /// A push from the store. `asking` says whether claims are under way that
    /// are not registered yet.
    pub(crate) fn handle_push(&mut self, push: &Push, now: Moment, asking: bool) {
        if matches!(push, Push::Reset) {
            self.reset(now);
            return;
        }
        let Some((key, arrival)) = subject_of(push) else {
            return;
        };
        let Some(id) = self.by_arrival.get(&(key.clone(), arrival)).copied() else {
            if asking {
                if self.early.len() >= EARLY_PUSHES {
                    self.early.pop_front();
                }
                self.early.push_back(push.clone());
            }
            return;
        };
        let provable = !self.ids.may_be_guessed();
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        if entry.handle_push(push, arrival, provable, now) {
            self.settle(id, now);
        }
    }

    /// No claim is under way any more that is not registered.
    pub(crate) fn forget_early_pushes(&mut self) {
        self.early.clear();
    }

    /// The client is shut down: every claim is to leave.
    pub(crate) fn close(&mut self, now: Moment) {
        self.closed = true;
        let ids: Vec<_> = self.entries.keys().copied().collect();
        for id in ids {
            let Some(entry) = self.entries.get_mut(&id) else {
                continue;
            };
            match &entry.stage {
                // Its caller is told, and goes.
                Stage::Waiting(_) => {}
                Stage::Held(_) => entry.signal.lose(Loss::Shutdown),
                Stage::Leaving(_) => continue,
            }
            let subject = entry.subject.clone();
            self.remove(id);
            let until = now + subject.terms.ttl;
            self.insert_leaving(subject, now, until);
        }
    }

    fn insert(
        &mut self,
        subject: Subject,
        stage: Stage,
        signal: Arc<Signal>,
        now: Moment,
    ) -> EntryId {
        self.next_id += 1;
        let entry = Entry::new(subject, stage, signal, now);
        self.entries.insert(self.next_id, entry);
        self.next_id
    }

    fn draw_seed(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.seed
    }

    /// Pushes may have been missed: every claim asks where it stands.
    pub(crate) fn reset(&mut self, now: Moment) {
        let ids: Vec<_> = self.entries.keys().copied().collect();
        for id in ids {
            let Some(entry) = self.entries.get_mut(&id) else {
                continue;
            };
            entry.handle_reset(now);
            self.settle(id, now);
        }
    }

    /// After anything happened to a claim: moves it on to its next stage, tells
    /// its task, and sets its timer.
    fn settle(&mut self, id: EntryId, now: Moment) {
        let seed = self.draw_seed();
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        if let Stage::Waiting(waiter) = &entry.stage {
            if let Some((arrival, position)) = waiter.position() {
                if entry.arrival != Some(arrival) {
                    let key = &entry.subject.key;
                    if let Some(old) = entry.arrival.replace(arrival) {
                        self.by_arrival.remove(&(key.clone(), old));
                    }
                    self.by_arrival.insert((key.clone(), arrival), id);
                }
                entry.signal.set_position(position);
            }
            match waiter.verdict() {
                None => {}
                Some(
                    verdict @ Verdict::Granted {
                        arrival,
                        token,
                        validity,
                        confirm_at,
                    },
                ) => {
                    let Terms {
                        ttl,
                        policy,
                        max_hold,
                        ..
                    } = entry.subject.terms;
                    let in_flight = waiter.in_flight();
                    self.waiting -= 1;
                    let renewal =
                        Renewal::new(now, ttl, policy, validity, confirm_at, in_flight, seed)
                            .of(arrival, token)
                            .at_most(max_hold);
                    entry.signal.set_token(token);
                    entry.signal.set_renewal(&renewal);
                    entry.stage = Stage::Held(renewal);
                    entry.signal.set_verdict(verdict);
                }
                Some(verdict) => {
                    let withdraw = matches!(verdict, Verdict::TimedOut | Verdict::Unreachable);
                    let (subject, signal) = (entry.subject.clone(), entry.signal.clone());
                    self.remove(id);
                    if withdraw {
                        let until = now + subject.terms.ttl;
                        self.insert_leaving(subject, now, until);
                    }
                    signal.set_verdict(verdict);
                    return;
                }
            }
        }
        let due = match &entry.stage {
            Stage::Waiting(waiter) => waiter.poll_timeout(),
            Stage::Held(renewal) => {
                entry.signal.set_renewal(renewal);
                renewal.poll_timeout()
            }
            Stage::Leaving(leaving) => leaving.poll_timeout(now),
        };
        match due {
            Some(due) => self.set_timer(id, due),
            // A lost lease is its holder's to release; one that left too late has lapsed.
            None => {
                // One that was to end by itself does so at the store too: a grant from the
                // queue would keep the key for longer than its TTL there.
                let expired = Some(Standpoint::Lost(Loss::Expired));
                let over = match &entry.stage {
                    Stage::Held(renewal) => Some(renewal.standpoint()) == expired,
                    Stage::Waiting(_) | Stage::Leaving(_) => false,
                };
                let subject = over.then(|| entry.subject.clone());
                self.remove(id);
                if let Some(subject) = subject {
                    let until = now + subject.terms.ttl;
                    self.insert_leaving(subject, now, until);
                }
            }
        }
    }

    fn set_timer(&mut self, id: EntryId, due: Moment) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        if entry.timer == Some(due) {
            return;
        }
        if let Some(old) = entry.timer.replace(due) {
            self.timers.remove(&(old, id));
        }
        self.timers.insert((due, id));
    }
}

fn subject_of(push: &Push) -> Option<(&Key, Arrival)> {
    match push {
        Push::Granted { key, arrival, .. }
        | Push::Next { key, arrival, .. }
        | Push::Unfit { key, arrival, .. }
        | Push::Adopted { key, arrival, .. }
        | Push::Revoked { key, arrival, .. } => Some((key, *arrival)),
        Push::Changed { .. } | Push::Reset => None,
    }
}

fn is_for(push: &Push, key: &Key, arrival: Arrival) -> bool {
    subject_of(push) == Some((key, arrival))
}
