//! A client around its machines: bids, keeps, gives back.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::{Proposed, QuorumRelease, QuorumRound, RoundConfig, RoundVerdict};
use leasehold_core::{
    Claim, Command, Inbox, Mode, Proposal, Reply, StoreTime, Token, Validity, Void, Voided,
};

use super::server::{Message, Tag, What};
use super::{Act, Bidding, Client, Held, Leaving, QuorumModel, Renewing, Stage, State, TICK};
use crate::model::promise::Promise;

impl Client {
    /// Whether an answer can still mean something.
    pub(super) fn awaits(&self, server: usize, tag: Tag) -> bool {
        match (tag, &self.stage) {
            (Tag::Bid(number, _), Stage::Bidding(_)) => number == self.number,
            (Tag::Renewal(number, _), Stage::Held(held)) => {
                held.renewal.is_some() && number == self.number
            }
            (Tag::Farewell(attempt), _) => self.leaving.iter().any(|leaving| {
                let open = leaving.farewell.unconfirmed().any(|open| open == server);
                leaving.attempt == attempt && open
            }),
            _ => false,
        }
    }
}

impl QuorumModel {
    fn config(&self) -> RoundConfig {
        RoundConfig {
            size: self.size,
            ttl: self.ttl,
            // Without clocks it is silence that ends a wait, not time.
            patience: match self.horizon {
                Some(_) => TICK,
                None => self.ttl,
            },
        }
    }

    fn claim(&self, state: &State, client: usize, token: Token) -> Command {
        let id = Self::id(client, state.clients[client].begun);
        Command::Claim(Claim {
            inbox: Some(Inbox::from_random(client as u64)),
            wait: false,
            proposal: Some(Proposal {
                token,
                ahead: match self.horizon {
                    Some(_) => self.quarantine,
                    None => Duration::from_secs(1 << 30),
                },
            }),
            ..Claim::new(id, Mode::EXCLUSIVE, self.ttl)
        })
    }

    fn send(state: &mut State, client: usize, server: usize, tag: Tag, command: Command) {
        let run = state.servers[server].run;
        state.wire.push(Message {
            client,
            server,
            run,
            tag,
            what: Arc::new(What::Ask(command)),
        });
    }

    pub(super) fn client_actions(&self, state: &State, number: usize, actions: &mut Vec<Act>) {
        let client = &state.clients[number];
        let now = self.moment(state, number);
        let late = state.left.late > 0;
        match &client.stage {
            Stage::Idle if client.attempts > 0 => actions.push(Act::Begin(number)),
            Stage::Idle => {}
            Stage::Bidding(bidding) => match bidding.bid.verdict() {
                Some(_) => {
                    actions.push(Act::GiveBack(number));
                    if late {
                        actions.push(Act::Again(number));
                    }
                }
                None => {
                    if bidding.bid.poll_timeout().is_some_and(|due| due <= now) {
                        actions.push(Act::Drive(number));
                    } else if late {
                        actions.push(Act::Silence(number));
                    }
                }
            },
            Stage::Held(held) => {
                actions.extend([Act::GiveBack(number), Act::Die(number)]);
                let valid = !held.validity.remaining(now).is_zero() || self.horizon.is_none();
                match &held.renewal {
                    None if valid && state.left.renewals > 0 => actions.push(Act::Renew(number)),
                    Some(_) if late => actions.push(Act::Silence(number)),
                    _ => {}
                }
            }
        }
    }

    pub(super) fn begin(&self, state: &mut State, client: usize) {
        let (now, wall) = (self.moment(state, client), self.wall(state, client));
        let floor = state.highest();
        let it = &mut state.clients[client];
        it.attempts -= 1;
        it.begun += 1;
        it.number += 1;
        let bid = QuorumRound::new(self.config(), it.seen, wall, now);
        it.stage = Stage::Bidding(Box::new(Bidding {
            bid,
            heard: vec![None; self.size.servers()],
            rounds: 1,
            sent: now,
            proposed: now,
            floor,
        }));
        self.drive(state, client);
    }

    /// The same claim asks again with the token that it has proposed.
    pub(super) fn again(&self, state: &mut State, client: usize) {
        let (now, wall) = (self.moment(state, client), self.wall(state, client));
        let it = &mut state.clients[client];
        it.number += 1;
        state.left.late -= 1;
        if let Stage::Bidding(bidding) = &mut it.stage {
            let (token, at, held) = (bidding.bid.token(), bidding.proposed, false);
            let before = Proposed { token, at, held };
            bidding.bid = QuorumRound::again(self.config(), before, wall, now);
            if bidding.bid.token() != before.token {
                bidding.proposed = now;
            }
            bidding.heard.fill(None);
            bidding.rounds = 1;
            bidding.sent = now;
        }
        self.drive(state, client);
    }

    pub(super) fn drive(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        let mut proposals = Vec::new();
        if let Stage::Bidding(bidding) = &mut state.clients[client].stage {
            bidding.bid.handle_timeout(now);
            proposals.extend(std::iter::from_fn(|| bidding.bid.poll_transmit()));
            if !proposals.is_empty() && bidding.heard.iter().any(Option::is_some) {
                bidding.heard.fill(None);
                bidding.rounds += 1;
                self.seen.note("proposed again");
            }
        }
        for (server, token) in proposals {
            let tag = Tag::Bid(state.clients[client].number, token);
            let ask = self.claim(state, client, token);
            Self::send(state, client, server, tag, ask);
        }
        self.settle(state, client);
    }

