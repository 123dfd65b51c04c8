//! Random histories of one key, held after every step against a naive
//! reference: a plain list of claims that forgets the dead at once, where the
//! queue forgets them as late as it can.
//!
//! `PROPTEST_CASES` raises the number of histories, `PROPTEST_RNG_SEED` moves
//! them; the default is the same set in every run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::{
    Arrival, Capacity, Claim, ClaimId, Command, DROPS_PER_STEP, Event, Inbox, Mode, Outcome, Owner,
    PROMOTED_FLOOR, Queue, Release, Renew, Reply, Snapshot, StoreTime, TOMBSTONE_LIFE, TOMBSTONES,
    Token, UNHEARD_CUT,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const SLOTS: usize = 24;
const INBOXES: usize = 4;

// ---- the reference ----

/// One live claim, as the reference sees it.
#[derive(Debug, Clone)]
struct Known {
    id: ClaimId,
    arrival: Arrival,
    mode: Mode,
    deadline: StoreTime,
    since: StoreTime,
    inbox: Option<Inbox>,
    token: Option<Token>,
    /// Granted at once although others waited, or might have.
    barged: bool,
}

/// The design's section 1 in the plainest words: every step forgets all the
/// dead, applies the verb, and grants from the front.
#[derive(Debug, Clone, Default)]
struct Reference {
    now: StoreTime,
    last_clock: StoreTime,
    last_token: Token,
    /// In order of arrival.
    claims: Vec<Known>,
    buried: Vec<(ClaimId, StoreTime)>,
    /// Dead claims that the queue may or may not have dropped yet.
    lapsed: BTreeSet<ClaimId>,
    /// Lapsed claims that a `Break` may have found and buried.
    perhaps_buried: BTreeMap<ClaimId, StoreTime>,
}

/// What the reference expects of a reply. Arrival numbers are the queue's to
/// choose (they only have to rise), positions are bounds.
#[derive(Debug, PartialEq)]
enum Expected {
    Standing {
        token: Option<Token>,
        deadline: StoreTime,
        place: u64,
    },
    Busy,
    Gone,
    Released {
        held: bool,
    },
    Absent,
    Mismatch {
        in_use: Capacity,
    },
    Broken {
        at_least: u64,
        token: Token,
    },
    Done,
}

impl Reference {
    fn capacity(&self) -> Option<Capacity> {
        self.claims.first().map(|claim| claim.mode.capacity())
    }

    fn used(&self) -> u64 {
        self.claims
            .iter()
            .filter(|claim| claim.token.is_some())
            .map(|claim| claim.mode.weight())
            .sum()
    }

    fn fits(&self, mode: Mode) -> bool {
        self.used() + mode.weight() <= mode.capacity().units()
    }

    fn waiting(&self) -> impl Iterator<Item = &Known> {
        self.claims.iter().filter(|claim| claim.token.is_none())
    }

    fn find(&mut self, id: &ClaimId) -> Option<&mut Known> {
        self.claims.iter_mut().find(|claim| claim.id == *id)
    }

    fn is_buried(&self, id: &ClaimId) -> bool {
        self.buried
            .iter()
            .any(|(buried, forget)| buried == id && *forget > self.now)
    }

    fn bury(&mut self, id: &ClaimId) {
        self.lapsed.remove(id);
        if self.is_buried(id) {
            return;
        }
        let forget = self.now + TOMBSTONE_LIFE;
        // A tombstone that is there already is not renewed.
        let certain = self.perhaps_buried.get(id).copied().unwrap_or(forget);
        self.buried.push((id.clone(), certain));
        if certain < forget {
            self.perhaps_buried.insert(id.clone(), forget);
        }
    }

    fn tick(&mut self, clock: StoreTime) {
        self.now = self.now + clock.since(self.last_clock);
        self.last_clock = clock;
        let now = self.now;
        let dead: Vec<_> = self
            .claims
            .iter()
            .filter(|claim| claim.deadline <= now)
            .map(|claim| claim.id.clone())
            .collect();
        self.claims.retain(|claim| claim.deadline > now);
        self.lapsed.extend(dead);
        self.perhaps_buried.retain(|_, forget| *forget > now);
    }

    fn next_token(&mut self) -> Token {
        self.last_token = Token((self.last_token.0 + 1).max(self.last_clock.0));
        self.last_token
    }

    fn promote(&mut self) {
        while let Some(next) = self.claims.iter().position(|claim| claim.token.is_none()) {
            if !self.fits(self.claims[next].mode) {
                return;
            }
            let (token, now) = (self.next_token(), self.now);
            let claim = &mut self.claims[next];
            claim.token = Some(token);
            claim.deadline = claim.deadline.max(now + PROMOTED_FLOOR);
            claim.since = now;
        }
    }

