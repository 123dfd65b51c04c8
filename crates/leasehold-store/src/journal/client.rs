//! The round trips of a client, and what follows from their answers.

use std::borrow::Cow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{Command, Event, Inbox, Moment, Outcome, Push, StoreTime};

use super::copy::Copy;
use super::entry::{self, Steps};
use super::keys::{Keys, Slot};
use super::page::Sweep;
use super::{Append, Journal, News, RUNG};
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::port::PushSink;
use crate::sync::{Mutex, lock};

/// How often a step is tried anew because others' came in between, and when that is late.
const TRIES: usize = 1000;
const LATE: (usize, Duration) = (2, Duration::from_millis(200));

/// One client: what it knows, and its round trips.
pub(super) struct Client<J> {
    pub(super) journal: J,
    pub(super) keys: Keys,
    /// The open inbox keeps it: a sink may keep this store.
    pub(super) sink: Mutex<Option<Weak<dyn PushSink>>>,
    pub(super) sweep: Sweep,
}

/// A key in a round trip: its turn is ours.
pub(super) struct Part<'a> {
    pub(super) slot: &'a Arc<Slot>,
    pub(super) copy: &'a mut Copy,
}

/// How often a step was tried, and since when.
pub(super) struct Tries(usize, Moment);

impl Tries {
    pub(super) fn new() -> Self {
        Self(0, clock::now())
    }

    /// Whether it is late with the next one.
    fn next(&mut self) -> Result<bool, StoreError> {
        let late = self.0 >= LATE.0 && clock::now().since(self.1) >= LATE.1;
        self.0 += 1;
        if self.0 > TRIES {
            let message = "others changed the key each time before this step could be taken";
            return Err(StoreError::new(ErrorKind::Unavailable, message));
        }
        Ok(late)
    }
}

impl<J: Journal> Client<J> {
    pub(super) fn push(&self, push: Push) {
        if self.journal.epoch() != 0 {
            self.push_in_any_case(push);
        }
    }

    pub(super) fn push_in_any_case(&self, push: Push) {
        let sink = lock(&self.sink).as_ref().and_then(Weak::upgrade);
        if let Some(sink) = sink {
            sink.push(push);
        }
    }

