//! The queue of one key: the specification.
//!
//! `crates/leasehold/src/store/redis/lua/` holds its twin for Redis. The two
//! agree to the letter: change both or neither.

mod look;
mod record;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::record::Record;
use crate::{
    Arrival, Capacity, Claim, ClaimId, Command, Event, Inbox, Mode, Outcome, Owner, Release, Renew,
    Reply, Standing, StoreTime, Token,
};

/// A claim that is granted while it waits lives at least this long from then,
/// so that it never lapses on the way to its client.
pub const PROMOTED_FLOOR: Duration = Duration::from_secs(3);

/// What is left to a claim whose client does not hear its pushes.
pub const UNHEARD_CUT: Duration = Duration::from_secs(1);

/// How many lapsed claims one step drops at most, and how many waiting claims
/// `Unheard` looks at.
pub const DROPS_PER_STEP: usize = 256;

/// How many silent inboxes in a row one step tries when it looks for the next
/// in line that listens.
const UNHEARD_ROUNDS: usize = 8;

/// How many released ids a key remembers.
pub const TOMBSTONES: usize = 64;

/// How long a key remembers a released id: longer than any operation time-out,
/// so that a request that was under way cannot bring the claim back.
pub const TOMBSTONE_LIFE: Duration = Duration::from_secs(60);

/// One key's claims in order, and what outlives them.
///
/// Each step: take the time; drop what has expired as far as promotion needs
/// it; apply the verb; promote; report.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::{Claim, ClaimId, Command, Mode, Owner, Queue, Reply, StoreTime};
///
/// let mut queue = Queue::default();
/// let claim = Command::Claim(Claim {
///     id: ClaimId::from_random(1),
///     mode: Mode::Exclusive,
///     lease_ttl: Duration::from_secs(30),
///     waiter_ttl: Duration::from_secs(10),
///     wait: true,
///     ahead: false,
///     inbox: None,
///     owner: Owner::default(),
/// });
/// let outcome = queue.apply(&claim, StoreTime(1_000_000));
/// assert!(matches!(outcome.reply, Reply::Standing(s) if s.token.is_some()));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Record", into = "Record")]
pub struct Queue {
    /// The clock when last seen, as it was read.
    last_seen: StoreTime,
    /// What steps back of the clock have cost so far; `clock + offset` never goes back.
    offset: Duration,
    last_token: Token,
    last_arrival: Arrival,
    /// Set while the queue is not empty.
    capacity: Option<Capacity>,
    /// The weights granted.
    used: u64,
    /// No granted claim expires before this.
    earliest: StoreTime,
    /// The furthest deadline ever given: the record must live longer.
    furthest: StoreTime,
    /// The front of the queue: those with a token, in order of their grants.
    granted: BTreeMap<Token, Entry>,
    /// The rest, in order of arrival.
    waiting: BTreeMap<Arrival, Entry>,
    places: HashMap<ClaimId, Place>,
    /// Released ids and when to forget them, oldest first.
    released: VecDeque<(ClaimId, StoreTime)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    id: ClaimId,
    arrival: Arrival,
    mode: Mode,
    deadline: StoreTime,
    /// When it joined; from the grant on, when it was granted.
    since: StoreTime,
    inbox: Option<Inbox>,
    owner: Owner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Granted(Token),
    Waiting(Arrival),
}

/// One step under way: its time, and how much it may still drop.
struct Step {
    now: StoreTime,
    clock: StoreTime,
    drops_left: usize,
    first_before: Option<Arrival>,
    actor: Option<ClaimId>,
    events: Vec<Event>,
}

impl Queue {
    /// Applies one command at the time `clock` of the store. The only way to
    /// change a queue.
    pub fn apply(&mut self, command: &Command, clock: StoreTime) -> Outcome {
        let mut step = self.begin(clock);
        let reply = match command {
            Command::Claim(claim) => self.claim(claim, &mut step),
            Command::Renew(renew) => self.renew(renew, &mut step),
            Command::Release(release) => self.release(release, &mut step),
            Command::Break => self.break_all(&mut step),
            Command::Unheard { inbox, granted } => self.unheard(inbox, granted, &mut step),
            Command::Bury { inbox } => self.bury(inbox, &mut step),
        };
        self.hint(&mut step);
        if self.is_empty() {
            self.capacity = None;
        }
        Outcome {
            reply,
            at: step.now,
            events: step.events,
        }
    }

