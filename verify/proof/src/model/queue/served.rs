//! Who stays is granted: looked at from a sample of all states.

use leasehold_core::{Command, Renew};

use super::{PATIENCE, QueueModel, State, TICK, id, number};
use crate::model::promise::Promise;

/// One state of so many is looked at.
const SAMPLE: u64 = 8;

impl QueueModel {
    pub(super) fn judge_served(&self, state: &mut State, hash: u64) {
        if hash.is_multiple_of(SAMPLE) {
            let served = self.all_are_served(state);
            state.broken.require(Promise::Served, served);
        }
    }

    /// From here on those who hold are silent, and those who wait stay.
    fn all_are_served(&self, state: &State) -> bool {
        let mut queue = state.queue.clone();
        let mut clock = state.clock();
        for _ in 0..PATIENCE {
            let seen = queue.look(clock);
            if seen.waiters.is_empty() {
                return true;
            }
            for waiter in seen.waiters {
                let part = number(&waiter.claim);
                let stay = Renew::new(id(part), self.parts[part].waiter);
                queue.apply(&Command::Renew(stay), clock);
            }
            clock = clock + TICK;
        }
        false
    }
}
