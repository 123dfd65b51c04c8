//! Claims of one process: they share a connection and an inbox, and pass the hold on in their
//! run, as the registry of an adapter does.

use leasehold_core::{Adopt, Arrival, ClientInfo, Life, Moment, Phase, Rotate, Token, Transmit};

use super::{ClientsModel, State, inbox};
use crate::model::promise::Promise;

/// A claim on its way out, until the store has answered its release or it has lapsed.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) struct Departure {
    pub(super) serial: u8,
    transmit: Transmit,
    arrival: Option<Arrival>,
    /// The numbers of its grant, if the next in its run holds from now on.
    passed: Option<(Arrival, Token)>,
    until: Moment,
}

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

    /// A claim leaves: the next in its run is told so, or, if it does not hold by that, once
    /// this one has ended.
    pub(super) fn depart(
        &self,
        state: &mut State,
        client: usize,
        life: &Life,
        release: Option<Transmit>,
    ) {
        let leaves = life.phase() == Phase::Leaving;
        let (arrival, passed) = (life.arrival(), life.passed().filter(|_| leaves));
        let Some(transmit) = release.filter(|_| leaves) else {
            return self.end_run(state, client, arrival);
        };
        let it = &mut state.clients[client];
        let departure = Departure {
            serial: it.serial,
            arrival,
            passed,
            until: transmit.sent + self.lease,
            transmit,
        };
        it.departures.push(departure);
        if let Some(ahead) = passed {
            // The core knows who is next: all are told.
            for mate in self.mates(client) {
                self.turn(state, mate, ahead);
            }
        }
    }

    fn turn(&self, state: &mut State, client: usize, ahead: (Arrival, Token)) {
        let now = self.moment(state, client);
        let Some(life) = &mut state.clients[client].life else {
            return;
        };
        let waited = life.phase() != Phase::Held;
        life.handle_turn(now, ahead);
        if waited && life.phase() == Phase::Held {
            self.seen.note("passed on");
            let rises = life.token() > Some(ahead.1);
            state.broken.require(Promise::Tokens, rises);
            self.judge_grant(state, client);
        }
        self.settle(state, client);
    }

    /// A claim has ended: who was granted behind it asks.
    fn end_run(&self, state: &mut State, client: usize, ahead: Option<Arrival>) {
        for mate in self.mates(client) {
            let now = self.moment(state, mate);
            let Some(life) = &mut state.clients[mate].life else {
                continue;
            };
            if let Some(behind) = life.behind()
                && ahead.is_none_or(|ahead| ahead == behind)
            {
                self.seen.note("ahead has ended");
                life.handle_run_ended(now, behind);
            }
        }
    }

    /// A claim may have been told that it is granted behind another.
    pub(super) fn follow(&self, state: &mut State, client: usize, was: Option<Arrival>) {
        let life = state.clients[client].life.as_ref();
        let is = life.and_then(|life| life.behind());
        let Some(ahead) = is.filter(|_| is != was) else {
            return;
        };
        self.seen.note("granted in a run");
        let mut passed = None;
        let mut stands = false;
        for mate in self.mates(client).map(|mate| &state.clients[mate]) {
            let of = mate.departures.iter().find(|of| of.arrival == Some(ahead));
            let gone = mate.gone.iter().find(|gone| gone.0 == ahead);
            passed = passed.or_else(|| of.and_then(|of| of.passed));
            passed = passed.or_else(|| gone.copied());
            let life = mate.life.as_ref();
            stands |= life.is_some_and(|life| life.arrival() == Some(ahead));
        }
        match passed {
            Some(ahead) => self.turn(state, client, ahead),
            None if !stands => {
                let now = self.moment(state, client);
                if let Some(life) = &mut state.clients[client].life {
                    life.handle_run_unknown(now, ahead);
                }
            }
            None => {}
        }
    }

    /// Whether an answer is to the release of a claim that has left with it.
    pub(super) fn has_left(&self, state: &mut State, client: usize, serial: u8) -> bool {
        let departures = &mut state.clients[client].departures;
        let Some(at) = departures.iter().position(|of| of.serial == serial) else {
            return false;
        };
        let departure = departures.remove(at);
        state.clients[client].gone.extend(departure.passed);
        self.end_run(state, client, departure.arrival);
        true
    }

    /// What has lapsed needs no release any more.
    pub(super) fn end_departures(&self, state: &mut State) {
        for client in 0..state.clients.len() {
            let now = self.moment(state, client);
            let lapsed = |of: &Departure| of.until <= now;
            let departures = &state.clients[client].departures;
            if let Some(serial) = departures.iter().find(|of| lapsed(of)).map(|of| of.serial) {
                self.has_left(state, client, serial);
                return self.end_departures(state);
            }
        }
    }

    // ---- the process ----

    pub(super) fn cut(&self, state: &mut State, client: usize) {
        for mate in self.mates(client) {
            state.clients[mate].connected = false;
        }
    }

    pub(super) fn die(&self, state: &mut State, client: usize) {
        for mate in self.mates(client) {
            let mate = &mut state.clients[mate];
            (mate.dead, mate.connected) = (true, false);
            (mate.life, mate.departures) = (None, Vec::new());
            mate.gone.clear();
        }
    }

    pub(super) fn connect(&self, state: &mut State, client: usize) {
        for mate in self.mates(client) {
            let now = self.moment(state, mate);
            let it = &mut state.clients[mate];
            (it.connected, it.epoch) = (true, it.epoch + 1);
            it.gone.clear();
            // As `Life::handle_reconnection` does.
            for of in &mut it.departures {
                of.passed = None;
            }
            if let Some(life) = &mut it.life {
                life.handle_reconnection(now);
            }
            for of in it.departures.clone() {
                Self::send(state, mate, Some(of.serial), &of.transmit.command);
            }
        }
    }

    // ---- adoption ----

    /// Who takes over what others hold.
    pub(super) fn adopter(&self, state: &State) -> Option<usize> {
        let mut all = self.people.iter().zip(&state.clients);
        all.position(|(person, client)| person.attempts == 0 && client.begun == 0 && !client.dead)
    }

    pub(super) fn adopt(&self, state: &mut State, from: usize) {
        let Some(to) = self.adopter(state) else {
            return;
        };
        self.seen.note("adopted");
        state.clients[from].adopted = true;
        let Some(life) = &mut state.clients[from].life else {
            return;
        };
        let (id, version) = life.expose();
        let id = id.clone();
        state.clients[to].begun += 1;
        let rotate = Rotate {
            to: Self::id(state, to),
            version,
            adopt: Some(Adopt {
                inbox: Some(inbox(self.process(to))),
                owner: ClientInfo::new("", u32::try_from(to).unwrap_or_default(), None),
            }),
        };
        let now = self.moment(state, to);
        let life = Life::adopt(id, rotate, self.lease_terms(), Self::limits(), now);
        state.clients[to].life = Some(Box::new(life));
        self.drive(state, to);
    }
}
