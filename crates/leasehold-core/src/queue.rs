//! The queue of one key: the specification of leasehold's locks.
//!
//! `crates/leasehold-redis/src/codec/lua/` contains the same rules for Redis. Both must behave
//! exactly the same: change both or neither.
//!
//! - here: the state of a key, the steps, and the delivery of events;
//! - `entry`: one claim of the queue, and its position;
//! - `claim`, `renew`, `leave`: the verbs;
//! - `rule`: who is granted;
//! - `run`: claims of one client that are granted one behind the other;
//! - `told`: notifications and replies;
//! - `tombstone`: released ids;
//! - `vote`: claims that propose their own token, at a member of a set;
//! - `audit`: how a step has changed the holders;
//! - `foretell`: what is known of a step before it is taken;
//! - `record`, `look`: a queue as it is stored, and as it is displayed;
//! - `canonical_hash`: a hash by which models recognise equal queues.

mod audit;
mod canonical_hash;
mod claim;
mod entry;
mod foretell;
mod leave;
mod look;
pub mod record;
mod renew;
mod rule;
mod run;
mod told;
mod tombstone;
mod vote;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use serde::Deserialize;

use self::entry::Entry;
use self::record::Record;
use self::tombstone::Tombstone;
use self::vote::Votes;
use crate::{
    Arrival, Capacity, ClaimId, Command, Event, Inbox, Invalid, Now, Outcome, OwnerSecret, Reply,
    StoreTime, Token,
};

/// The minimum life of a claim that is granted while it waits, so that it does not expire before
/// its client knows.
pub const PROMOTED_FLOOR: Duration = Duration::from_secs(3);

/// The remaining life of a claim whose client does not receive its pushes.
pub const UNHEARD_CUT: Duration = Duration::from_secs(1);

/// How many expired claims one step removes at most, and how many waiting claims `Unheard`
/// examines.
pub const DROPS_PER_STEP: usize = 256;

/// How many claims of one client are granted one behind the other at most. A step that looks for
/// expired holders examines each.
pub const RUN: usize = 1024;

/// How many claims one step grants behind others.
pub const FOLLOWERS_PER_STEP: usize = 64;

/// How often one step grants to the next claim because an inbox was not received.
const UNHEARD_ROUNDS: usize = 8;

/// How many released ids a key remembers.
pub const TOMBSTONES: usize = 64;

/// How long a key remembers a released id: longer than any operation time-out, so that a late
/// request cannot bring the claim back.
pub const TOMBSTONE_LIFE: Duration = Duration::from_secs(60);

/// The queue of one key: its claims in order, and the data that outlives them.
///
/// Each step takes the time, drops expired claims as far as promotion needs it, applies the verb,
/// promotes waiting claims, and reports events.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::{Claim, ClaimId, Command, Mode, Queue, Reply, StoreTime};
///
/// let mut queue = Queue::default();
/// let ttl = Duration::from_secs(30);
/// let claim = Command::Claim(Claim::new(ClaimId::from_random(1), Mode::EXCLUSIVE, ttl));
/// let outcome = queue.apply(&claim, StoreTime(1_000_000));
/// assert!(matches!(outcome.reply, Reply::Standing(s) if s.token.is_some()));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Record")]
pub struct Queue {
    /// The clock when last seen, as it was read.
    last_seen: StoreTime,
    /// What steps back of the clock have cost so far; `clock + offset` never goes back.
    offset: Duration,
    last_token: Token,
    last_arrival: Arrival,
    /// Set while the queue is not empty.
    capacity: Option<Capacity>,
    /// The weights granted. Claims with one token weigh once.
    used: u64,
    /// No granted claim expires before this.
    earliest: StoreTime,
    /// The furthest deadline ever given: the record must live longer.
    furthest: StoreTime,
    /// The front of the queue: those with a token, in order of their grants.
    /// Claims of one owner share a token; the first of them carries the weight.
    granted: BTreeMap<(Token, Arrival), Entry>,
    /// The rest, in order of arrival.
    waiting: BTreeMap<Arrival, Entry>,
    /// Where each claim is: its token, if it is granted, and its arrival.
    places: HashMap<ClaimId, (Option<Token>, Arrival)>,
    /// The waiting claims of each owner.
    siblings: HashMap<OwnerSecret, BTreeSet<Arrival>>,
    /// Who wants to hear of the first holder, and until when.
    watchers: Vec<(Inbox, StoreTime)>,
    /// Oldest first.
    released: VecDeque<Tombstone>,
    votes: Votes,
}

