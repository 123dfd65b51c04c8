//! One client as the model keeps it, and what it may do next.

use std::time::Duration;

use leasehold_core::{Arrival, ChangeId, ClaimMachine, ClaimNumber, Mode, Moment, Phase, Transmit};

use super::changes::Wish;
use super::{Act, ClientsModel, State, TICK};

/// A request whose answer is waited for.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) struct Pending {
    pub(super) serial: u8,
    pub(super) transmit: Transmit,
    /// Since then a push has told of the grant: the answer may be older.
    pub(super) overtaken: bool,
}

/// A claim on its way out, in a process with other claims.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) struct Departure {
    pub(super) serial: u8,
    pub(super) number: ClaimNumber,
    pub(super) transmit: Transmit,
}

#[derive(Debug, Clone, Default, PartialEq, Hash)]
pub(super) struct Client {
    /// Its claim in the machine of its process; none while it is idle.
    pub(super) claim: Option<ClaimNumber>,
    /// What was seen of it: whether it holds, and behind which claim it is granted.
    pub(super) seen: (bool, Option<Arrival>),
    pub(super) pending: Vec<Pending>,
    /// What its caller wants of its lease.
    pub(super) changes: Vec<(ChangeId, Wish)>,
    pub(super) lease: Lease,
    /// How often it may still begin, and how often it has.
    pub(super) attempts: u8,
    pub(super) begun: u8,
    pub(super) serial: u8,
    pub(super) epoch: u64,
    pub(super) connected: bool,
    pub(super) dead: bool,
    /// Its caller has let another process have its lease, and relies on it no more.
    pub(super) adopted: bool,
    pub(super) departures: Vec<Departure>,
}

/// What is known of a lease besides what its machine says, where that is judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Hash)]
pub(super) struct Lease {
    pub(super) since: Moment,
    /// Whether it has its whole TTL, and whether a request is to be made again.
    pub(super) whole: bool,
    pub(super) again: bool,
    /// How often its id was to be replaced; whether its caller only reads from then on.
    pub(super) rotations: u8,
    pub(super) reads: bool,
    /// How often its client has asked in this tick, and what may have been a reason besides time.
    pub(super) sent: u8,
    pub(super) causes: u8,
}

impl Client {
    pub(super) fn new(attempts: u8) -> Self {
        Self {
            attempts,
            epoch: 1,
            connected: true,
            ..Self::default()
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.claim.is_none()
    }

    /// Whether it asked so long ago.
    pub(super) fn has_asked(&self, now: Moment, before: Duration) -> bool {
        let mut sent = self.pending.iter().map(|pending| pending.transmit.sent);
        sent.any(|sent| now.since(sent) >= before)
    }

    pub(super) fn hands_over(&self) -> bool {
        let mut wishes = self.changes.iter().map(|(_, wish)| *wish);
        wishes.any(|wish| wish == Wish::HandOver)
    }
}

impl ClientsModel {
    /// The claim of a client.
    pub(super) fn claim<'a>(&self, state: &'a State, client: usize) -> Option<&'a ClaimMachine> {
        state.machines[self.process(client)].get(state.clients[client].claim?)
    }

    pub(super) fn is_in(&self, state: &State, client: usize, phase: Phase) -> bool {
        let claim = self.claim(state, client);
        claim.is_some_and(|claim| claim.phase() == phase)
    }

    pub(super) fn client_actions(&self, state: &State, number: usize, actions: &mut Vec<Act>) {
        let client = &state.clients[number];
        if client.dead {
            return;
        }
        let now = self.moment(state, number);
        let claim = self.claim(state, number);
        let due = claim.and_then(ClaimMachine::poll_timeout);
        if due.is_some_and(|due| due <= now) {
            actions.push(Act::Drive(number));
        }
        if client.has_asked(now, TICK / 2) {
            actions.push(Act::TimeOut(number));
        }
        let phase = claim.map(ClaimMachine::phase);
        if client.is_idle() && client.attempts > 0 && self.may_begin(state, number) {
            actions.push(Act::Begin(number));
        } else if phase == Some(Phase::Held) {
            actions.push(Act::GiveBack(number));
            if self.adopter(state).is_some() {
                actions.push(Act::Adopt(number));
            }
            if !client.hands_over() {
                actions.push(Act::Change(number, Wish::Rotate));
                if self.mode(state, number) == Mode::EXCLUSIVE {
                    actions.push(Act::Change(number, Wish::Downgrade));
                }
                if self.adopter(state).is_some() {
                    actions.push(Act::Change(number, Wish::HandOver));
                }
            }
        }
        self.process_actions(state, number, actions);
        let waits = phase == Some(Phase::Waiting);
        if waits && client.connected {
            actions.push(Act::Forge(number));
        }
    }

    /// What happens to a process as a whole is said of its first client.
    fn process_actions(&self, state: &State, number: usize, actions: &mut Vec<Act>) {
        if self.process(number) != number {
            return;
        }
        let mut mates = self.mates(number);
        let idle = mates.all(|mate| state.clients[mate].is_idle());
        if !state.clients[number].connected {
            actions.push(Act::Connect(number));
        } else if !idle {
            actions.push(Act::Cut(number));
        }
        if !idle {
            actions.push(Act::Die(number));
        }
    }

    /// Those of one process are alike: they begin in their order.
    fn may_begin(&self, state: &State, number: usize) -> bool {
        let mut before = self.mates(number).filter(|mate| *mate < number);
        state.clients[number].begun > 0 || before.all(|mate| state.clients[mate].begun > 0)
    }
}