    fn standing(&mut self, id: &ClaimId, held: Duration, waits: Duration) -> Expected {
        let now = self.now;
        let claim = self.find(id).expect("it stands");
        let ttl = if claim.token.is_some() { held } else { waits };
        claim.deadline = claim.deadline.max(now + ttl);
        let (token, deadline) = (claim.token, claim.deadline);
        let place = match token {
            Some(_) => 0,
            None => 1 + self.waiting().take_while(|claim| claim.id != *id).count() as u64,
        };
        Expected::Standing {
            token,
            deadline,
            place,
        }
    }

    /// `seen` is the queue's own reply: taken for the arrival number of a new
    /// claim, and for what laziness leaves open.
    fn apply(&mut self, command: &Command, clock: StoreTime, seen: &Reply) -> Expected {
        self.tick(clock);
        match command {
            Command::Claim(claim) => self.claim(claim, seen),
            Command::Renew(renew) => {
                self.promote();
                if self.find(&renew.id).is_none() {
                    return Expected::Gone;
                }
                self.standing(&renew.id, renew.ttl, renew.ttl)
            }
            Command::Release(release) => {
                let found = self.find(&release.id).map(|claim| claim.token.is_some());
                self.claims.retain(|claim| claim.id != release.id);
                self.bury(&release.id);
                if release.hand_off || found != Some(true) {
                    self.promote();
                }
                found.map_or(Expected::Absent, |held| Expected::Released { held })
            }
            Command::Break => {
                let token = self.last_token;
                self.next_token();
                let held: Vec<_> = self
                    .claims
                    .iter()
                    .filter(|claim| claim.token.is_some())
                    .map(|claim| claim.id.clone())
                    .collect();
                let forget = self.now + TOMBSTONE_LIFE;
                for id in std::mem::take(&mut self.lapsed) {
                    self.perhaps_buried.insert(id, forget);
                }
                for id in &held {
                    self.bury(id);
                }
                self.claims.retain(|claim| claim.token.is_none());
                self.promote();
                Expected::Broken {
                    at_least: held.len() as u64,
                    token,
                }
            }
            Command::Unheard { inbox, granted } => {
                let cut = self.now + UNHEARD_CUT;
                for claim in &mut self.claims {
                    let told = claim.token.is_none() || granted.contains(&claim.arrival);
                    if claim.inbox.as_ref() == Some(inbox) && told {
                        claim.deadline = claim.deadline.min(cut);
                    }
                }
                Expected::Done
            }
            Command::Resize { .. } | Command::Watch { .. } => {
                unreachable!("not in these histories")
            }
            Command::Bury { inbox } => {
                self.claims
                    .retain(|claim| claim.inbox.as_ref() != Some(inbox));
                self.promote();
                Expected::Done
            }
        }
    }

    fn claim(&mut self, claim: &Claim, seen: &Reply) -> Expected {
        if self.find(&claim.id).is_some() {
            self.promote();
            return self.standing(&claim.id, claim.lease_ttl, claim.waiter_ttl);
        }
        let buried = self.is_buried(&claim.id)
            || (self.perhaps_buried.contains_key(&claim.id) && *seen == Reply::Gone);
        let other = self.capacity().filter(|c| *c != claim.mode.capacity());
        let barges = claim.ahead && !buried && other.is_none() && self.fits(claim.mode);
        if !barges {
            self.promote();
        }
        if buried {
            return Expected::Gone;
        }
        if let Some(in_use) = other {
            return Expected::Mismatch { in_use };
        }
        let at_once = barges || (self.waiting().next().is_none() && self.fits(claim.mode));
        if !at_once && !claim.wait {
            return Expected::Busy;
        }
        let Reply::Standing(standing) = seen else {
            panic!("{seen:?}, where a claim joins");
        };
        let token = at_once.then(|| self.next_token());
        let ttl = if at_once {
            claim.lease_ttl
        } else {
            claim.waiter_ttl
        };
        self.lapsed.remove(&claim.id);
        self.perhaps_buried.remove(&claim.id);
        self.claims.push(Known {
            id: claim.id.clone(),
            arrival: standing.arrival,
            mode: claim.mode,
            deadline: self.now + ttl,
            since: self.now,
            inbox: claim.inbox.clone(),
            token,
            barged: barges,
        });
        self.promote();
        self.standing(&claim.id, claim.lease_ttl, claim.waiter_ttl)
    }

    /// The record is lost; only what clients remember is left.
    fn forget(&mut self) {
        *self = Self::default();
    }
}

// ---- histories ----

#[derive(Debug, Clone)]
enum Op {
    Claim {
        slot: usize,
        kind: usize,
        wait: bool,
        ahead: bool,
        lease: u64,
        waiter: u64,
    },
    Renew {
        slot: usize,
        ttl: u64,
    },
    Release {
        slot: usize,
        hand_off: bool,
    },
    Break,
    Unheard {
        inbox: usize,
        granted: bool,
    },
    Bury {
        inbox: usize,
    },
    /// A request that was under way, or came twice.
    Again {
        back: usize,
    },
    /// The record is lost.
    Lose,
}

#[derive(Debug, Clone)]
enum Tick {
    Still,
    Forward(u64),
    Back(u64),
}

