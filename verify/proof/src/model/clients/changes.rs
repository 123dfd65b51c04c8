//! What callers do with their leases besides holding them: new ids, other clients, readers; and how
//! leases are renewed.

use leasehold_core::{
    Adopt, Change, Changed, ClaimId, ClientInfo, Command, KeyMachine, Mode, Phase, RenewalPolicy,
    Reply, Rotate, Transmit,
};

use super::client::Lease;
use super::{ClientsModel, State, inbox};
use crate::model::promise::Promise;

/// A change that a caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::model) enum Wish {
    Rotate,
    Downgrade,
    HandOver,
}

/// What a client may send in one tick, if nobody tells it anything.
const SELDOM: usize = 3;

impl ClientsModel {
    /// Whether what is known of leases is kept and judged.
    pub(super) fn judges_leases(&self) -> bool {
        self.promises.contains(&Promise::Storm)
    }

    /// Something happens that may be a reason for requests.
    pub(super) fn note_cause(&self, state: &mut State, client: usize) {
        let causes = &mut state.clients[client].lease.causes;
        *causes = causes.saturating_add(u8::from(self.judges_leases()));
    }

    /// How a client relies on its lease.
    pub(super) fn mode(&self, state: &State, client: usize) -> Mode {
        match state.clients[client].lease.reads {
            true => Mode::SHARED,
            false => self.people[client].mode,
        }
    }

    pub(super) fn change(&self, state: &mut State, client: usize, wish: Wish) {
        self.note_cause(state, client);
        let begun = state.clients[client].begun;
        let lease = &mut state.clients[client].lease;
        lease.rotations += u8::from(wish == Wish::Rotate);
        // It only reads from the sending on: the store may let readers in any time.
        lease.reads |= wish == Wish::Downgrade;
        let fresh = (client as u128) << 8 | u128::from(begun) | u128::from(lease.rotations) << 16;
        let change = self.update(state, client, |claim, now| match wish {
            Wish::Rotate => claim.change(Change::Rotate(ClaimId::from_random(fresh)), now),
            Wish::Downgrade => claim.change(Change::Downgrade, now),
            Wish::HandOver => claim.hand_over(now),
        });
        let changes = &mut state.clients[client].changes;
        changes.extend(change.map(|change| (change, wish)));
        self.drive(state, client);
    }

    /// What has come of changes.
    pub(super) fn settle_changes(&self, state: &mut State, client: usize) {
        for (change, wish) in state.clients[client].changes.clone() {
            let changed = self.update(state, client, |claim, _| claim.changed(change));
            let Some(changed) = changed.flatten() else {
                continue;
            };
            state.clients[client]
                .changes
                .retain(|(it, _)| *it != change);
            match (wish, changed) {
                (Wish::Rotate, Changed::Done) => self.seen.note("rotated"),
                (Wish::Downgrade, Changed::Done) => self.seen.note("reads on"),
                (Wish::HandOver, Changed::Done) => self.give(state, client),
                (Wish::HandOver, _) => self.leave(state, client),
                _ => {}
            }
        }
    }

    /// Its lease is another's, who asks for it at once.
    fn give(&self, state: &mut State, from: usize) {
        let given = self.claim(state, from).map(|claim| {
            let (id, version) = claim.identity();
            (id.clone(), version)
        });
        let reads = self.mode(state, from) == Mode::SHARED;
        state.machines[from] = KeyMachine::default();
        let it = &mut state.clients[from];
        (it.claim, it.seen, it.lease) = (None, (false, None), Lease::default());
        (it.pending, it.changes) = (Vec::new(), Vec::new());
        if let (Some((id, version)), Some(to)) = (given, self.adopter(state)) {
            self.seen.note("handed over");
            state.clients[to].lease.reads = reads;
            self.take_over(state, to, id, version);
        }
    }

    /// A client asks for the lease with this id.
    pub(super) fn take_over(&self, state: &mut State, to: usize, id: ClaimId, version: u64) {
        state.clients[to].begun += 1;
        let rotate = Rotate {
            to: Self::id(state, to),
            version,
            adopt: Some(Adopt {
                inbox: Some(inbox(self.process(to))),
                owner: ClientInfo::new("", u32::try_from(to).unwrap_or_default(), None),
            }),
        };
        let (now, number) = (self.moment(state, to), Self::number(state, to));
        let (terms, deadlines) = (self.lease_terms(to), Self::deadlines());
        let machine = &mut state.machines[self.process(to)];
        machine.adopt(number, (), id, rotate, terms, deadlines, now);
        state.clients[to].claim = Some(number);
        self.drive(state, to);
    }

    /// Time alone causes few requests, anything else some each; and who renews by hand is not
    /// renewed.
    pub(super) fn judge_request(&self, state: &mut State, client: usize, transmit: &Transmit) {
        if !self.judges_leases() {
            return;
        }
        let it = &mut state.clients[client];
        let lease = &mut it.lease;
        lease.sent = lease.sent.saturating_add(1);
        let reasons = usize::from(lease.causes) + it.changes.len();
        let seldom = usize::from(lease.sent) <= SELDOM + 2 * reasons;
        let renews = matches!(&*transmit.command, Command::Renew(_)) && it.seen.0;
        let manual = self.people[client].policy == RenewalPolicy::Manual;
        let asked = std::mem::take(&mut lease.again) || !it.changes.is_empty();
        let by_itself = manual && renews && lease.whole && !asked;
        state.broken.require(Promise::Storm, seldom);
        state.broken.require(Promise::Lifetime, !by_itself);
    }

    /// A lease ends when its policy and its caller say so.
    pub(super) fn judge_lifetime(&self, state: &mut State, client: usize) {
        let (person, since) = (self.people[client], state.clients[client].lease.since);
        let Some(claim) = self.claim(state, client).filter(|_| self.judges_leases()) else {
            return;
        };
        let until = claim.valid_until();
        let fixed = person.policy == RenewalPolicy::Fixed;
        let longest = person
            .max_hold
            .into_iter()
            .chain(fixed.then_some(self.lease));
        let ends = longest.min().is_none_or(|longest| until <= since + longest);
        let holds = claim.phase() == Phase::Held;
        state.broken.require(Promise::Lifetime, !holds || ends);
    }

    /// A lease is not given up by an answer while the store has it as its client's: an answer about
    /// an id that was replaced says nothing.
    pub(super) fn judge_loss(&self, state: &mut State, client: usize, reply: &Reply, lost: bool) {
        let says = matches!(reply, Reply::Superseded | Reply::Gone | Reply::Taken);
        if !says || state.clients[client].hands_over() {
            return;
        }
        if !lost {
            self.seen.note("stale answer");
        }
        let arrival = self.claim(state, client).and_then(|claim| claim.arrival());
        let mut holders = state.queue.look(state.clock).holders.into_iter();
        let held = holders.any(|holder| {
            let whose = holder.claim.owner.pid as usize;
            (Some(holder.claim.arrival), whose) == (arrival, client)
        });
        state.broken.require(Promise::Kept, !(lost && held));
    }
}
