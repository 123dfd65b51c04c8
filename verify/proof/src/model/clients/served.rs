//! Who stays is granted: from a sample of all states, the faults stop, and everybody
//! does what is due.

use leasehold_core::Phase;

use super::{Act, Budget, ClientsModel, State, TICK};
use crate::model::checker::Subject;
use crate::model::promise::Promise;

/// One state of so many is looked at.
const SAMPLE: u64 = 64;

/// How many ticks everybody is given at least, and how many leases: each who may hold does so for a
/// lease and a half at most, and the dead are passed.
const PATIENCE: u64 = 40;
const LEASES: u64 = 6;

/// For so long a client may still give up a server that it could not reach before.
const AFTERMATH: u64 = 3;

/// Enough for all that is due in one tick.
const TURNS: usize = 200;

impl ClientsModel {
    pub(super) fn judge_served(&self, state: &mut State, hash: u64) {
        if !self.promises.contains(&Promise::Served) || !state.broken.is_empty() {
            return;
        }
        if hash.is_multiple_of(SAMPLE) {
            let served = self.all_are_served(state);
            state.broken.require(Promise::Served, served);
        }
    }

    fn all_are_served(&self, state: &State) -> bool {
        let mut state = state.clone();
        state.left = Budget::default();
        // Who was told that its claim is gone may come again once.
        for client in 0..state.clients.len() {
            let is_in = |phase| self.is_in(&state, client, phase);
            let waits = is_in(Phase::Asking) || is_in(Phase::Waiting);
            state.clients[client].attempts = u8::from(waits);
        }
        let waits = |state: &State| state.clients.iter().any(|c| !c.dead && c.attempts > 0);
        for tick in 0..PATIENCE.max(LEASES * self.lease.as_secs()) {
            self.calm(&mut state);
            if tick <= AFTERMATH {
                state.given_up = false;
            } else if state.given_up {
                return false;
            }
            self.miss_what_is_lost(&mut state);
            for client in 0..state.clients.len() {
                if self.is_in(&state, client, Phase::Held) {
                    state.clients[client].attempts = 0;
                }
            }
            if !waits(&state) {
                return true;
            }
            for number in 0..state.clients.len() {
                if self.is_in(&state, number, Phase::Held) {
                    self.happen(&mut state, Act::GiveBack(number));
                }
            }
            self.pass(&mut state);
        }
        false
    }

    /// What was sent a tick ago and is not under way any more was lost.
    fn miss_what_is_lost(&self, state: &mut State) {
        for number in 0..state.clients.len() {
            let now = self.moment(state, number);
            if state.clients[number].has_asked(now, TICK / 2) {
                self.time_out(state, number);
            }
        }
    }

    /// All that is under way arrives, in its order, and all machines are called.
    fn calm(&self, state: &mut State) {
        let mut actions = Vec::new();
        for _ in 0..TURNS {
            actions.clear();
            self.actions(state, &mut actions);
            let due = |act: &&Act| matches!(act, Act::Drive(_) | Act::Connect(_) | Act::Begin(_));
            let next = match state.wire.is_empty() {
                false => Some(Act::Deliver(0)),
                true => actions.iter().find(due).copied(),
            };
            let Some(act) = next else { return };
            self.happen(state, act);
        }
    }
}
