//! A client around its claim: what an adapter does, and no decision.

use std::sync::Arc;

use leasehold_core::{
    Acknowledges, Arrival, Claim, ClaimId, ClientInfo, Command, End, Event, Failure, Heard, Key,
    Life, Limits, Loss, Phase, Push, RenewalPolicy, Reply, Standpoint, StoreTime, Terms, Token,
    Transmit,
};

use super::client::Pending;
use super::wire::{Message, What};
use super::{ClientsModel, State, TICK, inbox};
use crate::model::promise::Promise;

impl ClientsModel {
    /// Each attempt has an id of its own.
    pub(super) fn id(state: &State, client: usize) -> ClaimId {
        let attempt = u128::from(state.clients[client].begun);
        ClaimId::from_random((client as u128) << 8 | attempt)
    }

    pub(super) fn lease_terms(&self) -> Terms {
        Terms {
            ttl: self.lease,
            waiter_ttl: self.waiter,
            policy: RenewalPolicy::Automatic(1.0 / 3.0),
            hand_off: true,
            max_hold: None,
            rotate_every: None,
            acknowledges: Acknowledges::Nothing,
        }
    }

    pub(super) fn limits() -> Limits {
        Limits {
            give_up: None,
            patience: TICK * 10,
            operation: TICK * 10,
            seed: 0,
        }
    }

    pub(super) fn begin(&self, state: &mut State, client: usize) {
        state.clients[client].attempts -= 1;
        state.clients[client].begun += 1;
        state.clients[client].adopted = false;
        let claim = Claim {
            waiter_ttl: self.waiter,
            inbox: Some(inbox(self.process(client))),
            runs: self.runs(client),
            owner: ClientInfo::new("", u32::try_from(client).unwrap_or_default(), None),
            ..Claim::new(
                Self::id(state, client),
                self.people[client].mode,
                self.lease,
            )
        };
        let life = Life::claim(
            claim,
            self.lease_terms(),
            Self::limits(),
            self.moment(state, client),
        );
        state.clients[client].life = Some(Box::new(life));
        self.drive(state, client);
    }

    /// Calls a claim, and does what it wants done.
    pub(super) fn drive(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        if let Some(life) = &mut state.clients[client].life {
            life.handle_timeout(now);
            if let Some(transmit) = life.poll_transmit(now, || None) {
                self.transmit(state, client, transmit);
            }
        }
        self.settle(state, client);
    }

    fn transmit(&self, state: &mut State, client: usize, transmit: Transmit) {
        let it = &mut state.clients[client];
        it.serial += 1;
        let (serial, command) = (it.serial, transmit.command.clone());
        it.pending = Some(Pending {
            serial,
            transmit,
            overtaken: false,
        });
        if it.connected {
            Self::send(state, client, Some(serial), &command);
        } else {
            self.unanswered(state, client);
        }
    }

    pub(super) fn send(state: &mut State, client: usize, serial: Option<u8>, command: &Command) {
        if state.clients[client].connected {
            state.wire.push(Message {
                client,
                epoch: state.clients[client].epoch,
                what: Arc::new(What::Request(serial, command.clone())),
            });
        }
    }

    pub(super) fn time_out(&self, state: &mut State, client: usize) {
        self.unanswered(state, client);
        self.settle(state, client);
    }

