//! What each step of a queue must leave behind.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::{
    Capacity, ClaimView, Holder, Mode, Outcome, OwnerSecret, PROMOTED_FLOOR, Reply, Snapshot,
    Token, UNHEARD_CUT,
};

use super::{Act, Follower, QueueModel, State, claims, holder, number};
use crate::model::promise::Promise;

/// One step: the key before and after, at the same time.
pub(super) struct Step<'a> {
    pub(super) model: &'a QueueModel,
    pub(super) act: Act,
    pub(super) was: Snapshot,
    pub(super) is: Snapshot,
    /// Those that were granted behind others, and those that are.
    pub(super) followed: Vec<Follower>,
    pub(super) followers: Vec<Follower>,
    /// By part: whether it waits since it was passed over.
    pub(super) passed: Vec<bool>,
    pub(super) outcome: &'a Outcome,
}

/// A claim that a step has granted.
pub(super) struct New<'a> {
    pub(super) claim: &'a ClaimView,
    pub(super) token: Token,
}

impl QueueModel {
    pub(super) fn judge(&self, before: &State, state: &mut State, act: Act, outcome: &Outcome) {
        let clock = state.clock();
        let was = before.queue.look(clock);
        let is = state.queue.look(clock);
        let mut step = Step {
            model: self,
            act,
            followed: before.followers(&was),
            followers: state.followers(&is),
            passed: before.ghosts.iter().map(|ghost| ghost.passed).collect(),
            was,
            is,
            outcome,
        };
        step.note_passed();
        step.remember(before, state);
        let fine = [
            (Promise::Capacity, step.what_is_granted_fits()),
            (Promise::Tokens, step.tokens_rise(before.highest)),
            (Promise::Order, step.nobody_was_passed()),
            (Promise::Idle, step.the_first_in_line_does_not_fit()),
            (Promise::Standing, step.others_stand()),
            (Promise::Lifetime, step.lives_as_asked(state)),
            (Promise::Ended, step.nothing_came_back(before)),
            (Promise::Told, step.those_granted_are_told()),
            (Promise::Truth, step.the_answer_is_true()),
        ];
        for (promise, holds) in fine {
            state.broken.require(promise, holds);
        }
        step.note();
    }

    pub(super) fn secret(&self, claim: &ClaimView) -> Option<OwnerSecret> {
        self.parts[number(claim)].secret
    }
}

/// Whether such holds can be at the same time, by what the kinds of lock mean.
pub(in crate::model) fn fit(modes: &[Mode], capacity: Option<Capacity>) -> bool {
    let alone = modes.contains(&Mode::EXCLUSIVE);
    let taken: u64 = modes.iter().map(|mode| permits(*mode)).sum();
    let of = match capacity {
        Some(Capacity::Permits(of)) => u64::from(of),
        _ => 0,
    };
    (!alone || modes.len() == 1) && taken <= of
}

fn permits(mode: Mode) -> u64 {
    match mode.capacity() {
        Capacity::Permits(_) => mode.weight(),
        Capacity::Lock => 0,
    }
}

/// The modes that hold; claims of one owner hold as one.
pub(super) fn held(seen: &Snapshot) -> Vec<Mode> {
    let by_token = seen.holders.iter().map(|it| (it.token, it.claim.mode));
    let by_token: BTreeMap<_, _> = by_token.collect();
    by_token.into_values().collect()
}

