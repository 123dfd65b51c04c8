//! Invariants that must hold at every moment and at the end.

use leasehold_core::{Arrival, LeaseState, Mode, Moment, Phase, Reply};

use crate::client_machines::climate::{MS, SECOND};
use crate::client_machines::world::{What, World};

impl World {
    /// Design 1: "while a lease is valid by its client's clock, nobody else's is".
    pub(crate) fn exclusion_holds(&self) {
        if self.climate.void {
            return;
        }
        let mut used = 0;
        for client in &self.clients {
            if let Some(attempt) = &client.attempt
                && attempt.life().valid_until() > Moment(client.origin + self.now)
            {
                used += attempt.mode.weight();
            }
        }
        let units = Mode::EXCLUSIVE.capacity().units();
        self.require(used <= units, || "two leases are valid at once".into());
    }

    /// Lessons 1.C: "one winner" per hand-off; section 3: nothing is retried
    /// blindly. Time alone causes few requests, anything else one each.
    pub(crate) fn no_storm(&mut self, client: usize) {
        let process = &mut self.clients[client];
        process.sends.push(self.now);
        let window = self.climate.lease_micros().clamp(200 * MS, SECOND);
        let since = self.now.saturating_sub(window);
        process.sends.retain(|at| *at >= since);
        process.causes.retain(|at| *at >= since);
        let (sends, causes) = (process.sends.len(), process.causes.len());
        self.require(sends <= 25 + 2 * causes, || {
            format!("client {client}: {sends} requests and {causes} causes in {window} µs")
        });
    }

    /// The weather clears, all but one client leave or die: the one that stays
    /// is granted in bounded time, and knows where it stands.
    pub(crate) fn the_last_is_granted(&mut self) {
        self.healed = true;
        self.healed_at = self.now;
        for client in 0..self.clients.len() {
            if !self.clients[client].connected {
                self.connect(client);
            }
            self.clients[client].stalled_until = 0;
        }
        for client in 1..self.clients.len() {
            if self.dice.chance(500) && self.clients[client].attempt.is_some() {
                self.leave(client);
            }
            self.clients[client].dead = true;
            // A process that is gone holds nothing by its own clock.
            self.clients[client].attempt = None;
        }
        self.plan(self.now, What::Begin(0));
        let climate = self.climate.clone();
        // Requests that are still under way, a lease that was granted to one who
        // is dead by then, the dead who wait, promoted with 3 s each while they
        // live, and our own next look.
        let bound = climate.slow_for
            + 2 * climate.delay.1
            + 2 * climate.lease_micros()
            + 2 * climate.waiter_micros()
            + 3 * SECOND * (1 + climate.waiter_micros() / (3 * SECOND)).min(6)
            + 3 * climate.op_timeout
            + SECOND;
        let end = self.now + bound;
        while self.now < end && !self.holds(0) {
            self.run(self.now + bound / 50);
        }
        self.require(self.holds(0), || format!("client 0 waits after {bound} µs"));
        self.run(self.now + 2 * climate.lease_micros());
        // Its own policy may let it end; it does not stay unknown.
        if self.holds(0) {
            let attempt = self.clients[0].attempt.as_ref();
            let state = attempt.and_then(|attempt| attempt.life().state());
            self.require(state == Some(LeaseState::Held), || {
                format!("{state:?} in the end")
            });
        }
    }

    /// Whether every request has been answered at once for as long as a waiter
    /// is patient.
    pub(crate) fn fair_weather(&self) -> bool {
        let climate = &self.climate;
        let patience = (climate.op_timeout * 3).max(climate.waiter_micros());
        let under_way = climate.slow_for + 2 * climate.delay.1;
        self.healed && self.now > self.healed_at + under_way + patience
    }

    pub(crate) fn holds(&self, client: usize) -> bool {
        let attempt = self.clients[client].attempt.as_ref();
        attempt.is_some_and(|attempt| attempt.life().phase() == Phase::Held)
    }

    /// Whether the client is still at the attempt whose end has this number.
    pub(crate) fn is_at(&self, client: usize, end: u64) -> bool {
        let attempt = self.clients[client].attempt.as_ref();
        attempt.is_some_and(|attempt| attempt.end == end)
    }

    /// A lease is not given up by an answer while the store has it as its
    /// client's: an answer about a replaced id says nothing.
    pub(crate) fn no_loss_of_what_is_held(&self, client: usize, arrival: Arrival, reply: &Reply) {
        let lost = matches!(reply, Reply::Superseded | Reply::Gone);
        let mut holders = self.queue.look(self.clock()).holders.into_iter();
        let held =
            holders.any(|h| (h.claim.arrival, h.claim.owner.pid as usize) == (arrival, client));
        self.require(!lost || !held, || {
            format!("client {client} takes {reply:?} for a loss of {arrival:?}")
        });
    }
}
