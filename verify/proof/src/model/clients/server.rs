//! The server, and what comes out of it.

use std::sync::Arc;

use leasehold_core::{Command, Event, Now, Outcome, Reply};

use super::wire::{Message, What};
use super::{ClientsModel, State, inbox};
use crate::model::promise::Promise;

impl ClientsModel {
    pub(super) fn arrive(&self, state: &mut State, message: Message) {
        let Message {
            client,
            epoch,
            what,
        } = message;
        match &*what {
            What::Request(serial, command) => {
                self.take_step(state, command, serial.map(|serial| (client, epoch, serial)));
            }
            What::Answer(serial, reply, at) => {
                self.hear_answer(state, client, epoch, *serial, reply, *at);
            }
            What::Push(event, at) => self.hear_push(state, client, epoch, event, *at),
        }
    }

    /// One step of the server; the answer goes to whoever waits for it.
    pub(super) fn take_step(
        &self,
        state: &mut State,
        command: &Command,
        to: Option<(usize, u64, u8)>,
    ) {
        let now = self.now(state);
        let outcome = state.queue.apply(command, now);
        self.judge_grants(state);
        self.judge_hints(state, now, &outcome);
        if let Some((client, epoch, serial)) = to {
            self.note_reply(&outcome.reply);
            state.wire.push(Message {
                client,
                epoch,
                what: Arc::new(What::Answer(serial, outcome.reply, outcome.at)),
            });
        }
        let mut pushed = Vec::new();
        let clients = &state.clients;
        state.queue.deliver(outcome.events, now, |event| {
            let client = self.reader(event);
            let listens = clients[client].connected && !clients[client].dead;
            if listens {
                pushed.push((client, event.clone()));
            }
            listens || !self.hears_silence
        });
        Self::keep(state);
        for (client, event) in pushed {
            state.wire.push(Message {
                client,
                epoch: state.clients[client].epoch,
                what: Arc::new(What::Push(event, outcome.at)),
            });
        }
    }

    fn reader(&self, event: &Event) -> usize {
        let theirs = |client: &usize| inbox(*client) == *event.inbox();
        (0..self.people.len()).find(theirs).unwrap_or_default()
    }

    /// Each new grant has a higher token than all before. A token names its grant: the
    /// arrival numbers of a replica that lagged come again.
    fn judge_grants(&self, state: &mut State) {
        let seen = state.queue.look(state.clock);
        for holder in seen.holders {
            let client = holder.claim.owner.pid as usize;
            let grant = (holder.claim.arrival, holder.token, client);
            if !state.grants.contains(&grant) {
                let rises = holder.token > state.highest;
                state.broken.require(Promise::Tokens, rises);
                if state.site.was_closed() {
                    self.seen.note("granted after a quarantine");
                }
                state.grants.push(grant);
            }
            state.highest = state.highest.max(holder.token);
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
