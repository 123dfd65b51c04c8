//! Votes of independent servers: Algorithm F with its renewals, releases, tombstones,
//! restarts and quarantine.
//!
//! With clocks: ticks pass, rates differ, times of day differ, and leases exclude each
//! other. Without: any vote may lapse at any moment, no client knows what time it is, and
//! tokens rise all the same.

mod checks;
mod client;
mod server;
mod symmetry;

use std::time::Duration;

use leasehold_core::quorum::{QuorumRelease, QuorumRound, QuorumSize};
use leasehold_core::{ClaimId, Moment, Reply, StoreTime, Token, Validity};
use serde::Deserialize;

use self::server::{Message, Server};
use super::checker::Subject;
use super::clock::{SERVER_RATE, START, TICK, shown_at};
use super::promise::Broken;
use super::promise::Promise::{self, Ended, Exclusion, Kept, Orphan, Tokens};
use super::seen::Seen;

/// A model of clients and independent servers.
#[derive(Debug, Clone)]
pub(super) struct QuorumModel {
    pub(super) size: QuorumSize,
    pub(super) people: Vec<Person>,
    pub(super) ttl: Duration,
    /// How long a server that may have forgotten gives no votes.
    pub(super) quarantine: Duration,
    /// When the model ends, in ticks; `None`: without clocks, any vote may lapse at any
    /// moment.
    pub(super) horizon: Option<u64>,
    pub(super) faults: Budget,
    /// Renewals do not bring a vote back that a server lacks.
    pub(super) plain_renewals: bool,
    pub(super) promises: &'static [Promise],
    pub(super) seen: Seen,
}

/// One client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Person {
    /// How often it begins.
    pub(super) attempts: u8,
    /// How much faster than real its clock runs, in millionths.
    pub(super) rate: i64,
    /// How far its time of day is off, in microseconds.
    pub(super) off: i64,
    /// Whether it knows at its next attempt which tokens it has seen.
    pub(super) remembers: bool,
}

/// How much may still happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Budget {
    pub(super) doubled: u8,
    /// Requests that are given up; each ends one wait of one client.
    pub(super) late: u8,
    pub(super) renewals: u8,
    /// Servers that restart with their data.
    pub(super) restarts: u8,
    /// Servers that restart without.
    pub(super) losses: u8,
}

impl Budget {
    /// How often this may still happen, where that is counted.
    fn of(&mut self, act: Act) -> Option<&mut u8> {
        Some(match act {
            Act::Double(_) => &mut self.doubled,
            Act::Silence(_) | Act::Again(_) => &mut self.late,
            Act::Renew(_) => &mut self.renewals,
            Act::Restart(_) => &mut self.restarts,
            Act::Lose(_) => &mut self.losses,
            _ => return None,
        })
    }
}

/// What is promised with clocks.
pub(super) const TIMED: &[Promise] = &[Exclusion, Tokens, Kept, Ended, Orphan];

/// What is promised whatever the clocks say.
pub(super) const UNTIMED: &[Promise] = &[Tokens, Ended, Orphan];

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Tick,
    Begin(usize),
    /// A client's machines are called.
    Drive(usize),
    /// A client takes those that have not answered for silent.
    Silence(usize),
    /// A bid without an answer is made again, with its token.
    Again(usize),
    Renew(usize),
    GiveBack(usize),
    /// A client dies without a word.
    Die(usize),
    Deliver(usize),
    Double(usize),
    /// A server restarts with its data.
    Restart(usize),
    /// A server restarts without.
    Lose(usize),
    /// A server's vote lapses, whatever the time is.
    Lapse(usize),
}

