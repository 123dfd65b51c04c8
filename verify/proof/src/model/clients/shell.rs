//! A client around its claim: what an adapter does, and no decision. The machine of its key is the
//! product's own.

use leasehold_core::{
    Acknowledges, Arrival, Claim, ClaimId, ClaimMachine, ClaimNumber, ClientInfo, Command,
    Deadlines, End, Event, Failure, KeyMachine, LeaseState, Loss, Moment, Phase, Push, Reply,
    Response, Terms, Token, Transmit,
};

use super::client::{Departure, Lease, Pending};
use super::wire::What;
use super::{Answer, ClientsModel, State, TICK, inbox};
use crate::model::promise::Promise;

impl ClientsModel {
    /// Each attempt has an id of its own.
    pub(super) fn id(state: &State, client: usize) -> ClaimId {
        let attempt = u128::from(state.clients[client].begun);
        ClaimId::from_random((client as u128) << 8 | attempt)
    }

    pub(super) fn lease_terms(&self, client: usize) -> Terms {
        let person = &self.people[client];
        Terms {
            ttl: self.lease,
            waiter_ttl: self.waiter,
            operation: TICK * 10,
            policy: person.policy,
            hand_off: person.hand_off,
            max_hold: person.max_hold,
            rotate_every: None,
            acknowledges: Acknowledges::Nothing,
        }
    }

    pub(super) fn deadlines() -> Deadlines {
        Deadlines::new(Moment(0), 0)
    }

    /// Numbers in the order of the attempts, whatever came before.
    pub(super) fn number(state: &State, client: usize) -> ClaimNumber {
        ClaimNumber(u64::from(state.clients[client].begun) << 8 | client as u64)
    }

    pub(super) fn begin(&self, state: &mut State, client: usize) {
        let it = &mut state.clients[client];
        it.attempts -= 1;
        it.begun += 1;
        it.adopted = false;
        self.note_cause(state, client);
        let id = Self::id(state, client);
        let person = &self.people[client];
        let claim = Claim {
            waiter_ttl: self.waiter,
            wait: person.wait,
            ahead: person.ahead,
            inbox: Some(inbox(self.process(client))),
            runs: self.runs(client),
            owner: ClientInfo::new("", u32::try_from(client).unwrap_or_default(), None),
            ..Claim::new(id, person.mode, self.lease)
        };
        let (now, number) = (self.moment(state, client), Self::number(state, client));
        let (terms, deadlines) = (self.lease_terms(client), Self::deadlines());
        let machine = &mut state.machines[self.process(client)];
        machine.claim(number, (), claim, terms, deadlines, now);
        state.clients[client].claim = Some(number);
        self.drive(state, client);
    }

    /// Changes a claim of its process; `None` if that is over.
    pub(super) fn update<T>(
        &self,
        state: &mut State,
        client: usize,
        change: impl FnOnce(&mut ClaimMachine, Moment) -> T,
    ) -> Option<T> {
        let (now, number) = (self.moment(state, client), state.clients[client].claim?);
        let machine = &mut state.machines[self.process(client)];
        machine.update(now, number, |claim| change(claim, now))
    }

    /// Calls a claim, and does what it wants done.
    pub(super) fn drive(&self, state: &mut State, client: usize) {
        // One request keeps the claim, and one is for each thing that its caller wants.
        for _ in 0..=state.clients[client].changes.len() {
            let transmit = self.update(state, client, |claim, now| {
                claim.handle_timeout(now);
                claim.poll_transmit(now, || None)
            });
            if let Some(transmit) = transmit.flatten() {
                self.transmit(state, client, transmit);
            }
        }
        self.look_at_all(state, client, None);
    }

    fn transmit(&self, state: &mut State, client: usize, transmit: Transmit) {
        self.judge_request(state, client, &transmit);
        let it = &mut state.clients[client];
        it.serial = it.serial.wrapping_add(1);
        let (serial, command) = (it.serial, transmit.command.clone());
        it.pending.push(Pending {
            serial,
            transmit,
            overtaken: false,
        });
        if it.connected {
            Self::send(state, client, Some(serial), &command);
        } else {
            let last = it.pending.len() - 1;
            self.unanswered(state, client, last);
        }
    }

