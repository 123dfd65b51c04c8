//! A simulated server: with the rules of the core, or with broken ones.

use std::time::Duration;

use leasehold_core::quorum::{Acquire, Extend, Hold, Node, Part, Vote, VoteChange, VoteNote};
use leasehold_core::{Marker, SetTerms, StoreTime, Token};

use crate::quorum::climate::Broken;

/// What is asked of a server.
#[derive(Debug, Clone)]
pub(crate) enum Ask {
    Acquire(Acquire),
    Extend(Extend),
    Release(Part),
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) node: Node,
    marker: Option<Marker>,
    terms: SetTerms,
    /// How often it was started: who is connected to a process talks to no other.
    pub(crate) generation: u64,
    /// Its clock: how much is added, and how fast it runs, in millionths.
    offset: i64,
    rate: i64,
    broken: Broken,
    /// Its audit log, which is lost with its data.
    pub(crate) log: Vec<VoteNote>,
}

impl Server {
    pub(crate) fn new(quarantine: Duration, offset: i64, rate: i64, broken: Broken) -> Self {
        let mut server = Self {
            node: Node::default(),
            marker: None,
            terms: SetTerms {
                set: "set".to_owned(),
                quarantine,
            },
            generation: 0,
            offset,
            rate,
            broken,
            log: Vec::new(),
        };
        // It is known to be new.
        Marker::init(&mut server.marker, "0", &server.terms, StoreTime(0));
        server
    }

    pub(crate) fn clock(&self, now: u64) -> StoreTime {
        let now = i64::try_from(now).unwrap();
        let shown = now + now / 1_000_000 * self.rate + self.offset;
        StoreTime(u64::try_from(shown).unwrap())
    }

    pub(crate) fn restart(&mut self, lose: bool) {
        self.generation += 1;
        if lose {
            self.node = Node::default();
            self.marker = None;
            self.log.clear();
        }
    }

    /// One step, and what it notes; also the token that the server gave, where servers count.
    pub(crate) fn take(&mut self, ask: &Ask, now: u64) -> (Vote, Token) {
        let before = self.node.clone();
        let answer = self.apply(ask, now);
        let change = match ask {
            Ask::Acquire(ask) => VoteChange::Acquire(&ask.id),
            Ask::Extend(ask) => VoteChange::Extend(&ask.vote.id),
            Ask::Release(part) => VoteChange::Release(part),
        };
        let notes = self.node.noted(&before, change, self.clock(now));
        self.log.extend(notes);
        answer
    }

    fn apply(&mut self, ask: &Ask, now: u64) -> (Vote, Token) {
        let at = self.clock(now);
        match ask {
            Ask::Acquire(ask) => {
                if let Err(no) = self.admit(at) {
                    return (no, ask.token);
                }
                let mut ask = ask.clone();
                if self.broken == Broken::ServersCount {
                    let known = self.node.live(at).filter(|hold| hold.id == ask.id);
                    ask.token =
                        known.map_or_else(|| Token(self.node.highest().0 + 1), |hold| hold.token);
                }
                let token = ask.token;
                (self.node.acquire(&ask, at, |_, _| false), token)
            }
            Ask::Extend(ask) => (self.extend(ask, at), ask.vote.token),
            Ask::Release(part) => (self.release(part, at), part.token),
        }
    }

    fn admit(&mut self, at: StoreTime) -> Result<(), Vote> {
        let run = self.generation.to_string();
        let admitted = Marker::admit(&mut self.marker, &run, &self.terms, at);
        match self.broken {
            Broken::NoQuarantine => Ok(()),
            _ => Ok(admitted?),
        }
    }

    fn extend(&mut self, ask: &Extend, at: StoreTime) -> Vote {
        let mut ask = ask.clone();
        match self.broken {
            Broken::ServersCount => {
                // It knows the claim by its id.
                let known = self.node.live(at).filter(|hold| hold.id == ask.vote.id);
                ask.vote.token = known.map_or(ask.vote.token, |hold| hold.token);
                ask.repair = false;
            }
            Broken::OneRegister if ask.vote.token < self.node.accepted => return Vote::Lost,
            Broken::Resurrect => {
                self.node.hold = Some(Hold {
                    id: ask.vote.id.clone(),
                    token: ask.vote.token,
                    until: at + ask.vote.ttl,
                    since: at,
                    body: ask.vote.body.clone(),
                });
                return Vote::Yes;
            }
            _ => {}
        }
        let votes = self.node.votes_for(&ask.vote.id, ask.vote.token, at);
        if !votes && let Err(no) = self.admit(at) {
            return no;
        }
        self.node.extend(&ask, at, |_, _| false)
    }

    fn release(&mut self, part: &Part, at: StoreTime) -> Vote {
        let before = self.node.released;
        let vote = self.node.release(part, at, |_, _| false);
        match self.broken {
            Broken::NoTombstone => self.node.released = before,
            Broken::OneRegister => {
                self.node.released = before;
                self.node.accepted = self.node.accepted.max(part.token);
            }
            _ => {}
        }
        vote
    }
}
