//! A simulated client: drives the state machine of a claim as an adapter does.

use crate::client_machines::climate::MS;
use crate::client_machines::world::{Attempt, Held, ONE, Pending, Sent, What, World};
use crate::common::*;

impl World {
    pub(crate) fn begin(&mut self, client: usize) {
        if self.clients[client].attempt.is_some() {
            return;
        }
        let now = self.moment(client);
        let climate = self.climate.clone();
        let (last, lease) = (self.healed, climate.lease_micros());
        let id = ClaimId::from_random(u128::from(self.dice.draw()));
        let policy = match self.dice.between(0, 10) {
            _ if last => RenewalPolicy::Automatic(1.0 / 3.0),
            0 | 1 => RenewalPolicy::Manual,
            2 | 3 => RenewalPolicy::Fixed,
            4 => RenewalPolicy::Automatic(0.8),
            _ => RenewalPolicy::Automatic(1.0 / 3.0),
        };
        let give_up = (!last && self.dice.chance(150))
            .then(|| now + Duration::from_micros(self.dice.between(0, lease * 2)));
        let deadlines = self.deadlines(now, give_up);
        let mode = lock_mode(!self.dice.chance(climate.shared));
        let bounded = !last && self.dice.chance(climate.bounded);
        let longest = self.dice.between(lease, lease * 4);
        let max_hold = bounded.then(|| Duration::from_micros(longest));
        let claim = Claim {
            waiter_ttl: climate.waiter,
            wait: last || !self.dice.chance(150),
            ahead: !last && climate.unfair && self.dice.chance(300),
            inbox: Some(self.clients[client].inbox.clone()),
            owner: ClientInfo::new("host", u32::try_from(client).unwrap(), None),
            ..Claim::new(id.clone(), mode, climate.lease)
        };
        let terms = self.terms(policy, max_hold, 3);
        self.tell(|| format!("client {client} begins {id:?} {policy:?}"));
        let mut machine = KeyMachine::default();
        machine.claim(ONE, (), claim, terms, deadlines, now);
        self.clients[client].attempt = Some(Attempt::new(machine, mode, now));
        self.clients[client].causes.push(self.now);
        self.drive(client);
    }

    /// Whoever asks is patient for so many operations.
    pub(crate) fn terms(
        &mut self,
        policy: RenewalPolicy,
        max_hold: Option<Duration>,
        operations: u32,
    ) -> Terms {
        Terms {
            operation: Duration::from_micros(self.climate.op_timeout) * operations,
            ttl: self.climate.lease,
            waiter_ttl: self.climate.waiter,
            policy,
            hand_off: !self.climate.unfair || self.dice.chance(700),
            max_hold,
            rotate_every: None,
            acknowledges: Acknowledges::Nothing,
        }
    }

    pub(crate) fn deadlines(&mut self, now: Moment, give_up: Option<Moment>) -> Deadlines {
        Deadlines {
            give_up,
            ..Deadlines::new(now, self.dice.draw())
        }
    }

    /// Ends an attempt, however it went, and begins another some time. What it sends in
    /// leaving is sent once, and may be lost.
    pub(crate) fn over(&mut self, client: usize) {
        let now = self.moment(client);
        let Some(mut attempt) = self.clients[client].attempt.take() else {
            return;
        };
        attempt.update(now, |claim| claim.leave(now));
        while let Some((_, transmit)) = attempt.machine.poll_transmit(now, || None) {
            self.serial += 1;
            let request = self.serial;
            self.send(client, request, (*transmit.command).clone());
            attempt.hear(now, &transmit, Err(Failure::Unanswered));
        }
        self.begin_again(client);
    }

    pub(crate) fn begin_again(&mut self, client: usize) {
        if !self.healed && self.now < self.climate.until {
            let (operation, lease) = (self.climate.op_timeout, self.climate.lease_micros());
            let pause = self.dice.one_of(&[0, operation, lease]);
            let at = self.now + self.dice.between(0, pause + 1);
            self.plan(at, What::Begin(client));
        }
    }

    /// The caller gives its lease back.
    pub(crate) fn leave(&mut self, client: usize) {
        self.tell(|| format!("client {client} gives back"));
        self.over(client);
    }