impl Step<'_> {
    /// The claims that this step has granted, also behind others.
    pub(super) fn granted(&self) -> impl Iterator<Item = New<'_>> {
        let holders = self.is.holders.iter().map(|holder| New {
            claim: &holder.claim,
            token: holder.token,
        });
        let waiters = self.is.waiters.iter().map(|waiter| &waiter.claim);
        let followers = waiters.filter_map(|claim| {
            let token = self.follower(claim.arrival)?.token;
            Some(New { claim, token })
        });
        let held = |new: &New<'_>| holder(&self.was, new.claim.arrival).is_some();
        let followed = |new: &New<'_>| {
            let mut followed = self.followed.iter();
            followed.any(|old| (old.arrival, old.token) == (new.claim.arrival, new.token))
        };
        let granted = holders.chain(followers);
        granted.filter(move |new| !held(new) && !followed(new))
    }

    fn of_actor<'a>(&self, seen: &'a Snapshot) -> Option<&'a ClaimView> {
        let actor = self.act.actor()?;
        claims(seen).find(|claim| number(claim) == actor && !claim.kept)
    }

    /// Who had a grant and waits again was passed over; who is granted is so no more.
    fn note_passed(&mut self) {
        let waits = |arrival| self.line().any(|claim| claim.arrival == arrival);
        let followed = self.followed.iter().map(|follower| follower.arrival);
        let held = self.was.holders.iter().map(|holder| holder.claim.arrival);
        let back: Vec<_> = held.chain(followed).filter(|one| waits(*one)).collect();
        let passes = matches!(self.act, Act::Pass(_));
        let passed = (0..self.passed.len()).map(|part| {
            let mut line = self.line().filter(|claim| number(claim) == part);
            line.next()
                .is_some_and(|claim| self.passed[part] || (passes && back.contains(&claim.arrival)))
        });
        self.passed = passed.collect();
    }

    /// Keeps what the checks of later steps need.
    fn remember(&self, before: &State, state: &mut State) {
        let at = self.outcome.at;
        let held = self.is.holders.iter().map(|holder| holder.token);
        let granted = held.chain(self.granted().map(|new| new.token));
        state.highest = granted.fold(before.highest, Token::max);
        for (ghost, passed) in state.ghosts.iter_mut().zip(&self.passed) {
            ghost.passed = *passed;
        }
        for holder in self.granted() {
            let part = &self.model.parts[number(holder.claim)];
            let floor = at + PROMOTED_FLOOR.max(part.min_hold);
            let ghost = &mut state.ghosts[number(holder.claim)];
            ghost.bound = ghost.bound.max(floor);
        }
        if let (Some(actor), Reply::Standing(_)) = (self.act.actor(), self.outcome.reply) {
            let ghost = &mut state.ghosts[actor];
            ghost.bound = ghost.bound.max(at + self.model.parts[actor].lease);
        }
        match self.act {
            Act::Release(actor) | Act::Vacate(actor) => state.ghosts[actor].left = true,
            Act::Bury(dead) => state.ghosts[dead].dead = true,
            Act::Pass(silent) => state.ghosts[silent].passes = true,
            Act::Break => {
                for holder in &self.was.holders {
                    state.ghosts[number(&holder.claim)].left = true;
                }
            }
            _ => {}
        }
    }

    fn what_is_granted_fits(&self) -> bool {
        let taken = |modes: &[Mode]| -> u64 { modes.iter().map(|mode| permits(*mode)).sum() };
        let (was, is) = (held(&self.was), held(&self.is));
        // A shrinking semaphore revokes nothing.
        let shrunk = taken(&is) > 0 && taken(&is) <= taken(&was);
        let due_before = matches!(self.act, Act::Resize(_)) && fit(&is, self.was.capacity);
        self.a_run_is_one_clients() && fit(&is, self.is.capacity)
            || (shrunk && self.model.events.resizes)
            || due_before
    }

    fn tokens_rise(&self, highest: Token) -> bool {
        let of_one_owner = |a: &Holder, b: &Holder| {
            let secrets = (self.model.secret(&a.claim), self.model.secret(&b.claim));
            a.token != b.token || (secrets.0.is_some() && secrets.0 == secrets.1)
        };
        let holders = &self.is.holders;
        let apart = holders.iter().all(|a| {
            let is_it = |b: &Holder| b.claim.arrival == a.claim.arrival;
            holders.iter().all(|b| is_it(b) || of_one_owner(a, b))
        });
        let joins = |new: &New<'_>| self.was.holders.iter().any(|old| old.token == new.token);
        apart && self.granted().all(|new| new.token > highest || joins(&new))
    }

    fn nobody_was_passed(&self) -> bool {
        let Some(first) = self.patient().next() else {
            return true;
        };
        let in_order = self.granted().all(|new| {
            let part = &self.model.parts[number(new.claim)];
            let joins = |other: &Holder| {
                other.token == new.token && other.claim.arrival != new.claim.arrival
            };
            new.claim.arrival < first.arrival
                || (part.ahead && part.secret.is_none())
                || self.is.holders.iter().any(joins)
        });
        in_order && self.a_run_keeps_the_order()
    }

    fn the_first_in_line_does_not_fit(&self) -> bool {
        let hands_on = !matches!(self.act, Act::Vacate(_) | Act::Unheard(_) | Act::Pass(_));
        let Some(first) = self.line().next().filter(|_| hands_on) else {
            return true;
        };
        let mut modes = held(&self.is);
        modes.push(first.mode);
        // Those who are granted behind others take the key in between.
        modes.extend(self.followers.iter().map(|_| Mode::EXCLUSIVE));
        let fits = fit(&modes, self.is.capacity) || self.a_run_could_go_on();
        !fits && !self.an_owner_waits_for_itself()
    }

    fn an_owner_waits_for_itself(&self) -> bool {
        let holders = self.is.holders.iter().map(|holder| &holder.claim);
        let mut owners =
            holders.filter_map(|claim| self.model.secret(claim).filter(|_| !claim.kept));
        owners.any(|owner| {
            let mut waiters = self.is.waiters.iter();
            waiters.any(|waiter| self.model.secret(&waiter.claim) == Some(owner))
        })
    }

    pub(super) fn leaves(&self, claim: &ClaimView) -> bool {
        let part = number(claim);
        match self.act {
            Act::Release(actor) | Act::Vacate(actor) => actor == part,
            Act::Bury(dead) => dead == self.model.client(part),
            _ => false,
        }
    }

    /// A grant of just now is taken back, since its client did not hear.
    pub(super) fn steps_back(&self, claim: &ClaimView) -> bool {
        let part = number(claim);
        let waits = self.line().any(|is| is.arrival == claim.arrival);
        let silent = self.act == Act::Pass(self.model.client(part));
        silent && waits && claim.since == self.outcome.at
    }

    fn others_stand(&self) -> bool {
        let breaks = self.act == Act::Break;
        let shrinks = matches!(self.act, Act::Resize(_)) || self.model.events.resizes;
        let holders = self.was.holders.iter().all(|old| {
            let same = |new: &Holder| {
                new.claim.arrival == old.claim.arrival
                    && new.token == old.token
                    && new.claim.kept == old.claim.kept
            };
            let goes = self.leaves(&old.claim) || self.steps_back(&old.claim);
            breaks || goes || self.is.holders.iter().any(same)
        });
        let here: BTreeSet<_> = claims(&self.is).map(|claim| claim.arrival).collect();
        let mut waiters = self.was.waiters.iter().map(|waiter| &waiter.claim);
        holders
            && self.those_who_follow_stand()
            && self.minimum_holds_are_kept()
            && waiters.all(|old| self.leaves(old) || here.contains(&old.arrival) || shrinks)
            && claims(&self.is).all(|claim| self.has_its_mode(claim))
    }

    /// A holder that leaves before its minimum hold is over keeps the key till then.
    fn minimum_holds_are_kept(&self) -> bool {
        let at = self.outcome.at;
        self.was.holders.iter().all(|old| {
            let keeps = old.claim.since + self.model.parts[number(&old.claim)].min_hold > at;
            let stays = |new: &Holder| new.token == old.token;
            let goes = self.act == Act::Break || self.steps_back(&old.claim);
            !keeps || goes || self.is.holders.iter().any(stays)
        })
    }

    /// Nothing but its own downgrade changes what a claim takes.
    fn has_its_mode(&self, claim: &ClaimView) -> bool {
        let old = claims(&self.was).find(|old| old.arrival == claim.arrival);
        let asked = || self.model.parts[number(claim)].mode;
        let before = old.map_or_else(asked, |old| old.mode);
        let downgraded = self.act == Act::Downgrade(number(claim)) && claim.mode == Mode::SHARED;
        claim.mode == before || downgraded
    }

    fn lives_as_asked(&self, state: &State) -> bool {
        let not_longer = claims(&self.is).all(|c| c.deadline <= state.ghosts[number(c)].bound);
        let not_shorter = claims(&self.was).all(|old| {
            let new = claims(&self.is).find(|new| new.arrival == old.arrival);
            new.is_none_or(|new| match self.act {
                _ if new.kept && !old.kept => true,
                Act::Unheard(cut) | Act::Pass(cut) if cut == self.model.client(number(old)) => {
                    new.deadline >= old.deadline.min(self.outcome.at + UNHEARD_CUT)
                }
                _ => new.deadline >= old.deadline,
            })
        });
        let as_answered = match (self.act.actor(), self.outcome.reply) {
            (Some(actor), Reply::Standing(standing)) => {
                standing.deadline >= self.outcome.at + self.model.parts[actor].lease
            }
            _ => true,
        };
        not_longer && not_shorter && as_answered && self.no_grant_lapses_on_its_way()
    }

    /// Who is granted by another's step has time to hear of it, unless nobody listens.
    fn no_grant_lapses_on_its_way(&self) -> bool {
        let actor = self.act.actor();
        let mut heard = (self.granted()).filter(|new| Some(number(new.claim)) != actor);
        heard.all(|new| {
            let part = &self.model.parts[number(new.claim)];
            new.claim.deadline >= self.outcome.at + PROMOTED_FLOOR.max(part.min_hold)
        })
    }

    fn nothing_came_back(&self, before: &State) -> bool {
        let stands = matches!(self.outcome.reply, Reply::Standing(_));
        let revived = match self.act {
            Act::Renew(_) | Act::Downgrade(_) => self.of_actor(&self.was).is_none() && stands,
            Act::Claim(actor) => before.ghosts[actor].left && stands,
            _ => false,
        };
        // A break voids tokens: its number is one of those that went with them.
        let void = self.act != Act::Break || self.is.last_token > self.was.last_token;
        let here = |claim: &ClaimView| before.ghosts[number(claim)].left && !claim.kept;
        !revived && void && !claims(&self.is).any(here)
    }

    fn the_answer_is_true(&self) -> bool {
        let here = self.of_actor(&self.is);
        // Its client may have passed the hold on to it by then.
        let follows = |claim: &ClaimView| {
            let mut followed = self.followed.iter();
            followed.any(|follower| follower.arrival == claim.arrival)
        };
        match self.outcome.reply {
            _ if matches!(self.act, Act::Stranger(_)) => self.outcome.reply == Reply::Taken,
            Reply::Standing(standing) => here.is_some_and(|claim| {
                let holder = holder(&self.is, claim.arrival);
                let follower = self.follower(claim.arrival);
                let token = holder.map(|holder| holder.token);
                let token = token.or_else(|| follower.map(|follower| follower.token));
                claim.arrival == standing.arrival
                    && claim.deadline == standing.deadline
                    && standing.behind == follower.map(|follower| follower.behind)
                    && token == standing.token
                    && (standing.position == 0) == holder.is_some()
            }),
            Reply::Busy { .. } => here.is_none() && !self.could_be_granted(),
            Reply::Released { held } => self.of_actor(&self.was).is_some_and(|claim| {
                holder(&self.was, claim.arrival).is_some() == held || follows(claim)
            }),
            Reply::Absent => self.of_actor(&self.was).is_none(),
            Reply::Gone => here.is_none(),
            _ => true,
        }
    }

    /// Whether a claim that did not wait could have been granted.
    fn could_be_granted(&self) -> bool {
        let Some(part) = self.act.actor().map(|actor| &self.model.parts[actor]) else {
            return false;
        };
        let mut modes = held(&self.is);
        modes.push(part.mode);
        let owner_holds = part.secret.is_some()
            && (self.is.holders.iter()).any(|h| self.model.secret(&h.claim) == part.secret);
        let capacity = self.is.capacity;
        let free = fit(&modes, capacity.or_else(|| Some(part.mode.capacity())));
        owner_holds || (free && (self.is.waiters.is_empty() || part.ahead))
    }

    /// Notes what has happened, for those who want to be sure that it does.
    fn note(&self) {
        let seen = &self.model.seen;
        let actor = self.act.actor();
        for new in self.granted() {
            if self.follower(new.claim.arrival).is_some() {
                seen.note("granted in a run");
            } else if Some(number(new.claim)) == actor && new.claim.since == self.outcome.at {
                seen.note("granted at once");
            } else {
                seen.note("granted while it waited");
            }
        }
        let mut holders = self.was.holders.iter();
        if holders.any(|old| self.steps_back(&old.claim)) {
            seen.note("passed over");
        }
        match self.outcome.reply {
            Reply::Gone => seen.note("gone"),
            Reply::Busy { .. } => seen.note("busy"),
            Reply::Taken => seen.note("taken"),
            Reply::Mismatch { .. } => seen.note("mismatch"),
            _ => {}
        }
        let tokens: BTreeSet<_> = self.is.holders.iter().map(|h| h.token).collect();
        if tokens.len() < self.is.holders.len() {
            seen.note("two claims of one owner");
        } else if tokens.len() > 1 {
            seen.note("two hold together");
        }
        if self.is.holders.iter().any(|holder| holder.claim.kept) {
            seen.note("kept by its minimum hold");
        }
    }
}