    /// Hands each event to `heard`, and cuts short the claims of every inbox
    /// that did not hear: the step that granted to a dead client also tells the
    /// next in line when to look. Stores that can tell whether a push arrived
    /// call it right after [`Queue::apply`], at the same time.
    pub fn deliver(
        &mut self,
        events: Vec<Event>,
        clock: StoreTime,
        mut heard: impl FnMut(&Event) -> bool,
    ) {
        let (nexts, others): (Vec<_>, Vec<_>) = events
            .into_iter()
            .partition(|event| matches!(event, Event::Next { .. }));
        let mut next = nexts.into_iter().next();
        let mut silent = Vec::new();
        for event in &others {
            let inbox = event.inbox();
            if silent.contains(inbox) || heard(event) {
                continue;
            }
            let granted = others
                .iter()
                .filter(|other| other.inbox() == inbox && matches!(other, Event::Granted { .. }))
                .map(Event::arrival)
                .collect();
            let cut = Command::Unheard {
                inbox: inbox.clone(),
                granted,
            };
            next = self.apply(&cut, clock).events.pop();
            silent.push(inbox.clone());
        }
        for _ in 0..UNHEARD_ROUNDS {
            let Some(event) = next.take_if(|event| !heard(event)) else {
                return;
            };
            let cut = Command::Unheard {
                inbox: event.inbox().clone(),
                granted: Vec::new(),
            };
            next = self.apply(&cut, clock).events.pop();
        }
    }