    /// Looks at the claim's deadlines, sends what it wants sent, and sets the
    /// next alarm.
    pub(crate) fn drive(&mut self, client: usize) {
        let now = self.moment(client);
        loop {
            let Some(attempt) = &mut self.clients[client].attempt else {
                return;
            };
            attempt.machine.handle_timeout(now);
            self.settle(client);
            let Some(attempt) = &mut self.clients[client].attempt else {
                return;
            };
            let Some((_, transmit)) = attempt.machine.poll_transmit(now, || None) else {
                break;
            };
            self.transmit(client, transmit);
        }
        let Some(attempt) = &self.clients[client].attempt else {
            return;
        };
        if let Some(next) = attempt.machine.poll_timeout() {
            let at = next.0.saturating_sub(self.clients[client].origin);
            let at = at.max(self.now);
            // A claim that wants to be called at once, again and again, would
            // never let the world go on.
            if self.clients[client].wakes_at != Some(at) {
                self.clients[client].wakes_at = Some(at);
                self.plan(at, What::Wake(client));
            }
        }
    }

    fn transmit(&mut self, client: usize, transmit: Transmit) {
        self.serial += 1;
        let request = self.serial;
        let climate = self.climate.clone();
        self.no_storm(client);
        let process = &mut self.clients[client];
        let attempt = process.attempt.as_mut().unwrap();
        let under_way = attempt.pending.len();
        // One keeps the claim, and one for each thing that its caller wants, or wanted.
        let most = attempt.changing.len() + attempt.given_up;
        assert!(under_way <= most, "two requests under way");
        if !attempt.changing.is_empty() {
            // Callers have pauses of their own.
            process.causes.push(self.now);
        }
        let policy = attempt.life().terms().policy;
        if let Some(held) = &mut attempt.held {
            let by_itself = matches!(policy, RenewalPolicy::Manual) && held.whole;
            let again = std::mem::take(&mut held.ask_again) || !attempt.changing.is_empty();
            let seed = self.seed;
            assert!(!by_itself || again, "seed {seed}: renewed by itself");
        }
        let command = (*transmit.command).clone();
        attempt.pending.push(Pending { request, transmit });
        let (connected, end) = (process.connected, attempt.end);
        let held = attempt.held.is_some() && attempt.changing.is_empty();
        if under_way > 0 {
            self.send_apart(client, request, command);
        } else {
            self.send(client, request, command);
        }
        if held && self.dice.chance(climate.rotates / 4) {
            // The id is replaced while the renewal is under way.
            let at = self.now + self.dice.between(0, climate.delay.1 * 2);
            self.plan_rotation(client, end, at);
        }
        if connected {
            let at = self.now + climate.op_timeout;
            self.plan(at, What::Overdue(client, request));
        } else {
            self.unanswered(client, request);
        }
    }

    /// What the caller asks may overtake what keeps the claim.
    fn send_apart(&mut self, client: usize, request: u64, command: Command) {
        let there = self.clients[client].last_there;
        if self.climate.callers_apart {
            self.clients[client].last_there = 0;
        }
        self.send(client, request, command);
        let process = &mut self.clients[client];
        process.last_there = process.last_there.max(there);
    }

    fn take_pending(&mut self, client: usize, request: u64) -> Option<Pending> {
        let attempt = self.clients[client].attempt.as_mut()?;
        let of = |pending: &Pending| pending.request == request;
        let at = attempt.pending.iter().position(of)?;
        Some(attempt.pending.remove(at))
    }

    pub(crate) fn unanswered(&mut self, client: usize, request: u64) {
        let now = self.moment(client);
        let Some(pending) = self.take_pending(client, request) else {
            return;
        };
        let attempt = self.clients[client].attempt.as_mut().unwrap();
        if let Some(held) = &mut attempt.held {
            held.ask_again = true;
        }
        attempt.hear(now, &pending.transmit, Err(Failure::Unanswered));
        self.drive(client);
    }

    pub(crate) fn answer(&mut self, sent: Sent, reply: &Reply, at: StoreTime) {
        let (client, epoch) = (sent.client, sent.epoch);
        let now = self.moment(client);
        if self.clients[client].epoch != epoch {
            return;
        }
        let Some(pending) = self.take_pending(client, sent.request) else {
            return;
        };
        let lease = self.climate.lease;
        let attempt = self.clients[client].attempt.as_mut().unwrap();
        if let Reply::Standing(standing) = reply
            && standing.token.is_none()
        {
            attempt.told_to_wait = Some((epoch, standing.arrival));
        }
        let heard = Response {
            reply: *reply,
            at,
            epoch,
            enough: None,
        };
        attempt.hear(now, &pending.transmit, Ok(heard));
        let state = attempt.life().state();
        if let (Some(held), Command::Renew(renew)) = (&mut attempt.held, &*pending.transmit.command)
        {
            held.whole |= renew.ttl >= lease;
            let arrival = held.arrival;
            let lost = matches!(state, Some(LeaseState::Lost(_)));
            let same = matches!(reply, Reply::Standing(s) if s.arrival == arrival);
            let no_answer = matches!(reply, Reply::Superseded | Reply::Gone | Reply::Taken);
            if no_answer && !lost {
                self.had.add("stale answers", 1);
                held.ask_again = true;
            }
            self.require(lost || same || no_answer, || {
                format!("client {client} keeps {arrival:?} by {reply:?}")
            });
            if lost && !self.gives(client) {
                self.no_loss_of_what_is_held(client, arrival, reply);
            }
        }
        self.drive(client);
    }