#[derive(Debug, Clone)]
struct Act {
    op: Op,
    tick: Tick,
    /// A bit for each inbox at which nobody listens.
    deaf: u8,
}

#[derive(Debug, Clone)]
struct History {
    /// Of the semaphore; 0 makes the key a lock.
    permits: u32,
    acts: Vec<Act>,
}

fn op() -> impl Strategy<Value = Op> {
    let ms = || prop_oneof![50_u64..3_000, 3_000_u64..40_000];
    let slot = || 0..SLOTS;
    prop_oneof![
        30 => (slot(), 0_usize..12, prop::bool::weighted(0.85), prop::bool::weighted(0.1), ms(), ms())
            .prop_map(|(slot, kind, wait, ahead, lease, waiter)| Op::Claim { slot, kind, wait, ahead, lease, waiter }),
        20 => (slot(), ms()).prop_map(|(slot, ttl)| Op::Renew { slot, ttl }),
        16 => (slot(), prop::bool::weighted(0.85)).prop_map(|(slot, hand_off)| Op::Release { slot, hand_off }),
        10 => (1_usize..12).prop_map(|back| Op::Again { back }),
        2 => Just(Op::Break),
        2 => (0..INBOXES, any::<bool>()).prop_map(|(inbox, granted)| Op::Unheard { inbox, granted }),
        2 => (0..INBOXES).prop_map(|inbox| Op::Bury { inbox }),
        1 => Just(Op::Lose),
    ]
}

fn tick() -> impl Strategy<Value = Tick> {
    prop_oneof![
        8 => Just(Tick::Still),
        24 => (1_u64..2_000_000).prop_map(Tick::Forward),
        5 => (2_000_000_u64..15_000_000).prop_map(Tick::Forward),
        1 => (15_000_000_u64..200_000_000).prop_map(Tick::Forward),
        3 => (1_u64..20_000_000).prop_map(Tick::Back),
    ]
}

fn history() -> impl Strategy<Value = History> {
    let deaf = prop_oneof![3 => Just(0_u8), 1 => any::<u8>()];
    let act = (op(), tick(), deaf).prop_map(|(op, tick, deaf)| Act { op, tick, deaf });
    (
        prop_oneof![Just(0_u32), 1_u32..6],
        prop::collection::vec(act, 1..70),
    )
        .prop_map(|(permits, acts)| History { permits, acts })
}

fn id(slot: usize) -> ClaimId {
    ClaimId::new(format!("s{slot:05}")).unwrap()
}

fn inbox(number: usize) -> Inbox {
    Inbox::from_random(number as u64)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Most claims fit the key's kind; one kind in twelve is of the other.
fn mode(permits: u32, kind: usize) -> Mode {
    let lock = (permits == 0) != (kind == 11);
    if lock && kind.is_multiple_of(2) {
        Mode::Exclusive
    } else if lock {
        Mode::Shared
    } else {
        let of = permits.max(2);
        Mode::Permits {
            of,
            take: 1 + u32::try_from(kind).unwrap() % of,
        }
    }
}

// ---- the run ----

/// A key under test, its reference, and what its clients remember.
struct World {
    queue: Queue,
    reference: Reference,
    clock: StoreTime,
    /// How far the clock may step back: not behind the last loss.
    floor: StoreTime,
    sent: Vec<Command>,
    /// The store's time of the last step since the record was last lost.
    last_at: StoreTime,
    highest_token: Token,
    highest_arrival: Arrival,
    /// Each grant that was told to anybody, whenever.
    grants: BTreeMap<Arrival, Token>,
}

/// What one step did, for the invariants.
struct Taken<'a> {
    command: &'a Command,
    clock: StoreTime,
    before: &'a Queue,
    outcome: &'a Outcome,
    expected: Expected,
    seen_before: Snapshot,
    seen_after: Snapshot,
}

impl World {
    fn new() -> Self {
        Self {
            queue: Queue::default(),
            reference: Reference::default(),
            clock: StoreTime(1_700_000_000_000_000),
            floor: StoreTime(0),
            sent: Vec::new(),
            last_at: StoreTime(0),
            highest_token: Token(0),
            highest_arrival: Arrival(0),
            grants: BTreeMap::new(),
        }
    }

    fn act(&mut self, permits: u32, act: &Act) {
        match act.tick {
            Tick::Still => {}
            Tick::Forward(by) => self.clock = self.clock + Duration::from_micros(by),
            Tick::Back(by) => {
                self.clock = self.clock.before(Duration::from_micros(by)).max(self.floor);
            }
        }
        let Some(command) = self.command(permits, &act.op) else {
            return;
        };
        self.sent.push(command.clone());
        self.step(&command, act.deaf);
    }

