//! The client's machines against the queue, in a world made from one seed:
//! clocks moved by hand, a network that delays, loses, reorders and cuts,
//! clients that stall or die, a store that forgets.
//!
//! `LEASEHOLD_SEEDS=100000` runs more worlds, `LEASEHOLD_SEED=17` runs one and
//! tells its story.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test says what is wrong by panicking"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use leasehold_core::{
    Arrival, Claim, ClaimId, Command, Event, Inbox, Loss, Mode, Moment, Queue, Release, Renew,
    Renewal, RenewalPolicy, Reply, Request, Standpoint, StoreTime, Token, Verdict, Waiter,
    WaiterConfig,
};

const MS: u64 = 1_000;
const SECOND: u64 = 1_000 * MS;

/// Real time, in microseconds since the world began.
type Real = u64;

/// SplitMix64.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high - low).max(1)
    }

    /// Whether something with so many chances in a thousand happens.
    fn chance(&mut self, per_mille: u64) -> bool {
        self.draw() % 1000 < per_mille
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.draw()).unwrap_or(0) % of.len()]
    }
}

/// What this world is like.
#[derive(Debug, Clone)]
struct Climate {
    clients: usize,
    lease: Duration,
    waiter: Duration,
    /// Millionths by which the store's clock runs fast (or slow).
    store_rate: i64,
    delay: (u64, u64),
    /// Per mille of requests: lost, executed without an answer, delayed for long.
    lost: u64,
    unanswered: u64,
    slow: u64,
    slow_for: u64,
    /// How often, on average, a connection is cut and a client stalls; 0 is never.
    cut_every: u64,
    stall_every: u64,
    stall_for: u64,
    /// Whether pushes come on a connection of their own, unordered with answers.
    pushes_apart: bool,
    /// Whether the store knows at once that a client is disconnected.
    knows_deaf: bool,
    /// The store forgets, or an administrator breaks the lock: exclusion is not promised.
    void: bool,
    unfair: bool,
    shared: u64,
    op_timeout: u64,
    hold: (u64, u64),
    until: Real,
}

impl Climate {
    fn new(dice: &mut Dice) -> Self {
        let lease = dice.one_of(&[400 * MS, SECOND, 3 * SECOND, 10 * SECOND, 30 * SECOND]);
        let waiter = (lease / dice.one_of(&[1, 1, 3])).min(10 * SECOND);
        let rough = dice.chance(700);
        let delay = dice.one_of(&[(50, 300), (200, 5 * MS), (MS, lease / 8), (MS, lease / 2)]);
        Self {
            clients: usize::try_from(dice.between(2, 6)).unwrap(),
            lease: Duration::from_micros(lease),
            waiter: Duration::from_micros(waiter),
            store_rate: i64::try_from(dice.between(0, 10_001)).unwrap() - 5_000,
            delay,
            lost: if rough { dice.between(0, 150) } else { 0 },
            unanswered: if rough { dice.between(0, 150) } else { 0 },
            slow: if rough { dice.between(0, 60) } else { 0 },
            slow_for: lease * 2,
            cut_every: if rough {
                dice.one_of(&[0, lease, lease * 4])
            } else {
                0
            },
            stall_every: if rough {
                dice.one_of(&[0, lease * 2, lease * 6])
            } else {
                0
            },
            stall_for: lease * 2,
            pushes_apart: dice.chance(500),
            knows_deaf: dice.chance(700),
            void: dice.chance(200),
            unfair: dice.chance(200),
            shared: if dice.chance(200) { 600 } else { 0 },
            op_timeout: (lease / dice.one_of(&[3, 6])).min(2 * SECOND),
            hold: dice.one_of(&[(0, lease / 10), (0, lease * 2), (lease, lease * 4)]),
            until: lease * 8,
        }
    }
}

