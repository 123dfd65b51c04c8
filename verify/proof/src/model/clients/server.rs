//! The server, and what comes out of it.

use leasehold_core::{
    ClaimView, Command, Event, Key, Now, Outcome, Push, Reply, Response, Snapshot,
};

use super::wire::{Message, What};
use super::{ClientsModel, State, inbox};
use crate::model::promise::Promise;
use crate::model::queue::claims;

/// Who waits for an answer: a client, in a connection, and the number of its request.
type Asker = (usize, u64, u8);

impl ClientsModel {
    pub(super) fn arrive(&self, state: &mut State, message: &Message) {
        let (client, epoch) = (message.client, message.epoch);
        match &*message.what {
            What::Request(serial, command) => {
                self.take_step(state, command, serial.map(|serial| (client, epoch, serial)));
            }
            What::Answer(serial, reply, at) => {
                let heard = Response {
                    reply: *reply,
                    at: *at,
                    epoch,
                    enough: None,
                };
                self.hear_answer(state, (client, *serial), heard);
            }
            What::Push(event, at) => {
                if let Ok(key) = Key::new("k") {
                    self.hear_push(state, client, &Push::of(event, &key, *at, epoch));
                }
            }
        }
    }

    /// One step of the server; the answer goes to whoever waits for it.
    pub(super) fn take_step(&self, state: &mut State, command: &Command, to: Option<Asker>) {
        let now = Now {
            // The inbox is opened once a claim waits.
            listens: matches!(command, Command::Renew(_)),
            ..self.now(state)
        };
        let before = state.queue.look(state.clock);
        let mut outcome = state.queue.apply(command, now);
        self.judge_grants(state, to.map(|(client, ..)| client), &outcome);
        self.judge_hints(state, now, &outcome);
        if let Some((client, epoch, serial)) = to {
            self.note_reply(&outcome.reply);
            let answer = What::Answer(serial, outcome.reply, outcome.at);
            state.put_on_wire(client, epoch, answer);
        }
        let seen = [before, state.queue.look(state.clock)];
        let mut pushed = Vec::new();
        let clients = &state.clients;
        let mut delivered = state.queue.clone();
        let applied = delivered.deliver(&mut outcome, now, |event| {
            let client = self.reader(event, &seen);
            let listens = clients[client].connected && !clients[client].dead;
            if listens {
                pushed.push((client, event.clone()));
            }
            listens || !self.hears_silence
        });
        for unheard in &applied {
            let outcome = state.queue.apply(unheard, now);
            self.judge_grants(state, None, &outcome);
            self.judge_hints(state, now, &outcome);
        }
        Self::keep(state);
        for (client, event) in pushed {
            let epoch = state.clients[client].epoch;
            state.put_on_wire(client, epoch, What::Push(event, outcome.at));
        }
    }

    /// Whose claim it is about: a process has one inbox.
    fn reader(&self, event: &Event, seen: &[Snapshot]) -> usize {
        let theirs = |client: &usize| inbox(self.process(*client)) == *event.inbox();
        let mut all = seen.iter().flat_map(claims);
        let about = all.find(|claim| Some(claim.arrival) == event.arrival());
        let named = about.map(|claim| claim.owner.pid as usize).filter(theirs);
        let any = || (0..self.people.len()).find(theirs);
        named.or_else(any).unwrap_or_default()
    }

    /// Each new grant has a higher token than all before it, also one behind another claim of
    /// its client. A token names its grant: the arrival numbers of a replica that lagged come
    /// again.
    fn judge_grants(&self, state: &mut State, actor: Option<usize>, outcome: &Outcome) {
        let seen = state.queue.look(state.clock);
        let owner = |claim: &ClaimView| claim.owner.pid as usize;
        let holding = seen.holders.iter();
        let mut granted: Vec<_> = holding
            .map(|holder| (holder.claim.arrival, holder.token, owner(&holder.claim)))
            .collect();
        if let (Some(actor), Reply::Standing(standing)) = (actor, outcome.reply) {
            let follows = standing.token.filter(|_| standing.behind.is_some());
            granted.extend(follows.map(|token| (standing.arrival, token, actor)));
        }
        granted.extend(outcome.events.iter().filter_map(|event| match event {
            Event::Granted { token, behind, .. } if behind.is_some() => {
                let client = self.reader(event, std::slice::from_ref(&seen));
                Some((event.arrival()?, *token, client))
            }
            _ => None,
        }));
        granted.sort_by_key(|(_, token, _)| *token);
        for grant in granted {
            if !state.grants.contains(&grant) {
                let rises = grant.1 > state.highest;
                state.broken.require(Promise::Tokens, rises);
                if state.site.was_closed() {
                    self.seen.note("granted after a quarantine");
                }
                state.grants.push(grant);
            }
            state.highest = state.highest.max(grant.1);
        }
    }

    /// Nobody is told to look later than the key may be free.
    fn judge_hints(&self, state: &mut State, now: Now, outcome: &Outcome) {
        let seen = state.queue.look(state.clock);
        let lapses = seen.holders.iter().map(|holder| holder.claim.deadline);
        let free = lapses.min().unwrap_or(outcome.at);
        let latest = free.max(outcome.at + now.closed);
        let answered = match outcome.reply {
            Reply::Standing(standing) => standing.blocked_until,
            _ => None,
        };
        let pushed = outcome.events.iter().filter_map(|event| match event {
            Event::Next { blocked_until, .. } => Some(*blocked_until),
            _ => None,
        });
        let fine = pushed.chain(answered).all(|until| until <= latest);
        state.broken.require(Promise::Truth, fine);
    }

    fn note_reply(&self, reply: &Reply) {
        match reply {
            Reply::Standing(standing) if standing.token.is_none() => self.seen.note("waits"),
            Reply::Gone => self.seen.note("gone"),
            _ => {}
        }
    }
}