    fn command(&mut self, permits: u32, op: &Op) -> Option<Command> {
        Some(match *op {
            Op::Claim {
                slot,
                kind,
                wait,
                ahead,
                lease,
                waiter,
            } => Command::Claim(Claim {
                waiter_ttl: ms(waiter),
                wait,
                ahead,
                inbox: (slot % (INBOXES + 1) < INBOXES).then(|| inbox(slot % (INBOXES + 1))),
                owner: Owner::new("host", u32::try_from(slot).unwrap(), None),
                ..Claim::new(id(slot), mode(permits, kind), ms(lease))
            }),
            Op::Renew { slot, ttl } => Command::Renew(Renew::new(id(slot), ms(ttl))),
            Op::Release { slot, hand_off } => Command::Release(Release {
                id: id(slot),
                hand_off,
                settled: false,
            }),
            Op::Break => Command::Break,
            Op::Unheard { inbox: n, granted } => Command::Unheard {
                inbox: inbox(n),
                granted: self
                    .reference
                    .claims
                    .iter()
                    .filter(|claim| granted && claim.token.is_some())
                    .map(|claim| claim.arrival)
                    .collect(),
            },
            Op::Bury { inbox: n } => Command::Bury { inbox: inbox(n) },
            Op::Again { back } => self.sent.iter().rev().nth(back - 1)?.clone(),
            Op::Lose => {
                self.queue = Queue::default();
                self.reference.forget();
                self.last_at = StoreTime(0);
                // "As long as the clock did not step back further than the loss":
                // it has passed the highest number that was ever given.
                let passed = self.highest_token.0.max(self.highest_arrival.0) + 1;
                self.floor = StoreTime(passed);
                self.clock = self.clock.max(self.floor);
                return None;
            }
        })
    }

    fn step(&mut self, command: &Command, deaf: u8) {
        let clock = self.clock;
        let before = self.queue.clone();
        let seen_before = before.look(clock);
        let outcome = self.queue.apply(command, clock);
        let expected = self.reference.apply(command, clock, &outcome.reply);
        let taken = Taken {
            command,
            clock,
            before: &before,
            outcome: &outcome,
            expected,
            seen_before,
            seen_after: self.queue.look(clock),
        };
        reply_is_as_the_reference_says(&taken);
        look_agrees_with_the_state(&self.queue, &self.reference, clock);
        store_time_never_goes_back(self, &taken);
        tokens_increase_in_the_order_of_grants(self, &taken);
        arrivals_increase_and_order_is_kept(self, &taken);
        granted_weights_fit_the_capacity(&taken.seen_after);
        fair_holders_came_before_all_who_wait(&self.reference, &taken.seen_after);
        a_grant_stands_while_its_claim_lives(&taken);
        deadlines_are_lowered_by_unheard_only(&taken);
        a_released_claim_stays_released(&taken);
        position_is_a_bound_and_zero_iff_granted(&taken);
        blocked_until_comes_early(&taken);
        the_same_request_again_changes_nothing(&taken, &self.queue);
        every_grant_is_told(&taken);
        a_record_can_be_written_and_read(&self.queue);
        at_most_so_many_drops(&taken, &self.queue);
        nobody_waits_for_ever_behind_the_dead(&self.queue, clock);
        delivery_ends_and_hints_the_living(self, outcome.events, deaf);
        look_agrees_with_the_state(&self.queue, &self.reference, clock);
    }
}

fn claim_id(command: &Command) -> Option<&ClaimId> {
    match command {
        Command::Claim(claim) => Some(&claim.id),
        Command::Renew(renew) => Some(&renew.id),
        Command::Release(release) => Some(&release.id),
        _ => None,
    }
}

/// Every claim that is in the record, dead or alive.
fn in_the_record(queue: &Queue) -> usize {
    let record = serde_json::to_value(queue).unwrap();
    ["granted", "waiting"]
        .iter()
        .map(|part| record[part].as_array().unwrap().len())
        .sum()
}

// ---- the invariants ----

/// Design 1, the table of verbs: what each answers.
fn reply_is_as_the_reference_says(taken: &Taken<'_>) {
    let agree = match (&taken.expected, &taken.outcome.reply) {
        (
            Expected::Standing {
                token, deadline, ..
            },
            Reply::Standing(s),
        ) => (*token, *deadline) == (s.token, s.deadline),
        (Expected::Busy, Reply::Busy { .. })
        | (Expected::Gone, Reply::Gone)
        | (Expected::Absent, Reply::Absent)
        | (Expected::Done, Reply::Done) => true,
        (Expected::Released { held }, Reply::Released { held: h }) => held == h,
        (Expected::Mismatch { in_use }, Reply::Mismatch { in_use: i }) => in_use == i,
        // Whom laziness has not dropped yet may be counted as well.
        (
            Expected::Broken { at_least, token },
            Reply::Broken {
                holders: h,
                token: t,
            },
        ) => h >= at_least && t == token,
        _ => false,
    };
    assert!(
        agree,
        "{:?}: {:?} expected, {:?} answered",
        taken.command, taken.expected, taken.outcome.reply
    );
}

