//! A client around its machines: what an adapter does, and no decision.

use std::sync::Arc;

use leasehold_core::{
    Arrival, Claim, ClaimId, Command, Event, Identity, Loss, Owner, Proof, Release, Renew, Renewal,
    RenewalPolicy, Reply, Request, Standpoint, StoreTime, Token, Verdict, Waiter, WaiterConfig,
};

use super::wire::{Message, What};
use super::{ClientsModel, Held, Pending, Stage, State, TICK, inbox};
use crate::model::promise::Promise;

impl ClientsModel {
    /// Each attempt has an id of its own.
    fn id(state: &State, client: usize) -> ClaimId {
        let attempt = u128::from(state.clients[client].begun);
        ClaimId::from_random((client as u128) << 8 | attempt)
    }

    pub(super) fn begin(&self, state: &mut State, client: usize) {
        let config = WaiterConfig {
            lease_ttl: self.lease,
            waiter_ttl: self.waiter,
            give_up: None,
            patience: TICK * 10,
            seed: 0,
        };
        let waiter = Waiter::new(config, self.moment(state, client));
        state.clients[client].attempts -= 1;
        state.clients[client].begun += 1;
        state.clients[client].stage = Stage::Waiting(Box::new(waiter));
        self.drive(state, client);
    }

    /// Calls a machine, and does what it wants done.
    pub(super) fn drive(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        let request = match &mut state.clients[client].stage {
            Stage::Idle => None,
            Stage::Waiting(waiter) => {
                waiter.handle_timeout(now);
                waiter.poll_transmit(now)
            }
            Stage::Held(held) => {
                held.renewal.handle_timeout(now);
                held.renewal.poll_transmit(now)
            }
        };
        if let Some(kind) = request {
            self.transmit(state, client, kind);
        }
        self.settle(state, client);
    }

    fn transmit(&self, state: &mut State, client: usize, kind: Request) {
        let id = Self::id(state, client);
        let command = match kind {
            Request::Claim => Command::Claim(Claim {
                waiter_ttl: self.waiter,
                inbox: Some(inbox(client)),
                owner: Owner::new("", u32::try_from(client).unwrap_or_default(), None),
                ..Claim::new(id, self.people[client].mode, self.lease)
            }),
            Request::Renew(ttl) => Command::Renew(Renew::new(id, ttl)),
        };
        let sent = self.moment(state, client);
        let it = &mut state.clients[client];
        it.serial += 1;
        let serial = it.serial;
        it.pending = Some(Pending {
            serial,
            kind,
            sent,
            overtaken: false,
        });
        if it.connected {
            self.send(state, client, Some(serial), command);
        } else {
            self.unanswered(state, client);
        }
    }

    fn send(&self, state: &mut State, client: usize, serial: Option<u8>, command: Command) {
        if state.clients[client].connected {
            state.wire.push(Message {
                client,
                epoch: state.clients[client].epoch,
                what: Arc::new(What::Request(serial, command)),
            });
        }
    }

    pub(super) fn time_out(&self, state: &mut State, client: usize) {
        self.unanswered(state, client);
        self.settle(state, client);
    }

    pub(super) fn unanswered(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        state.clients[client].pending = None;
        match &mut state.clients[client].stage {
            Stage::Idle => {}
            Stage::Waiting(waiter) => waiter.handle_unanswered(now),
            Stage::Held(held) => held.renewal.handle_unanswered(now),
        }
    }

    pub(super) fn hear_answer(
        &self,
        state: &mut State,
        client: usize,
        epoch: u64,
        serial: u8,
        reply: &Reply,
        at: StoreTime,
    ) {
        let now = self.moment(state, client);
        let it = &mut state.clients[client];
        if it.epoch != epoch {
            return;
        }
        let Some(pending) = it.pending.take_if(|pending| pending.serial == serial) else {
            return;
        };
        match &mut it.stage {
            Stage::Idle => {}
            Stage::Waiting(waiter) => {
                waiter.handle_reply(now, pending.sent, epoch, pending.kind, reply, at);
            }
            Stage::Held(held) => {
                if let Request::Renew(ttl) = pending.kind {
                    held.renewal.handle_reply(now, pending.sent, ttl, reply);
                }
                let lost = matches!(held.renewal.standpoint(), Standpoint::Lost(_));
                let token = Some(held.token);
                let named = matches!(reply, Reply::Standing(standing) if standing.token == token);
                let fine = lost || named || pending.overtaken;
                state.broken.require(Promise::OwnToken, fine);
            }
        }
        self.settle(state, client);
    }