/// One step under way: its time, and how much it may still drop.
#[derive(Default)]
struct Step {
    now: StoreTime,
    clock: StoreTime,
    /// Whether the actor's client listens.
    listens: bool,
    /// From when on something is granted, if nothing is now.
    opens: Option<StoreTime>,
    drops_left: usize,
    followers_left: usize,
    first_before: Option<Arrival>,
    /// The first holder before the step. The arrival counts too: the claims of
    /// one owner share a token, and each has its own note.
    holder_before: Option<(Token, Arrival)>,
    /// Whether the first holder has changed its note.
    noted: bool,
    /// Whether a deadline was lowered: the key may be free sooner than was told.
    shortened: bool,
    /// Who is passed over, since nobody listens there.
    passed: Vec<Inbox>,
    actor: Option<ClaimId>,
    events: Vec<Event>,
}

impl Step {
    /// Claims of an owner are not passed over: they belong together.
    fn passes(&self, entry: &Entry) -> bool {
        let inbox = entry.inbox.as_ref().filter(|_| entry.secret.is_none());
        inbox.is_some_and(|inbox| self.passed.contains(inbox))
    }

    /// Notifies a waiter that it is next.
    fn tell_next(&mut self, entry: &Entry, blocked_until: StoreTime) {
        if let Some(inbox) = entry.inbox.clone() {
            self.events.push(Event::Next {
                inbox,
                arrival: entry.arrival,
                blocked_until,
            });
        }
    }
}

fn note(inboxes: &mut Vec<Inbox>, inbox: &Inbox) {
    if !inboxes.contains(inbox) {
        inboxes.push(inbox.clone());
    }
}

impl Queue {
    /// Applies one command at the store's time `now`.
    ///
    /// While the store is closed ([`Now::closed`]) nothing is granted or taken over. Holders
    /// may renew and release, and waiters keep their places.
    pub fn apply(&mut self, command: &Command, now: impl Into<Now>) -> Outcome {
        let now = now.into();
        let before = now.audited.then(|| self.clone());
        let mut step = self.begin(now);
        let reply = match command {
            Command::Claim(claim) => self.claim(claim, &mut step),
            Command::Void(void) => self.void(void, &mut step),
            Command::Renew(renew) => self.renew(renew, &mut step),
            Command::Release(release) => self.release(release, &mut step),
            Command::Break { only, .. } => self.break_holds(*only, &mut step),
            Command::Resize { from, to } => self.resize(*from, *to, &mut step),
            Command::Watch { inbox, ttl } => self.watch(inbox, *ttl, &step),
            Command::Unheard {
                silent,
                granted,
                passed,
            } => self.unheard(silent, granted, passed, &mut step),
            Command::Bury { inboxes } => self.bury(inboxes, &mut step),
        };
        let mut outcome = self.end(step, reply);
        if let Some(before) = before {
            outcome.audit = self.audit(&before, command, &reply, outcome.at);
        }
        if matches!(command, Command::Watch { .. }) && self.is_blank() && self.watchers.is_empty() {
            // Who has watched a key that nobody uses leaves nothing.
            *self = Self::default();
        }
        outcome
    }

