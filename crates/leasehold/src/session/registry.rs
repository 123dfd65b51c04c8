//! Every claim of one client, where to find it, and when each wants attention.
//!
//! Decides nothing: the claims do ([`Life`]). After anything has happened to one,
//! [`Registry::settle`] shows it to its task, and sets its timer.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use leasehold_core::{
    Arrival, ClaimId, Command, Failure, Heard, Key, Life, Mode, Moment, Phase, Push, Transmit,
};

use super::entry::{Carried, Entry, Send};
use super::own_id::{OwnId, OwnIds};
use super::signal::Signal;
use super::telling::{Telling, Told};
use crate::error::ErrorKind;
use crate::observe::{ObservedClaim, Observers};
use crate::store::Acknowledged;

pub(crate) type EntryId = u64;

/// What a task that drives its claim does next.
#[derive(Debug)]
pub(crate) enum Step<T> {
    /// What it waited for has come.
    Done(T),
    /// This is to be sent.
    Send(Transmit),
    /// Nothing, before this time or a change.
    Wait(Option<Moment>),
}

/// The claims of one client.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    entries: HashMap<EntryId, Entry>,
    by_arrival: HashMap<(Key, Arrival), EntryId>,
    /// Those of a key that are not answered yet, or on their way out.
    in_passing: HashMap<Key, Vec<EntryId>>,
    timers: BTreeSet<(Moment, EntryId)>,
    next_id: EntryId,
    waiting: usize,
    leaving: usize,
    /// The client is shut down: whatever comes is to leave.
    closed: bool,
    /// Those who watch a key, and want the inbox open.
    watching: usize,
    /// Releases that were confirmed since the client was opened.
    confirmed: u64,
    ids: OwnIds,
    pub(super) telling: Telling,
}

impl Registry {
    pub(crate) fn new(ids: OwnIds, observers: Observers) -> Self {
        Self {
            ids,
            telling: Telling::to(observers),
            ..Self::default()
        }
    }

    /// Takes over a claim that is not asked for yet. Its task has to drive it.
    pub(crate) fn insert(
        &mut self,
        key: Key,
        mode: Mode,
        life: Life,
        own: OwnId,
        signal: Arc<Signal>,
    ) -> EntryId {
        self.next_id += 1;
        let id = self.next_id;
        self.in_passing.entry(key.clone()).or_default().push(id);
        let told = Told::new(ObservedClaim {
            key: key.clone(),
            mode,
            number: id,
        });
        let entry = Entry {
            key,
            told,
            phase: life.phase(),
            life,
            signal,
            ids: vec![own],
            timer: None,
            arrival: None,
            driven: 0,
            orphan: false,
        };
        self.entries.insert(id, entry);
        id
    }