/// Design 1: "`inspect` and `list` only look", at the live claims of the key in
/// order, with the times and tokens that the verbs gave them.
fn look_agrees_with_the_state(queue: &Queue, reference: &Reference, clock: StoreTime) {
    let seen = queue.look(clock);
    let mut held: Vec<_> = reference
        .claims
        .iter()
        .filter(|claim| claim.token.is_some())
        .collect();
    held.sort_by_key(|claim| claim.token);
    let holders: Vec<_> = held
        .iter()
        .map(|c| (c.arrival, c.mode, c.deadline, c.since, c.token.unwrap()))
        .collect();
    let seen_holders: Vec<_> = seen
        .holders
        .iter()
        .map(|h| {
            let c = &h.claim;
            (c.arrival, c.mode, c.deadline, c.since, h.token)
        })
        .collect();
    assert_eq!(holders, seen_holders, "holders");
    let waiters: Vec<_> = reference
        .waiting()
        .zip(1_u64..)
        .map(|(c, place)| (c.arrival, c.mode, c.deadline, c.since, place))
        .collect();
    let seen_waiters: Vec<_> = seen
        .waiters
        .iter()
        .map(|w| {
            let c = &w.claim;
            (c.arrival, c.mode, c.deadline, c.since, w.position)
        })
        .collect();
    assert_eq!(waiters, seen_waiters, "waiters");
    assert_eq!(seen.capacity, reference.capacity(), "capacity");
    assert_eq!(seen.last_token, reference.last_token, "last token");
    assert_eq!((seen.at, seen.clock), (reference.now, clock), "time");
}

/// Design 1: "Store time never goes back for a key".
fn store_time_never_goes_back(world: &mut World, taken: &Taken<'_>) {
    assert!(
        taken.outcome.at >= world.last_at,
        "time went back from {:?} to {:?}",
        world.last_at,
        taken.outcome.at
    );
    world.last_at = taken.outcome.at;
}

/// Design 1: tokens are "strictly increasing per key; and because time is the
/// floor, still increasing after the record is lost". One grant has one token.
fn tokens_increase_in_the_order_of_grants(world: &mut World, taken: &Taken<'_>) {
    for holder in &taken.seen_after.holders {
        let arrival = holder.claim.arrival;
        if let Some(known) = world.grants.get(&arrival) {
            assert_eq!(*known, holder.token, "the token of {arrival:?} changed");
            continue;
        }
        assert!(
            holder.token > world.highest_token,
            "{:?} granted after {:?}",
            holder.token,
            world.highest_token
        );
        world.highest_token = holder.token;
        world.grants.insert(arrival, holder.token);
    }
    let last = taken.seen_after.last_token;
    assert!(
        last >= taken.seen_before.last_token,
        "a token was forgotten"
    );
    world.highest_token = world.highest_token.max(last);
}

/// Design 1: "claims in order of arrival"; "arrival numbers have the same floor".
fn arrivals_increase_and_order_is_kept(world: &mut World, taken: &Taken<'_>) {
    let known = |snapshot: &Snapshot| -> BTreeSet<_> {
        let holders = snapshot.holders.iter().map(|h| h.claim.arrival);
        let waiters = snapshot.waiters.iter().map(|w| w.claim.arrival);
        holders.chain(waiters).collect()
    };
    let old = known(&taken.seen_before);
    for arrival in known(&taken.seen_after).difference(&old) {
        assert!(
            *arrival > world.highest_arrival,
            "{arrival:?} came after {:?}",
            world.highest_arrival
        );
        world.highest_arrival = *arrival;
    }
    let waiters = &taken.seen_after.waiters;
    assert!(
        waiters
            .windows(2)
            .all(|two| two[0].claim.arrival < two[1].claim.arrival),
        "waiters out of order"
    );
}

/// Design 1, the one rule: the weights granted fit the key's capacity.
fn granted_weights_fit_the_capacity(seen: &Snapshot) {
    let used: u64 = seen.holders.iter().map(|h| h.claim.mode.weight()).sum();
    let units = seen.capacity.map_or(0, Capacity::units);
    assert!(used <= units, "{used} granted of {units}");
}

/// Design 1: "the granted claims are the front of the queue". A claim that asked
/// to be granted ahead is the only one that may come before somebody who waits.
fn fair_holders_came_before_all_who_wait(reference: &Reference, seen: &Snapshot) {
    let Some(first) = seen.waiters.first().map(|w| w.claim.arrival) else {
        return;
    };
    for holder in &seen.holders {
        let arrival = holder.claim.arrival;
        let barged = reference
            .claims
            .iter()
            .any(|claim| claim.arrival == arrival && claim.barged);
        assert!(
            barged || arrival < first,
            "{arrival:?} holds while {first:?} waits"
        );
    }
}

