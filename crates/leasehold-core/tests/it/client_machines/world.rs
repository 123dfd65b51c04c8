//! The simulated world: its schedule, its events and its clients.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::client_machines::chance::{Counts, Dice};
use crate::client_machines::climate::{Climate, Real, SECOND};
use crate::common::*;

/// A request of a client, on one of its connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) client: usize,
    pub(crate) epoch: u64,
    pub(crate) request: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    /// A request reaches the store; whether its answer gets out of there.
    Reach(Sent, Command, bool),
    Answer(Sent, Reply, StoreTime),
    /// To a client, on its connection of that epoch.
    Push(usize, u64, Event, StoreTime),
    /// The request of a client was not answered in the operation time-out.
    Overdue(usize, u64),
    Wake(usize),
    Begin(usize),
    /// The caller gives back its lease: it names which by its end.
    End(usize, u64),
    Cut(usize),
    Connect(usize),
    Stall(usize),
    Forget,
    Break,
    /// The caller changes its lease: it names which by its end.
    Change(usize, u64, Change),
    /// A lease is offered by the client that held it until now.
    Offer(usize, Offer),
}

/// What a caller does with its lease besides holding it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Rotate,
    Give { to: usize },
    Downgrade,
}

/// What the taker must know of a lease.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) id: ClaimId,
    pub(crate) version: u64,
    pub(crate) mode: Mode,
}

impl What {
    /// Whose process must run for it to happen.
    pub(crate) fn process(&self) -> Option<usize> {
        match *self {
            Self::Answer(Sent { client, .. }, ..)
            | Self::Push(client, ..)
            | Self::Overdue(client, _)
            | Self::Wake(client)
            | Self::Begin(client)
            | Self::End(client, _)
            | Self::Change(client, ..)
            | Self::Offer(client, _)
            | Self::Connect(client) => Some(client),
            _ => None,
        }
    }
}

/// A request that is not answered yet.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) request: u64,
    pub(crate) transmit: Transmit,
}

/// A claim that is being asked for, or kept.
pub(crate) struct Attempt {
    /// With one claim.
    pub(crate) machine: KeyMachine<()>,
    pub(crate) mode: Mode,
    pub(crate) held: Option<Held>,
    pub(crate) pending: Vec<Pending>,
    /// What its caller wants of it besides.
    pub(crate) changing: Vec<(ChangeId, Change)>,
    /// So many of these ended before they were answered.
    pub(crate) given_up: usize,
    /// The last waiting answer: on which epoch, for which arrival.
    pub(crate) told_to_wait: Option<(u64, Arrival)>,
    /// When the caller gives the lease back; a lapse ends it before.
    pub(crate) end: u64,
}

/// The number of a client's only claim.
pub(crate) const ONE: ClaimNumber = ClaimNumber(1);

impl Attempt {
    pub(crate) fn life(&self) -> &ClaimMachine {
        self.machine.get(ONE).unwrap()
    }

    pub(crate) fn update<T>(
        &mut self,
        now: Moment,
        change: impl FnOnce(&mut ClaimMachine) -> T,
    ) -> T {
        self.machine.update(now, ONE, change).unwrap()
    }

    pub(crate) fn hear(&mut self, now: Moment, to: &Transmit, answer: Result<Response, Failure>) {
        self.machine.handle_answer(now, ONE, to, answer);
    }

    pub(crate) fn new(mut machine: KeyMachine<()>, mode: Mode, now: Moment) -> Self {
        machine.set_driven(now, ONE, false);
        Self {
            machine,
            mode,
            held: None,
            pending: Vec::new(),
            changing: Vec::new(),
            given_up: 0,
            told_to_wait: None,
            end: 0,
        }
    }
}

pub(crate) struct Held {
    pub(crate) arrival: Arrival,
    pub(crate) since: Moment,
    /// Whether an answer has given it the whole lease TTL.
    pub(crate) whole: bool,
    /// Whether an unanswered request is still to be asked again.
    pub(crate) ask_again: bool,
}

pub(crate) struct Client {
    pub(crate) inbox: Inbox,
    /// The client's clock is the real time and this.
    pub(crate) origin: u64,
    pub(crate) epoch: u64,
    pub(crate) connected: bool,
    pub(crate) dead: bool,
    pub(crate) stalled_until: Real,
    /// In-order delivery on one connection, each way.
    pub(crate) last_there: Real,
    pub(crate) last_back: Real,
    pub(crate) attempt: Option<Attempt>,
    pub(crate) wakes_at: Option<Real>,
    pub(crate) sends: Vec<Real>,
    /// What may cause a request besides time: pushes, connections, attempts.
    pub(crate) causes: Vec<Real>,
}