/// A request to all servers: a bid, or the renewal of what is held.
#[derive(Debug, Clone, PartialEq)]
struct Asking {
    round: QuorumRound,
    /// What each server has said to the proposal of now, and how many came before it.
    heard: Vec<Option<Reply>>,
    rounds: u8,
    sent: Moment,
    /// When it proposed its token.
    proposed: Moment,
    /// The highest token completed when it began.
    floor: Token,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Held {
    token: Token,
    validity: Validity,
}

/// A claim that leaves.
#[derive(Debug, Clone, PartialEq)]
struct Leaving {
    attempt: u8,
    farewell: QuorumRelease,
    id: ClaimId,
    up_to: Token,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Client {
    /// What it asks for: a bid, unless it holds.
    asking: Option<Box<Asking>>,
    held: Option<Held>,
    leaving: Vec<Leaving>,
    attempts: u8,
    begun: u8,
    /// What an answer must name to count.
    number: u8,
    seen: Token,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct State {
    ticks: u64,
    servers: Vec<Server>,
    clients: Vec<Client>,
    wire: Vec<Message>,
    left: Budget,
    completed: Vec<Token>,
    broken: Broken,
}

impl State {
    fn highest(&self) -> Token {
        self.completed.iter().copied().max().unwrap_or_default()
    }
}

impl QuorumModel {
    fn moment(&self, state: &State, client: usize) -> Moment {
        Moment(shown_at(self.people[client].rate, state.ticks))
    }

    fn wall(&self, state: &State, client: usize) -> u64 {
        let moment = self.moment(state, client).0;
        moment.saturating_add_signed(self.people[client].off)
    }

    fn clock(&self, state: &State, server: usize) -> StoreTime {
        let ticks = state.ticks + state.servers[server].ahead;
        StoreTime(shown_at(SERVER_RATE, ticks))
    }

    fn id(client: usize, begun: u8) -> ClaimId {
        // What is shown of an id are its first characters.
        ClaimId::from_random((client as u128) << 124 | u128::from(begun) << 112)
    }
}

impl Subject for QuorumModel {
    type State = State;
    type Action = Act;

    fn init(&self) -> State {
        let clients = self.people.iter().map(|person| Client {
            attempts: person.attempts,
            ..Client::default()
        });
        let servers = (0..self.size.servers()).map(|_| Server::new(self));
        State {
            servers: servers.collect(),
            clients: clients.collect(),
            left: self.faults,
            ..State::default()
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Act>) {
        for number in 0..state.clients.len() {
            self.client_actions(state, number, actions);
        }
        for at in 0..state.wire.len() {
            actions.extend([Act::Deliver(at), Act::Double(at)]);
        }
        for number in 0..state.servers.len() {
            actions.extend([Act::Restart(number), Act::Lose(number)]);
            let votes = || state.servers[number].holder(self.clock(state, number));
            if self.horizon.is_none() && votes().is_some() {
                actions.push(Act::Lapse(number));
            }
        }
        let mut left = state.left;
        actions.retain(|act| left.of(*act).is_none_or(|times| *times > 0));
        if self.horizon.is_some_and(|horizon| state.ticks < horizon) {
            actions.push(Act::Tick);
        }
    }

    fn happen(&self, state: &mut State, act: Act) {
        if let Some(times) = state.left.of(act) {
            *times -= 1;
        }
        match act {
            Act::Tick => state.ticks += 1,
            Act::Begin(client) => self.begin(state, client),
            Act::Drive(client) => self.drive(state, client),
            Act::Silence(client) => self.silence(state, client),
            Act::Again(client) => self.again(state, client),
            Act::Renew(client) => self.renew(state, client),
            Act::GiveBack(client) => self.leave(state, client),
            Act::Die(client) => {
                let it = &mut state.clients[client];
                (it.asking, it.held) = (None, None);
            }
            Act::Deliver(at) => {
                let message = state.wire.remove(at);
                self.arrive(state, &message);
            }
            Act::Double(at) => {
                let message = state.wire[at].clone();
                self.arrive(state, &message);
            }
            Act::Restart(server) => state.servers[server].restart(false),
            Act::Lose(server) => state.servers[server].restart(true),
            Act::Lapse(server) => {
                // Votes last for one TTL at most.
                state.servers[server].ahead += self.ttl.as_secs();
            }
        }
        self.prune(state);
        self.judge(state);
    }

    fn broken(state: &State) -> Broken {
        state.broken
    }

    fn promises(&self) -> &'static [Promise] {
        self.promises
    }

    fn seen(&self) -> &Seen {
        &self.seen
    }

    fn show(&self, state: &State) -> String {
        self.story(state)
    }

    fn weight(&self, _: &State, act: Act) -> u64 {
        match act {
            Act::Deliver(_) | Act::Drive(_) | Act::Begin(_) => 12,
            Act::Again(_) | Act::Renew(_) | Act::Tick => 6,
            Act::GiveBack(_) | Act::Silence(_) => 3,
            _ => 1,
        }
    }
}