    /// Applies several claims that do not wait, each to its own queue, if all of them can be
    /// granted at once. Otherwise changes no queue and returns the index of the first claim that
    /// cannot be granted, and its reply.
    ///
    /// # Errors
    /// The first claim that is not granted, and its reply.
    pub fn claim_all(
        queues: &mut [Self],
        claims: &[Command],
        now: impl Into<Now>,
    ) -> Result<Vec<Outcome>, (usize, Box<Outcome>)> {
        let mut now = now.into();
        Self::claim_all_by(queues, claims, |queue, claim| {
            let outcome = queue.apply(claim, now);
            now.last_token = now.last_token.map(|last| last.max(queue.last_token));
            outcome
        })
    }

    /// [`Queue::claim_all`] with a function that applies each claim.
    ///
    /// # Errors
    /// The first claim that is not granted, and its reply.
    pub fn claim_all_by(
        queues: &mut [Self],
        claims: &[Command],
        mut apply: impl FnMut(&mut Self, &Command) -> Outcome,
    ) -> Result<Vec<Outcome>, (usize, Box<Outcome>)> {
        let mut tried = queues.to_vec();
        let mut outcomes = Vec::with_capacity(claims.len());
        for (at, (queue, claim)) in tried.iter_mut().zip(claims).enumerate() {
            let outcome = apply(queue, claim);
            if !outcome.reply.is_grant() {
                return Err((at, Box::new(outcome)));
            }
            outcomes.push(outcome);
        }
        queues.clone_from_slice(&tried);
        Ok(outcomes)
    }

    /// Delivers each event of a step with `heard`, which returns whether the inbox received it. A
    /// client that does not receive is dead or has lost its connection: the key is granted to the
    /// next client that receives, and the claim keeps its place for [`UNHEARD_CUT`]. A client
    /// that has waited for less than that, and has not said that it listens ([`Now::listens`]),
    /// may not be subscribed yet, and is not skipped. Stores that know whether a push arrived call
    /// this right after [`Queue::apply`], at the same time. Returns the commands that it has
    /// applied, and adds their audit entries to the outcome.
    pub fn deliver(
        &mut self,
        outcome: &mut Outcome,
        now: impl Into<Now>,
        mut heard: impl FnMut(&Event) -> bool,
    ) -> Vec<Command> {
        let now = now.into();
        let mut events = std::mem::take(&mut outcome.events);
        let (mut silent, mut passed) = (Vec::new(), Vec::new());
        let mut applied = Vec::new();
        for left in (0..UNHEARD_ROUNDS).rev() {
            let mut misses = |event: &Event| {
                let misses = silent.contains(event.inbox()) || !heard(event);
                if misses {
                    note(&mut silent, event.inbox());
                }
                misses
            };
            let is_next = |event: &Event| matches!(event, Event::Next { .. });
            let (nexts, others): (Vec<_>, Vec<_>) = events.into_iter().partition(is_next);
            let missed: Vec<_> = others.into_iter().filter(&mut misses).collect();
            // Who is next is another then.
            if missed.is_empty() && !nexts.iter().any(misses) {
                break;
            }
            let mut granted = Vec::new();
            for event in &missed {
                if let Event::Granted {
                    inbox,
                    arrival,
                    id,
                    behind,
                    waited,
                    ..
                } = event
                {
                    granted.push((*arrival, *waited));
                    let listened = self.entry(id).is_some_and(|entry| entry.listens);
                    // The turn of a claim behind another of its client comes later.
                    if behind.is_none() && (listened || *waited >= UNHEARD_CUT) {
                        note(&mut passed, inbox);
                    }
                }
            }
            let unheard = Command::Unheard {
                silent: silent.clone(),
                granted,
                passed: passed.iter().filter(|_| left > 0).cloned().collect(),
            };
            let unheard_outcome = self.apply(&unheard, now);
            events = unheard_outcome.events;
            outcome.audit.extend(unheard_outcome.audit);
            applied.push(unheard);
        }
        applied
    }

    /// Returns how many claims hold or wait.
    #[must_use]
    pub fn claims(&self) -> usize {
        self.granted.len() + self.waiting.len()
    }

    /// Returns whether a claim holds or waits.
    #[must_use]
    pub fn has(&self, id: &ClaimId) -> bool {
        self.places.contains_key(id)
    }