    pub(super) fn hear_push(
        &self,
        state: &mut State,
        client: usize,
        epoch: u64,
        event: &Event,
        at: StoreTime,
    ) {
        let now = self.moment(state, client);
        if !Self::is_proved(state, client, event) {
            self.seen.note("not proved");
            return;
        }
        match (event, &mut state.clients[client].stage) {
            (Event::Granted { arrival, token, .. }, Stage::Waiting(waiter)) => {
                waiter.handle_granted(epoch, *arrival, *token, at);
                if matches!(waiter.verdict(), Some(Verdict::Granted { .. })) {
                    self.seen.note("granted by a push");
                }
            }
            (
                Event::Next {
                    arrival,
                    blocked_until,
                    ..
                },
                Stage::Waiting(waiter),
            ) => waiter.handle_next(now, *arrival, blocked_until.since(at)),
            (Event::Revoked { arrival, .. }, Stage::Held(held)) if *arrival == held.arrival => {
                held.renewal.handle_revoked();
                self.seen.note("revoked");
            }
            _ => {}
        }
        self.settle(state, client);
    }

    /// Whether the sender knows the id of this client's claim, where that counts. The event
    /// has the id that its sender knows.
    fn is_proved(state: &State, client: usize, event: &Event) -> bool {
        let (kind, arrival, number, id) = match event {
            Event::Granted {
                arrival, token, id, ..
            } => ("g", arrival, token.0, id),
            Event::Revoked { arrival, id, .. } => ("r", arrival, 0, id),
            _ => return true,
        };
        let said = format!("{kind} {arrival} {number}");
        Identity::new(Self::id(state, client)).proves(&said, &Proof::of(id, &said))
    }

    /// A stranger has heard where a claim stands, and tells its client that it holds.
    pub(super) fn forge(&self, state: &mut State, client: usize) {
        let Stage::Waiting(waiter) = &state.clients[client].stage else {
            return;
        };
        let (arrival, _) = waiter.position().unwrap_or((Arrival(0), 0));
        let granted = Event::Granted {
            inbox: inbox(client),
            arrival,
            id: ClaimId::from_random(u128::MAX),
            token: Token(state.highest.0 + 1),
            deadline: state.clock,
        };
        let epoch = state.clients[client].epoch;
        let at = state.clock;
        state.wire.push(Message {
            client,
            epoch,
            what: Arc::new(What::Push(granted, at)),
        });
    }

    pub(super) fn connect(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        let it = &mut state.clients[client];
        (it.connected, it.epoch) = (true, it.epoch + 1);
        match &mut it.stage {
            Stage::Idle => {}
            Stage::Waiting(waiter) => waiter.handle_reset(now),
            Stage::Held(held) => held.renewal.handle_reset(now),
        }
    }

    /// Moves on where a machine has come to an end.
    fn settle(&self, state: &mut State, client: usize) {
        match &state.clients[client].stage {
            Stage::Idle => {}
            Stage::Waiting(waiter) => match waiter.verdict() {
                None => {}
                Some(Verdict::Granted { .. }) => self.granted(state, client),
                Some(verdict) => {
                    state.given_up |= verdict == Verdict::Unreachable;
                    self.leave(state, client, verdict != Verdict::Gone);
                }
            },
            Stage::Held(held) => {
                if let Standpoint::Lost(loss) = held.renewal.standpoint() {
                    self.note_loss(loss);
                    self.leave(state, client, loss != Loss::Gone);
                }
            }
        }
    }

    fn note_loss(&self, loss: Loss) {
        match loss {
            Loss::Gone | Loss::Forgotten => self.seen.note("lost: gone"),
            Loss::Unanswered => self.seen.note("lost: unanswered"),
            _ => {}
        }
    }

    fn granted(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        let Stage::Waiting(waiter) = &state.clients[client].stage else {
            return;
        };
        let Some(Verdict::Granted {
            arrival,
            token,
            validity,
            confirm_at,
        }) = waiter.verdict()
        else {
            return;
        };
        let policy = RenewalPolicy::Automatic(1.0 / 3.0);
        let pending = &mut state.clients[client].pending;
        let in_flight = pending.is_some();
        if let Some(pending) = pending {
            pending.overtaken = true;
        }
        let renewal = Renewal::new(now, self.lease, policy, validity, confirm_at, in_flight, 0);
        let known = state.grants.contains(&(arrival, token, client));
        state.broken.require(Promise::OwnToken, known);
        state.clients[client].stage = Stage::Held(Box::new(Held {
            renewal: renewal.of(arrival, token),
            arrival,
            token,
        }));
    }

    /// Ends an attempt.
    pub(super) fn leave(&self, state: &mut State, client: usize, release: bool) {
        let release = release.then(|| {
            Command::Release(Release {
                id: Self::id(state, client),
                hand_off: true,
                settled: false,
                unused: false,
            })
        });
        state.clients[client].stage = Stage::Idle;
        state.clients[client].pending = None;
        if let Some(command) = release {
            self.send(state, client, None, command);
        }
    }
}
