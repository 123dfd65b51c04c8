//! One key's queue, and every order in which requests can reach it.
//!
//! Any request of any claim may arrive at any time, again and again: that is a network
//! which loses, doubles, delays and reorders, and clients that stall or die, all at once.

mod cast;
mod checks;
mod runs;
mod served;
mod told;

use std::hash::{Hash, Hasher};
use std::time::Duration;

use leasehold_core::{
    Arrival, Claim, ClaimId, ClaimView, ClientInfo, Command, Holder, Inbox, Queue, Release, Renew,
    Snapshot, StoreTime, Token,
};
use serde::Deserialize;

pub(super) use self::cast::Part;
pub(super) use self::checks::fit;
use self::runs::{Follower, Granted};
use super::checker::Subject;
use super::clock::{START, TICK};
use super::promise::{Broken, Promise};
use super::seen::Seen;

/// How far the store's clock steps back.
const STEP_BACK: Duration = Duration::from_secs(2);

/// How many more ticks those who stay are given to be served.
const PATIENCE: u64 = 40;

/// A model of one queue.
#[derive(Debug, Clone)]
pub(super) struct QueueModel {
    /// Who takes part, and with what.
    pub(super) parts: Vec<Part>,
    /// What happens besides claims, renewals and releases.
    pub(super) events: Events,
    pub(super) seen: Seen,
}

/// What may happen besides claims, renewals and releases.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Events {
    /// An administrator breaks the lock.
    pub(super) breaks: bool,
    /// Pushes go unheard, and clients are known to be dead.
    pub(super) silence: bool,
    /// Who does not hear of a grant is passed over.
    pub(super) passes: bool,
    /// Releases that hand on to nobody.
    pub(super) unfair: bool,
    /// The store forgets everything.
    pub(super) losses: bool,
    /// The store's clock steps back, once.
    pub(super) steps_back: bool,
    /// Another client asks with a claim's id.
    pub(super) strangers: bool,
    /// Writers become readers.
    pub(super) downgrades: bool,
    /// A semaphore of three shrinks to two permits, and grows again.
    pub(super) resizes: bool,
}

/// One thing that happens. The number says to which part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Tick,
    Claim(usize),
    Stranger(usize),
    Renew(usize),
    Downgrade(usize),
    Release(usize),
    /// Released so that the next in line is told, and no more.
    Vacate(usize),
    Break,
    /// Its client does not hear of what it was granted just now.
    Unheard(usize),
    /// And it is passed over: the next is granted in its place.
    Pass(usize),
    Bury(usize),
    Resize(u32),
    Forget,
    StepBack,
}

impl Act {
    /// The part that acts, if one does.
    fn actor(self) -> Option<usize> {
        match self {
            Self::Claim(n)
            | Self::Renew(n)
            | Self::Downgrade(n)
            | Self::Release(n)
            | Self::Vacate(n) => Some(n),
            _ => None,
        }
    }
}

/// What is known of a claim besides what the queue says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ghost {
    /// It was released or broken.
    left: bool,
    /// Its client is known to be dead.
    dead: bool,
    /// It may not live longer than this.
    bound: StoreTime,
    /// Its grant was taken back, and it waits where it stood.
    passed: bool,
    /// It was passed over once.
    passes: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    queue: Queue,
    ticks: u64,
    stepped_back: bool,
    /// When the queue was last asked, as long as its clock may step back behind that.
    asked: Option<StoreTime>,
    ghosts: Vec<Ghost>,
    /// Those that have a token, where there are runs. It follows from the queue.
    written: Vec<(Token, Granted)>,
    /// The highest token ever granted.
    highest: Token,
    broken: Broken,
}