#[derive(Debug, Clone)]
enum What {
    /// A request reaches the store.
    Reach {
        client: usize,
        epoch: u64,
        request: u64,
        command: Command,
        answered: bool,
    },
    Answer {
        client: usize,
        epoch: u64,
        request: u64,
        reply: Reply,
        at: StoreTime,
    },
    Push {
        client: usize,
        epoch: u64,
        event: Event,
        at: StoreTime,
    },
    /// The request was not answered in the operation time-out.
    Overdue {
        client: usize,
        request: u64,
    },
    Wake {
        client: usize,
    },
    Begin {
        client: usize,
    },
    End {
        client: usize,
        request: u64,
    },
    Cut {
        client: usize,
    },
    Connect {
        client: usize,
    },
    Stall {
        client: usize,
    },
    Forget,
    Break,
}

impl What {
    /// Whose process must run for it to happen.
    fn process(&self) -> Option<usize> {
        match *self {
            Self::Answer { client, .. }
            | Self::Push { client, .. }
            | Self::Overdue { client, .. }
            | Self::Wake { client }
            | Self::Begin { client }
            | Self::End { client, .. }
            | Self::Connect { client } => Some(client),
            _ => None,
        }
    }
}

/// A request of a machine that is not answered yet.
#[derive(Debug, Clone, Copy)]
struct Pending {
    request: u64,
    kind: Request,
    sent: Moment,
}

/// A claim that is being asked for, or kept.
struct Attempt {
    id: ClaimId,
    mode: Mode,
    policy: RenewalPolicy,
    wait: bool,
    ahead: bool,
    stage: Stage,
    pending: Option<Pending>,
    /// The last waiting answer: on which epoch, for which arrival.
    told_to_wait: Option<(u64, Arrival)>,
    /// When the caller gives the lease back; a lapse ends it before.
    end: u64,
}

enum Stage {
    Waiting(Box<Waiter>),
    Held(Box<Held>),
}

struct Held {
    renewal: Renewal,
    arrival: Arrival,
    since: Moment,
    /// Whether an answer has given it the whole lease TTL.
    whole: bool,
    /// Whether an unanswered request is still to be asked again.
    ask_again: bool,
}

struct Client {
    inbox: Inbox,
    /// The client's clock is the real time and this.
    origin: u64,
    epoch: u64,
    connected: bool,
    dead: bool,
    stalled_until: Real,
    /// In-order delivery on one connection, each way.
    last_there: Real,
    last_back: Real,
    attempt: Option<Attempt>,
    wakes_at: Option<Real>,
    sends: Vec<Real>,
    /// What may cause a request besides time: pushes, connections, attempts.
    causes: Vec<Real>,
}

struct World {
    seed: u64,
    story: bool,
    climate: Climate,
    dice: Dice,
    now: Real,
    agenda: BinaryHeap<Reverse<(Real, u64)>>,
    plans: BTreeMap<u64, What>,
    serial: u64,
    queue: Queue,
    clients: Vec<Client>,
    highest: Token,
    grants: BTreeMap<Arrival, (usize, Token)>,
    leases: u64,
    healed: bool,
    healed_at: Real,
    /// How much has happened at this very instant.
    restless: u32,
}

