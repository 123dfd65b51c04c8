//! The client's half of a key: all claims of one client on it, as one value.
//!
//! A store keeps one queue per key. A client keeps its mirror, [`KeyMachine`]: its own claims on the
//! key, in the order in which they were made. Inputs are answers, pushes, lost connections, time
//! and what callers want. Outputs are commands ([`KeyMachine::poll_transmit`]), the next deadline
//! ([`KeyMachine::poll_timeout`]) and the claims that have changed ([`KeyMachine::poll_changed`]).
//! It has no I/O, no clock and no locks: whoever drives it only sends and receives.
//!
//! ```text
//!   callers: claim, release, change …        the store: answers, pushes, lost connections
//!        │                                         │
//!        ▼                                         ▼
//!   ┌─ KeyMachine ─────────────────────────────────────────────────────────────┐
//!   │   ClaimMachine 1       ClaimMachine 2        ClaimMachine 3       early  │
//!   │   leaving, passed ───▶ waiting behind 1 ···▶ waiting behind 2     pushes │
//!   │                   turn                 later                             │
//!   └──────┬───────────────────────┬───────────────────────┬───────────────────┘
//!          ▼                       ▼                       ▼
//!     poll_transmit           poll_timeout            poll_changed
//! ```
//!
//! **Who decides about runs.** The store may grant claims of one client in a row, as a *run*: each
//! has its token, and holds when the one directly ahead of it has left. So a release that is valid
//! passes the hold on within the client, before the store has heard of it. That is safe if the
//! client knows three things: that the claim ahead was released while its lease was valid, that
//! nobody else can have been given that place meanwhile, and that both grants are of one run. All
//! three are in this value, so the decision is made here and nowhere else (`runs`):
//!
//! | the claim ahead | the claim behind it |
//! |---|---|
//! | is released while valid, and nobody else may know its id | holds at once (a *turn*) |
//! | is lost, or has ended without passing the hold on | asks the store |
//! | is not known, and a claim of ours is not answered yet | asks from time to time: that may be it |
//! | is not known, and all of ours are answered | asks the store |
//! | was passed on and has left since | holds at once: it is remembered for that |
//!
//! A lost connection ends all runs: another server may answer next.
//!
//! - `claim`: one claim; `answers`, `user_requests`, `changes`, `release`: its inputs.
//! - `waiter`, `renewal`: a claim before and after its grant; `identity`: its id.
//! - `driving`: the outputs of a key; `runs`: what one claim means to another.
//! - `push_validation`: which pushes count; `facts`: what observers are told.
//! - `rejoining`: when to make another claim; `timing`: all time limits.

mod answers;
mod changes;
mod claim;
mod driving;
mod facts;
mod identity;
mod push_validation;
mod rejoining;
mod release;
mod renewal;
mod runs;
mod timing;
mod types;
mod user_requests;
mod waiter;

use std::collections::VecDeque;
use std::sync::Arc;

pub use self::claim::ClaimMachine;
pub use self::facts::{Fact, Facts};
pub use self::push_validation::HintLimit;
pub use self::rejoining::Rejoining;
use self::runs::{Remembered, Run};
pub use self::timing::GRACE;
pub(crate) use self::timing::RENEW_WAITING_AT;
pub use self::types::{
    Acknowledges, Change, ChangeId, Changed, ClaimNumber, Deadlines, End, Failure, LeaseState,
    Loss, Phase, RenewalPolicy, Response, Terms, Transmit,
};
use crate::{Arrival, Claim, ClaimId, Moment, Push, Rotate};

/// How many pushes are kept that arrive before the first answer of their claim. A dropped push only
/// costs the time until the next heartbeat.
const EARLY_PUSHES: usize = 64;

/// So many tasks of one claim, or more: they are not counted down, and perhaps none is left.
const UNCOUNTED: u16 = u16::MAX;

/// All claims of one client on one key. `T` is what its driver keeps with each claim.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct KeyMachine<T> {
    /// By number.
    claims: VecDeque<Entry<T>>,
    /// When to call it next; never too late.
    due: Moment,
    /// Those that have changed, and were not seen since.
    changed: VecDeque<ClaimNumber>,
    /// How many are behind a claim that is not known, or not yet.
    astray: u32,
    /// How many are not answered yet, or on their way out.
    passing: u32,
    /// What only moving claims need: a key whose claims are all held has none.
    remembered: Option<Box<Remembered>>,
}