impl Hash for State {
    /// Counted from now: what is alike goes on alike, whenever it is.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let clock = self.clock();
        let seen = self.queue.look(clock);
        self.queue.canonical_hash(clock, state);
        self.highest.get().saturating_sub(clock.0).hash(state);
        (self.highest > seen.last_token).hash(state);
        for ghost in &self.ghosts {
            (ghost.left, ghost.dead, ghost.bound.since(seen.at)).hash(state);
            (ghost.passed, ghost.passes).hash(state);
        }
        let since_now = self.granted(&seen).map(|claim| claim.since == seen.at);
        let since_now: Vec<_> = since_now.collect();
        since_now.hash(state);
        // No step back reaches further.
        let asked = self.asked.map(|asked| clock.since(asked).min(STEP_BACK));
        (self.stepped_back, asked, self.broken).hash(state);
    }
}

impl State {
    fn clock(&self) -> StoreTime {
        let now = StoreTime(START) + TICK * u32::try_from(self.ticks).unwrap_or(u32::MAX);
        if self.stepped_back {
            now.before(STEP_BACK)
        } else {
            now
        }
    }

    fn is_alive(&self, part: usize) -> bool {
        let seen = self.queue.look(self.clock());
        claims(&seen).any(|claim| number(claim) == part && !claim.kept)
    }
}

/// Whose claim it is.
fn number(claim: &ClaimView) -> usize {
    claim.owner.pid as usize
}

pub(super) fn claims(seen: &Snapshot) -> impl Iterator<Item = &ClaimView> {
    let holders = seen.holders.iter().map(|holder| &holder.claim);
    holders.chain(seen.waiters.iter().map(|waiter| &waiter.claim))
}

fn holder(seen: &Snapshot, arrival: Arrival) -> Option<&Holder> {
    let mut holders = seen.holders.iter();
    holders.find(|holder| holder.claim.arrival == arrival)
}

fn id(part: usize) -> ClaimId {
    ClaimId::from_random(part as u128 + 1)
}

pub(super) fn inbox(client: usize) -> Inbox {
    Inbox::from_random(client as u64 + 1)
}

impl QueueModel {
    /// The client whose claim it is.
    fn client(&self, part: usize) -> usize {
        self.parts[part].runs.unwrap_or(part)
    }

    fn claim(&self, number: usize) -> Claim {
        let part = &self.parts[number];
        Claim {
            waiter_ttl: part.waiter,
            wait: part.wait,
            ahead: part.ahead,
            inbox: Some(inbox(self.client(number))),
            runs: part.runs.is_some(),
            owner: ClientInfo::new("", u32::try_from(number).unwrap_or_default(), None),
            secret: part.secret,
            min_hold: part.min_hold,
            ..Claim::new(id(number), part.mode, part.lease)
        }
    }

    /// The request that an act sends; `None` for what no request does.
    fn command(&self, state: &State, act: Act) -> Option<Command> {
        let release = |number, hand_off| {
            Command::Release(Release {
                id: id(number),
                hand_off,
                settled: false,
                unused: false,
            })
        };
        Some(match act {
            Act::Claim(number) => Command::Claim(self.claim(number)),
            Act::Stranger(number) => Command::Claim(Claim {
                inbox: Some(inbox(self.parts.len())),
                ..self.claim(number)
            }),
            Act::Renew(number) => Command::Renew(Renew::new(id(number), self.parts[number].lease)),
            Act::Downgrade(number) => Command::Renew(Renew {
                downgrade: true,
                ..Renew::new(id(number), self.parts[number].lease)
            }),
            Act::Release(number) => release(number, true),
            Act::Vacate(number) => release(number, false),
            Act::Break => Command::Break {
                by: ClientInfo::unknown(),
                only: None,
            },
            Act::Unheard(number) | Act::Pass(number) => Command::Unheard {
                silent: vec![inbox(number)],
                granted: self.granted_just_now(state, number),
                passed: match act {
                    Act::Pass(number) => vec![inbox(number)],
                    _ => Vec::new(),
                },
            },
            Act::Bury(number) => Command::Bury {
                inboxes: vec![inbox(number)],
            },
            Act::Resize(to) => Command::Resize { from: 5 - to, to },
            Act::Tick | Act::Forget | Act::StepBack => return None,
        })
    }
}

impl Subject for QueueModel {
    type State = State;
    type Action = Act;

