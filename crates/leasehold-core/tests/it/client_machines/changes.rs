//! What callers do with a lease besides holding it: replace its id, give it to
//! another client, let readers in.

use std::time::Duration;

use leasehold_core::{
    Adopt, ClaimId, Command, Identity, Mode, Owner, Renew, Renewal, RenewalPolicy, Reply, Request,
    Rotate, Validity,
};

use crate::client_machines::world::{Attempt, Change, Held, Offer, Pending, Stage, What, World};

/// How often an offered lease is asked for without an answer.
const ASKS: u32 = 5;

/// A request that changes a claim and does not prolong it.
const NO_LONGER: Duration = Duration::from_millis(1);

/// Whether an answer `Superseded` or `Gone` says something about the claim: it
/// does if the request went to the id that is current, or carried the rotation
/// that led, or may have led, to the one that is.
pub(crate) fn says_something(identity: &Identity, pending: &Pending) -> bool {
    let leads = |to: &ClaimId| {
        identity.id() == to || identity.pending().is_some_and(|rotate| rotate.to == *to)
    };
    let to = pending.rotates.as_ref();
    to.map_or_else(|| identity.is_current(&pending.id), leads)
}

impl World {
    /// Some leases see changes while they are held, which is for `hold`.
    pub(crate) fn plan_changes(&mut self, client: usize, end: u64, hold: u64) {
        let climate = self.climate.clone();
        let to = usize::try_from(self.dice.between(0, climate.clients as u64)).unwrap();
        let changes = [
            (climate.rotates, Change::Rotate),
            (climate.rotates / 2, Change::Rotate),
            (climate.downgrades, Change::Downgrade),
            (climate.gives, Change::Give { to }),
        ];
        for (per_mille, change) in changes {
            if self.dice.chance(per_mille) {
                let at = self.now + self.dice.between(0, hold + 1);
                let what = What::Change {
                    client,
                    request: end,
                    change,
                };
                self.plan(at, what);
            }
        }
    }

    pub(crate) fn change(&mut self, client: usize, end: u64, change: Change) {
        let held = self.is_at(client, end) && self.holds(client) && !self.healed;
        if !held {
            return;
        }
        match change {
            Change::Rotate => self.rotate(client),
            Change::Downgrade => self.downgrade(client),
            Change::Give { to } if to != client => self.give(client, to),
            Change::Give { .. } => {}
        }
    }

    // ---- a new id ----

    /// Besides whatever the machine has under way.
    fn rotate(&mut self, client: usize) {
        let fresh = ClaimId::from_random(u128::from(self.dice.draw()));
        let now = self.moment(client);
        self.serial += 1;
        let request = self.serial;
        let attempt = self.clients[client].attempt.as_mut().unwrap();
        if attempt.turn.is_some() {
            return;
        }
        let id = attempt.identity.id().clone();
        let rotate = attempt.identity.rotate(|| fresh);
        attempt.turn = Some(Pending {
            request,
            id: id.clone(),
            rotates: Some(rotate.to.clone()),
            kind: Request::Renew(NO_LONGER),
            sent: now,
        });
        let command = Command::Renew(Renew {
            rotate: Some(rotate),
            downgrade: attempt.downgraded,
            ..Renew::new(id, NO_LONGER)
        });
        self.send_apart(client, request, command);
        let at = self.now + self.climate.op_timeout;
        self.plan(at, What::Overdue { client, request });
    }

    /// An answer to the caller's rotation. What it says about the lease itself,
    /// the next renewal says too.
    pub(crate) fn turned(&mut self, client: usize, turn: &Pending, reply: &Reply) {
        let attempt = self.clients[client].attempt.as_mut().unwrap();
        let to = turn.rotates.as_ref().unwrap();
        match reply {
            Reply::Standing(_) => {
                self.had.rotations += 1;
                attempt.identity.handle_rotated(to);
            }
            Reply::Taken => attempt.identity.handle_taken(),
            Reply::Superseded | Reply::Gone if says_something(&attempt.identity, turn) => {
                if let Stage::Held(held) = &mut attempt.stage {
                    let arrival = held.arrival;
                    held.renewal.handle_adopted();
                    self.no_loss_of_what_is_held(client, arrival, reply);
                }
            }
            _ => {}
        }
        self.drive(client);
    }

    /// What the caller asks may overtake what the machine asks.
    fn send_apart(&mut self, client: usize, request: u64, command: Command) {
        let there = self.clients[client].last_there;
        if self.climate.callers_apart {
            self.clients[client].last_there = 0;
        }
        self.send(client, request, command);
        let process = &mut self.clients[client];
        process.last_there = process.last_there.max(there);
    }

    // ---- letting readers in ----

    fn downgrade(&mut self, client: usize) {
        self.serial += 1;
        let request = self.serial;
        let attempt = self.clients[client].attempt.as_mut().unwrap();
        if attempt.mode != Mode::Exclusive {
            return;
        }
        // It reads from the sending on: the store may let readers in any time.
        attempt.mode = Mode::Shared;
        attempt.downgraded = true;
        let command = Command::Renew(Renew {
            downgrade: true,
            rotate: attempt.identity.pending(),
            ..Renew::new(attempt.identity.id().clone(), NO_LONGER)
        });
        self.had.downgrades += 1;
        self.send_apart(client, request, command);
    }