    /// A claim keeps this id from the others.
    pub(crate) fn keep_id(&mut self, id: EntryId, own: OwnId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.ids.push(own);
        }
    }

    /// Does something with a claim that somebody has in hand: until then it is here.
    #[allow(
        clippy::expect_used,
        reason = "only `let_go` ends that, which whoever has it calls last"
    )]
    pub(crate) fn with<T>(
        &mut self,
        id: EntryId,
        now: Moment,
        change: impl FnOnce(&mut Life, Moment) -> T,
    ) -> T {
        let entry = self.entries.get_mut(&id).expect("a claim in hand");
        let result = change(&mut entry.life, now);
        self.settle(id, now);
        result
    }

    /// One step of a task that drives its claim until `done` says something. `begins` with
    /// its first.
    pub(crate) fn step<T>(
        &mut self,
        id: EntryId,
        now: Moment,
        begins: bool,
        done: &mut impl FnMut(&mut Life, Moment) -> Option<T>,
    ) -> Step<T> {
        let Some(entry) = self.entries.get_mut(&id) else {
            return Step::Wait(None);
        };
        entry.driven += usize::from(begins);
        entry.life.handle_timeout(now);
        let step = if let Some(result) = done(&mut entry.life, now) {
            entry.driven -= 1;
            Step::Done(result)
        } else if let Some(transmit) = entry.poll_transmit(now, &self.ids) {
            Step::Send(transmit)
        } else {
            Step::Wait(entry.life.poll_timeout())
        };
        self.show(id, now);
        step
    }

    /// A task does not drive its claim any more, and gives up what it was sending.
    pub(crate) fn abandon(&mut self, id: EntryId, sending: Option<&Transmit>, now: Moment) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        entry.driven -= 1;
        if let Some(transmit) = sending {
            let unanswered = Err(Failure::Unanswered);
            entry.life.handle_answer(now, transmit, unanswered);
        }
        self.settle(id, now);
    }

    /// Its caller has let go of a claim: what is left of it leaves.
    pub(crate) fn let_go(&mut self, id: EntryId, now: Moment) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.orphan = true;
            entry.life.leave(now);
            self.settle(id, now);
        }
    }

    /// What tells that the claims have left which are on their way out of `key` now.
    pub(crate) fn leaving_on(&self, key: &Key) -> Vec<Arc<Signal>> {
        let ids = self.in_passing.get(key).into_iter().flatten();
        let entries = ids.filter_map(|id| self.entries.get(id));
        let leaving = entries.filter(|entry| entry.phase == Phase::Leaving);
        leaving.map(|entry| entry.signal.clone()).collect()
    }

    /// When something is next due.
    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Whether nothing is to be kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.timers.is_empty() && (self.watching == 0 || self.closed)
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

    /// What is to be sent now.
    pub(crate) fn collect_due(&mut self, now: Moment, sends: &mut Vec<Send>) {
        let later = self
            .timers
            .split_off(&(now + std::time::Duration::from_micros(1), 0));
        for (_, id) in std::mem::replace(&mut self.timers, later) {
            let Some(entry) = self.entries.get_mut(&id) else {
                continue;
            };
            entry.timer = None;
            entry.life.handle_timeout(now);
            while let Some(transmit) = entry.poll_transmit(now, &self.ids) {
                sends.push(Send {
                    entry: id,
                    key: entry.key.clone(),
                    transmit,
                });
            }
            self.settle(id, now);
        }
    }

    /// What came of a request.
    pub(crate) fn answer(&mut self, id: EntryId, to: &Transmit, answer: Carried, now: Moment) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let heard = match answer {
            Ok(answer) => {
                // That it could leave does not say why it was not granted.
                if !matches!(*to.command, Command::Release(_)) {
                    entry.signal.set_error(answer.shortfall());
                }
                if let Some(acknowledged) = answer.achieved() {
                    entry.signal.set_acknowledged(acknowledged);
                }
                Ok(Heard {
                    reply: answer.reply,
                    at: answer.at,
                    epoch: answer.epoch,
                    enough: answer.acknowledged.as_ref().map(Acknowledged::is_enough),
                })
            }
            Err(None) => {
                entry.signal.set_unanswered(to.limit);
                Err(Failure::Unanswered)
            }
            Err(Some(error)) => {
                let unanswered = error.kind() == ErrorKind::Unavailable;
                entry.signal.set_error(Some(error));
                Err(if unanswered {
                    Failure::Unanswered
                } else {
                    Failure::Refused
                })
            }
        };
        entry.life.handle_answer(now, to, heard);
        self.settle(id, now);
    }

    /// A push from the store: for the claim that it names, or for those that are not answered
    /// yet, since it may be one of them.
    pub(crate) fn handle_push(&mut self, push: &Push, now: Moment) {
        if matches!(push, Push::Reset) {
            return self.reset(now);
        }
        let Some((key, arrival)) = push.claim() else {
            return;
        };
        if let Some(id) = self.by_arrival.get(&(key.clone(), arrival)).copied() {
            let entry = self.entries.get_mut(&id);
            if entry.is_some_and(|entry| entry.life.handle_push(now, push)) {
                self.settle(id, now);
            }
            return;
        }
        for id in self.in_passing.get(key).into_iter().flatten() {
            if let Some(entry) = self.entries.get_mut(id) {
                entry.life.handle_push(now, push);
            }
        }
    }

    /// Pushes may have been missed: every claim asks where it stands.
    pub(crate) fn reset(&mut self, now: Moment) {
        self.for_each(now, |life, now| life.handle_reset(now));
    }

    /// The client is shut down: every claim is to leave.
    pub(crate) fn close(&mut self, now: Moment) {
        self.closed = true;
        self.for_each(now, |life, now| life.shut_down(now));
    }

    fn for_each(&mut self, now: Moment, change: impl Fn(&mut Life, Moment)) {
        let ids: Vec<_> = self.entries.keys().copied().collect();
        for id in ids {
            if let Some(entry) = self.entries.get_mut(&id) {
                change(&mut entry.life, now);
                self.settle(id, now);
            }
        }
    }

    /// After anything has happened to a claim: whoever drives it goes on.
    fn settle(&mut self, id: EntryId, now: Moment) {
        self.show(id, now);
        if let Some(entry) = self.entries.get(&id).filter(|entry| entry.driven > 0) {
            entry.signal.wake();
        }
    }

    /// A claim is found by what it is now, its tasks see it, its timer is set; and what is
    /// over for everybody is forgotten.
    fn show(&mut self, id: EntryId, now: Moment) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        if self.closed && entry.life.phase() == Phase::Held {
            entry.life.shut_down(now);
        }
        let (was, is) = (entry.phase, entry.life.phase());
        entry.phase = is;
        entry.signal.show(&entry.life);
        entry.told.look(&entry.life, now, &mut self.telling);
        if entry.ids.len() > 1 {
            let may_be = |id: &ClaimId| entry.life.may_be(id);
            entry.ids.retain(|own| may_be(&own.id));
        }
        let arrival = match is {
            Phase::Waiting | Phase::Held => entry.life.arrival(),
            _ => None,
        };
        if entry.arrival != arrival {
            let old = std::mem::replace(&mut entry.arrival, arrival);
            if let Some(old) = old {
                self.by_arrival.remove(&(entry.key.clone(), old));
            }
            if let Some(new) = arrival {
                self.by_arrival.insert((entry.key.clone(), new), id);
            }
        }
        let due = entry.due();
        if entry.timer != due {
            if let Some(old) = std::mem::replace(&mut entry.timer, due) {
                self.timers.remove(&(old, id));
            }
            if let Some(due) = due {
                self.timers.insert((due, id));
            }
        }
        if was != is {
            let (key, left) = (entry.key.clone(), entry.life.has_left());
            self.move_on(id, &key, was, is, left);
        }
        if is == Phase::Over && self.entries.get(&id).is_some_and(|entry| entry.orphan) {
            self.entries.remove(&id);
        }
    }

    fn move_on(&mut self, id: EntryId, key: &Key, was: Phase, is: Phase, left: bool) {
        let in_passing = |phase| matches!(phase, Phase::Asking | Phase::Leaving);
        if in_passing(was) && !in_passing(is) {
            if let Some(ids) = self.in_passing.get_mut(key) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    self.in_passing.remove(key);
                }
            }
        } else if in_passing(is) && !in_passing(was) {
            self.in_passing.entry(key.clone()).or_default().push(id);
        }
        let count = |phase, of: &mut usize| {
            *of -= usize::from(was == phase);
            *of += usize::from(is == phase);
        };
        count(Phase::Waiting, &mut self.waiting);
        count(Phase::Leaving, &mut self.leaving);
        self.confirmed += u64::from(left && is == Phase::Over);
    }
}