/// A claim, and what the others see of it.
#[derive(Debug, Clone, PartialEq, Hash)]
struct Entry<T> {
    number: ClaimNumber,
    data: T,
    claim: Box<ClaimMachine>,
    phase: Phase,
    arrival: Option<Arrival>,
    run: Run,
    /// Whether it is behind a claim that is not known, or not yet.
    astray: bool,
    due: Moment,
    /// So many tasks send its requests themselves; [`UNCOUNTED`], once there were so many.
    drivers: u16,
    /// Whether the first of them, which has made it, is still to begin.
    fresh: bool,
    /// Whether its caller still has it.
    owned: bool,
    changed: bool,
}

/// Whether a claim is not answered yet, or on its way out.
fn passes_by(phase: Phase) -> bool {
    matches!(phase, Phase::Asking | Phase::Leaving)
}

impl<T> Entry<T> {
    /// Whether the store has it in its queue, as far as is known.
    fn stands(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::Held)
    }
}

impl<T> Default for KeyMachine<T> {
    fn default() -> Self {
        Self {
            claims: VecDeque::new(),
            due: Moment::NEVER,
            changed: VecDeque::new(),
            astray: 0,
            passing: 0,
            remembered: None,
        }
    }
}

impl<T> KeyMachine<T> {
    /// Adds a claim that is not asked for yet.
    pub fn claim(
        &mut self,
        number: ClaimNumber,
        data: T,
        claim: Claim,
        terms: impl Into<Arc<Terms>>,
        deadlines: Deadlines,
        now: Moment,
    ) {
        let claim = ClaimMachine::claim(claim, terms, deadlines, now);
        self.insert(number, data, claim, now);
    }