    /// Appends in any case: where something has changed, with what was learned.
    pub(super) async fn append_surely(
        self: &Arc<Self>,
        part: &mut [Part<'_>; 1],
        commands: &[Command],
    ) -> Result<Vec<Outcome>, StoreError> {
        let mut tries = Tries::new();
        if part[0].copy.is_unreadable {
            self.read(part).await?;
        }
        loop {
            if let Some(taken) = self.append(part, &[commands], None, &mut tries).await? {
                return Ok(taken);
            }
        }
    }

    /// One round trip, with the commands of each part. `None` if nothing was appended, since something
    /// had changed.
    pub(super) async fn append(
        self: &Arc<Self>,
        parts: &mut [Part<'_>],
        commands: &[&[Command]],
        unchanged_since: Option<StoreTime>,
        tries: &mut Tries,
    ) -> Result<Option<Vec<Outcome>>, StoreError> {
        let is_late = tries.next()?;
        let listens = self.journal.listens();
        let steps = parts.iter().zip(commands);
        let steps: Vec<_> = steps
            .map(|(part, commands)| self.steps(part, commands, listens))
            .collect();
        let bytes = steps.iter().map(entry::encode);
        let bytes = bytes.collect::<Result<Vec<_>, _>>()?;
        let appends = parts.iter().zip(&steps).zip(&bytes);
        let appends: Vec<_> = appends
            .map(|((part, steps), bytes)| Append {
                key: &part.slot.key,
                known: part.copy.known,
                bytes,
                ring: &steps.ring,
                kept: part.copy.kept.as_deref(),
                is_late,
                copy: part.copy,
                commands: &steps.commands,
            })
            .collect();
        let answer = self.journal.append(&appends, unchanged_since).await;
        let answer = answer
            .inspect_err(|error| parts.iter_mut().for_each(|part| part.copy.failed(error)))?;
        let mut taken = Vec::new();
        for ((part, steps), news) in parts.iter_mut().zip(&steps).zip(&answer.news) {
            self.follow(part, news, answer.at)?;
            if answer.appended {
                let (outcomes, told) = part.copy.take(steps, answer.at, news.dead)?;
                taken.extend(outcomes);
                self.tell(part, told, &steps.ring);
            }
        }
        Ok(answer.appended.then_some(taken))
    }

    fn steps<'a>(&self, part: &Part<'_>, commands: &'a [Command], listens: bool) -> Steps<'a> {
        let mut ring: Vec<Inbox> = Vec::new();
        let told = commands.iter();
        let told = told.flat_map(|command| part.copy.queue.foretold(command));
        for inbox in told {
            if inbox != self.journal.inbox() && !ring.contains(inbox) && ring.len() < RUNG {
                ring.push(inbox.clone());
            }
        }
        Steps {
            listens,
            ring: Cow::Owned(ring),
            commands: Cow::Borrowed(commands),
        }
    }

    pub(super) async fn read(self: &Arc<Self>, parts: &mut [Part<'_>]) -> Result<(), StoreError> {
        let keys = parts.iter().map(|part| (&part.slot.key, part.copy.known));
        let keys: Vec<_> = keys.collect();
        let read = self.journal.read(&keys).await;
        let is_damaged = |error: &StoreError| error.kind() == ErrorKind::Corrupt;
        if read.as_ref().is_err_and(is_damaged) {
            (parts.iter_mut()).for_each(|part| part.copy.is_unreadable = true);
        }
        let (at, news) = read?;
        for (part, news) in parts.iter_mut().zip(&news) {
            self.follow(part, news, at)?;
        }
        Ok(())
    }

    /// Takes what others have appended, and hears what it tells this client.
    fn follow(&self, part: &mut Part<'_>, news: &News, at: StoreTime) -> Result<(), StoreError> {
        let (key, inbox) = (&part.slot.key, self.journal.inbox());
        let heard = part.copy.follow(key, news, inbox);
        // Of what cannot be followed nothing is written down.
        let heard = heard.inspect_err(|error| {
            *part.copy = Copy::default();
            part.copy.failed(error);
        })?;
        (part.copy.at, part.copy.is_unreadable) = (at, false);
        // Before the grants: this client may have been passed over for others. The doubt goes last,
        // since it ends the session that pushes belong to.
        if heard.missed || heard.silent.is_some() {
            self.push(Push::Reset);
        }
        for (at, event) in heard.told {
            self.push(Push::of(&event, key, at, self.journal.epoch()));
        }
        if let Some(at) = heard.silent {
            self.journal.doubt(at);
        }
        Ok(())
    }

    /// Tells what a step of this client has to tell. Those that were not rung with it are now.
    fn tell(self: &Arc<Self>, part: &Part<'_>, told: Vec<(StoreTime, Event)>, rung: &[Inbox]) {
        let (slot, queue, mut later) = (part.slot, &part.copy.queue, Vec::new());
        for (at, event) in told {
            if event.inbox() == self.journal.inbox() {
                self.push(Push::of(&event, &slot.key, at, self.journal.epoch()));
            } else if !rung.contains(event.inbox()) && !queue.is_known_in_time(&event, at) {
                later.push(event.inbox().clone());
            }
        }
        if !later.is_empty() {
            later.sort_unstable();
            later.dedup();
            let (client, slot) = (self.clone(), slot.clone());
            tokio::spawn(async move {
                // Who is not rung asks by itself. Who is dead is not passed over: a grant may be known
                // by now, and a client that listens again may have renewed its claim.
                client.journal.ring(&slot.key, &later).await.ok();
            });
        }
    }
}
