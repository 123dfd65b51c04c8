//! Clients' machines against the queue: messages that are lost, doubled, late and out of
//! order, connections that break, clients that stall and die, clocks that drift.
//!
//! A message that is lost is one that is never delivered; a client that stalls is one
//! whose machine nobody calls. So neither needs an event of its own.

mod changes;
mod checks;
mod client;
mod process;
mod served;
mod server;
mod shell;
mod site;
mod wire;

use std::hash::{Hash, Hasher};
use std::time::Duration;

use leasehold_core::{
    Arrival, Failure, KeyMachine, Mode, Moment, Queue, RenewalPolicy, Response, StoreTime, Token,
};
use serde::Deserialize;

use self::changes::Wish;
use self::client::Client;
use self::site::Site;
use self::wire::Message;
use super::checker::Subject;
use super::clock::{SERVER_RATE, START, TICK, shown_at};
use super::promise::Broken;
use super::promise::Promise::{
    self, Exclusion, Kept, Lifetime, OwnToken, Served, Storm, Tokens, Truth,
};
use super::queue::inbox;
use super::seen::Seen;

/// What a client hears of a request.
type Answer = Result<Response, Failure>;

/// By how many ticks the store's clock steps back.
const STEP_BACK: u64 = 2;

/// A model of clients and one server.
#[derive(Debug, Clone)]
pub(super) struct ClientsModel {
    pub(super) people: Vec<Person>,
    pub(super) lease: Duration,
    pub(super) waiter: Duration,
    /// When the model ends, in ticks.
    pub(super) horizon: u64,
    pub(super) faults: Budget,
    /// For how long a server that may have forgotten grants nothing; `None`: it takes its
    /// chances.
    pub(super) quarantine: Option<Duration>,
    /// Whether the server keeps one last token for all keys, and drops the record of an idle
    /// one.
    pub(super) counts_all: bool,
    /// Whether the store can tell that nobody listens at an inbox.
    pub(super) hears_silence: bool,
    /// What is promised here: not all of it where the assumptions do not hold.
    pub(super) promises: &'static [Promise],
    pub(super) seen: Seen,
}

/// All that is promised while the assumptions hold.
pub(super) const ALL: &[Promise] = &[Exclusion, Tokens, OwnToken, Truth, Served];

/// And where callers change their leases, or renew them in other ways.
pub(super) const OF_CHANGES: &[Promise] = &[
    Exclusion, Tokens, OwnToken, Truth, Served, Lifetime, Kept, Storm,
];

/// What is promised even when they do not.
pub(super) const TOKENS: &[Promise] = &[Tokens, OwnToken];

/// One client: what it wants, and how its clock runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Person {
    pub(super) mode: Mode,
    pub(super) policy: RenewalPolicy,
    pub(super) max_hold: Option<Duration>,
    /// Whether it stands in line, and keeps to the order of arrival; whether it hands on.
    pub(super) wait: bool,
    pub(super) ahead: bool,
    pub(super) hand_off: bool,
    /// How often it begins. Who never does adopts what others hold.
    pub(super) attempts: u8,
    /// Whose process it shares, and with that its connection, its inbox and its clock.
    pub(super) mate_of: Option<usize>,
    /// How much faster than real its clock runs, in millionths.
    pub(super) rate: i64,
    /// How often a walk calls its machine or lets a message of it arrive, beside six
    /// times for a tick.
    pub(super) haste: u64,
}

/// How much may still go wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Budget {
    pub(super) doubled: u8,
    /// Requests that take too long.
    pub(super) late: u8,
    pub(super) cuts: u8,
    pub(super) deaths: u8,
    pub(super) breaks: u8,
    /// The server forgets everything.
    pub(super) losses: u8,
    /// It restarts with its data.
    pub(super) restarts: u8,
    /// A replica is brought up to date, and one is promoted as it is.
    pub(super) copies: u8,
    pub(super) failovers: u8,
    /// Its clock steps forward.
    pub(super) jumps: u8,
    /// It steps back.
    pub(super) steps_back: u8,
    /// A stranger pushes what it likes.
    pub(super) forged: u8,
    /// A caller lets another process have its lease, which asks for it at once.
    pub(super) adoptions: u8,
    /// A caller has the id of its lease replaced, or reads on, or hands its lease over.
    pub(super) rotations: u8,
    pub(super) downgrades: u8,
    pub(super) hand_overs: u8,
}