/// Design 1: "Granted means having a token"; a lease ends by its deadline, by
/// its release, or by an administrator.
fn a_grant_stands_while_its_claim_lives(taken: &Taken<'_>) {
    if matches!(taken.command, Command::Break | Command::Bury { .. }) {
        return;
    }
    for holder in &taken.seen_before.holders {
        let released = matches!(taken.command, Command::Release(release)
            if holder.claim.id_hint == release.id.to_string());
        let stands = taken.seen_after.holders.iter().any(|after| {
            (after.token, after.claim.arrival) == (holder.token, holder.claim.arrival)
        });
        assert!(stands != released, "{:?} by {:?}", holder, taken.command);
    }
}

/// Design 1, the table of verbs: `renew` "raises the deadline, never lowers it";
/// section 3: only an unheard push cuts it, to one second.
fn deadlines_are_lowered_by_unheard_only(taken: &Taken<'_>) {
    let cut = matches!(taken.command, Command::Unheard { .. });
    let all = |seen: &Snapshot| -> BTreeMap<_, _> {
        let holders = seen.holders.iter().map(|h| &h.claim);
        let waiters = seen.waiters.iter().map(|w| &w.claim);
        holders
            .chain(waiters)
            .map(|claim| (claim.arrival, claim.deadline))
            .collect()
    };
    let after = all(&taken.seen_after);
    for (arrival, deadline) in all(&taken.seen_before) {
        if let Some(now) = after.get(&arrival) {
            let least = if cut {
                deadline.min(taken.outcome.at + UNHEARD_CUT)
            } else {
                deadline
            };
            assert!(
                *now >= least,
                "{arrival:?} cut from {deadline:?} to {now:?}"
            );
        }
    }
}

/// Design 1: "A released claim stays released", within the life and the number
/// of the tombstones.
fn a_released_claim_stays_released(taken: &Taken<'_>) {
    let Command::Release(release) = taken.command else {
        return;
    };
    let mut queue = taken.before.clone();
    queue.apply(taken.command, taken.clock);
    let claim = Command::Claim(Claim {
        ahead: true,
        ..Claim::new(release.id.clone(), Mode::Exclusive, ms(1))
    });
    if taken.outcome.reply == Reply::Absent {
        // It may have been released before: life and number count from then.
        assert_eq!(queue.apply(&claim, taken.clock).reply, Reply::Gone);
        return;
    }
    let almost = TOMBSTONE_LIFE - Duration::from_micros(1);
    // Fewer tombstones than there is room for do not push this one out.
    for n in 1..TOMBSTONES {
        let other = ClaimId::from_random(n as u128);
        let release = Command::Release(Release {
            id: other,
            hand_off: false,
            settled: false,
        });
        queue.apply(&release, taken.clock);
    }
    for clock in [taken.clock, taken.clock + almost] {
        assert_eq!(queue.apply(&claim, clock).reply, Reply::Gone, "{clock:?}");
    }
}

/// Design 1: "`position` is an upper bound"; 0 is granted, and 1 is next.
fn position_is_a_bound_and_zero_iff_granted(taken: &Taken<'_>) {
    if let (Reply::Standing(s), Expected::Standing { place, .. }) =
        (&taken.outcome.reply, &taken.expected)
    {
        assert!(s.position >= *place, "{} for {place}", s.position);
        assert_eq!(s.position == 0, s.token.is_some(), "{s:?}");
        assert_eq!(s.blocked_until.is_none(), s.token.is_some(), "{s:?}");
    }
}

/// `Standing::blocked_until`: "comes early rather than late". It looks at
/// holders only: a claim behind a dead *waiter* that is heavier may be granted
/// before it, when that waiter's deadline passes; its own renewals notice.
fn blocked_until_comes_early(taken: &Taken<'_>) {
    let told = match taken.outcome.reply {
        Reply::Standing(standing) => standing.blocked_until,
        Reply::Busy { blocked_until } => Some(blocked_until),
        _ => None,
    };
    let truth = taken
        .seen_after
        .holders
        .iter()
        .map(|holder| holder.claim.deadline)
        .min();
    if let Some(told) = told {
        let truth = truth.unwrap_or(taken.outcome.at);
        assert!(told <= truth, "told {told:?}, but {truth:?}");
    }
    for event in &taken.outcome.events {
        if let Event::Next { blocked_until, .. } = event {
            let truth = truth.unwrap_or(taken.outcome.at);
            assert!(*blocked_until <= truth, "{event:?}, but {truth:?}");
        }
    }
}

/// Design 1: "each idempotent by claim id". A release that came again answers
/// `Absent`. One that only told the next in line that the key is vacant grants
/// when it comes again, as every other step would.
fn the_same_request_again_changes_nothing(taken: &Taken<'_>, queue: &Queue) {
    if claim_id(taken.command).is_none() {
        return;
    }
    let mut again = queue.clone();
    let outcome = again.apply(taken.command, taken.clock);
    if let Command::Release(release) = taken.command {
        assert_eq!(outcome.reply, Reply::Absent);
        if !release.hand_off && taken.outcome.reply == (Reply::Released { held: true }) {
            return;
        }
    } else {
        assert_eq!(outcome.reply, taken.outcome.reply);
    }
    assert_eq!(outcome.at, taken.outcome.at);
    assert_eq!(outcome.events, [], "events of {:?} again", taken.command);
    assert_eq!(again, *queue, "{:?} again", taken.command);
}