    pub(crate) fn push(&mut self, client: usize, epoch: u64, event: &Event, at: StoreTime) {
        let now = self.moment(client);
        self.tell(|| format!("client {client} hears {event:?} of epoch {epoch}"));
        self.clients[client].causes.push(self.now);
        let push = Push::of(event, &Key::new("k").unwrap(), at, epoch);
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        let waited = attempt.life().phase() == Phase::Waiting;
        attempt.machine.handle_push(now, &push);
        let believed = waited && attempt.life().phase() == Phase::Held;
        if let Event::Granted { arrival, .. } = event {
            let told = attempt.told_to_wait;
            self.require(!believed || told == Some((epoch, *arrival)), || {
                format!("client {client} believes {event:?} of epoch {epoch}, told {told:?}")
            });
        }
        self.drive(client);
    }

    /// Moves an attempt on when its claim has come to something.
    fn settle(&mut self, client: usize) {
        self.settle_changes(client);
        let now = self.moment(client);
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        match attempt.life().phase() {
            Phase::Asking | Phase::Waiting => {}
            Phase::Held if attempt.held.is_none() => self.begin_to_hold(client),
            Phase::Held => {
                let since = attempt.held.as_ref().unwrap().since;
                let terms = *attempt.life().terms();
                let until = attempt.life().valid_until();
                let fixed = matches!(terms.policy, RenewalPolicy::Fixed);
                let bound = terms.max_hold.map(|max_hold| since + max_hold);
                let state = attempt.life().state();
                self.require(!fixed || until <= since + terms.ttl, || {
                    "a fixed lease goes on".into()
                });
                self.require(bound.is_none_or(|bound| until <= bound), || {
                    "a lease goes on beyond its longest hold".into()
                });
                if let Some(LeaseState::Lost(loss)) = state
                    && !self.gives(client)
                {
                    self.lose(client, loss);
                }
            }
            Phase::Leaving | Phase::Over => {
                if let Some(LeaseState::Lost(loss)) = attempt.life().state() {
                    return self.lose(client, loss);
                }
                let end = attempt.life().end();
                let at = now;
                self.tell(|| format!("client {client} ends with {end:?} at {at:?}"));
                let reached = !self.fair_weather() || end != Some(End::Unreachable);
                self.require(reached, || {
                    format!("client {client} gave up a store that answers")
                });
                self.over(client);
                if self.healed {
                    self.plan(self.now + MS, What::Begin(client));
                }
            }
        }
    }

    fn lose(&mut self, client: usize, loss: Loss) {
        self.tell(|| format!("client {client} lost its lease: {loss:?}"));
        let longest = u64::from(loss == Loss::MaxHold);
        self.had.add("longest holds", longest);
        self.over(client);
        if self.healed {
            self.plan(self.now + MS, What::Begin(client));
        }
    }

    fn begin_to_hold(&mut self, client: usize) {
        let now = self.moment(client);
        let climate = self.climate.clone();
        self.serial += 1;
        let end = self.serial;
        let attempt = self.clients[client].attempt.as_mut().unwrap();
        let arrival = attempt.life().arrival().unwrap();
        let token = attempt.life().token().unwrap();
        let until = attempt.life().valid_until();
        attempt.held = Some(Held {
            arrival,
            since: now,
            whole: until.since(now) > climate.waiter,
            ask_again: false,
        });
        attempt.end = end;
        self.had.add("leases", 1);
        self.tell(|| format!("client {client} holds {arrival} by {token} until {until:?}"));
        self.granted(arrival, token, client);
        let (low, high) = climate.hold;
        let hold = self.dice.between(low, high + 1);
        if !self.healed {
            self.plan_changes(client, end, hold);
            self.plan(self.now + hold, What::End(client, end));
        }
    }
}