impl Budget {
    /// How often this may still happen, where that is counted.
    fn of(&mut self, act: Act) -> Option<&mut u8> {
        Some(match act {
            Act::Double(_) => &mut self.doubled,
            Act::TimeOut(_) => &mut self.late,
            Act::Cut(_) => &mut self.cuts,
            Act::Die(_) => &mut self.deaths,
            Act::Break => &mut self.breaks,
            Act::Forget => &mut self.losses,
            Act::Restart => &mut self.restarts,
            Act::Copy => &mut self.copies,
            Act::FailOver => &mut self.failovers,
            Act::Jump => &mut self.jumps,
            Act::StepBack => &mut self.steps_back,
            Act::Forge(_) => &mut self.forged,
            Act::Adopt(_) => &mut self.adoptions,
            Act::Change(_, Wish::Rotate) => &mut self.rotations,
            Act::Change(_, Wish::Downgrade) => &mut self.downgrades,
            Act::Change(_, Wish::HandOver) => &mut self.hand_overs,
            _ => return None,
        })
    }
}

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Tick,
    /// A client wants the key.
    Begin(usize),
    /// A client's machine is called.
    Drive(usize),
    /// A request has taken too long.
    TimeOut(usize),
    /// The caller gives its lease back.
    GiveBack(usize),
    /// A message arrives, and is gone.
    Deliver(usize),
    /// A message arrives, and may do so again.
    Double(usize),
    Cut(usize),
    Connect(usize),
    Die(usize),
    Break,
    /// The server forgets everything.
    Forget,
    /// The server restarts with its data.
    Restart,
    /// The replica is brought up to date.
    Copy,
    /// The replica is promoted, with what it has.
    FailOver,
    /// The server's clock steps forward.
    Jump,
    /// It steps back.
    StepBack,
    /// A stranger who knows all but ids tells a client of a grant.
    Forge(usize),
    /// Another process adopts the lease of a client that has told its id.
    Adopt(usize),
    /// A caller changes its lease.
    Change(usize, Wish),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct State {
    queue: Queue,
    site: Site,
    ticks: u64,
    /// What the server's clock shows.
    clock: StoreTime,
    /// How far the server's clock has stepped forward, in ticks.
    ahead: u64,
    clients: Vec<Client>,
    /// Of each process, under the number of its first client.
    machines: Vec<KeyMachine<()>>,
    wire: Vec<Message>,
    left: Budget,
    /// Who was granted what.
    grants: Vec<(Arrival, Token, usize)>,
    highest: Token,
    /// Somebody has given the server up.
    given_up: bool,
    broken: Broken,
}

impl ClientsModel {
    /// Lets time pass.
    fn pass(&self, state: &mut State) {
        state.ticks += 1;
        for client in &mut state.clients {
            (client.lease.sent, client.lease.causes) = (0, 0);
        }
        self.set_clock(state);
        self.end_departures(state);
    }

    fn set_clock(&self, state: &mut State) {
        state.clock = StoreTime(shown_at(SERVER_RATE, state.ticks + state.ahead));
    }

    fn moment(&self, state: &State, client: usize) -> Moment {
        Moment(shown_at(self.people[client].rate, state.ticks))
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.queue.canonical_hash(self.clock, state);
        self.site.hash_all(self.clock, state);
        (self.ticks, self.clock, &self.clients, self.left).hash(state);
        self.machines.hash(state);
        wire::hash_all(&self.wire, state);
        (&self.grants, self.highest, self.broken).hash(state);
    }
}

impl Subject for ClientsModel {
    type State = State;
    type Action = Act;

    fn init(&self) -> State {
        let clients = self.people.iter().map(|it| Client::new(it.attempts));
        let mut state = State {
            site: self.site(),
            ahead: STEP_BACK * u64::from(self.faults.steps_back),
            clients: clients.collect(),
            machines: vec![KeyMachine::default(); self.people.len()],
            left: self.faults,
            ..State::default()
        };
        self.set_clock(&mut state);
        state
    }

    fn actions(&self, state: &State, actions: &mut Vec<Act>) {
        for number in 0..state.clients.len() {
            self.client_actions(state, number, actions);
        }
        for at in 0..state.wire.len() {
            actions.extend([Act::Deliver(at), Act::Double(at)]);
        }
        actions.extend([Act::Break, Act::Forget, Act::Restart, Act::Copy]);
        actions.extend([Act::FailOver, Act::Jump, Act::StepBack]);
        let mut left = state.left;
        actions.retain(|act| left.of(*act).is_none_or(|times| *times > 0));
        if state.ticks < self.horizon {
            actions.push(Act::Tick);
        }
    }

    fn happen(&self, state: &mut State, act: Act) {
        if let Some(times) = state.left.of(act) {
            *times -= 1;
        }
        match act {
            Act::Tick => self.pass(state),
            Act::Begin(client) => self.begin(state, client),
            Act::Drive(client) => self.drive(state, client),
            Act::TimeOut(client) => self.time_out(state, client),
            Act::GiveBack(client) => self.leave(state, client),
            Act::Deliver(at) => {
                let message = state.wire.remove(at);
                self.arrive(state, &message);
            }
            Act::Double(at) => {
                let message = state.wire[at].clone();
                self.arrive(state, &message);
            }
            Act::Cut(client) => self.cut(state, client),
            Act::Connect(client) => self.connect(state, client),
            Act::Die(client) => self.die(state, client),
            Act::Break => {
                let (by, only) = (leasehold_core::ClientInfo::unknown(), None);
                self.take_step(state, &leasehold_core::Command::Break { by, only }, None);
            }
            Act::Forget => {
                state.queue = Queue::default();
                state.site.forget();
                // It is not back at once.
                self.pass(state);
            }
            Act::Restart => self.restart(state),
            Act::Copy => self.copy(state),
            Act::FailOver => self.fail_over(state),
            Act::Forge(client) => self.forge(state, client),
            Act::Adopt(client) => self.adopt(state, client),
            Act::Change(client, wish) => self.change(state, client, wish),
            Act::StepBack => {
                state.ahead -= STEP_BACK;
                self.set_clock(state);
            }
            Act::Jump => {
                state.ahead += 2;
                self.set_clock(state);
            }
        }
        self.prune(state);
        self.judge(state);
    }

    fn look_ahead(&self, state: &mut State, hash: u64) {
        self.judge_served(state, hash);
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

    fn weight(&self, state: &State, act: Act) -> u64 {
        match act {
            Act::Deliver(at) => self.people[state.wire[at].client].haste,
            Act::Drive(client) => self.people[client].haste,
            Act::Begin(_) => 12,
            Act::Tick | Act::Connect(_) => 6,
            Act::GiveBack(_) | Act::TimeOut(_) => 3,
            _ => 1,
        }
    }
}