#[derive(Default)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) story: bool,
    pub(crate) climate: Climate,
    pub(crate) dice: Dice,
    pub(crate) now: Real,
    pub(crate) agenda: BinaryHeap<Reverse<(Real, u64)>>,
    pub(crate) plans: BTreeMap<u64, What>,
    pub(crate) serial: u64,
    pub(crate) queue: Queue,
    pub(crate) clients: Vec<Client>,
    pub(crate) highest: Token,
    pub(crate) grants: BTreeMap<Arrival, (usize, Token)>,
    pub(crate) had: Counts,
    pub(crate) healed: bool,
    pub(crate) healed_at: Real,
    /// How much has happened at this very instant.
    pub(crate) restless: u32,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0xA076_1D64_78BD_642F));
        let climate = Climate::new(&mut dice);
        let clients = (0..climate.clients)
            .map(|n| Client {
                inbox: Inbox::from_random(n as u64),
                origin: dice.between(0, 1_000 * SECOND),
                epoch: 1,
                connected: true,
                dead: false,
                stalled_until: 0,
                last_there: 0,
                last_back: 0,
                attempt: None,
                wakes_at: None,
                sends: Vec::new(),
                causes: Vec::new(),
            })
            .collect();
        let mut world = Self {
            seed,
            climate,
            dice,
            clients,
            ..Self::default()
        };
        world.set_out();
        world
    }

    pub(crate) fn set_out(&mut self) {
        let climate = self.climate.clone();
        for client in 0..climate.clients {
            let at = self.dice.between(0, climate.lease_micros());
            self.plan(at, What::Begin(client));
            if climate.cut_every > 0 {
                let at = self.dice.between(0, climate.cut_every * 2);
                self.plan(at, What::Cut(client));
            }
            if climate.stall_every > 0 {
                let at = self.dice.between(0, climate.stall_every * 2);
                self.plan(at, What::Stall(client));
            }
        }
        if climate.void {
            for _ in 0..2 {
                let at = self.dice.between(0, climate.until);
                self.plan(at, What::Forget);
                let at = self.dice.between(0, climate.until);
                self.plan(at, What::Break);
            }
        }
    }

    // ---- time ----

    pub(crate) fn plan(&mut self, at: Real, what: What) {
        self.serial += 1;
        self.agenda.push(Reverse((at.max(self.now), self.serial)));
        self.plans.insert(self.serial, what);
    }

    pub(crate) fn clock(&self) -> StoreTime {
        let run =
            i128::from(self.now) * i128::from(1_000_000 + self.climate.store_rate) / 1_000_000;
        StoreTime(1_700_000_000_000_000 + u64::try_from(run).unwrap())
    }

    pub(crate) fn moment(&self, client: usize) -> Moment {
        Moment(self.clients[client].origin + self.now)
    }

    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if self.story {
            eprintln!("{:>11} {}", self.now, what());
        }
    }

    pub(crate) fn require(&self, holds: bool, what: impl FnOnce() -> String) {
        let (seed, now, climate) = (self.seed, self.now, &self.climate);
        assert!(holds, "seed {seed} at {now} µs: {}\n{climate:#?}", what());
    }

    /// Runs all that is planned until then.
    pub(crate) fn run(&mut self, until: Real) {
        while let Some(Reverse((at, serial))) = self.agenda.peek().copied() {
            if at > until {
                break;
            }
            self.agenda.pop();
            self.restless = if at > self.now { 0 } else { self.restless + 1 };
            self.require(self.restless < 10_000, || "time stands still".into());
            self.now = self.now.max(at);
            let what = self.plans.remove(&serial).unwrap();
            if let Some(client) = what.process() {
                let process = &self.clients[client];
                if process.dead {
                    continue;
                }
                if process.stalled_until > self.now {
                    let at = process.stalled_until;
                    self.plan(at, what);
                    continue;
                }
            }
            self.happen(what);
            self.exclusion_holds();
        }
        self.now = self.now.max(until);
    }

    pub(crate) fn happen(&mut self, what: What) {
        match what {
            What::Reach(sent, command, answered) => self.reach(sent, &command, answered),
            What::Answer(sent, reply, at) => self.answer(sent, &reply, at),
            What::Push(client, epoch, event, at) => self.push(client, epoch, &event, at),
            What::Overdue(client, request) => self.unanswered(client, request),
            What::Wake(client) => {
                self.clients[client].wakes_at = None;
                self.drive(client);
            }
            What::Begin(client) => self.begin(client),
            What::End(client, end) => {
                if self.is_at(client, end) {
                    self.leave(client);
                }
            }
            What::Change(client, end, change) => self.change(client, end, change),
            What::Offer(client, offer) => self.take(client, offer),
            What::Cut(_) | What::Stall(_) if self.healed => {}
            What::Cut(client) => self.cut(client),
            What::Connect(client) => self.connect(client),
            What::Stall(client) => {
                let stall = self.dice.between(1, self.climate.stall_for);
                self.tell(|| format!("client {client} stalls for {stall} µs"));
                self.clients[client].stalled_until = self.now + stall;
                let next = self.dice.between(1, self.climate.stall_every * 2);
                self.plan(self.now + stall + next, What::Stall(client));
            }
            What::Forget => {
                self.tell(|| "the store forgets".into());
                self.queue = Queue::default();
            }
            What::Break => {
                self.tell(|| "an administrator breaks the lock".into());
                self.apply(&break_all(), None);
            }
        }
    }
}
