//! The client's shell: what an adapter does around the machines.

use std::time::Duration;

use leasehold_core::{
    Claim, ClaimId, Command, Event, Identity, Loss, Mode, Owner, Release, Renew, Renewal,
    RenewalPolicy, Reply, Request, Standpoint, StoreTime, Verdict, Waiter, WaiterConfig,
};

use crate::client_machines::changes::says_something;
use crate::client_machines::climate::MS;
use crate::client_machines::world::{Attempt, Change, Held, Pending, Stage, What, World};

impl World {
    pub(crate) fn begin(&mut self, client: usize) {
        if self.clients[client].attempt.is_some() {
            return;
        }
        let now = self.moment(client);
        let climate = self.climate.clone();
        let last = self.healed;
        let id = ClaimId::from_random(u128::from(self.dice.draw()));
        let policy = match self.dice.between(0, 10) {
            _ if last => RenewalPolicy::Automatic(1.0 / 3.0),
            0 | 1 => RenewalPolicy::Manual,
            2 | 3 => RenewalPolicy::Fixed,
            4 => RenewalPolicy::Automatic(0.8),
            _ => RenewalPolicy::Automatic(1.0 / 3.0),
        };
        let give_up = (!last && self.dice.chance(150))
            .then(|| now + Duration::from_micros(self.dice.between(0, climate.lease_micros() * 2)));
        let config = WaiterConfig {
            lease_ttl: climate.lease,
            waiter_ttl: climate.waiter,
            give_up,
            patience: Duration::from_micros(climate.op_timeout * 3),
            seed: self.dice.draw(),
        };
        let shared = self.dice.chance(climate.shared);
        let bounded = !last && self.dice.chance(climate.bounded);
        let longest = self
            .dice
            .between(climate.lease_micros(), climate.lease_micros() * 4);
        let attempt = Attempt {
            turn: None,
            downgraded: false,
            max_hold: bounded.then(|| Duration::from_micros(longest)),
            mode: if shared {
                Mode::Shared
            } else {
                Mode::Exclusive
            },
            policy,
            wait: last || !self.dice.chance(150),
            ahead: !last && climate.unfair && self.dice.chance(300),
            stage: Stage::Waiting(Box::new(Waiter::new(config, now))),
            pending: None,
            told_to_wait: None,
            end: 0,
            identity: Identity::new(id),
        };
        self.tell(|| {
            format!(
                "client {client} begins {id:?} {policy:?}",
                id = attempt.identity.id()
            )
        });
        self.clients[client].attempt = Some(attempt);
        self.clients[client].causes.push(self.now);
        self.drive(client);
    }

    /// Ends an attempt, however it went, and begins another some time.
    pub(crate) fn over(&mut self, client: usize, release: bool) {
        let Some(attempt) = self.clients[client].attempt.take() else {
            return;
        };
        if release {
            let hand_off = !self.climate.unfair || self.dice.chance(700);
            for id in attempt.identity.ids() {
                self.serial += 1;
                let request = self.serial;
                self.send(
                    client,
                    request,
                    Command::Release(Release {
                        id,
                        hand_off,
                        settled: false,
                        unused: false,
                    }),
                );
            }
        }
        self.begin_again(client);
    }

    pub(crate) fn begin_again(&mut self, client: usize) {
        if !self.healed && self.now < self.climate.until {
            let pause =
                self.dice
                    .one_of(&[0, self.climate.op_timeout, self.climate.lease_micros()]);
            let at = self.now + self.dice.between(0, pause + 1);
            self.plan(at, What::Begin { client });
        }
    }

    /// The caller gives its lease back.
    pub(crate) fn leave(&mut self, client: usize) {
        self.tell(|| format!("client {client} gives back"));
        self.over(client, true);
    }

    /// Looks at the machine's deadlines, sends what it wants sent, and sets the
    /// next alarm.
    pub(crate) fn drive(&mut self, client: usize) {
        let now = self.moment(client);
        loop {
            self.settle(client);
            let Some(attempt) = &mut self.clients[client].attempt else {
                return;
            };
            let request = match &mut attempt.stage {
                Stage::Waiting(waiter) => {
                    waiter.handle_timeout(now);
                    waiter.poll_transmit(now)
                }
                Stage::Held(held) => {
                    held.renewal.handle_timeout(now);
                    held.renewal.poll_transmit(now)
                }
                Stage::Adopting(_) => None,
            };
            let Some(kind) = request else { break };
            self.transmit(client, kind);
        }
        self.settle(client);
        let Some(attempt) = &self.clients[client].attempt else {
            return;
        };
        let next = match &attempt.stage {
            Stage::Waiting(waiter) => waiter.poll_timeout(),
            Stage::Held(held) => held.renewal.poll_timeout(),
            Stage::Adopting(_) => None,
        };
        if let Some(next) = next {
            let at = next
                .0
                .saturating_sub(self.clients[client].origin)
                .max(self.now);
            // A machine that wants to be called at once, again and again, would
            // never let the world go on.
            if self.clients[client].wakes_at != Some(at) {
                self.clients[client].wakes_at = Some(at);
                self.plan(at, What::Wake { client });
            }
        }
    }