    pub(super) fn send(state: &mut State, client: usize, serial: Option<u8>, command: &Command) {
        if state.clients[client].connected {
            let epoch = state.clients[client].epoch;
            state.put_on_wire(client, epoch, What::Request(serial, command.clone()));
        }
    }

    pub(super) fn time_out(&self, state: &mut State, client: usize) {
        self.unanswered(state, client, 0);
        self.look_at_all(state, client, None);
    }

    /// The request at that place among those that are waited for.
    fn unanswered(&self, state: &mut State, client: usize, place: usize) {
        let it = &mut state.clients[client];
        it.lease.again |= self.judges_leases();
        let pending = it.pending.remove(place);
        self.answer(state, client, &pending, Err(Failure::Unanswered));
    }

    fn answer(&self, state: &mut State, client: usize, to: &Pending, answer: Answer) {
        let now = self.moment(state, client);
        if let Some(number) = state.clients[client].claim {
            let machine = &mut state.machines[self.process(client)];
            machine.handle_answer(now, number, &to.transmit, answer);
        }
    }

    pub(super) fn hear_answer(&self, state: &mut State, to: (usize, u8), heard: Response) {
        let (client, serial) = to;
        let is_late = state.clients[client].epoch != heard.epoch;
        if is_late || self.has_left(state, client, serial, Ok(heard)) {
            return;
        }
        let pending = &mut state.clients[client].pending;
        let Some(place) = pending.iter().position(|pending| pending.serial == serial) else {
            return;
        };
        let pending = pending.remove(place);
        let held = self.claim(state, client).and_then(ClaimMachine::token);
        self.answer(state, client, &pending, Ok(heard));
        if let (Some(_), Some(claim)) = (held, self.claim(state, client)) {
            let lost = matches!(claim.state(), Some(LeaseState::Lost(_)));
            let named = matches!(heard.reply, Reply::Standing(it) if it.token == held);
            let rotated = state.clients[client].lease.rotations > 0;
            let stale = rotated && !matches!(heard.reply, Reply::Standing(_));
            let fine = lost || named || pending.overtaken || stale;
            state.broken.require(Promise::OwnToken, fine);
            let lease = &mut state.clients[client].lease;
            lease.again |= stale && !lost;
            if let Command::Renew(renew) = &*pending.transmit.command {
                lease.whole |= self.judges_leases() && renew.ttl >= self.lease;
            }
            if rotated {
                self.judge_loss(state, client, &heard.reply, lost);
            }
        }
        self.look_at_all(state, client, None);
    }

    pub(super) fn hear_push(&self, state: &mut State, client: usize, push: &Push) {
        let now = self.moment(state, client);
        self.note_cause(state, client);
        let hint = matches!(push, Push::Next { .. });
        if !hint && !push.is_proved_by(&Self::id(state, client)) {
            self.seen.note("not proved");
        }
        state.machines[self.process(client)].handle_push(now, push);
        let lease = self.claim(state, client).and_then(ClaimMachine::state);
        if lease == Some(LeaseState::Lost(Loss::Revoked)) {
            self.seen.note("revoked");
        }
        self.look_at_all(state, client, Some("granted by a push"));
    }

    /// After anything has happened to a process: sees what has become of its claims, and moves on
    /// where one has come to an end.
    pub(super) fn look_at_all(&self, state: &mut State, client: usize, how: Option<&'static str>) {
        let machine = &mut state.machines[self.process(client)];
        while machine.poll_changed(|_, (), _, _| ()) {}
        for mate in self.mates(client) {
            let Some(claim) = self.claim(state, mate) else {
                continue;
            };
            let is = (claim.phase() == Phase::Held, claim.behind());
            let until = claim.valid_until();
            let was = std::mem::replace(&mut state.clients[mate].seen, is);
            if is.1.is_some() && is.1 != was.1 {
                self.seen.note("granted in a run");
            }
            if is.0 && !was.0 {
                if let Some(how) = how {
                    self.seen.note(how);
                }
                if self.judges_leases() {
                    let now = self.moment(state, mate);
                    let lease = &mut state.clients[mate].lease;
                    (lease.since, lease.whole) = (now, until.since(now) > self.waiter);
                }
                self.judge_grant(state, mate);
            }
            self.judge_lifetime(state, mate);
            self.settle_changes(state, mate);
            self.settle(state, mate);
        }
    }