    fn unanswered(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        let it = &mut state.clients[client];
        if let (Some(pending), Some(life)) = (it.pending.take(), &mut it.life) {
            life.handle_answer(now, &pending.transmit, Err(Failure::Unanswered));
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
        if it.epoch != epoch || self.has_left(state, client, serial) {
            return;
        }
        let it = &mut state.clients[client];
        let Some(pending) = it.pending.take_if(|pending| pending.serial == serial) else {
            return;
        };
        let mut behind = None;
        if let Some(life) = &mut it.life {
            behind = life.behind();
            let held = life.token().filter(|_| life.phase() == Phase::Held);
            let heard = Heard {
                reply: *reply,
                at,
                epoch,
                enough: None,
            };
            life.handle_answer(now, &pending.transmit, Ok(heard));
            if held.is_some() {
                let lost = matches!(life.standpoint(), Some(Standpoint::Lost(_)));
                let named = matches!(reply, Reply::Standing(standing) if standing.token == held);
                let fine = lost || named || pending.overtaken;
                state.broken.require(Promise::OwnToken, fine);
            } else {
                self.judge_grant(state, client);
            }
        }
        self.follow(state, client, behind);
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
        let Ok(key) = Key::new("k") else { return };
        let now = self.moment(state, client);
        let push = Push::of(event, &key, at, epoch);
        let hint = matches!(push, Push::Next { .. });
        if !hint && !push.is_proved_by(&Self::id(state, client)) {
            self.seen.note("not proved");
        }
        let Some(life) = &mut state.clients[client].life else {
            return;
        };
        let (waited, behind) = (life.phase() == Phase::Waiting, life.behind());
        life.handle_push(now, &push);
        if waited && life.phase() == Phase::Held {
            self.seen.note("granted by a push");
            self.judge_grant(state, client);
        } else if life.standpoint() == Some(Standpoint::Lost(Loss::Revoked)) {
            self.seen.note("revoked");
        }
        self.follow(state, client, behind);
        self.settle(state, client);
    }

    /// A stranger has heard where a claim stands, and tells its client that it holds.
    pub(super) fn forge(&self, state: &mut State, client: usize) {
        let Some(life) = &state.clients[client].life else {
            return;
        };
        let granted = Event::Granted {
            inbox: inbox(self.process(client)),
            arrival: life.arrival().unwrap_or(Arrival(0)),
            id: ClaimId::from_random(u128::MAX),
            token: Token(state.highest.0 + 1),
            behind: None,
            deadline: state.clock,
            waited: std::time::Duration::ZERO,
        };
        let epoch = state.clients[client].epoch;
        let at = state.clock;
        state.wire.push(Message {
            client,
            epoch,
            what: Arc::new(What::Push(granted, at)),
        });
    }

    /// A client that holds was granted what it says.
    pub(super) fn judge_grant(&self, state: &mut State, client: usize) {
        let it = &mut state.clients[client];
        let grant = it.life.as_ref().and_then(|life| {
            let held = life.phase() == Phase::Held;
            Some((life.arrival()?, life.token()?, client)).filter(|_| held)
        });
        if let Some(grant) = grant {
            if let Some(pending) = &mut it.pending {
                pending.overtaken = true;
            }
            let known = state.grants.contains(&grant);
            state.broken.require(Promise::OwnToken, known);
        }
    }

    /// Moves on where a claim has come to an end.
    pub(super) fn settle(&self, state: &mut State, client: usize) {
        let Some(life) = &state.clients[client].life else {
            return;
        };
        match (life.phase(), life.standpoint()) {
            (Phase::Leaving | Phase::Over, _) => {
                state.given_up |= life.end() == Some(End::Unreachable);
                self.leave(state, client);
            }
            (Phase::Held, Some(Standpoint::Lost(loss))) => {
                self.note_loss(loss);
                self.leave(state, client);
            }
            _ => {}
        }
    }

    fn note_loss(&self, loss: Loss) {
        match loss {
            Loss::Gone | Loss::Forgotten => self.seen.note("lost: gone"),
            Loss::Unanswered => self.seen.note("lost: unanswered"),
            _ => {}
        }
    }

    /// Ends an attempt. What it sends in leaving is sent once: that may be lost, too.
    pub(super) fn leave(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        let it = &mut state.clients[client];
        it.pending = None;
        let Some(mut life) = it.life.take() else {
            return;
        };
        life.leave(now);
        let release = life.poll_transmit(now, || None);
        if let Some(transmit) = &release {
            let told = self.runs(client);
            state.clients[client].serial += u8::from(told);
            let serial = told.then_some(state.clients[client].serial);
            Self::send(state, client, serial, &transmit.command);
        }
        if self.runs(client) {
            self.depart(state, client, &life, release);
        }
    }
}