    fn init(&self) -> State {
        State {
            ghosts: vec![Ghost::default(); self.parts.len()],
            ..State::default()
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Act>) {
        let events = self.events;
        for number in 0..self.parts.len() {
            actions.extend([Act::Claim(number), Act::Renew(number), Act::Release(number)]);
            if events.strangers && state.is_alive(number) {
                actions.push(Act::Stranger(number));
            }
            if events.unfair {
                actions.push(Act::Vacate(number));
            }
            if events.downgrades {
                actions.push(Act::Downgrade(number));
            }
            let is_client = self.client(number) == number;
            if events.silence && is_client {
                actions.push(Act::Unheard(number));
            }
            // Once: each grant takes a number, without end, if it were let.
            if events.passes && is_client && !state.ghosts[number].passes {
                let granted = self.granted_just_now(state, number);
                actions.extend((!granted.is_empty()).then_some(Act::Pass(number)));
            }
            // Once: a dead client begins nothing, though what it sent may still arrive.
            if events.silence && is_client && !state.ghosts[number].dead {
                actions.push(Act::Bury(number));
            }
        }
        // A break of nothing still takes a number: without end, if it were let.
        if events.breaks && !state.queue.look(state.clock()).holders.is_empty() {
            actions.push(Act::Break);
        }
        if events.losses {
            actions.push(Act::Forget);
        }
        if events.resizes {
            actions.extend([Act::Resize(2), Act::Resize(3)]);
        }
        if events.steps_back && !state.stepped_back {
            actions.push(Act::StepBack);
        }
        actions.push(Act::Tick);
    }

    fn happen(&self, state: &mut State, act: Act) {
        match act {
            Act::Tick => state.ticks += 1,
            Act::StepBack => {
                state.stepped_back = true;
                let shown = state.queue.look(state.clock()).at;
                let goes_on = state.asked.is_none_or(|asked| shown >= asked);
                state.broken.require(Promise::Lifetime, goes_on);
            }
            Act::Forget => {
                // A store that has lost its data is not back at once.
                state.ticks += 1;
                state.queue = Queue::default();
                state.written.clear();
                state.ghosts.fill(Ghost::default());
            }
            _ => {}
        }
        if let Some(command) = self.command(state, act) {
            let before = state.clone();
            let outcome = state.queue.apply(&command, state.clock());
            state.written = self.granted(&state.queue, state.clock());
            let may_step_back = self.events.steps_back && !state.stepped_back;
            state.asked = may_step_back.then(|| state.clock());
            self.judge(&before, state, act, &outcome);
        }
    }

    fn look_ahead(&self, state: &mut State, hash: u64) {
        self.judge_served(state, hash);
    }

    fn broken(state: &State) -> Broken {
        state.broken
    }

    fn promises(&self) -> &'static [Promise] {
        use Promise::{
            Capacity, Ended, Idle, Lifetime, Order, Served, Standing, Tokens, Told, Truth,
        };
        &[
            Capacity, Tokens, Order, Idle, Standing, Lifetime, Ended, Told, Truth, Served,
        ]
    }

    fn seen(&self) -> &Seen {
        &self.seen
    }

    fn show(&self, state: &State) -> String {
        let seen = state.queue.look(state.clock());
        let holders = seen.holders.iter().map(|holder| {
            let left = holder.claim.deadline.since(seen.at).as_secs_f64();
            let (who, token) = (holder.claim.owner.pid, holder.token);
            format!("{who} holds {token} for {left} s")
        });
        let waiters = seen.waiters.iter().map(|waiter| {
            let left = waiter.claim.deadline.since(seen.at).as_secs_f64();
            format!("{} waits for {left} s", waiter.claim.owner.pid)
        });
        let all: Vec<_> = holders.chain(waiters).collect();
        let broken = match state.broken.is_empty() {
            true => String::new(),
            false => format!("  BROKEN {:?}", state.broken),
        };
        format!("  tick {}: {}{broken}", state.ticks, all.join(", "))
    }
}