    pub(crate) fn transmit(&mut self, client: usize, kind: Request) {
        let now = self.moment(client);
        self.serial += 1;
        let request = self.serial;
        let climate = self.climate.clone();
        self.no_storm(client);
        let process = &mut self.clients[client];
        let attempt = process.attempt.as_mut().unwrap();
        assert!(attempt.pending.is_none(), "two requests under way");
        if let Stage::Held(held) = &mut attempt.stage {
            let by_itself = matches!(attempt.policy, RenewalPolicy::Manual) && held.whole;
            let again = std::mem::take(&mut held.ask_again);
            assert!(
                !by_itself || again,
                "seed {}: a manual lease was renewed by itself",
                self.seed
            );
        }
        let identity = &attempt.identity;
        attempt.pending = Some(Pending {
            request,
            id: identity.id().clone(),
            rotates: identity.pending().map(|rotate| rotate.to),
            kind,
            sent: now,
        });
        let command = match kind {
            Request::Claim => Command::Claim(Claim {
                waiter_ttl: climate.waiter,
                wait: attempt.wait,
                ahead: attempt.ahead,
                inbox: Some(process.inbox.clone()),
                owner: Owner::new("host", u32::try_from(client).unwrap(), None),
                ..Claim::new(identity.id().clone(), attempt.mode, climate.lease)
            }),
            Request::Renew(ttl) => Command::Renew(Renew {
                downgrade: attempt.downgraded,
                rotate: identity.pending(),
                ..Renew::new(identity.id().clone(), ttl)
            }),
        };
        let (connected, end) = (process.connected, attempt.end);
        let held = matches!(attempt.stage, Stage::Held(_));
        self.send(client, request, command);
        if held && self.dice.chance(climate.rotates / 4) {
            // The id is replaced while the renewal is under way.
            let at = self.now + self.dice.between(0, climate.delay.1 * 2);
            let what = What::Change {
                client,
                request: end,
                change: Change::Rotate,
            };
            self.plan(at, what);
        }
        if connected {
            let at = self.now + climate.op_timeout;
            self.plan(at, What::Overdue { client, request });
        } else {
            self.unanswered(client, request);
        }
    }

    pub(crate) fn unanswered(&mut self, client: usize, request: u64) {
        let now = self.moment(client);
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        // A rotation without an answer goes along with the next renewal.
        attempt.turn.take_if(|turn| turn.request == request);
        if attempt
            .pending
            .as_ref()
            .is_none_or(|pending| pending.request != request)
        {
            return;
        }
        attempt.pending = None;
        match &mut attempt.stage {
            Stage::Waiting(waiter) => waiter.handle_unanswered(now),
            Stage::Held(held) => {
                held.ask_again = true;
                held.renewal.handle_unanswered(now);
            }
            Stage::Adopting(_) => return self.offer_unanswered(client),
        }
        self.drive(client);
    }

    pub(crate) fn answer(
        &mut self,
        client: usize,
        epoch: u64,
        request: u64,
        reply: &Reply,
        at: StoreTime,
    ) {
        let now = self.moment(client);
        if self.clients[client].epoch != epoch {
            return;
        }
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        if let Some(turn) = attempt.turn.take_if(|turn| turn.request == request) {
            return self.turned(client, &turn, reply);
        }
        let Some(pending) = attempt.pending.take_if(|p| p.request == request) else {
            return;
        };
        match &mut attempt.stage {
            Stage::Waiting(waiter) => {
                if let Reply::Standing(standing) = reply
                    && standing.token.is_none()
                {
                    attempt.told_to_wait = Some((epoch, standing.arrival));
                }
                waiter.handle_reply(now, pending.sent, epoch, pending.kind, reply, at);
            }
            Stage::Held(_) => self.renewed(client, &pending, reply),
            Stage::Adopting(_) => self.offer_answered(client, &pending, reply),
        }
        self.drive(client);
    }

    /// An answer to a renewal.
    fn renewed(&mut self, client: usize, pending: &Pending, reply: &Reply) {
        let (now, lease) = (self.moment(client), self.climate.lease);
        let attempt = self.clients[client].attempt.as_mut().unwrap();
        let Stage::Held(held) = &mut attempt.stage else {
            return;
        };
        let Request::Renew(ttl) = pending.kind else {
            panic!("a lease was claimed again")
        };
        let says = says_something(&attempt.identity, pending);
        match reply {
            Reply::Superseded | Reply::Gone if !says => {
                self.had.stale += 1;
                held.ask_again = true;
                held.renewal.handle_unanswered(now);
                return;
            }
            Reply::Taken => {
                attempt.identity.handle_taken();
                held.ask_again = true;
                held.renewal.handle_unanswered(now);
                return;
            }
            Reply::Standing(_) => {
                if let Some(to) = &pending.rotates {
                    attempt.identity.handle_rotated(to);
                }
            }
            _ => {}
        }
        held.renewal.handle_reply(now, pending.sent, ttl, reply);
        held.whole |= ttl >= lease;
        let kept = !matches!(held.renewal.standpoint(), Standpoint::Lost(_));
        let same = matches!(reply, Reply::Standing(s) if s.arrival == held.arrival);
        let arrival = held.arrival;
        self.require(!kept || same, || {
            format!("client {client} keeps {arrival:?} by {reply:?}")
        });
        self.no_loss_of_what_is_held(client, arrival, reply);
    }

