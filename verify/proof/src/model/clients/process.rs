//! Clients of one process: they share a connection, an inbox and the machine of their key.

use leasehold_core::{Arrival, ClaimMachine, Failure, KeyMachine};

use super::client::Departure;
use super::{Answer, ClientsModel, State};

impl ClientsModel {
    /// The first client of its process.
    pub(super) fn process(&self, client: usize) -> usize {
        self.people[client].mate_of.unwrap_or(client)
    }

    /// All clients of its process.
    pub(super) fn mates(&self, client: usize) -> impl Iterator<Item = usize> + use<> {
        let process = self.process(client);
        let people = self.people.iter().enumerate();
        let mates =
            people.filter(|(number, person)| *number == process || person.mate_of == Some(process));
        mates
            .map(|(number, _)| number)
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Whether it is not alone in its process: then its claims may be granted in runs.
    pub(super) fn runs(&self, client: usize) -> bool {
        self.mates(client).count() > 1
    }

    /// Whether an answer is to the release of a claim that has left with it.
    pub(super) fn has_left(
        &self,
        state: &mut State,
        client: usize,
        serial: u8,
        answer: Answer,
    ) -> bool {
        let departures = &mut state.clients[client].departures;
        let Some(at) = departures.iter().position(|of| of.serial == serial) else {
            return false;
        };
        let Departure {
            number, transmit, ..
        } = departures.remove(at);
        let now = self.moment(state, client);
        let machine = &mut state.machines[self.process(client)];
        let arrival = machine.get(number).and_then(ClaimMachine::arrival);
        machine.handle_answer(now, number, &transmit, answer);
        machine.update(now, number, |claim| claim.handle_timeout(now));
        self.note_end(state, client, arrival);
        self.look_at_all(state, client, None);
        true
    }

    /// A claim has ended without passing its hold on.
    pub(super) fn note_end(&self, state: &State, client: usize, ahead: Option<Arrival>) {
        let behind = |mate| self.claim(state, mate).and_then(ClaimMachine::behind);
        if ahead.is_some() && self.mates(client).any(|mate| behind(mate) == ahead) {
            self.seen.note("ahead has ended");
        }
    }

    /// What has lapsed needs no release any more.
    pub(super) fn end_departures(&self, state: &mut State) {
        for client in 0..state.clients.len() {
            let now = self.moment(state, client);
            let lapsed = |of: &&Departure| of.transmit.sent + self.lease <= now;
            let departures = &state.clients[client].departures;
            if let Some(serial) = departures.iter().find(lapsed).map(|of| of.serial) {
                self.has_left(state, client, serial, Err(Failure::Unanswered));
                return self.end_departures(state);
            }
        }
    }

    pub(super) fn cut(&self, state: &mut State, client: usize) {
        for mate in self.mates(client) {
            state.clients[mate].connected = false;
        }
    }

    pub(super) fn die(&self, state: &mut State, client: usize) {
        state.machines[self.process(client)] = KeyMachine::default();
        for mate in self.mates(client) {
            let mate = &mut state.clients[mate];
            (mate.dead, mate.connected) = (true, false);
            (mate.claim, mate.departures) = (None, Vec::new());
        }
    }

    /// Whatever leaves is released anew at once.
    pub(super) fn connect(&self, state: &mut State, client: usize) {
        let now = self.moment(state, client);
        for mate in self.mates(client) {
            let it = &mut state.clients[mate];
            (it.connected, it.epoch) = (true, it.epoch + 1);
            for of in &it.departures {
                let unanswered = Err(Failure::Unanswered);
                let machine = &mut state.machines[self.process(client)];
                machine.handle_answer(now, of.number, &of.transmit, unanswered);
            }
        }
        self.note_cause(state, client);
        state.machines[self.process(client)].handle_reconnection(now);
        for mate in self.mates(client) {
            for at in 0..state.clients[mate].departures.len() {
                let Departure { serial, number, .. } = state.clients[mate].departures[at];
                let machine = &mut state.machines[self.process(client)];
                let again = machine.update(now, number, |claim| claim.poll_transmit(now, || None));
                if let Some(again) = again.flatten() {
                    // It lapses when it would have.
                    let sent = state.clients[mate].departures[at].transmit.sent;
                    Self::send(state, mate, Some(serial), &again.command);
                    state.clients[mate].departures[at].transmit.command = again.command;
                    state.clients[mate].departures[at].transmit.sent = sent;
                }
            }
        }
        self.look_at_all(state, client, None);
    }

    /// Who takes over what others hold.
    pub(super) fn adopter(&self, state: &State) -> Option<usize> {
        let mut all = self.people.iter().zip(&state.clients);
        all.position(|(person, client)| person.attempts == 0 && client.begun == 0 && !client.dead)
    }

    pub(super) fn adopt(&self, state: &mut State, from: usize) {
        let (Some(to), Some(number)) = (self.adopter(state), state.clients[from].claim) else {
            return;
        };
        self.seen.note("adopted");
        state.clients[from].adopted = true;
        let now = self.moment(state, from);
        let exposed = state.machines[self.process(from)].update(now, number, |claim| {
            let (id, version) = claim.expose();
            (id.clone(), version)
        });
        if let Some((id, version)) = exposed {
            self.take_over(state, to, id, version);
        }
    }
}