    /// Returns whether nobody holds or waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.waiting.is_empty()
    }

    /// Checks that tokens and deadlines from this clock are below 2^53. A store that counts in
    /// doubles checks this before each step, as the Redis scripts do. When the clock is
    /// corrected, the queue works again.
    ///
    /// # Errors
    /// The clock is later than [`StoreTime::LATEST`], or has stepped back by so much before
    /// that the time of the queue would be too late.
    pub fn check_clock(&self, clock: StoreTime) -> Result<(), Invalid> {
        clock.check()?;
        self.now(clock).check_until(StoreTime::FURTHEST)
    }

    /// Returns the last token.
    #[must_use]
    pub fn last_token(&self) -> Token {
        self.last_token
    }

    /// Returns whether only the last token must be remembered: nobody holds, waits or watches,
    /// and no late request can bring a released claim back. A store that keeps one last token for
    /// all keys ([`Now::last_token`]) deletes such a record.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        let now = self.last_seen + self.offset;
        let nobody_watches = self.watchers.iter().all(|(_, until)| *until <= now);
        self.is_empty() && nobody_watches && self.released.is_empty() && self.votes.is_empty()
    }

    /// Whether nobody has ever claimed the key: nothing is to be remembered.
    fn is_blank(&self) -> bool {
        let unused = self.last_token.is_none() && self.last_arrival == Arrival::default();
        unused && self.is_empty() && self.released.is_empty() && self.votes.is_empty()
    }

    /// Returns how long the record must be kept after a step at `clock`, if an idle key keeps its
    /// last token for `retention`.
    #[must_use]
    pub fn keep_for(&self, clock: StoreTime, retention: Duration) -> Duration {
        let retention = match self.is_blank() {
            true => retention.min(TOMBSTONE_LIFE),
            false => retention,
        };
        retention.saturating_add(self.furthest.since(self.now(clock)))
    }

    /// Removes all claims, and keeps the tokens and the minimum holds. For a restart of the
    /// machine, which no holder survives.
    pub fn void_claims(&mut self) {
        let all = self.waiting.values().chain(self.granted.values());
        let ids: Vec<_> = all.map(|entry| entry.id.clone()).collect();
        for id in ids {
            self.vacate(&id, self.last_seen + self.offset);
        }
        self.watchers.clear();
        if self.is_empty() {
            self.capacity = None;
        }
    }

    /// Returns the inboxes of the holders and of the first `waiters` waiters.
    pub fn inboxes(&self, waiters: usize) -> impl Iterator<Item = &Inbox> {
        let waiting = self.waiting.values().take(waiters);
        let all = self.granted.values().chain(waiting);
        all.filter_map(|entry| entry.inbox.as_ref())
    }

    // ---- time ----

    fn now(&self, clock: StoreTime) -> StoreTime {
        clock + (self.offset + self.last_seen.since(clock))
    }

    fn begin(&mut self, store: Now) -> Step {
        let now = self.now(store.clock);
        self.offset += self.last_seen.since(store.clock);
        self.last_seen = store.clock;
        self.last_token = self.last_token.max(store.last_token.unwrap_or_default());
        let first_before = self.first_waiting();
        let opens = (!store.closed.is_zero()).then(|| now + store.closed);
        if opens.is_some() {
            // Whoever is ahead may hold for longer than is known here.
            self.disband(Token::NONE);
        }
        Step {
            now,
            clock: store.clock,
            listens: store.listens,
            opens,
            drops_left: DROPS_PER_STEP,
            followers_left: FOLLOWERS_PER_STEP,
            first_before,
            holder_before: self.first_holder(),
            ..Step::default()
        }
    }

    fn end(&mut self, mut step: Step, reply: Reply) -> Outcome {
        self.tell_watchers(&mut step);
        self.hint(&mut step);
        if self.is_empty() {
            self.capacity = None;
        }
        Outcome {
            reply,
            at: step.now,
            events: step.events,
            audit: Vec::new(),
        }
    }
}
