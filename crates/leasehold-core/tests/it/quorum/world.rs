//! The events of the world, in the order of a global time that its members cannot see.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use leasehold_core::{Command, Reply, StoreTime, Token, Void, Voided};

use crate::quorum::checks::{Checks, Fault};
use crate::quorum::client::{Call, Client, Tag, Turn};
use crate::quorum::climate::{Climate, MAX_TTL};
use crate::quorum::server::{Answer, Server};
use crate::simulation::Dice;

/// When the world begins: a time of day with room to both sides.
const START: u64 = 10_000_000_000;

/// For how long clients begin something new.
const LIFE: u64 = 12_000_000;

#[derive(Debug)]
enum Event {
    /// A command reaches the process of a server with that generation.
    Ask(Call, u64, Command),
    Answer(Call, Answer),
    /// The client has waited long enough for an answer.
    Silence(Call),
    Wake(usize),
    Restart,
}

pub(crate) struct World {
    climate: Climate,
    now: u64,
    dice: Dice,
    servers: Vec<Server>,
    clients: Vec<Client>,
    /// What comes next: times and numbers of `events`.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    events: Vec<Option<Event>>,
    /// When each client is woken next; other wakes are outdated.
    wakes: Vec<u64>,
    pub(crate) checks: Checks,
}

impl World {
    pub(crate) fn new(climate: &Climate) -> Self {
        let mut dice = Dice(climate.seed);
        let quarter = u64::try_from(MAX_TTL.as_micros()).unwrap() / 4;
        let servers = (0..climate.size.servers())
            .map(|_| {
                let (offset, rate) = (dice.around(quarter), dice.around(4_000));
                Server::new(climate.quarantine(), offset, rate, climate.broken)
            })
            .collect();
        let client = |number| Client::new(number, climate, dice.around(4_000));
        let clients = (0..climate.clients).map(client).collect();
        Self {
            climate: climate.clone(),
            now: START,
            dice,
            servers,
            clients,
            next: BinaryHeap::new(),
            events: Vec::new(),
            wakes: vec![0; climate.clients],
            checks: Checks::new(climate.clients),
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.next.push(Reverse((time, self.events.len())));
        self.events.push(Some(event));
    }

    pub(crate) fn run(&mut self) {
        for client in 0..self.clients.len() {
            let start = START + self.dice.up_to(self.climate.ttl);
            self.wakes[client] = start;
            self.at(start, Event::Wake(client));
        }
        if let Some(every) = self.climate.restarts {
            let first = START + self.dice.up_to(2 * every);
            self.at(first, Event::Restart);
        }
        while let Some(Reverse((time, number))) = self.next.pop() {
            self.now = self.now.max(time);
            if let Some(event) = self.events[number].take() {
                self.take(event);
            }
            if !self.checks.faults.is_empty() {
                return;
            }
        }
        self.nothing_is_left_behind();
    }

    fn ends(&self) -> bool {
        self.now > START + LIFE
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Ask(call, generation, command) => {
                let it = &mut self.servers[call.server];
                if it.generation != generation {
                    return;
                }
                let lacks = it.queue.look(it.clock(self.now)).holders.is_empty();
                let renews = matches!(call.tag, Tag::Extension(..));
                let answer = it.take(&command, renews, self.now);
                let votes = answer.0.has_token();
                let had = &mut self.checks.had;
                had.add("repaired votes", u64::from(renews && lacks && votes));
                let client = &self.clients[call.client];
                let departed = |id| client.departed().any(|gone| Some(gone) == id);
                let late = !votes && matches!(command, Command::Claim(_));
                let late = u64::from(late && departed(command.id()));
                had.add("messages after their release", late);
                self.send(|| Event::Answer(call, answer));
            }
            Event::Answer(call, answer) => {
                let client = &mut self.clients[call.client];
                client.hear(self.now, call, answer, &mut self.checks);
                self.go_on(call.client);
            }
            Event::Silence(call) => {
                self.clients[call.client].give_up(self.now, call);
                self.go_on(call.client);
            }
            Event::Wake(client) if self.wakes[client] == self.now => self.go_on(client),
            Event::Wake(_) => {}
            Event::Restart => {
                let server = self.dice.roll(self.servers.len() as u64) as usize;
                // No more than the quorum bears at once, for data that is lost.
                let lose = self.climate.loses_data;
                self.servers[server].restart(lose);
                self.checks.had.add("data losses", u64::from(lose));
                if let Some(every) = self.climate.restarts
                    && !self.ends()
                {
                    let next = self.now + self.dice.up_to(2 * every);
                    self.at(next, Event::Restart);
                }
            }
        }
    }

    fn go_on(&mut self, client: usize) {
        if self.ends() {
            self.clients[client].retired = true;
        }
        let skew = u64::try_from(self.climate.skew.as_micros()).unwrap();
        let wall = i64::try_from(self.now).unwrap() + self.dice.around(skew);
        let wall = u64::try_from(wall).unwrap();
        let mut turn = Turn {
            now: self.now,
            wall,
            dice: &mut self.dice,
            checks: &mut self.checks,
            out: Vec::new(),
        };
        self.clients[client].go_on(&mut turn);
        for (server, tag, command) in turn.out {
            let call = Call {
                client,
                server,
                tag,
            };
            let generation = self.servers[server].generation;
            self.send(|| Event::Ask(call, generation, command.clone()));
            let patience = self.now + u64::try_from(self.climate.ttl.as_micros()).unwrap() / 5;
            self.at(patience, Event::Silence(call));
        }
        let wake_at = self.clients[client].wake_at(self.now);
        let wake_at = wake_at.max(self.now + 1);
        if wake_at < u64::MAX && wake_at != self.wakes[client] {
            self.wakes[client] = wake_at;
            self.at(wake_at, Event::Wake(client));
        }
    }

    /// Lost, doubled, late, out of order.
    fn send(&mut self, event: impl Fn() -> Event) {
        let copies = 1 + u64::from(self.dice.chance(self.climate.doubled));
        for _ in 0..copies {
            if self.dice.chance(self.climate.lost) {
                continue;
            }
            let usual = Duration::from_millis(1 + self.dice.roll(6));
            let longest = match self.dice.chance(self.climate.late) {
                true => self.climate.latest,
                false => usual,
            };
            let arrives = self.now + self.dice.up_to(longest);
            self.at(arrives, event());
        }
    }

    /// A vote of a claim that has left is found by leaving once more.
    fn nothing_is_left_behind(&mut self) {
        for server in &self.servers {
            for id in self.clients.iter().flat_map(Client::departed) {
                let again = Command::Void(Void {
                    up_to: Token::NONE,
                    whose: Voided::Claim {
                        id: id.clone(),
                        released: false,
                    },
                });
                // Whether its time is over does not matter.
                let outcome = server.queue.clone().apply(&again, StoreTime(0));
                if outcome.reply == (Reply::Released { held: true }) {
                    let what = format!("{id:?} at {}", self.now);
                    self.checks.faults.push((Fault::Orphan, what));
                }
            }
        }
    }
}
