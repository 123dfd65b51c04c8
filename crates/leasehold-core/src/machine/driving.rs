//! The outputs of a key's machine: what is to be sent, when to call it next, and what has changed.

use std::collections::VecDeque;

use super::runs::Run;
use super::{ClaimMachine, ClaimNumber, KeyMachine, Phase, Transmit, UNCOUNTED, passes_by};
use crate::{ClaimId, Moment};

/// With so few claims the next deadline is always exact. With more it may be too early, and whoever
/// comes then looks at all of them.
const FEW: usize = 8;

impl<T> KeyMachine<T> {
    /// Returns when to call [`KeyMachine::handle_timeout`] and [`KeyMachine::poll_transmit`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Moment> {
        Some(self.due).filter(|due| *due != Moment::NEVER)
    }

    /// Handles that time has passed. Early calls are allowed. What is next due is known again when
    /// [`KeyMachine::poll_transmit`] has returned `None`.
    pub fn handle_timeout(&mut self, now: Moment) {
        if now < self.due {
            return;
        }
        for at in 0..self.claims.len() {
            if self.claims[at].due <= now {
                self.claims[at].claim.handle_timeout(now);
                self.settle(at, now);
            }
        }
    }

    fn earliest(&self) -> Moment {
        let due = self.claims.iter().map(|entry| entry.due).min();
        due.unwrap_or(Moment::NEVER)
    }

    /// Returns the next request to send for a claim that no task drives, if one is due. Its result
    /// must be passed to [`KeyMachine::handle_answer`]. `fresh` makes a new claim id for a rotation
    /// that is due. Without one, the rotation waits for the next renewal.
    pub fn poll_transmit(
        &mut self,
        now: Moment,
        mut fresh: impl FnMut() -> Option<ClaimId>,
    ) -> Option<(ClaimNumber, Transmit)> {
        if now < self.due {
            return None;
        }
        for at in 0..self.claims.len() {
            if self.claims[at].due <= now {
                let transmit = self.claims[at].claim.poll_transmit(now, &mut fresh);
                self.settle(at, now);
                if let Some(transmit) = transmit {
                    return Some((self.claims[at].number, transmit));
                }
            }
        }
        self.due = self.earliest();
        None
    }

    /// Shows a claim that has changed since it was shown last. One that is over and that nobody
    /// owns is forgotten after that. Returns whether there was one.
    pub fn poll_changed(&mut self, see: impl FnOnce(ClaimNumber, &T, &ClaimMachine, u16)) -> bool {
        let Some(number) = self.changed.pop_front() else {
            return false;
        };
        if self.changed.is_empty() {
            // Most keys stay as they are for long, and there may be very many.
            self.changed = VecDeque::new();
        }
        if let Some(at) = self.place(number) {
            let entry = &mut self.claims[at];
            entry.changed = false;
            see(number, &entry.data, &entry.claim, entry.drivers);
            if entry.phase == Phase::Over && !entry.owned {
                self.claims.remove(at);
            }
        }
        true
    }

    /// Updates what the others see of a claim, after anything about it has changed, and tells them
    /// what that means.
    pub(super) fn settle(&mut self, at: usize, now: Moment) {
        let few = self.claims.len() <= FEW;
        let entry = &mut self.claims[at];
        if !std::mem::replace(&mut entry.changed, true) {
            self.changed.push_back(entry.number);
        }
        let was = (entry.phase, entry.run);
        (entry.phase, entry.run) = (entry.claim.phase(), Run::of(&entry.claim));
        entry.arrival = entry.claim.arrival();
        // A task that asks or releases sees to that itself.
        let sees_to_it = (1..UNCOUNTED).contains(&entry.drivers) && passes_by(entry.phase);
        let due = entry.claim.poll_timeout().filter(|_| !sees_to_it);
        entry.due = due.unwrap_or(Moment::NEVER);
        let (is, due) = ((entry.phase, entry.run), entry.due);
        if was != is {
            self.passing = self.passing + u32::from(passes_by(is.0)) - u32::from(passes_by(was.0));
            self.tell_run(at, was, now);
        }
        self.due = if few {
            self.earliest()
        } else {
            self.due.min(due)
        };
    }
}