    /// Whether nobody holds or waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.waiting.is_empty()
    }

    /// How long the record must be kept from a step at `clock` on, if an idle
    /// key keeps its last token for `retention`.
    #[must_use]
    pub fn keep_for(&self, clock: StoreTime, retention: Duration) -> Duration {
        self.furthest.since(self.now(clock).0) + retention
    }

    /// Drops every claim and keeps the tokens: after a restart of the machine,
    /// where no holder can have survived.
    pub fn void_claims(&mut self) {
        self.granted.clear();
        self.waiting.clear();
        self.places.clear();
        self.capacity = None;
        self.used = 0;
    }

    /// The inboxes of those who hold or are among the first `waiters` waiting.
    pub fn inboxes(&self, waiters: usize) -> impl Iterator<Item = &Inbox> {
        let waiting = self.waiting.values().take(waiters);
        self.granted
            .values()
            .chain(waiting)
            .filter_map(|entry| entry.inbox.as_ref())
    }

    // ---- time ----

    fn now(&self, clock: StoreTime) -> (StoreTime, Duration) {
        let offset = self.offset + self.last_seen.since(clock);
        (clock + offset, offset)
    }

    fn begin(&mut self, clock: StoreTime) -> Step {
        let (now, offset) = self.now(clock);
        self.offset = offset;
        self.last_seen = clock;
        Step {
            now,
            clock,
            drops_left: DROPS_PER_STEP,
            first_before: self.first_waiting(),
            actor: None,
            events: Vec::new(),
        }
    }

    // ---- verbs ----

    fn claim(&mut self, claim: &Claim, step: &mut Step) -> Reply {
        step.actor = Some(claim.id.clone());
        self.drop_if_lapsed(&claim.id, step.now);
        if self.places.contains_key(&claim.id) {
            self.promote(step);
            return self.raise(&claim.id, claim.lease_ttl, claim.waiter_ttl, step);
        }
        let buried = self.is_buried(&claim.id, step.now);
        // An unfair claim is asked first: else it could never win a vacant key.
        let barges = claim.ahead
            && !buried
            && self.capacity == Some(claim.mode.capacity())
            && self.make_room(claim.mode.weight(), step);
        if !barges {
            self.promote(step);
        }
        if buried {
            return Reply::Gone;
        }
        if self
            .capacity
            .is_some_and(|in_use| in_use != claim.mode.capacity())
        {
            self.reclaim(step);
        }
        if !self.is_empty()
            && let Some(in_use) = self.capacity.filter(|c| *c != claim.mode.capacity())
        {
            return Reply::Mismatch { in_use };
        }
        self.capacity = Some(claim.mode.capacity());

        let may_pass = claim.ahead || self.waiting.is_empty();
        let now = barges || (may_pass && self.make_room(claim.mode.weight(), step));
        if !now && !claim.wait {
            return Reply::Busy {
                blocked_until: self.blocked_until(step),
            };
        }
        let arrival = self.next_arrival(step);
        let ttl = if now {
            claim.lease_ttl
        } else {
            claim.waiter_ttl
        };
        let entry = Entry {
            id: claim.id.clone(),
            arrival,
            mode: claim.mode,
            deadline: step.now + ttl,
            since: step.now,
            inbox: claim.inbox.clone(),
            owner: claim.owner.clone(),
        };
        self.furthest = self.furthest.max(entry.deadline);
        if now {
            self.grant(entry, step);
            if barges {
                self.promote(step);
            }
        } else {
            self.places
                .insert(entry.id.clone(), Place::Waiting(arrival));
            self.waiting.insert(arrival, entry);
        }
        self.standing(&claim.id, step)
    }

    fn renew(&mut self, renew: &Renew, step: &mut Step) -> Reply {
        step.actor = Some(renew.id.clone());
        self.drop_if_lapsed(&renew.id, step.now);
        self.promote(step);
        if self.places.contains_key(&renew.id) {
            self.raise(&renew.id, renew.ttl, renew.ttl, step)
        } else {
            Reply::Gone
        }
    }

    fn release(&mut self, release: &Release, step: &mut Step) -> Reply {
        step.actor = Some(release.id.clone());
        self.drop_if_lapsed(&release.id, step.now);
        let place = self.places.get(&release.id).copied();
        self.remove(&release.id);
        if !release.settled {
            self.bury_id(&release.id, step.now);
        }
        self.forget_buried(step.now);
        if release.hand_off || !matches!(place, Some(Place::Granted(_))) {
            self.promote(step);
        } else {
            self.tell_vacant(step);
        }
        match place {
            Some(place) => Reply::Released {
                held: matches!(place, Place::Granted(_)),
            },
            None => Reply::Absent,
        }
    }

    fn break_all(&mut self, step: &mut Step) -> Reply {
        let void = self.last_token;
        self.last_token = self.next_token(step);
        let held: Vec<_> = self.granted.values().cloned().collect();
        for entry in &held {
            self.remove(&entry.id);
            self.bury_id(&entry.id, step.now);
            self.forget_buried(step.now);
            if let Some(inbox) = entry.inbox.clone() {
                step.events.push(Event::Revoked {
                    inbox,
                    arrival: entry.arrival,
                });
            }
        }
        self.promote(step);
        Reply::Broken {
            holders: held.len() as u64,
            token: void,
        }
    }

    fn unheard(&mut self, inbox: &Inbox, granted: &[Arrival], step: &mut Step) -> Reply {
        let cut = step.now + UNHEARD_CUT;
        for entry in self.granted.values_mut() {
            if entry.inbox.as_ref() == Some(inbox) && granted.contains(&entry.arrival) {
                entry.deadline = entry.deadline.min(cut);
                self.earliest = self.earliest.min(entry.deadline);
            }
        }
        for entry in self.waiting.values_mut().take(DROPS_PER_STEP) {
            if entry.inbox.as_ref() == Some(inbox) {
                entry.deadline = entry.deadline.min(cut);
            }
        }
        let blocked_until = self.blocked_until(step);
        let next = self
            .waiting
            .values()
            .take(DROPS_PER_STEP)
            .filter(|entry| entry.deadline > cut)
            .find_map(|entry| entry.inbox.clone().map(|inbox| (inbox, entry.arrival)));
        if let Some((inbox, arrival)) = next {
            step.events.push(Event::Next {
                inbox,
                arrival,
                blocked_until,
            });
        }
        Reply::Done
    }

    fn bury(&mut self, inbox: &Inbox, step: &mut Step) -> Reply {
        let theirs = |entry: &&Entry| entry.inbox.as_ref() == Some(inbox);
        let dead: Vec<_> = self
            .granted
            .values()
            .filter(theirs)
            .chain(self.waiting.values().filter(theirs))
            .map(|entry| entry.id.clone())
            .collect();
        for id in &dead {
            self.remove(id);
        }
        self.promote(step);
        Reply::Done
    }

    // ---- the rule ----

    fn fits(&self, weight: u64) -> bool {
        self.capacity
            .is_none_or(|capacity| self.used + weight <= capacity.units())
    }

    /// Gives each claim at the front that fits its token.
    fn promote(&mut self, step: &mut Step) {
        while let Some(first) = self.waiting.values().next() {
            let (id, arrival, weight) = (first.id.clone(), first.arrival, first.mode.weight());
            if first.deadline <= step.now {
                if step.drops_left == 0 {
                    return;
                }
                step.drops_left -= 1;
                self.remove(&id);
                continue;
            }
            if !self.make_room(weight, step) {
                return;
            }
            let Some(mut entry) = self.waiting.remove(&arrival) else {
                return;
            };
            entry.deadline = entry.deadline.max(step.now + PROMOTED_FLOOR);
            entry.since = step.now;
            self.furthest = self.furthest.max(entry.deadline);
            let (inbox, deadline) = (entry.inbox.clone(), entry.deadline);
            let token = self.grant(entry, step);
            let mine = step.actor.as_ref() == Some(&id);
            if let Some(inbox) = inbox.filter(|_| !mine) {
                step.events.push(Event::Granted {
                    inbox,
                    arrival,
                    token,
                    deadline,
                });
            }
        }
    }

    /// Whether the weight fits, after dropping lapsed holders if it must.
    fn make_room(&mut self, weight: u64, step: &mut Step) -> bool {
        self.fits(weight) || (self.reclaim(step) && self.fits(weight))
    }

    /// Drops the holders that have lapsed. Looks at none while none can have.
    fn reclaim(&mut self, step: &mut Step) -> bool {
        if self.granted.is_empty() || step.now < self.earliest {
            return false;
        }
        let mut earliest = StoreTime(u64::MAX);
        let mut lapsed = Vec::new();
        for entry in self.granted.values() {
            if entry.deadline > step.now {
                earliest = earliest.min(entry.deadline);
            } else if step.drops_left == 0 {
                earliest = self.earliest;
                break;
            } else {
                step.drops_left -= 1;
                lapsed.push(entry.id.clone());
            }
        }
        self.earliest = earliest;
        for id in &lapsed {
            self.remove(id);
        }
        !lapsed.is_empty()
    }

    fn grant(&mut self, entry: Entry, step: &Step) -> Token {
        let token = self.next_token(step);
        self.last_token = token;
        let first = self.granted.is_empty();
        self.earliest = if first {
            entry.deadline
        } else {
            self.earliest.min(entry.deadline)
        };
        self.used += entry.mode.weight();
        self.places.insert(entry.id.clone(), Place::Granted(token));
        self.granted.insert(token, entry);
        token
    }

    /// `max(last + 1, clock)`: strictly increasing, also after the record was lost.
    fn next_token(&self, step: &Step) -> Token {
        Token((self.last_token.0 + 1).max(step.clock.0))
    }

    /// Contiguous while the queue is not empty, so that the difference of two
    /// numbers bounds a position; floored by the clock when it starts anew.
    fn next_arrival(&mut self, step: &Step) -> Arrival {
        let floor = if self.is_empty() { step.clock.0 } else { 0 };
        self.last_arrival = Arrival((self.last_arrival.0 + 1).max(floor));
        self.last_arrival
    }

    // ---- one claim ----

    fn entry_mut(&mut self, id: &ClaimId) -> Option<&mut Entry> {
        match self.places.get(id)? {
            Place::Granted(token) => self.granted.get_mut(token),
            Place::Waiting(arrival) => self.waiting.get_mut(arrival),
        }
    }

    fn drop_if_lapsed(&mut self, id: &ClaimId, now: StoreTime) {
        if self
            .entry_mut(id)
            .is_some_and(|entry| entry.deadline <= now)
        {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: &ClaimId) {
        match self.places.remove(id) {
            Some(Place::Granted(token)) => {
                if let Some(entry) = self.granted.remove(&token) {
                    self.used -= entry.mode.weight();
                }
            }
            Some(Place::Waiting(arrival)) => {
                self.waiting.remove(&arrival);
            }
            None => {}
        }
    }

    fn is_buried(&self, id: &ClaimId, now: StoreTime) -> bool {
        self.released
            .iter()
            .any(|(buried, forget)| buried == id && *forget > now)
    }

    /// Remembers a released id.
    fn bury_id(&mut self, id: &ClaimId, now: StoreTime) {
        if !self.is_buried(id, now) {
            self.released.push_back((id.clone(), now + TOMBSTONE_LIFE));
        }
    }

    /// Forgets the released ids whose time or number is up.
    fn forget_buried(&mut self, now: StoreTime) {
        while self.released.len() > TOMBSTONES
            || self
                .released
                .front()
                .is_some_and(|(_, forget)| *forget <= now)
        {
            self.released.pop_front();
        }
    }

    fn raise(&mut self, id: &ClaimId, held: Duration, waiting: Duration, step: &Step) -> Reply {
        let alone = self.granted.len() == 1;
        let granted = matches!(self.places.get(id), Some(Place::Granted(_)));
        let ttl = if granted { held } else { waiting };
        if let Some(entry) = self.entry_mut(id) {
            entry.deadline = entry.deadline.max(step.now + ttl);
            let deadline = entry.deadline;
            self.furthest = self.furthest.max(deadline);
            if granted && alone {
                self.earliest = deadline;
            }
        }
        self.standing(id, step)
    }

    fn standing(&self, id: &ClaimId, step: &Step) -> Reply {
        match self.places.get(id) {
            Some(Place::Granted(token)) => self.granted.get(token).map(|entry| Standing {
                arrival: entry.arrival,
                token: Some(*token),
                position: 0,
                deadline: entry.deadline,
                blocked_until: None,
            }),
            Some(Place::Waiting(arrival)) => self.waiting.get(arrival).map(|entry| Standing {
                arrival: entry.arrival,
                token: None,
                position: self.position(entry.arrival),
                deadline: entry.deadline,
                blocked_until: Some(self.blocked_until(step)),
            }),
            None => None,
        }
        .map_or(Reply::Gone, Reply::Standing)
    }

    fn position(&self, arrival: Arrival) -> u64 {
        let ahead = arrival.0 - self.first_waiting().unwrap_or(arrival).0;
        (ahead + 1).min(self.waiting.len() as u64)
    }

    // ---- what is told ----

    fn first_waiting(&self) -> Option<Arrival> {
        self.waiting.keys().next().copied()
    }

    fn blocked_until(&self, step: &Step) -> StoreTime {
        if self.granted.is_empty() {
            step.now
        } else {
            self.earliest
        }
    }

    /// Tells the claim that has become next in line when to look.
    fn hint(&self, step: &mut Step) {
        let Some(first) = self.waiting.values().next() else {
            return;
        };
        if step.first_before == Some(first.arrival) || step.actor.as_ref() == Some(&first.id) {
            return;
        }
        if let Some(inbox) = first.inbox.clone() {
            let blocked_until = self.blocked_until(step);
            step.events.push(Event::Next {
                inbox,
                arrival: first.arrival,
                blocked_until,
            });
        }
    }

    /// Tells the first in line that it may come and take the key.
    fn tell_vacant(&self, step: &mut Step) {
        let Some(first) = self.waiting.values().next() else {
            return;
        };
        if let Some(inbox) = first.inbox.clone() {
            step.events.push(Event::Next {
                inbox,
                arrival: first.arrival,
                blocked_until: step.now,
            });
        }
    }
}
