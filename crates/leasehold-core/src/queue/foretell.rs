//! What a client that has a copy of a queue knows before the step is taken.

use super::{Entry, PROMOTED_FLOOR, Queue};
use crate::machine::RENEW_WAITING_AT;
use crate::{Claim, Command, Event, Inbox, Reply, StoreTime};

/// How many of those who wait are named: the one that is granted, and the one that is next then.
const NAMED: usize = 2;

impl Queue {
    /// Returns whom the command will probably notify, of those that listen. The step decides: it may
    /// notify others, and need not notify these.
    #[must_use]
    pub fn foretold(&self, command: &Command) -> Vec<&Inbox> {
        let frees = match command {
            Command::Release(release) => match self.places.get(&release.id) {
                Some((Some(_), _)) => true,
                Some((None, arrival)) => self.first_waiting() == Some(*arrival),
                None => false,
            },
            Command::Renew(renew) => renew.downgrade || renew.note.is_some(),
            Command::Claim(_) | Command::Watch { .. } | Command::Void(_) => false,
            Command::Break { .. }
            | Command::Resize { .. }
            | Command::Unheard { .. }
            | Command::Bury { .. } => true,
        };
        let actor = command.id();
        let waiting = self.waiting.values();
        let next = waiting.filter(|entry| Some(&entry.id) != actor);
        let next = next.take(NAMED).filter(|entry| entry.listens);
        let next = next.filter(|entry| !self.asks_behind_first(entry));
        let next = next.filter_map(|entry| entry.inbox.as_ref());
        let watchers = self.watchers.iter().map(|(inbox, _)| inbox);
        next.chain(watchers).filter(|_| frees).collect()
    }

    /// Whether this one is not the first in line, and asks by itself before the lease of the first, if
    /// that is granted now, can end.
    fn asks_behind_first(&self, entry: &Entry) -> bool {
        let first = self.waiting.values().next();
        first.is_some_and(|first| {
            let now = self.now(self.last_seen);
            let alone = first.mode.is_exclusive() && entry.secret.is_none();
            let holds_until = first.deadline.max(now + PROMOTED_FLOOR);
            alone && first.id != entry.id && asks_until(entry, now) <= holds_until
        })
    }

    /// Returns whether this event of a step at `at` says only that a claim is next in line, and its
    /// client renews the claim, and so learns it, before the claim ahead can expire. Nobody need be
    /// told then.
    #[must_use]
    pub fn is_known_in_time(&self, event: &Event, at: StoreTime) -> bool {
        let Event::Next {
            arrival,
            blocked_until,
            ..
        } = event
        else {
            return false;
        };
        let entry = self.waiting.get(arrival);
        entry.is_some_and(|entry| asks_until(entry, at) <= *blocked_until)
    }

    /// Returns what this client was told by the steps between `before` and this queue, of which
    /// nothing else is known: its grants, and that it is next. `None` if there may be more, and it has
    /// to ask.
    #[must_use]
    pub fn told_since(&self, before: &Self, inbox: &Inbox) -> Option<Vec<(StoreTime, Event)>> {
        let ours = |entry: &&Entry| entry.inbox.as_ref() == Some(inbox);
        let watches = before.watchers.iter().any(|(watcher, _)| watcher == inbox);
        let mut holds = before.granted.iter().filter(|(_, entry)| ours(entry));
        if watches || !holds.all(|(place, _)| self.granted.contains_key(place)) {
            return None;
        }
        let waiting = before.waiting.values().filter(ours);
        let told = waiting.map(|was| self.told_to(was, inbox));
        let told = told.collect::<Option<Vec<_>>>()?;
        Some(told.into_iter().flatten().collect())
    }

    /// What the client of a claim that has waited is told, if anything; `None` for what cannot be
    /// said.
    fn told_to(&self, was: &Entry, inbox: &Inbox) -> Option<Option<(StoreTime, Event)>> {
        let inbox = inbox.clone();
        match *self.places.get(&was.id)? {
            (None, arrival) if self.first_waiting() == Some(arrival) => {
                let at = self.now(self.last_seen);
                let next = Event::Next {
                    inbox,
                    arrival,
                    blocked_until: (!self.granted.is_empty()).then_some(self.earliest)?,
                };
                Some(Some((at, next)))
            }
            (None, _) => Some(None),
            (Some(token), arrival) => {
                let is = self.granted.get(&(token, arrival))?;
                let granted = Event::Granted {
                    inbox,
                    arrival,
                    id: was.id.clone(),
                    token,
                    behind: self.behind(&was.id),
                    deadline: is.deadline,
                    waited: is.since.since(was.since),
                };
                Some(Some((is.since, granted)))
            }
        }
    }

    /// Returns whether this client holds, waits or watches.
    #[must_use]
    pub fn concerns(&self, inbox: &Inbox) -> bool {
        let watchers = self.watchers.iter().map(|(watcher, _)| watcher);
        let mut all = self.inboxes(usize::MAX).chain(watchers);
        all.any(|one| one == inbox)
    }

    /// Returns whether this client waits, and was not listening when it last said so.
    #[must_use]
    pub fn is_deaf(&self, inbox: &Inbox) -> bool {
        let mut all = self.waiting.values();
        all.any(|entry| !entry.listens && entry.inbox.as_ref() == Some(inbox))
    }

    /// Returns the reply to a claim that does not want to wait, where it is certain that the claim
    /// is refused at `clock`, without the step: others wait, and nothing has expired.
    #[must_use]
    pub fn refused(&self, claim: &Claim, clock: StoreTime) -> Option<Reply> {
        let now = self.now(clock);
        let first = self.waiting.values().next()?;
        let stands = !self.granted.is_empty() && now < self.earliest && now < first.deadline;
        let is_plain = !claim.wait && !claim.ahead;
        let is_plain = is_plain && claim.secret.is_none() && claim.proposal.is_none();
        let is_new = self.entry(&claim.id).is_none() && !self.is_buried(&claim.id, now);
        let fits = self.capacity == Some(claim.mode.capacity());
        let blocked_until = self.earliest;
        (stands && is_plain && is_new && fits).then_some(Reply::Busy { blocked_until })
    }
}

/// Until when a client that lives has renewed the place of its claim: for a third of its TTL it may be
/// silent. The TTL is at most the time from when the claim came until its deadline.
fn asks_until(entry: &Entry, now: StoreTime) -> StoreTime {
    now + entry.deadline.since(entry.since) / RENEW_WAITING_AT
}