    pub(crate) fn push(&mut self, client: usize, epoch: u64, event: &Event, at: StoreTime) {
        let now = self.moment(client);
        self.tell(|| format!("client {client} hears {event:?} of epoch {epoch}"));
        self.clients[client].causes.push(self.now);
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        match (event, &mut attempt.stage) {
            (Event::Granted { arrival, token, .. }, Stage::Waiting(waiter)) => {
                let told = attempt.told_to_wait;
                waiter.handle_granted(epoch, *arrival, *token, at);
                let believed = matches!(waiter.verdict(), Some(Verdict::Granted { .. }));
                self.require(!believed || told == Some((epoch, *arrival)), || {
                    format!("client {client} believes {event:?} of epoch {epoch}, told {told:?}")
                });
            }
            (
                Event::Next {
                    arrival,
                    blocked_until,
                    ..
                },
                Stage::Waiting(waiter),
            ) => {
                waiter.handle_next(now, *arrival, blocked_until.since(at));
            }
            (Event::Revoked { arrival, .. }, Stage::Held(held)) if *arrival == held.arrival => {
                held.renewal.handle_revoked();
            }
            (Event::Adopted { arrival, .. }, Stage::Held(held)) if *arrival == held.arrival => {
                held.renewal.handle_adopted();
            }
            _ => {}
        }
        self.drive(client);
    }

    /// Moves an attempt on when its machine has come to an end.
    pub(crate) fn settle(&mut self, client: usize) {
        let now = self.moment(client);
        let climate = self.climate.clone();
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        match &mut attempt.stage {
            Stage::Waiting(waiter) => match waiter.verdict() {
                None => {}
                Some(Verdict::Granted {
                    arrival,
                    token,
                    validity,
                    confirm_at,
                }) => {
                    let seed = self.dice.draw();
                    let in_flight = attempt.pending.is_some();
                    self.require_in_flight(client, in_flight);
                    let attempt = self.clients[client].attempt.as_mut().unwrap();
                    let renewal = Renewal::new(
                        now,
                        climate.lease,
                        attempt.policy,
                        validity,
                        confirm_at,
                        in_flight,
                        seed,
                    );
                    let renewal = renewal.of(arrival, token).at_most(attempt.max_hold);
                    attempt.stage = Stage::Held(Box::new(Held {
                        renewal,
                        arrival,
                        since: now,
                        whole: confirm_at.is_none(),
                        ask_again: false,
                    }));
                    self.serial += 1;
                    let end = self.serial;
                    attempt.end = end;
                    self.had.leases += 1;
                    self.tell(|| {
                        format!("client {client} holds {arrival} by {token}, {validity:?}")
                    });
                    self.granted(arrival, token, client);
                    let (low, high) = climate.hold;
                    let hold = self.dice.between(low, high + 1);
                    if !self.healed {
                        self.plan_changes(client, end, hold);
                        self.plan(
                            self.now + hold,
                            What::End {
                                client,
                                request: end,
                            },
                        );
                    }
                }
                Some(verdict) => {
                    self.tell(|| format!("client {client} ends with {verdict:?}"));
                    let gone = matches!(verdict, Verdict::Gone);
                    let reached = !self.fair_weather() || verdict != Verdict::Unreachable;
                    self.require(reached, || {
                        format!("client {client} gave up a store that answers")
                    });
                    self.over(client, !gone);
                    if self.healed {
                        self.plan(self.now + MS, What::Begin { client });
                    }
                }
            },
            Stage::Held(held) => {
                let fixed = matches!(attempt.policy, RenewalPolicy::Fixed);
                let end = held.since + climate.lease;
                let until = held.renewal.validity().until();
                let standpoint = held.renewal.standpoint();
                let bound = attempt.max_hold.map(|max_hold| held.since + max_hold);
                self.require(!fixed || until <= end, || "a fixed lease goes on".into());
                self.require(bound.is_none_or(|bound| until <= bound), || {
                    "a lease goes on beyond its longest hold".into()
                });
                if let Standpoint::Lost(loss) = standpoint {
                    self.tell(|| format!("client {client} lost its lease: {loss:?}"));
                    self.had.bounded += u64::from(loss == Loss::MaxHold);
                    self.over(client, loss != Loss::Gone);
                    if self.healed {
                        self.plan(self.now + MS, What::Begin { client });
                    }
                }
            }
            Stage::Adopting(_) => {}
        }
    }

    pub(crate) fn require_in_flight(&self, client: usize, in_flight: bool) {
        let attempt = self.clients[client].attempt.as_ref().unwrap();
        if let Stage::Waiting(waiter) = &attempt.stage {
            self.require(waiter.in_flight() == in_flight, || {
                "in_flight is wrong".into()
            });
        }
    }
}
