//! A client around its machines: bids, keeps, gives back.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::{Proposed, QuorumRelease, QuorumRound, RoundConfig, RoundVerdict};
use leasehold_core::{
    Claim, Command, Inbox, Mode, Moment, Proposal, Renew, Reply, StoreTime, Token, Validity, Void,
    Voided,
};

use super::server::{Message, Tag, What};
use super::{Act, Asking, Client, Held, Leaving, QuorumModel, State, TICK};
use crate::model::promise::Promise;

impl Client {
    /// Whether an answer can still mean something.
    pub(super) fn awaits(&self, server: usize, tag: Tag) -> bool {
        match tag {
            Tag::Asking(number, _) => self.asking.is_some() && number == self.number,
            Tag::Farewell(attempt) => self.leaving.iter().any(|leaving| {
                let open = leaving.farewell.unconfirmed().any(|open| open == server);
                leaving.attempt == attempt && open
            }),
        }
    }
}

impl Asking {
    fn new(round: QuorumRound, servers: usize, sent: Moment, floor: Token) -> Box<Self> {
        Box::new(Self {
            round,
            heard: vec![None; servers],
            rounds: 1,
            sent,
            proposed: sent,
            floor,
        })
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
        match (client.held, &client.asking) {
            (None, None) if client.attempts > 0 => actions.push(Act::Begin(number)),
            (None, None) => {}
            (None, Some(bid)) => match bid.round.verdict() {
                Some(_) => actions.extend([Act::GiveBack(number), Act::Again(number)]),
                None => actions.push(match bid.round.poll_timeout() {
                    Some(due) if due <= now => Act::Drive(number),
                    _ => Act::Silence(number),
                }),
            },
            (Some(held), renewal) => {
                actions.extend([Act::GiveBack(number), Act::Die(number)]);
                let valid = !held.validity.remaining(now).is_zero() || self.horizon.is_none();
                match renewal {
                    None if valid => actions.push(Act::Renew(number)),
                    None => {}
                    Some(_) => actions.push(Act::Silence(number)),
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
        if !self.people[client].remembers {
            it.seen = Token::NONE;
        }
        let bid = QuorumRound::new(self.config(), it.seen, wall, now);
        it.asking = Some(Asking::new(bid, self.size.servers(), now, floor));
        self.drive(state, client);
    }

    /// The same claim asks again with the token that it has proposed.
    pub(super) fn again(&self, state: &mut State, client: usize) {
        let (now, wall) = (self.moment(state, client), self.wall(state, client));
        let it = &mut state.clients[client];
        it.number += 1;
        if let Some(bid) = &mut it.asking {
            let (token, at, held) = (bid.round.token(), bid.proposed, false);
            let before = Proposed { token, at, held };
            let round = QuorumRound::again(self.config(), before, wall, now);
            let is_other = round.token() != before.token;
            *bid = Asking::new(round, self.size.servers(), now, bid.floor);
            bid.proposed = if is_other { now } else { at };
        }
        self.drive(state, client);
    }

    pub(super) fn drive(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        let mut proposals = Vec::new();
        let it = &mut state.clients[client];
        if let (None, Some(bid)) = (it.held, &mut it.asking) {
            bid.round.handle_timeout(now);
            proposals.extend(std::iter::from_fn(|| bid.round.poll_transmit()));
            if !proposals.is_empty() && bid.heard.iter().any(Option::is_some) {
                bid.heard.fill(None);
                bid.rounds += 1;
                self.seen.note("proposed again");
            }
        }
        self.ask(state, client, proposals);
        self.settle(state, client);
    }

    fn ask(&self, state: &mut State, client: usize, proposals: Vec<(usize, Token)>) {
        for (server, token) in proposals {
            let tag = Tag::Asking(state.clients[client].number, token);
            let ask = match state.clients[client].held {
                Some(_) if self.plain_renewals => {
                    let id = Self::id(client, state.clients[client].begun);
                    Command::Renew(Renew::new(id, self.ttl))
                }
                // A server that lacks the claim takes it up again.
                _ => self.claim(state, client, token),
            };
            Self::send(state, client, server, tag, ask);
        }
    }

    pub(super) fn silence(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        if let Some(Asking { round, .. }) = state.clients[client].asking.as_deref_mut() {
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
        let it = &mut state.clients[client];
        it.number += 1;
        let Some(Held { token, .. }) = it.held else {
            return;
        };
        let (at, held) = (now, true);
        let before = Proposed { token, at, held };
        // A renewal waits for a TTL.
        let config = RoundConfig {
            patience: self.ttl,
            ..self.config()
        };
        let mut extension = QuorumRound::again(config, before, 0, now);
        let asked: Vec<_> = std::iter::from_fn(|| extension.poll_transmit()).collect();
        it.asking = Some(Asking::new(extension, self.size.servers(), now, floor));
        self.ask(state, client, asked);
    }

    pub(super) fn hear(&self, state: &mut State, to: &Message, reply: Reply, at: StoreTime) {
        let (client, server, tag) = (to.client, to.server, to.tag);
        let now = self.moment(state, client);
        let it = &mut state.clients[client];
        if !it.awaits(server, tag) {
            return;
        }
        match tag {
            Tag::Asking(_, token) => {
                if let Some(Asking { round, heard, .. }) = it.asking.as_deref_mut() {
                    if token == round.token() {
                        heard[server] = Some(reply);
                    }
                    round.handle_reply(now, server, token, reply, at);
                }
            }
            Tag::Farewell(attempt) => {
                let leaving = it.leaving.iter_mut().find(|one| one.attempt == attempt);
                if let Some(leaving) = leaving {
                    let held = reply == (Reply::Released { held: true });
                    leaving.farewell.handle_released(server, held);
                }
            }
        }
        self.drive(state, client);
    }

    /// Moves on where a machine has come to an end.
    fn settle(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        let it = &mut state.clients[client];
        let Some(asking) = it.asking.as_deref() else {
            return;
        };
        if it.held.is_none() {
            it.seen = it.seen.max(asking.round.seen());
        }
        let Some(verdict) = asking.round.verdict() else {
            return;
        };
        let (sent, floor) = (asking.sent, asking.floor);
        match (&mut it.held, verdict) {
            (None, RoundVerdict::Held { token }) => {
                let mut validity = Validity::default();
                validity.confirm(sent, self.ttl);
                (it.asking, it.held) = (None, Some(Held { token, validity }));
                self.complete(state, token, floor);
            }
            (None, verdict) => {
                let silent = verdict == RoundVerdict::Unanswered;
                match verdict {
                    RoundVerdict::Busy { .. } => self.seen.note("busy"),
                    _ if silent => self.seen.note("unanswered"),
                    _ => {}
                }
                // It may ask again: see `Act::Again`.
                if !silent || state.left.late == 0 {
                    self.leave(state, client);
                }
            }
            (Some(held), RoundVerdict::Held { .. }) => {
                self.seen.note("renewed");
                held.validity.confirm(sent, self.ttl);
                let passed = floor > held.token;
                it.asking = None;
                self.judge_renewal(state, passed);
            }
            (Some(_), RoundVerdict::Unanswered) => it.asking = None,
            (Some(held), _) => {
                let valid = !held.validity.remaining(now).is_zero();
                self.judge_loss(state, valid);
                self.leave(state, client);
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
        let it = &mut state.clients[client];
        let begun = it.begun;
        let (token, valid) = match (it.held.take(), it.asking.take()) {
            (None, None) => return,
            (None, Some(bid)) => (bid.round.token(), false),
            (Some(held), _) => (held.token, !held.validity.remaining(now).is_zero()),
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
