//! The events of the world, in the order of a global time that its members cannot see.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use leasehold_core::Token;
use leasehold_core::quorum::Vote;

use crate::quorum::checks::{Checks, Fault};
use crate::quorum::client::{Client, Sent, Tag};
use crate::quorum::climate::{Broken, Climate, MAX_TTL};
use crate::quorum::reader::Reader;
use crate::quorum::server::{Ask, Server};

/// When the world begins: a time of day with room to both sides.
const START: u64 = 10_000_000_000;

/// For how long clients begin something new.
const LIFE: u64 = 12_000_000;

/// Numbers from a seed (SplitMix64).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    pub(crate) fn of_thousand(&mut self, times: u64) -> bool {
        self.roll(1_000) < times
    }

    pub(crate) fn up_to(&mut self, most: Duration) -> u64 {
        self.roll(u64::try_from(most.as_micros()).unwrap() + 1)
    }

    /// Between `-most` and `most`.
    pub(crate) fn around(&mut self, most: u64) -> i64 {
        i64::try_from(self.roll(2 * most + 1)).unwrap() - i64::try_from(most).unwrap()
    }
}

#[derive(Debug)]
enum Event {
    Ask {
        client: usize,
        server: usize,
        generation: u64,
        tag: Tag,
        ask: Ask,
    },
    Answer {
        client: usize,
        server: usize,
        tag: Tag,
        vote: (Vote, Token),
    },
    /// The client has waited long enough for an answer.
    Silence {
        client: usize,
        server: usize,
        tag: Tag,
    },
    Wake(usize),
    Restart,
    /// Somebody reads the next server's audit log.
    Read,
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
    reader: Reader,
    /// Which server is read next, and whether all were of this round.
    reading: (usize, bool),
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
        let clients = (0..climate.clients)
            .map(|number| Client::new(number, climate, dice.around(4_000)))
            .collect();
        Self {
            climate: climate.clone(),
            now: START,
            dice,
            servers,
            clients,
            next: BinaryHeap::new(),
            events: Vec::new(),
            wakes: vec![0; climate.clients],
            reader: Reader::new(climate.size),
            reading: (0, true),
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
        if self.climate.broken == Broken::Nothing {
            self.at(START, Event::Read);
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
        if self.climate.broken == Broken::Nothing {
            for _ in 0..2 {
                for (at, server) in self.servers.iter().enumerate() {
                    self.reader.read(at, &server.log);
                }
                self.reader.settle(true, self.now, &mut self.checks);
            }
            let ttl = self.climate.ttl;
            self.reader
                .has_all(&self.servers, ttl, self.now, &mut self.checks);
        }
    }

    /// Reads one server after the other, and passes over one that is silent now and then.
    fn read(&mut self) {
        let (server, all) = self.reading;
        let is_silent = self.dice.of_thousand(20);
        if !is_silent {
            self.reader.read(server, &self.servers[server].log);
        }
        let all = all && !is_silent;
        self.reading = (server + 1, all);
        if server + 1 == self.servers.len() {
            self.reader.settle(all, self.now, &mut self.checks);
            self.reading = (0, true);
        }
        if !self.ends() {
            let next = self.now + self.dice.up_to(Duration::from_millis(20));
            self.at(next, Event::Read);
        }
    }

    fn ends(&self) -> bool {
        self.now > START + LIFE
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Ask {
                client,
                server,
                generation,
                tag,
                ask,
            } => {
                if self.servers[server].generation != generation {
                    return;
                }
                self.note_lateness(client, server, &ask);
                let vote = self.servers[server].take(&ask, self.now);
                let event = || Event::Answer {
                    client,
                    server,
                    tag,
                    vote,
                };
                self.send(event);
            }
            Event::Answer {
                client,
                server,
                tag,
                vote,
            } => {
                self.clients[client].hear(self.now, server, tag, vote, &mut self.checks);
                self.go_on(client);
            }
            Event::Silence {
                client,
                server,
                tag,
            } => {
                self.clients[client].give_up(self.now, server, tag);
                self.go_on(client);
            }
            Event::Wake(client) if self.wakes[client] == self.now => self.go_on(client),
            Event::Wake(_) => {}
            Event::Read => self.read(),
            Event::Restart => {
                let server = self.dice.roll(self.servers.len() as u64) as usize;
                // No more than the quorum bears at once, for data that is lost.
                let lose = self.climate.loses_data;
                self.servers[server].restart(lose);
                self.checks.had.losses += u64::from(lose);
                if let Some(every) = self.climate.restarts
                    && !self.ends()
                {
                    let next = self.now + self.dice.up_to(2 * every);
                    self.at(next, Event::Restart);
                }
            }
        }
    }

    fn note_lateness(&mut self, client: usize, server: usize, ask: &Ask) {
        let node = &self.servers[server].node;
        match ask {
            Ask::Acquire(ask) if ask.token <= node.released => {
                let departed = self.clients[client].departed().any(|id| *id == ask.id);
                self.checks.had.late += u64::from(departed);
            }
            Ask::Extend(ask) => {
                let at = self.servers[server].clock(self.now);
                let lacks = !node.votes_for(&ask.vote.id, ask.vote.token, at);
                let takes = lacks && ask.repair && ask.vote.token > node.highest();
                self.checks.had.repaired += u64::from(takes && node.live(at).is_none());
            }
            _ => {}
        }
    }

    fn go_on(&mut self, client: usize) {
        if self.ends() {
            self.clients[client].retired = true;
        }
        let skew = u64::try_from(self.climate.skew.as_micros()).unwrap();
        let wall = i64::try_from(self.now).unwrap() + self.dice.around(skew);
        let wall = u64::try_from(wall).unwrap();
        let mut out = Vec::new();
        self.clients[client].go_on(self.now, wall, &mut self.dice, &mut self.checks, &mut out);
        for Sent { server, tag, ask } in out {
            let generation = self.servers[server].generation;
            self.send(|| Event::Ask {
                client,
                server,
                generation,
                tag,
                ask: ask.clone(),
            });
            let patience = self.now + u64::try_from(self.climate.ttl.as_micros()).unwrap() / 5;
            self.at(
                patience,
                Event::Silence {
                    client,
                    server,
                    tag,
                },
            );
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
        let copies = 1 + u64::from(self.dice.of_thousand(self.climate.doubled));
        for _ in 0..copies {
            if self.dice.of_thousand(self.climate.lost) {
                continue;
            }
            let usual = Duration::from_millis(1 + self.dice.roll(6));
            let longest = if self.dice.of_thousand(self.climate.late) {
                self.climate.latest
            } else {
                usual
            };
            let arrives = self.now + self.dice.up_to(longest);
            self.at(arrives, event());
        }
    }

    fn nothing_is_left_behind(&mut self) {
        for server in &self.servers {
            let Some(hold) = &server.node.hold else {
                continue;
            };
            let departed = self
                .clients
                .iter()
                .any(|c| c.departed().any(|id| *id == hold.id));
            if departed {
                self.checks.faults.push(Fault::Orphan {
                    at: self.now,
                    id: hold.id.clone(),
                });
            }
        }
    }
}