    pub(super) fn silence(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        state.left.late -= 1;
        let round = match &mut state.clients[client].stage {
            Stage::Idle => None,
            Stage::Bidding(bidding) => Some(&mut bidding.bid),
            Stage::Held(held) => held.renewal.as_mut().map(|it| &mut it.extension),
        };
        if let Some(round) = round {
            let token = round.token();
            for server in 0..self.size.servers() {
                round.handle_silence(now, server, token);
            }
        }
        self.drive(state, client);
    }

    pub(super) fn renew(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        let floor = state.highest();
        state.left.renewals -= 1;
        let it = &mut state.clients[client];
        it.number += 1;
        let number = it.number;
        let Stage::Held(lease) = &mut it.stage else {
            return;
        };
        let (token, at, held) = (lease.token, now, true);
        let before = Proposed { token, at, held };
        // A renewal waits for a TTL.
        let config = RoundConfig {
            patience: self.ttl,
            ..self.config()
        };
        let mut extension = QuorumRound::again(config, before, 0, now);
        let asked: Vec<_> = std::iter::from_fn(|| extension.poll_transmit()).collect();
        lease.renewal = Some(Renewing {
            extension,
            heard: vec![None; self.size.servers()],
            sent: now,
            floor,
        });
        for (server, token) in asked {
            let tag = Tag::Renewal(number, token);
            // A server that lacks the claim takes it up again.
            let ask = self.claim(state, client, token);
            Self::send(state, client, server, tag, ask);
        }
    }

    pub(super) fn hear(
        &self,
        state: &mut State,
        client: usize,
        server: usize,
        tag: Tag,
        reply: Reply,
        at: StoreTime,
    ) {
        let now = self.moment(state, client);
        let it = &mut state.clients[client];
        if !it.awaits(server, tag) {
            return;
        }
        match (tag, &mut it.stage) {
            (Tag::Bid(_, token), Stage::Bidding(bidding)) => {
                if token == bidding.bid.token() {
                    bidding.heard[server] = Some(reply);
                }
                bidding.bid.handle_reply(now, server, token, reply, at);
            }
            (Tag::Renewal(_, token), Stage::Held(held)) => {
                if let Some(renewal) = &mut held.renewal {
                    renewal.heard[server] = Some(reply);
                    renewal
                        .extension
                        .handle_reply(now, server, token, reply, at);
                }
            }
            (Tag::Farewell(attempt), _) => {
                let leaving = it.leaving.iter_mut().find(|one| one.attempt == attempt);
                if let Some(leaving) = leaving {
                    let held = reply == (Reply::Released { held: true });
                    leaving.farewell.handle_released(server, held);
                }
            }
            _ => {}
        }
        self.drive(state, client);
    }

    /// Moves on where a machine has come to an end.
    fn settle(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        let it = &mut state.clients[client];
        match &mut it.stage {
            Stage::Idle => {}
            Stage::Bidding(bidding) => {
                it.seen = it.seen.max(bidding.bid.seen());
                match bidding.bid.verdict() {
                    None => {}
                    Some(RoundVerdict::Held { token }) => {
                        let mut validity = Validity::default();
                        validity.confirm(bidding.sent, self.ttl);
                        let floor = bidding.floor;
                        it.stage = Stage::Held(Box::new(Held {
                            token,
                            validity,
                            renewal: None,
                        }));
                        self.complete(state, token, floor);
                    }
                    // It may ask again: see `Act::Again`.
                    Some(RoundVerdict::Unanswered) if state.left.late > 0 => {}
                    Some(_) => self.leave(state, client),
                }
            }
            Stage::Held(held) => {
                let Some(renewal) = held.renewal.as_ref() else {
                    return;
                };
                let Some(verdict) = renewal.extension.verdict() else {
                    return;
                };
                let (sent, floor) = (renewal.sent, renewal.floor);
                held.renewal = None;
                match verdict {
                    RoundVerdict::Held { .. } => {
                        self.seen.note("renewed");
                        held.validity.confirm(sent, self.ttl);
                        let passed = floor > held.token;
                        self.judge_renewal(state, passed);
                    }
                    RoundVerdict::Unanswered => {}
                    _ => {
                        let valid = !held.validity.remaining(now).is_zero();
                        self.judge_loss(state, valid);
                        self.leave(state, client);
                    }
                }
            }
        }
    }

    /// A bid is completed with this token; when it began, `floor` was the highest.
    fn complete(&self, state: &mut State, token: Token, floor: Token) {
        self.seen.note("held");
        if state.servers.iter().any(|server| server.restarted) {
            self.seen.note("held after a restart");
        }
        let rises = token > floor && !state.completed.contains(&token);
        state.broken.require(Promise::Tokens, rises);
        state.completed.push(token);
        // Only the order counts, and whether one is there.
        state.completed.sort_unstable();
    }

    /// Ends an attempt: every server is told, also those that were never reached.
    pub(super) fn leave(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        let begun = state.clients[client].begun;
        let stage = std::mem::replace(&mut state.clients[client].stage, Stage::Idle);
        let (token, valid) = match stage {
            Stage::Idle => return,
            Stage::Bidding(bidding) => (bidding.bid.token(), false),
            Stage::Held(held) => (held.token, !held.validity.remaining(now).is_zero()),
        };
        let id = Self::id(client, begun);
        // As if nobody remembered the id: what was proposed is void.
        let leaves = Command::Void(Void {
            up_to: token,
            whose: Voided::Claim {
                id: id.clone(),
                released: false,
            },
        });
        let mut farewell = QuorumRelease::new(self.size, now, now + self.ttl, valid, 0);
        while let Some(server) = farewell.poll_transmit(now) {
            let tag = Tag::Farewell(begun);
            Self::send(state, client, server, tag, leaves.clone());
        }
        let leaving = Leaving {
            attempt: begun,
            farewell,
            id,
            up_to: token,
        };
        state.clients[client].leaving.push(leaving);
    }
}