/// Design 1, "report grants", "hand-off is direct": whoever is granted by
/// another's step and has an inbox is told, once; so is whoever became next.
fn every_grant_is_told(taken: &Taken<'_>) {
    let held_before: BTreeSet<_> = taken.seen_before.holders.iter().map(|h| h.token).collect();
    let actor = claim_id(taken.command).map(ToString::to_string);
    let mut told = BTreeMap::new();
    for event in &taken.outcome.events {
        if let Event::Granted {
            arrival,
            token,
            deadline,
            ..
        } = event
        {
            let twice = told.insert(*token, (*arrival, *deadline));
            assert_eq!(twice, None, "told twice: {event:?}");
        }
    }
    for holder in &taken.seen_after.holders {
        let own = actor.as_ref() == Some(&holder.claim.id_hint);
        let slot = holder.claim.owner.pid as usize;
        let listens = slot % (INBOXES + 1) < INBOXES;
        let new = !held_before.contains(&holder.token);
        let expected =
            (new && !own && listens).then_some((holder.claim.arrival, holder.claim.deadline));
        assert_eq!(told.remove(&holder.token), expected, "{holder:?}");
    }
    assert!(told.is_empty(), "told of a grant that is not: {told:?}");
    let first = |seen: &Snapshot| seen.waiters.first().map(|w| w.claim.clone());
    if let Some(next) = first(&taken.seen_after)
        && let Some(was) = first(&taken.seen_before)
        && was.arrival != next.arrival
        && actor.as_ref() != Some(&next.id_hint)
        && next.owner.pid as usize % (INBOXES + 1) < INBOXES
        // Whom the queue had not dropped yet was first in its eyes.
        && taken.outcome.events.iter().all(|e| !matches!(e, Event::Next { .. }))
    {
        panic!("{next:?} became next after {was:?}, and nobody told it");
    }
}

/// Design 2: a record is written down and read by any store of the family.
fn a_record_can_be_written_and_read(queue: &Queue) {
    let text = serde_json::to_string(queue).unwrap();
    let read: Queue = serde_json::from_str(&text).unwrap();
    assert_eq!(*queue, read);
}

/// Design 1: "at most 256 drops a step"; the claim that the step is about is
/// dropped besides.
fn at_most_so_many_drops(taken: &Taken<'_>, after: &Queue) {
    if matches!(taken.command, Command::Break | Command::Bury { .. }) {
        return;
    }
    let (was, is) = (in_the_record(taken.before), in_the_record(after));
    assert!(
        is + DROPS_PER_STEP + 1 >= was,
        "{} dropped in one step",
        was - is
    );
}

/// Design 1: "a dead waiter drops out by itself", and any step drops dead
/// holders as far as promotion needs it.
fn nobody_waits_for_ever_behind_the_dead(queue: &Queue, clock: StoreTime) {
    let mut queue = queue.clone();
    let seen = queue.look(clock);
    let Some(patient) = seen.waiters.first().cloned() else {
        return;
    };
    let hint = &patient.claim.id_hint;
    let patient_id = ClaimId::new(hint.trim_end_matches('…')).unwrap();
    let furthest = seen.holders.iter().map(|h| h.claim.deadline).max();
    let wait = furthest.map_or(Duration::ZERO, |at| at.since(seen.at));
    queue.apply(&Command::Renew(Renew::new(patient_id, wait + ms(1))), clock);
    let stranger = Command::Renew(Renew::new(ClaimId::from_random(u128::MAX), ms(1)));
    queue.apply(&stranger, clock + wait);
    let seen = queue.look(clock + wait);
    assert!(
        seen.holders
            .iter()
            .any(|h| h.claim.arrival == patient.claim.arrival),
        "{patient:?} waits behind the dead: {seen:?}"
    );
}

/// Design 3: claims of an inbox that did not hear are cut "and the next in line
/// is told"; it ends, and never sends a hint to a claim that is gone.
fn delivery_ends_and_hints_the_living(world: &mut World, events: Vec<Event>, deaf: u8) {
    let clock = world.clock;
    let now = world.reference.now;
    let lone_release = events.len();
    let (mut silent, mut calls) = (Vec::new(), 0_usize);
    let reference = &world.reference;
    let granted: Vec<_> = events
        .iter()
        .filter(|event| matches!(event, Event::Granted { .. }))
        .map(|event| (event.inbox().clone(), event.arrival().unwrap()))
        .collect();
    world.queue.deliver(events, clock, |event| {
        calls += 1;
        let alive = reference.claims.iter().any(|claim| {
            Some(claim.arrival) == event.arrival()
                && claim.inbox.as_ref() == Some(event.inbox())
                && claim.deadline > now
        });
        let vacant_to_the_dead = lone_release == 1;
        assert!(
            alive || matches!(event, Event::Revoked { .. }) || vacant_to_the_dead,
            "{event:?} to the dead"
        );
        let heard = (0..INBOXES).all(|n| deaf & (1 << n) == 0 || *event.inbox() != inbox(n));
        if !heard {
            silent.push(event.inbox().clone());
        }
        heard
    });
    assert!(calls <= granted.len() + 64, "{calls} pushes");
    for inbox in silent {
        let arrivals = granted
            .iter()
            .filter(|(to, _)| *to == inbox)
            .map(|(_, arrival)| *arrival)
            .collect();
        let cut = Command::Unheard {
            inbox,
            granted: arrivals,
        };
        world.reference.apply(&cut, clock, &Reply::Done);
    }
}