    /// Adds a claim that is taken over from another client: `id`, replaced as `rotate` says.
    #[allow(
        clippy::too_many_arguments,
        reason = "as `claim`, and whose claim it was"
    )]
    pub fn adopt(
        &mut self,
        number: ClaimNumber,
        data: T,
        id: ClaimId,
        rotate: Rotate,
        terms: impl Into<Arc<Terms>>,
        deadlines: Deadlines,
        now: Moment,
    ) {
        let claim = ClaimMachine::adopt(id, rotate, terms, deadlines, now);
        self.insert(number, data, claim, now);
    }

    fn insert(&mut self, number: ClaimNumber, data: T, claim: ClaimMachine, now: Moment) {
        if self.claims.capacity() == 0 {
            // Most keys have one claim, and there may be very many keys.
            self.claims.reserve_exact(1);
        }
        let at = self.claims.partition_point(|entry| entry.number < number);
        let entry = Entry {
            number,
            data,
            claim: Box::new(claim),
            // Before its first step there is nothing of it.
            phase: Phase::Over,
            arrival: None,
            run: Run::None,
            astray: false,
            due: Moment::NEVER,
            drivers: 1,
            fresh: true,
            owned: true,
            changed: false,
        };
        self.claims.insert(at, entry);
        self.settle(at, now);
    }

    fn place(&self, number: ClaimNumber) -> Option<usize> {
        let claims = &self.claims;
        claims.binary_search_by_key(&number, |it| it.number).ok()
    }

    // ---- where it stands ----

    /// Returns a claim.
    #[must_use]
    pub fn get(&self, number: ClaimNumber) -> Option<&ClaimMachine> {
        Some(&self.claims[self.place(number)?].claim)
    }

    /// Returns what the driver of a claim keeps of it.
    #[must_use]
    pub fn data(&self, number: ClaimNumber) -> Option<&T> {
        Some(&self.claims[self.place(number)?].data)
    }

    /// Returns what the driver keeps of the claims that are on their way out.
    pub fn leaving(&self) -> impl Iterator<Item = &T> {
        let leaving = self.claims.iter().filter(|it| it.phase == Phase::Leaving);
        leaving.map(|entry| &entry.data)
    }

    /// Returns whether it has no claim any more.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    // ---- inputs ----

    /// Changes a claim as its caller wants, and the others with it. `None`: it is not here any more.
    pub fn update<R>(
        &mut self,
        now: Moment,
        number: ClaimNumber,
        change: impl FnOnce(&mut ClaimMachine) -> R,
    ) -> Option<R> {
        let at = self.place(number)?;
        let result = change(&mut self.claims[at].claim);
        self.settle(at, now);
        Some(result)
    }

    /// Handles the answer to a request, or its failure.
    pub fn handle_answer(
        &mut self,
        now: Moment,
        number: ClaimNumber,
        to: &Transmit,
        response: Result<Response, Failure>,
    ) {
        let Some(at) = self.place(number) else {
            return;
        };
        let asked = self.claims[at].arrival.is_none();
        self.claims[at].claim.handle_answer(now, to, response);
        self.settle(at, now);
        if asked {
            self.handle_early(at, now);
        }
    }

    /// Handles a push on this key. It is about the claim with the arrival number that it names, or
    /// perhaps about one that is not answered yet: then it is kept until that answer.
    pub fn handle_push(&mut self, now: Moment, push: &Push) {
        let arrival = push.arrival();
        let mut claims = self.claims.iter();
        let named = claims.position(|entry| entry.stands() && entry.arrival == arrival);
        if let Some(at) = named.filter(|_| arrival.is_some()) {
            self.claims[at].claim.handle_push(now, push);
            self.settle(at, now);
        } else if self.claims.iter().any(|it| it.phase == Phase::Asking) {
            let early = &mut self.remembered.get_or_insert_default().early;
            early.truncate(EARLY_PUSHES - 1);
            early.push_front(push.clone());
        }
    }

    /// Handles the pushes that came before the answer that says which arrival number a claim has.
    fn handle_early(&mut self, at: usize, now: Moment) {
        if let Some(remembered) = &mut self.remembered
            && let Some(arrival) = self.claims[at].arrival
        {
            for push in remembered.take_pushes(arrival) {
                self.claims[at].claim.handle_push(now, &push);
            }
            if !self.claims.iter().any(|it| it.phase == Phase::Asking) {
                remembered.early.clear();
            }
            self.settle(at, now);
        }
    }

    /// Handles a lost connection: from now on another server may answer, which may have granted the
    /// key to others. So no hold is passed on within the client until the store has answered.
    pub fn handle_lost_connection(&mut self, now: Moment) {
        self.forget_passed();
        self.each(now, ClaimMachine::handle_disconnection);
    }

    /// Handles that there is a connection again after one that was lost: all claims ask the store.
    pub fn handle_reconnection(&mut self, now: Moment) {
        self.forget_passed();
        self.each(now, |claim| claim.handle_reconnection(now));
    }

    /// Handles that pushes may have been missed: all claims ask the store.
    pub fn handle_reset(&mut self, now: Moment) {
        self.each(now, |claim| claim.handle_reset(now));
    }

    /// Handles the shutdown of the client: all claims are released, and their leases are lost.
    pub fn shut_down(&mut self, now: Moment) {
        self.each(now, |claim| claim.shut_down(now));
    }

    fn each(&mut self, now: Moment, change: impl Fn(&mut ClaimMachine)) {
        for at in 0..self.claims.len() {
            if self.claims[at].phase != Phase::Over {
                change(&mut self.claims[at].claim);
                self.settle(at, now);
            }
        }
    }

    /// A task sends the requests of a claim from now on, or does so no more. A claim that asks or
    /// leaves is then not among those of [`KeyMachine::poll_transmit`]. Nor is a new one, which the
    /// task that has made it is about to ask for.
    pub fn set_driven(&mut self, now: Moment, number: ClaimNumber, driven: bool) {
        if let Some(at) = self.place(number) {
            let entry = &mut self.claims[at];
            match (driven, std::mem::take(&mut entry.fresh)) {
                (true, true) => {}
                (true, false) => entry.drivers = entry.drivers.saturating_add(1),
                (false, _) if entry.drivers == UNCOUNTED => {}
                (false, _) => entry.drivers = entry.drivers.saturating_sub(1),
            }
            self.settle(at, now);
        }
    }

    /// The caller of a claim has let go of it: when it is over, nothing is kept of it.
    pub fn detach(&mut self, now: Moment, number: ClaimNumber) {
        if let Some(at) = self.place(number) {
            let entry = &mut self.claims[at];
            (entry.owned, entry.fresh, entry.drivers) = (false, false, 0);
            self.settle(at, now);
        }
    }
}

#[cfg(test)]
mod tests;