    // ---- another client ----

    /// The giver relies on nothing from the moment on that it offers its lease.
    /// It gives what it is sure of: no rotation may be under way.
    fn give(&mut self, client: usize, to: usize) {
        let attempt = self.clients[client].attempt.as_ref().unwrap();
        if attempt.identity.pending().is_some() {
            return;
        }
        let offer = Offer {
            id: attempt.identity.id().clone(),
            version: attempt.identity.version(),
            mode: attempt.mode,
        };
        self.tell(|| format!("client {client} gives its lease to {to}"));
        self.clients[client].attempt = None;
        self.begin_again(client);
        let at = self.now + self.delay();
        self.plan(at, What::Offer { client: to, offer });
    }

    /// Whoever has something else to do lets the offer lapse.
    pub(crate) fn take(&mut self, client: usize, offer: Offer) {
        if self.clients[client].attempt.is_some() {
            return;
        }
        let fresh = ClaimId::from_random(u128::from(self.dice.draw()));
        let mut identity = Identity::at(offer.id, offer.version);
        identity.rotate(|| fresh);
        self.serial += 1;
        self.clients[client].attempt = Some(Attempt {
            identity,
            mode: offer.mode,
            policy: RenewalPolicy::Automatic(1.0 / 3.0),
            wait: true,
            ahead: false,
            stage: Stage::Adopting(0),
            pending: None,
            turn: None,
            downgraded: false,
            max_hold: None,
            told_to_wait: None,
            end: self.serial,
        });
        self.clients[client].causes.push(self.now);
        self.ask_for_offer(client);
    }

    pub(crate) fn ask_for_offer(&mut self, client: usize) {
        let (now, lease) = (self.moment(client), self.climate.lease);
        self.serial += 1;
        let request = self.serial;
        let process = &mut self.clients[client];
        let attempt = process.attempt.as_mut().unwrap();
        let (id, rotate) = (attempt.identity.id().clone(), attempt.identity.pending());
        let (Stage::Adopting(asks), Some(rotate)) = (&mut attempt.stage, rotate) else {
            return;
        };
        *asks += 1;
        attempt.pending = Some(Pending {
            request,
            id: id.clone(),
            rotates: Some(rotate.to.clone()),
            kind: Request::Renew(lease),
            sent: now,
        });
        let adopt = Some(Adopt {
            inbox: Some(process.inbox.clone()),
            owner: Owner::new("host", u32::try_from(client).unwrap(), None),
        });
        let command = Command::Renew(Renew {
            rotate: Some(Rotate { adopt, ..rotate }),
            ..Renew::new(id, lease)
        });
        self.send(client, request, command);
        let at = self.now + self.climate.op_timeout;
        self.plan(at, What::Overdue { client, request });
    }

    pub(crate) fn offer_unanswered(&mut self, client: usize) {
        let attempt = self.clients[client].attempt.as_ref().unwrap();
        let request = attempt.end;
        if matches!(attempt.stage, Stage::Adopting(asks) if asks < ASKS) {
            let at = self.now + self.climate.op_timeout / 4;
            self.plan(at, What::AskAgain { client, request });
        } else {
            self.give_up_offer(client);
        }
    }

    pub(crate) fn offer_answered(&mut self, client: usize, pending: &Pending, reply: &Reply) {
        let (now, climate) = (self.moment(client), self.climate.clone());
        let seed = self.dice.draw();
        let (Reply::Standing(standing), Some(to)) = (reply, &pending.rotates) else {
            return self.give_up_offer(client);
        };
        let mut validity = Validity::default();
        validity.confirm(pending.sent, climate.lease);
        let attempt = self.clients[client].attempt.as_mut().unwrap();
        attempt.identity.handle_rotated(to);
        let (policy, arrival, end) = (attempt.policy, standing.arrival, attempt.end);
        let renewal = Renewal::new(now, climate.lease, policy, validity, None, false, seed);
        attempt.stage = Stage::Held(Box::new(Held {
            renewal: renewal.of(arrival, standing.token.unwrap_or_default()),
            arrival,
            since: now,
            whole: true,
            ask_again: false,
        }));
        self.require(standing.token.is_some(), || {
            format!("client {client} was given a claim that waits: {standing:?}")
        });
        self.tell(|| format!("client {client} has taken over {arrival} by {standing:?}"));
        let hold = self.dice.between(climate.hold.0, climate.hold.1 + 1);
        if !self.healed {
            self.plan_changes(client, end, hold);
            let at = self.now + hold;
            let request = end;
            self.plan(at, What::End { client, request });
        }
    }

    /// It may have been adopted or not: both ids are released.
    fn give_up_offer(&mut self, client: usize) {
        self.over(client, true);
        if self.healed {
            self.plan(self.now + 1, What::Begin { client });
        }
    }
}