// ---- the tests ----

fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        config.rng_seed = RngSeed::Fixed(0x1ea5_e401d);
    }
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 800;
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn histories_keep_every_invariant(history in history()) {
        let mut world = World::new();
        for act in &history.acts {
            world.act(history.permits, act);
        }
    }
}

fn claim(n: u64, mode: Mode, waits: Duration) -> Command {
    let id = ClaimId::new(format!("{n:06}")).unwrap();
    Command::Claim(Claim {
        waiter_ttl: waits,
        inbox: Some(inbox(1)),
        ..Claim::new(id, mode, waits)
    })
}

/// Design 1: "at most 256 drops a step", and still nobody waits for ever.
#[test]
fn a_crowd_of_dead_claims_is_dropped_in_bounded_steps() {
    for (mode, dead) in [(Mode::Shared, 700_u64), (Mode::Exclusive, 700)] {
        let mut queue = Queue::default();
        let start = StoreTime(1_000_000_000);
        for n in 0..dead {
            queue.apply(&claim(n, mode, ms(10)), start);
        }
        let later = start + ms(10_000);
        let last = claim(dead, Mode::Exclusive, ms(60_000));
        let mut steps = 0;
        while queue.look(later).holders.is_empty() {
            let before = in_the_record(&queue);
            let reply = queue.apply(&last, later).reply;
            let after = in_the_record(&queue);
            let dropped = (before + usize::from(steps == 0)).saturating_sub(after);
            assert!(dropped <= DROPS_PER_STEP, "{dropped}: {reply:?}");
            steps += 1;
            assert!(steps <= 5, "still blocked: {reply:?}");
        }
        assert!(steps > 2, "{steps}");
        assert_eq!(in_the_record(&queue), 1);
    }
}

/// Design 1: tombstones are "bounded by time and by number".
#[test]
fn tombstones_are_bounded() {
    let mut queue = Queue::default();
    let now = StoreTime(1_000_000_000);
    let release = |n: u64| {
        Command::Release(Release {
            id: ClaimId::new(format!("{n:06}")).unwrap(),
            hand_off: true,
            settled: false,
        })
    };
    for n in 0..=TOMBSTONES as u64 {
        assert_eq!(queue.apply(&release(n), now).reply, Reply::Absent);
    }
    let try_again = |queue: &Queue, n, at| {
        let mut queue = queue.clone();
        queue.apply(&claim(n, Mode::Shared, ms(9)), at).reply
    };
    assert!(matches!(try_again(&queue, 0, now), Reply::Standing(_)));
    assert_eq!(try_again(&queue, 1, now), Reply::Gone);
    let forgotten = now + TOMBSTONE_LIFE;
    assert!(matches!(
        try_again(&queue, 1, forgotten),
        Reply::Standing(_)
    ));
    // Forgetting needs no step of its own, and a step back of the clock does
    // not make a tombstone live longer than that in the key's time.
    queue.apply(&release(999), now.before(ms(5_000)));
    assert_eq!(try_again(&queue, 999, now), Reply::Gone);
}

/// `Release::hand_off`: without it "somebody else may come first", namely a
/// claim that asks to be granted `ahead`. A fair one may not.
#[test]
fn after_a_release_without_hand_off_an_unfair_claim_may_come_first() {
    let now = StoreTime(1_000_000_000);
    let lease = ms(60_000);
    let mut queue = Queue::default();
    queue.apply(&claim(0, Mode::Exclusive, lease), now);
    queue.apply(&claim(1, Mode::Exclusive, lease), now);
    let leave = Command::Release(Release {
        id: ClaimId::new("000000").unwrap(),
        hand_off: false,
        settled: false,
    });
    let outcome = queue.apply(&leave, now);
    assert!(
        matches!(outcome.events[..], [Event::Next { blocked_until, .. }] if blocked_until == now)
    );

    let token_of = |queue: &Queue, ahead: bool| {
        let Command::Claim(mut stranger) = claim(2, Mode::Exclusive, lease) else {
            unreachable!();
        };
        stranger.ahead = ahead;
        match queue.clone().apply(&Command::Claim(stranger), now).reply {
            Reply::Standing(standing) => standing.token,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(token_of(&queue, false), None, "fair");
    assert!(token_of(&queue, true).is_some(), "unfair");
}
