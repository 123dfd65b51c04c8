//! A client's copy of a queue: the base, and the steps that were taken since.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use leasehold_core::{Command, Event, Inbox, Key, Now, Outcome, Queue, StoreTime};

use super::entry::{self, Base, Steps};
use super::{News, Position};
use crate::error::{ErrorKind, StoreError, refused};

/// How many bytes a step takes, about.
const STEP: u64 = 256;

/// The queue of a key, as far as a client knows it.
#[derive(Debug, Clone, Default)]
pub(super) struct Copy {
    pub(super) queue: Queue,
    /// When others found last that these do not listen. The queue shows it only for a while.
    silent: BTreeMap<Inbox, StoreTime>,
    /// Where the journal ends, as far as it is known.
    pub(super) known: Option<Position>,
    /// The backend's clock when it answered last.
    pub(super) at: StoreTime,
    /// How many bytes of the journal there are.
    pub(super) since_base: u64,
    base_length: u64,
    /// From how many bytes on a base is tried again, after a step that failed.
    no_base_before: u64,
    /// What the backend wants to have back.
    pub(super) kept: Option<Arc<[u8]>>,
    /// Whether it was damaged when it was read last: nothing is appended until it can be read.
    pub(super) is_unreadable: bool,
}

/// An event, and when it happened.
pub(super) type Told = (StoreTime, Event);

/// What steps that others have taken mean to a client.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// What it is told.
    pub(super) told: Vec<Told>,
    /// Whether it may have been told something that is not known any more.
    pub(super) missed: bool,
    /// When others found last that nobody listens here.
    pub(super) silent: Option<StoreTime>,
}

impl Copy {
    /// Takes the steps that others have taken since.
    pub(super) fn follow(
        &mut self,
        key: &Key,
        news: &News,
        inbox: &Inbox,
    ) -> Result<Heard, StoreError> {
        let mut heard = Heard::default();
        // What cannot be read is read again from its base.
        let known = self.known.take();
        let silent = self.silent.get(inbox).copied();
        if let Some(base) = &news.base {
            let base: Base<'_> = match &**base {
                [] => Base::default(),
                base => entry::decode(key, base)?,
            };
            let queue = base.queue.into_owned();
            if known.is_some() {
                match queue.told_since(&self.queue, inbox) {
                    Some(told) => heard.told = told,
                    None => heard.missed = true,
                }
            }
            (self.queue, self.silent) = (queue, base.silent.into_owned());
        }
        for entry in &news.entries {
            let steps: Steps<'_> = entry::decode(key, &entry.bytes)?;
            if let Ok((_, mut told)) = self.take(&steps, entry.at, entry.dead) {
                told.retain(|(_, event)| event.inbox() == inbox);
                heard.told.append(&mut told);
            }
        }
        let silent_now = self.silent.get(inbox).copied();
        heard.silent = silent_now.filter(|_| known.is_some() && silent_now != silent);
        self.known = news.end;
        if news.since_base < self.since_base {
            self.no_base_before = 0;
        }
        self.since_base = news.since_base;
        self.base_length = news.base_length;
        self.kept.clone_from(&news.kept);
        Ok(heard)
    }

    /// Takes the steps of one entry: their outcomes, and whom they tell what. Every client comes to
    /// the same, also where the clock is too far off: then nothing is done.
    pub(super) fn take(
        &mut self,
        steps: &Steps<'_>,
        at: StoreTime,
        dead: u64,
    ) -> Result<(Vec<Outcome>, Vec<Told>), StoreError> {
        self.queue.check_clock(at).map_err(|late| {
            let message = format!("the store's clock is wrong: {late}");
            refused(message, "correct the clock of the server")
        })?;
        let now = now(at, steps.listens);
        let named = steps.ring.iter().zip(0..u64::BITS);
        let named = named.filter(|(_, place)| dead >> place & 1 == 1);
        let named = named.map(|(inbox, _)| inbox);
        let dead: Vec<_> = named.filter(|inbox| !self.queue.is_deaf(inbox)).collect();
        if !dead.is_empty() {
            let there: HashSet<_> = self.queue.inboxes(usize::MAX).collect();
            self.silent.retain(|inbox, _| there.contains(inbox));
            let found = dead.iter().map(|inbox| ((*inbox).clone(), at));
            self.silent.extend(found);
        }
        let mut told = Vec::new();
        let outcomes = steps.commands.iter().map(|command| {
            let mut outcome = self.queue.apply(command, now);
            let at = outcome.at;
            self.queue.deliver(&mut outcome, now, |event| {
                // A watcher may look by itself, and its watch ends in time.
                let is_watcher = matches!(event, Event::Changed { .. });
                let hears = is_watcher || !dead.contains(&event.inbox());
                if hears {
                    told.push((at, event.clone()));
                }
                hears
            });
            outcome
        });
        Ok((outcomes.collect(), told))
    }

    /// How many bytes of the journal it stands for.
    pub(super) fn size(&self) -> u64 {
        self.since_base + self.base_length
    }

    /// Writes it down.
    pub(super) fn base(&self) -> Result<Vec<u8>, StoreError> {
        entry::encode(&Base {
            queue: Cow::Borrowed(&self.queue),
            silent: Cow::Borrowed(&self.silent),
        })
    }

    /// What would come of a claim that does not wait, as far as is known.
    pub(super) fn outcome_of(&self, command: &Command, now: Now) -> Outcome {
        if let Command::Claim(claim) = command
            && let Some(reply) = self.queue.refused(claim, self.at)
        {
            return Outcome {
                reply,
                at: self.queue.look(self.at).at,
                events: Vec::new(),
                audit: Vec::new(),
            };
        }
        self.queue.clone().apply(command, now)
    }

    /// A step has failed, perhaps since its base was too large for the line: the next ones go without, until
    /// the journal is twice as long. Renewals must not fail again and again for that.
    pub(super) fn failed(&mut self, error: &StoreError) {
        self.no_base_before = 2 * self.since_base;
        self.is_unreadable |= error.kind() == ErrorKind::Corrupt;
    }

    /// Whether it is time for a base. A step may cost as much as the journal is long, and a base as much
    /// as it is long, shared by the steps since the last: the sum is least at the root of twice that by
    /// the length of a step.
    pub(super) fn is_long(&self, least: u64) -> bool {
        let least = least.max(self.no_base_before);
        self.since_base > least.max((2 * STEP * self.base_length).isqrt())
    }
}

pub(super) fn now(at: StoreTime, listens: bool) -> Now {
    Now {
        listens,
        ..Now::from(at)
    }
}
