//! Changes of a lease by its caller: rotation, adoption, downgrade.

use leasehold_core::{Change as Wanted, *};

use crate::client_machines::world::{Attempt, Change, ONE, Offer, What, World};

/// For how many operations an offered lease is asked for without an answer.
const PATIENCE: u32 = 5;

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
                self.plan(at, What::Change(client, end, change));
            }
        }
    }

    pub(crate) fn plan_rotation(&mut self, client: usize, end: u64, at: u64) {
        self.plan(at, What::Change(client, end, Change::Rotate));
    }

    pub(crate) fn change(&mut self, client: usize, end: u64, change: Change) {
        let held = self.is_at(client, end) && self.holds(client) && !self.healed;
        if !held || self.gives(client) {
            return;
        }
        let now = self.moment(client);
        let fresh = ClaimId::from_random(u128::from(self.dice.draw()));
        self.clients[client].causes.push(self.now);
        let attempt = self.clients[client].attempt.as_mut().unwrap();
        let id = match change {
            Change::Give { to } if to == client => return,
            // The giver relies on nothing from the moment on that it offers its lease.
            Change::Give { .. } => attempt.update(now, |claim| claim.hand_over(now)),
            Change::Rotate => attempt.update(now, |claim| claim.change(Wanted::Rotate(fresh), now)),
            Change::Downgrade if attempt.mode != Mode::EXCLUSIVE => return,
            Change::Downgrade => {
                // It reads from the sending on: the store may let readers in any time.
                attempt.mode = Mode::SHARED;
                self.had.add("downgrades", 1);
                attempt.update(now, |claim| claim.change(Wanted::Downgrade, now))
            }
        };
        attempt.changing.push((id, change));
        self.drive(client);
    }

    /// Whether its lease is on its way to another.
    pub(crate) fn gives(&self, client: usize) -> bool {
        let attempt = self.clients[client].attempt.as_ref();
        attempt.is_some_and(|attempt| {
            let gives = |(_, change): &(_, Change)| matches!(change, Change::Give { .. });
            attempt.life().phase() == Phase::Held && attempt.changing.iter().any(gives)
        })
    }

    /// What came of changes.
    pub(crate) fn settle_changes(&mut self, client: usize) {
        let now = self.moment(client);
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        let mut settled = Vec::new();
        attempt.changing.retain(|(id, change)| {
            let changed = attempt.machine.update(now, ONE, |claim| claim.changed(*id));
            let changed = changed.flatten();
            settled.extend(changed.map(|changed| (*change, changed)));
            attempt.given_up += usize::from(changed.is_some_and(|c| c != Changed::Done));
            changed.is_none()
        });
        for (change, changed) in settled {
            match (change, changed) {
                (Change::Rotate, Changed::Done) => self.had.add("rotations", 1),
                (Change::Give { to }, Changed::Done) => self.give(client, to),
                (Change::Give { .. }, _) => self.over(client),
                _ => {}
            }
        }
    }

    fn give(&mut self, client: usize, to: usize) {
        let Some(attempt) = self.clients[client].attempt.take() else {
            return;
        };
        let (id, version) = attempt.life().identity();
        let offer = Offer {
            id: id.clone(),
            version,
            mode: attempt.mode,
        };
        self.tell(|| format!("client {client} gives its lease to {to}"));
        self.begin_again(client);
        let at = self.now + self.delay();
        self.plan(at, What::Offer(to, offer));
    }

    /// Whoever has something else to do lets the offer lapse.
    pub(crate) fn take(&mut self, client: usize, offer: Offer) {
        if self.clients[client].attempt.is_some() {
            return;
        }
        let now = self.moment(client);
        let rotate = Rotate {
            to: ClaimId::from_random(u128::from(self.dice.draw())),
            version: offer.version,
            adopt: Some(Adopt {
                inbox: Some(self.clients[client].inbox.clone()),
                owner: ClientInfo::new("host", u32::try_from(client).unwrap(), None),
            }),
        };
        let terms = self.terms(RenewalPolicy::Automatic(1.0 / 3.0), None, PATIENCE);
        let deadlines = self.deadlines(now, None);
        let mut machine = KeyMachine::default();
        machine.adopt(ONE, (), offer.id, rotate, terms, deadlines, now);
        self.clients[client].attempt = Some(Attempt::new(machine, offer.mode, now));
        self.clients[client].causes.push(self.now);
        self.drive(client);
    }
}