impl World {
    fn new(seed: u64) -> Self {
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
            story: false,
            climate,
            dice,
            now: 0,
            agenda: BinaryHeap::new(),
            plans: BTreeMap::new(),
            serial: 0,
            queue: Queue::default(),
            clients,
            highest: Token(0),
            grants: BTreeMap::new(),
            leases: 0,
            healed: false,
            healed_at: 0,
            restless: 0,
        };
        world.set_out();
        world
    }

    fn set_out(&mut self) {
        let climate = self.climate.clone();
        for client in 0..climate.clients {
            let at = self.dice.between(0, climate.lease_micros());
            self.plan(at, What::Begin { client });
            if climate.cut_every > 0 {
                let at = self.dice.between(0, climate.cut_every * 2);
                self.plan(at, What::Cut { client });
            }
            if climate.stall_every > 0 {
                let at = self.dice.between(0, climate.stall_every * 2);
                self.plan(at, What::Stall { client });
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

    fn plan(&mut self, at: Real, what: What) {
        self.serial += 1;
        self.agenda.push(Reverse((at.max(self.now), self.serial)));
        self.plans.insert(self.serial, what);
    }

    fn clock(&self) -> StoreTime {
        let run =
            i128::from(self.now) * i128::from(1_000_000 + self.climate.store_rate) / 1_000_000;
        StoreTime(1_700_000_000_000_000 + u64::try_from(run).unwrap())
    }

    fn moment(&self, client: usize) -> Moment {
        Moment(self.clients[client].origin + self.now)
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.story {
            eprintln!("{:>11} {}", self.now, what());
        }
    }

    fn require(&self, holds: bool, what: impl FnOnce() -> String) {
        assert!(
            holds,
            "seed {} at {} µs: {}\n{:#?}",
            self.seed,
            self.now,
            what(),
            self.climate
        );
    }

    /// Runs all that is planned until then.
    fn run(&mut self, until: Real) {
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

    fn happen(&mut self, what: What) {
        match what {
            What::Reach {
                client,
                epoch,
                request,
                command,
                answered,
            } => self.reach(client, epoch, request, &command, answered),
            What::Answer {
                client,
                epoch,
                request,
                reply,
                at,
            } => self.answer(client, epoch, request, &reply, at),
            What::Push {
                client,
                epoch,
                event,
                at,
            } => self.push(client, epoch, &event, at),
            What::Overdue { client, request } => self.unanswered(client, request),
            What::Wake { client } => {
                self.clients[client].wakes_at = None;
                self.drive(client);
            }
            What::Begin { client } => self.begin(client),
            What::End { client, request } => {
                if self.clients[client]
                    .attempt
                    .as_ref()
                    .is_some_and(|a| a.end == request)
                {
                    self.leave(client);
                }
            }
            What::Cut { .. } | What::Stall { .. } if self.healed => {}
            What::Cut { client } => self.cut(client),
            What::Connect { client } => self.connect(client),
            What::Stall { client } => {
                let stall = self.dice.between(1, self.climate.stall_for);
                self.tell(|| format!("client {client} stalls for {stall} µs"));
                self.clients[client].stalled_until = self.now + stall;
                let next = self.dice.between(1, self.climate.stall_every * 2);
                self.plan(self.now + stall + next, What::Stall { client });
            }
            What::Forget => {
                self.tell(|| "the store forgets".into());
                self.queue = Queue::default();
            }
            What::Break => {
                self.tell(|| "an administrator breaks the lock".into());
                self.apply(&Command::Break, None);
            }
        }
    }

    // ---- the store and the network ----

    fn reach(
        &mut self,
        client: usize,
        epoch: u64,
        request: u64,
        command: &Command,
        answered: bool,
    ) {
        let (reply, at) = self.apply(command, Some(client));
        self.tell(|| {
            format!(
                "client {client} request {request} {command:?}\n{:>11} -> {reply:?}",
                ""
            )
        });
        let process = &self.clients[client];
        if answered && process.connected && process.epoch == epoch {
            let due = self.now + self.delay();
            let due = due.max(self.clients[client].last_back);
            self.clients[client].last_back = due;
            let what = What::Answer {
                client,
                epoch,
                request,
                reply,
                at,
            };
            self.plan(due, what);
        }
    }

    fn apply(&mut self, command: &Command, actor: Option<usize>) -> (Reply, StoreTime) {
        let clock = self.clock();
        let outcome = self.queue.apply(command, clock);
        let mut granted = Vec::new();
        if let (Reply::Standing(standing), Some(client)) = (&outcome.reply, actor)
            && let Some(token) = standing.token
        {
            granted.push((token, standing.arrival, client));
        }
        for event in &outcome.events {
            if let Event::Granted { arrival, token, .. } = event {
                let told = self.grants.contains_key(arrival);
                self.require(!told, || format!("granted twice: {event:?}"));
                granted.push((*token, *arrival, self.reader(event)));
            }
        }
        granted.sort();
        for (token, arrival, client) in granted {
            self.granted(arrival, token, client);
        }
        let (clients, knows) = (&self.clients, self.climate.knows_deaf);
        let mut pushes = Vec::new();
        let mut queue = std::mem::take(&mut self.queue);
        queue.deliver(outcome.events, clock, |event| {
            let client = self.reader(event);
            if clients[client].connected {
                pushes.push((client, event.clone()));
            }
            clients[client].connected || !knows
        });
        self.queue = queue;
        for (client, event) in pushes {
            let mut due = self.now + self.delay();
            if !self.climate.pushes_apart {
                due = due.max(self.clients[client].last_back);
                self.clients[client].last_back = due;
            }
            let epoch = self.clients[client].epoch;
            let what = What::Push {
                client,
                epoch,
                event,
                at: outcome.at,
            };
            self.plan(due, what);
        }
        (outcome.reply, outcome.at)
    }

    /// Whose inbox it is.
    fn reader(&self, event: &Event) -> usize {
        let theirs = |client: &Client| client.inbox == *event.inbox();
        self.clients.iter().position(theirs).unwrap()
    }

    fn granted(&mut self, arrival: Arrival, token: Token, client: usize) {
        if let Some(known) = self.grants.get(&arrival) {
            let same = *known == (client, token);
            self.require(same, || format!("{arrival:?} is {known:?}, not {token:?}"));
            return;
        }
        let highest = self.highest;
        self.require(token > highest, || format!("{token:?} after {highest:?}"));
        self.highest = token;
        self.grants.insert(arrival, (client, token));
    }

    fn delay(&mut self) -> u64 {
        let (low, high) = if self.healed {
            (50, 2 * MS)
        } else {
            self.climate.delay
        };
        self.dice.between(low, high)
    }

    /// Sends a command; what the client gets to know of it comes by itself.
    fn send(&mut self, client: usize, request: u64, command: Command) {
        let climate = self.climate.clone();
        if !self.clients[client].connected {
            return;
        }
        let lost = !self.healed && self.dice.chance(climate.lost);
        let answered = self.healed || !self.dice.chance(climate.unanswered);
        let mut due = self.now + self.delay();
        if !self.healed && self.dice.chance(climate.slow) {
            due += self.dice.between(0, climate.slow_for);
        }
        // A connection delivers in order; a later one does not wait for it.
        let due = due.max(self.clients[client].last_there);
        self.clients[client].last_there = due;
        if lost {
            return;
        }
        let epoch = self.clients[client].epoch;
        let what = What::Reach {
            client,
            epoch,
            request,
            command,
            answered,
        };
        self.plan(due, what);
    }

    fn cut(&mut self, client: usize) {
        self.tell(|| format!("client {client} is cut off"));
        if self.clients[client].connected {
            self.clients[client].connected = false;
            if let Some(pending) = self.clients[client]
                .attempt
                .as_ref()
                .and_then(|a| a.pending)
            {
                // The client notices at once, or by its time-out.
                if self.dice.chance(700) {
                    let request = pending.request;
                    self.plan(self.now, What::Overdue { client, request });
                }
            }
            let back = self.dice.between(1, self.climate.lease_micros());
            self.plan(self.now + back, What::Connect { client });
        }
        let next = self.dice.between(1, self.climate.cut_every * 2);
        self.plan(self.now + next, What::Cut { client });
    }

    fn connect(&mut self, client: usize) {
        let now = self.moment(client);
        let process = &mut self.clients[client];
        if process.connected {
            return;
        }
        process.connected = true;
        process.epoch += 1;
        process.last_there = 0;
        process.last_back = 0;
        process.causes.push(self.now);
        if let Some(attempt) = &mut process.attempt {
            match &mut attempt.stage {
                Stage::Waiting(waiter) => waiter.handle_reset(now),
                Stage::Held(held) => held.renewal.handle_reset(now),
            }
        }
        self.tell(|| format!("client {client} is back"));
        self.drive(client);
    }

    // ---- the client's shell ----

    fn begin(&mut self, client: usize) {
        if self.clients[client].attempt.is_some() {
            return;
        }
        let now = self.moment(client);
        let climate = self.climate.clone();
        let last = self.healed;
        let id = ClaimId::from_random(u128::from(self.dice.draw()));
        let policy = match self.dice.between(0, 10) {
            _ if last => RenewalPolicy::Automatic(1.0 / 3.0),
            0 | 1 => RenewalPolicy::Manual,
            2 | 3 => RenewalPolicy::Fixed,
            4 => RenewalPolicy::Automatic(0.8),
            _ => RenewalPolicy::Automatic(1.0 / 3.0),
        };
        let give_up = (!last && self.dice.chance(150))
            .then(|| now + Duration::from_micros(self.dice.between(0, climate.lease_micros() * 2)));
        let config = WaiterConfig {
            lease_ttl: climate.lease,
            waiter_ttl: climate.waiter,
            give_up,
            patience: Duration::from_micros(climate.op_timeout * 3),
            seed: self.dice.draw(),
        };
        let shared = self.dice.chance(climate.shared);
        let attempt = Attempt {
            mode: if shared {
                Mode::Shared
            } else {
                Mode::Exclusive
            },
            policy,
            wait: last || !self.dice.chance(150),
            ahead: !last && climate.unfair && self.dice.chance(300),
            stage: Stage::Waiting(Box::new(Waiter::new(config, now))),
            pending: None,
            told_to_wait: None,
            end: 0,
            id,
        };
        self.tell(|| format!("client {client} begins {:?} {policy:?}", attempt.id));
        self.clients[client].attempt = Some(attempt);
        self.clients[client].causes.push(self.now);
        self.drive(client);
    }

    /// Ends an attempt, however it went, and begins another some time.
    fn over(&mut self, client: usize, release: bool) {
        let Some(attempt) = self.clients[client].attempt.take() else {
            return;
        };
        if release {
            self.serial += 1;
            let request = self.serial;
            let hand_off = !self.climate.unfair || self.dice.chance(700);
            let id = attempt.id;
            self.send(
                client,
                request,
                Command::Release(Release {
                    id,
                    hand_off,
                    settled: false,
                }),
            );
        }
        if !self.healed && self.now < self.climate.until {
            let pause =
                self.dice
                    .one_of(&[0, self.climate.op_timeout, self.climate.lease_micros()]);
            let at = self.now + self.dice.between(0, pause + 1);
            self.plan(at, What::Begin { client });
        }
    }

    /// The caller gives its lease back.
    fn leave(&mut self, client: usize) {
        self.tell(|| format!("client {client} gives back"));
        self.over(client, true);
    }

    /// Looks at the machine's deadlines, sends what it wants sent, and sets the
    /// next alarm.
    fn drive(&mut self, client: usize) {
        let now = self.moment(client);
        loop {
            self.settle(client);
            let Some(attempt) = &mut self.clients[client].attempt else {
                return;
            };
            let request = match &mut attempt.stage {
                Stage::Waiting(waiter) => {
                    waiter.handle_timeout(now);
                    waiter.poll_transmit(now)
                }
                Stage::Held(held) => {
                    held.renewal.handle_timeout(now);
                    held.renewal.poll_transmit(now)
                }
            };
            let Some(kind) = request else { break };
            self.transmit(client, kind);
        }
        self.settle(client);
        let Some(attempt) = &self.clients[client].attempt else {
            return;
        };
        let next = match &attempt.stage {
            Stage::Waiting(waiter) => waiter.poll_timeout(),
            Stage::Held(held) => held.renewal.poll_timeout(),
        };
        if let Some(next) = next {
            let at = next
                .0
                .saturating_sub(self.clients[client].origin)
                .max(self.now);
            // A machine that wants to be called at once, again and again, would
            // never let the world go on.
            if self.clients[client].wakes_at != Some(at) {
                self.clients[client].wakes_at = Some(at);
                self.plan(at, What::Wake { client });
            }
        }
    }

    fn transmit(&mut self, client: usize, kind: Request) {
        let now = self.moment(client);
        self.serial += 1;
        let request = self.serial;
        let climate = self.climate.clone();
        self.no_storm(client);
        let process = &mut self.clients[client];
        let attempt = process.attempt.as_mut().unwrap();
        assert!(attempt.pending.is_none(), "two requests under way");
        if let Stage::Held(held) = &mut attempt.stage {
            let by_itself = matches!(attempt.policy, RenewalPolicy::Manual) && held.whole;
            let again = std::mem::take(&mut held.ask_again);
            assert!(
                !by_itself || again,
                "seed {}: a manual lease was renewed by itself",
                self.seed
            );
        }
        attempt.pending = Some(Pending {
            request,
            kind,
            sent: now,
        });
        let command = match kind {
            Request::Claim => Command::Claim(Claim {
                waiter_ttl: climate.waiter,
                wait: attempt.wait,
                ahead: attempt.ahead,
                inbox: Some(process.inbox.clone()),
                ..Claim::new(attempt.id.clone(), attempt.mode, climate.lease)
            }),
            Request::Renew(ttl) => Command::Renew(Renew::new(attempt.id.clone(), ttl)),
        };
        let connected = process.connected;
        self.send(client, request, command);
        if connected {
            let at = self.now + climate.op_timeout;
            self.plan(at, What::Overdue { client, request });
        } else {
            self.unanswered(client, request);
        }
    }

    fn unanswered(&mut self, client: usize, request: u64) {
        let now = self.moment(client);
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        if attempt
            .pending
            .is_none_or(|pending| pending.request != request)
        {
            return;
        }
        attempt.pending = None;
        match &mut attempt.stage {
            Stage::Waiting(waiter) => waiter.handle_unanswered(now),
            Stage::Held(held) => {
                held.ask_again = true;
                held.renewal.handle_unanswered(now);
            }
        }
        self.drive(client);
    }

    fn answer(&mut self, client: usize, epoch: u64, request: u64, reply: &Reply, at: StoreTime) {
        let now = self.moment(client);
        if self.clients[client].epoch != epoch {
            return;
        }
        let lease = self.climate.lease;
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        let Some(pending) = attempt.pending.filter(|p| p.request == request) else {
            return;
        };
        attempt.pending = None;
        match &mut attempt.stage {
            Stage::Waiting(waiter) => {
                if let Reply::Standing(standing) = reply
                    && standing.token.is_none()
                {
                    attempt.told_to_wait = Some((epoch, standing.arrival));
                }
                waiter.handle_reply(now, pending.sent, epoch, pending.kind, reply, at);
            }
            Stage::Held(held) => {
                let Request::Renew(ttl) = pending.kind else {
                    panic!("a lease was claimed again")
                };
                held.renewal.handle_reply(now, pending.sent, ttl, reply);
                held.whole |= ttl >= lease;
                let kept = !matches!(held.renewal.standpoint(), Standpoint::Lost(_));
                let same = matches!(reply, Reply::Standing(s) if s.arrival == held.arrival);
                let arrival = held.arrival;
                self.require(!kept || same, || {
                    format!("client {client} keeps {arrival:?} by {reply:?}")
                });
            }
        }
        self.drive(client);
    }

    fn push(&mut self, client: usize, epoch: u64, event: &Event, at: StoreTime) {
        let now = self.moment(client);
        self.tell(|| format!("client {client} hears {event:?} of epoch {epoch}"));
        self.clients[client].causes.push(self.now);
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        match (event, &mut attempt.stage) {
            (Event::Granted { arrival, token, .. }, Stage::Waiting(waiter)) => {
                let told = attempt.told_to_wait;
                waiter.handle_granted(epoch, *arrival, *token);
                let believed = matches!(waiter.verdict(), Some(Verdict::Granted { .. }));
                self.require(!believed || told == Some((epoch, *arrival)), || {
                    format!("client {client} believes {event:?} of epoch {epoch}, told {told:?}")
                });
            }
            (
                Event::Next {
                    arrival,
                    blocked_until,
                    ..
                },
                Stage::Waiting(waiter),
            ) => {
                waiter.handle_next(now, *arrival, blocked_until.since(at));
            }
            (Event::Revoked { arrival, .. }, Stage::Held(held)) if *arrival == held.arrival => {
                held.renewal.handle_revoked();
            }
            _ => {}
        }
        self.drive(client);
    }

    /// Moves an attempt on when its machine has come to an end.
    fn settle(&mut self, client: usize) {
        let now = self.moment(client);
        let climate = self.climate.clone();
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        match &mut attempt.stage {
            Stage::Waiting(waiter) => match waiter.verdict() {
                None => {}
                Some(Verdict::Granted {
                    arrival,
                    token,
                    validity,
                    confirm_at,
                }) => {
                    let seed = self.dice.draw();
                    let in_flight = attempt.pending.is_some();
                    self.require_in_flight(client, in_flight);
                    let attempt = self.clients[client].attempt.as_mut().unwrap();
                    let renewal = Renewal::new(
                        now,
                        climate.lease,
                        attempt.policy,
                        validity,
                        confirm_at,
                        in_flight,
                        seed,
                    );
                    let renewal = renewal.of(arrival);
                    attempt.stage = Stage::Held(Box::new(Held {
                        renewal,
                        arrival,
                        since: now,
                        whole: confirm_at.is_none(),
                        ask_again: false,
                    }));
                    self.serial += 1;
                    let end = self.serial;
                    attempt.end = end;
                    self.leases += 1;
                    self.tell(|| {
                        format!("client {client} holds {arrival} by {token}, {validity:?}")
                    });
                    self.granted(arrival, token, client);
                    let (low, high) = climate.hold;
                    let hold = self.dice.between(low, high + 1);
                    if !self.healed {
                        self.plan(
                            self.now + hold,
                            What::End {
                                client,
                                request: end,
                            },
                        );
                    }
                }
                Some(verdict) => {
                    self.tell(|| format!("client {client} ends with {verdict:?}"));
                    let gone = matches!(verdict, Verdict::Gone);
                    let reached = !self.fair_weather() || verdict != Verdict::Unreachable;
                    self.require(reached, || {
                        format!("client {client} gave up a store that answers")
                    });
                    self.over(client, !gone);
                    if self.healed {
                        self.plan(self.now + MS, What::Begin { client });
                    }
                }
            },
            Stage::Held(held) => {
                let fixed = matches!(attempt.policy, RenewalPolicy::Fixed);
                let end = held.since + climate.lease;
                let until = held.renewal.validity().until();
                let standpoint = held.renewal.standpoint();
                self.require(!fixed || until <= end, || "a fixed lease goes on".into());
                if let Standpoint::Lost(loss) = standpoint {
                    self.tell(|| format!("client {client} lost its lease: {loss:?}"));
                    self.over(client, loss != Loss::Gone);
                    if self.healed {
                        self.plan(self.now + MS, What::Begin { client });
                    }
                }
            }
        }
    }

    fn require_in_flight(&self, client: usize, in_flight: bool) {
        let attempt = self.clients[client].attempt.as_ref().unwrap();
        if let Stage::Waiting(waiter) = &attempt.stage {
            self.require(waiter.in_flight() == in_flight, || {
                "in_flight is wrong".into()
            });
        }
    }

    // ---- what must hold ----

    /// Design 1: "while a lease is valid by its client's clock, nobody else's is".
    fn exclusion_holds(&self) {
        if self.climate.void {
            return;
        }
        let mut used = 0;
        for client in &self.clients {
            if let Some(Attempt {
                stage: Stage::Held(held),
                mode,
                ..
            }) = &client.attempt
                && held.renewal.validity().until() > Moment(client.origin + self.now)
            {
                used += mode.weight();
            }
        }
        let units = Mode::Exclusive.capacity().units();
        self.require(used <= units, || "two leases are valid at once".into());
    }

    /// Lessons 1.C: "one winner" per hand-off; section 3: nothing is retried
    /// blindly. Time alone causes few requests, anything else one each.
    fn no_storm(&mut self, client: usize) {
        let process = &mut self.clients[client];
        process.sends.push(self.now);
        let window = self.climate.lease_micros().clamp(200 * MS, SECOND);
        let since = self.now.saturating_sub(window);
        process.sends.retain(|at| *at >= since);
        process.causes.retain(|at| *at >= since);
        let (sends, causes) = (process.sends.len(), process.causes.len());
        self.require(sends <= 25 + 2 * causes, || {
            format!("client {client}: {sends} requests and {causes} causes in {window} µs")
        });
    }

    /// The weather clears, all but one client leave or die: the one that stays
    /// is granted in bounded time, and knows where it stands.
    fn the_last_is_granted(&mut self) {
        self.healed = true;
        self.healed_at = self.now;
        for client in 0..self.clients.len() {
            if !self.clients[client].connected {
                self.connect(client);
            }
            self.clients[client].stalled_until = 0;
        }
        for client in 1..self.clients.len() {
            let gracious = self.dice.chance(500);
            if gracious && self.clients[client].attempt.is_some() {
                self.leave(client);
            }
            self.clients[client].dead = true;
            // A process that is gone holds nothing by its own clock.
            self.clients[client].attempt = None;
        }
        self.plan(self.now, What::Begin { client: 0 });
        let climate = self.climate.clone();
        // Requests that are still under way, a lease that was granted to one who
        // is dead by then, the dead who wait, promoted with 3 s each while they
        // live, and our own next look.
        let bound = climate.slow_for
            + 2 * climate.delay.1
            + 2 * climate.lease_micros()
            + 2 * climate.waiter_micros()
            + 3 * SECOND * (1 + climate.waiter_micros() / (3 * SECOND)).min(6)
            + 3 * climate.op_timeout
            + SECOND;
        let end = self.now + bound;
        while self.now < end && !self.holds(0) {
            self.run(self.now + bound / 50);
        }
        self.require(self.holds(0), || format!("client 0 waits after {bound} µs"));
        self.run(self.now + 2 * climate.lease_micros());
        // Its own policy may let it end; it does not stay unknown.
        if let Some(Attempt {
            stage: Stage::Held(held),
            ..
        }) = &self.clients[0].attempt
        {
            let standpoint = held.renewal.standpoint();
            self.require(standpoint == Standpoint::Held, || {
                format!("{standpoint:?} in the end")
            });
        }
    }

    /// Whether every request has been answered at once for as long as a waiter
    /// is patient.
    fn fair_weather(&self) -> bool {
        let climate = &self.climate;
        let patience = (climate.op_timeout * 3).max(climate.waiter_micros());
        let under_way = climate.slow_for + 2 * climate.delay.1;
        self.healed && self.now > self.healed_at + under_way + patience
    }

    fn holds(&self, client: usize) -> bool {
        matches!(
            self.clients[client].attempt,
            Some(Attempt {
                stage: Stage::Held(_),
                ..
            })
        )
    }
}

impl Climate {
    fn lease_micros(&self) -> u64 {
        u64::try_from(self.lease.as_micros()).unwrap()
    }

    fn waiter_micros(&self) -> u64 {
        u64::try_from(self.waiter.as_micros()).unwrap()
    }
}

/// Gives the number of leases that were had.
fn live(seed: u64, story: bool) -> u64 {
    let mut world = World::new(seed);
    world.story = story;
    world.tell(|| format!("{:#?}", world.climate));
    world.run(world.climate.until);
    world.the_last_is_granted();
    world.leases
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn worlds_keep_every_promise() {
    if let Some(seed) = number("LEASEHOLD_SEED") {
        live(seed, true);
        return;
    }
    let seeds = number("LEASEHOLD_SEEDS").unwrap_or(2_000);
    let mut failed = Vec::new();
    let mut leases = 0;
    for seed in 0..seeds {
        match std::panic::catch_unwind(|| live(seed, false)) {
            Ok(had) => leases += had,
            Err(_) => failed.push(seed),
        }
        if failed.len() >= 20 {
            break;
        }
    }
    assert!(failed.is_empty(), "LEASEHOLD_SEED= one of {failed:?}");
    assert!(leases > seeds * 5, "too little happens: {leases} leases");
}