    /// A stranger has heard where a claim stands, and tells its client that it holds.
    pub(super) fn forge(&self, state: &mut State, client: usize) {
        let Some(claim) = self.claim(state, client) else {
            return;
        };
        let granted = Event::Granted {
            inbox: inbox(self.process(client)),
            arrival: claim.arrival().unwrap_or(Arrival(0)),
            id: ClaimId::from_random(u128::MAX),
            token: Token::from(state.highest.get() + 1),
            behind: None,
            deadline: state.clock,
            waited: std::time::Duration::ZERO,
        };
        let (epoch, at) = (state.clients[client].epoch, state.clock);
        state.put_on_wire(client, epoch, What::Push(granted, at));
    }

    /// A client that holds was granted what it says.
    fn judge_grant(&self, state: &mut State, client: usize) {
        let claim = self.claim(state, client);
        let grant = claim.and_then(|claim| Some((claim.arrival()?, claim.token()?, client)));
        if let Some(grant) = grant {
            for pending in &mut state.clients[client].pending {
                pending.overtaken = true;
            }
            let known = state.grants.contains(&grant);
            state.broken.require(Promise::OwnToken, known);
        }
    }

    /// Moves on where a claim has come to an end.
    fn settle(&self, state: &mut State, client: usize) {
        let Some(claim) = self.claim(state, client) else {
            return;
        };
        match (claim.phase(), claim.state()) {
            (Phase::Leaving | Phase::Over, _) => {
                state.given_up |= claim.end() == Some(End::Unreachable);
                self.leave(state, client);
            }
            (Phase::Held, Some(LeaseState::Lost(_))) if state.clients[client].hands_over() => {}
            (Phase::Held, Some(LeaseState::Lost(loss))) => {
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
            Loss::MaxHold => self.seen.note("longest hold"),
            _ => {}
        }
    }

    /// Ends an attempt. What it sends in leaving is sent once: that may be lost, too.
    pub(super) fn leave(&self, state: &mut State, client: usize) {
        let left = self.update(state, client, |claim, now| {
            claim.leave(now);
            let release = claim.poll_transmit(now, || None);
            (claim.arrival(), claim.passed(), release)
        });
        let it = &mut state.clients[client];
        (it.pending, it.changes) = (Vec::new(), Vec::new());
        let (sent, causes) = (it.lease.sent, it.lease.causes);
        it.seen = (false, None);
        it.lease = Lease {
            sent,
            causes,
            ..Lease::default()
        };
        let (Some((arrival, passed, release)), Some(number)) = (left, it.claim.take()) else {
            return;
        };
        if !self.runs(client) {
            // Nobody else is there to hear of its end. Who rotates may leave under two ids.
            let (now, mut release) = (self.moment(state, client), release);
            while let Some(transmit) = release {
                Self::send(state, client, None, &transmit.command);
                let machine = &mut state.machines[client];
                machine.handle_answer(now, number, &transmit, Err(Failure::Unanswered));
                let next = machine.update(now, number, |claim| claim.poll_transmit(now, || None));
                release = next.flatten();
            }
            state.machines[client] = KeyMachine::default();
            return;
        }
        let now = self.moment(state, client);
        state.machines[self.process(client)].detach(now, number);
        if let Some(transmit) = release {
            let it = &mut state.clients[client];
            it.serial += 1;
            let (serial, command) = (it.serial, transmit.command.clone());
            it.departures.push(Departure {
                serial,
                number,
                transmit,
            });
            Self::send(state, client, Some(serial), &command);
        } else {
            self.note_end(state, client, arrival);
        }
        self.judge_turn(state, client, passed);
        self.look_at_all(state, client, Some("passed on"));
    }

    /// Whoever holds by what was passed on has a later token.
    fn judge_turn(&self, state: &mut State, client: usize, passed: Option<(Arrival, Token)>) {
        let Some((_, before)) = passed else { return };
        for mate in self.mates(client).filter(|it| !state.clients[*it].seen.0) {
            let token = self.claim(state, mate).and_then(ClaimMachine::token);
            let rises = token.is_none_or(|token| token > before);
            state.broken.require(Promise::Tokens, rises);
        }
    }
}
