//! Runs: claims of one client that are granted one behind the other.

use std::time::Duration;

use leasehold_core::{Arrival, ClaimView, Mode, Queue, Snapshot, StoreTime, Token};
use serde::Deserialize;

use super::checks::Step;
use super::{Act, QueueModel, State, holder, number};

/// A claim that is granted behind another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Follower {
    pub(super) arrival: Arrival,
    pub(super) token: Token,
    pub(super) behind: Arrival,
}

/// What is read of a queue as it is written down.
#[derive(Deserialize)]
struct Written {
    granted: Vec<(Token, Granted)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Granted {
    arrival: Arrival,
    deadline: StoreTime,
}

impl QueueModel {
    /// All that have a token, in their order. No view of a queue tells of the tokens of those who
    /// do not hold yet, so they are read from what is written down.
    pub(super) fn granted(&self, queue: &Queue, clock: StoreTime) -> Vec<(Token, Granted)> {
        let runs = self.parts.iter().any(|part| part.runs.is_some());
        if !runs || queue.look(clock).waiters.is_empty() {
            return Vec::new();
        }
        let written = serde_json::to_value(queue).and_then(Written::deserialize);
        written.map(|written| written.granted).unwrap_or_default()
    }

    /// A grant goes unheard in the moment in which it is given, or never.
    pub(super) fn granted_just_now(
        &self,
        state: &State,
        client: usize,
    ) -> Vec<(Arrival, Duration)> {
        let seen = state.queue.look(state.clock());
        let theirs = |claim: &&ClaimView| self.client(number(claim)) == client;
        let granted = state.granted(&seen).filter(theirs);
        let now = granted.filter(|claim| claim.since == seen.at);
        now.map(|claim| (claim.arrival, Duration::ZERO)).collect()
    }
}

impl State {
    /// Those that hold or are granted behind others.
    pub(super) fn granted<'a>(&'a self, seen: &'a Snapshot) -> impl Iterator<Item = &'a ClaimView> {
        let followers = self.followers(seen);
        let follows = move |claim: &&ClaimView| {
            let mut followers = followers.iter();
            followers.any(|follower| follower.arrival == claim.arrival)
        };
        let holders = seen.holders.iter().map(|holder| &holder.claim);
        let waiters = seen.waiters.iter().map(|waiter| &waiter.claim);
        holders.chain(waiters.filter(follows))
    }

    /// Those that are granted behind others.
    pub(super) fn followers(&self, seen: &Snapshot) -> Vec<Follower> {
        let granted = &self.written;
        let ahead = [None].into_iter();
        let ahead = ahead.chain(granted.iter().map(|(_, entry)| Some(entry.arrival)));
        let places = granted.iter().zip(ahead);
        let followers = places.filter_map(|((token, entry), ahead)| {
            let holds = holder(seen, entry.arrival).is_some();
            let follows = !holds && entry.deadline > seen.at;
            Some(Follower {
                arrival: entry.arrival,
                token: *token,
                behind: ahead.filter(|_| follows)?,
            })
        });
        followers.collect()
    }
}

impl Step<'_> {
    pub(super) fn follower(&self, arrival: Arrival) -> Option<Follower> {
        let mut followers = self.followers.iter().copied();
        followers.find(|follower| follower.arrival == arrival)
    }

    /// The claims that wait, and are not granted behind others.
    pub(super) fn line(&self) -> impl Iterator<Item = &ClaimView> {
        let waiters = self.is.waiters.iter().map(|waiter| &waiter.claim);
        waiters.filter(|claim| self.follower(claim.arrival).is_none())
    }

    /// Those of them that were not passed over, since their client did not hear.
    pub(super) fn patient(&self) -> impl Iterator<Item = &ClaimView> {
        self.line().filter(|claim| !self.passed[number(claim)])
    }

    /// A run is one client's, whose claims came one after the other.
    pub(super) fn a_run_is_one_clients(&self) -> bool {
        if self.followers.is_empty() {
            return true;
        }
        let follows = |claim: &&ClaimView| self.follower(claim.arrival).is_some();
        let waiters = self.is.waiters.iter().map(|waiter| &waiter.claim);
        let holders = self.is.holders.iter().map(|holder| &holder.claim);
        let all: Vec<_> = holders.chain(waiters.filter(follows)).collect();
        let client = |claim: &ClaimView| self.model.parts[number(claim)].runs;
        let alone = |claim: &&&ClaimView| claim.mode == Mode::EXCLUSIVE;
        all.iter()
            .all(|claim| client(claim).is_some() && client(claim) == client(all[0]))
            && all.iter().skip(1).all(|claim| alone(&claim))
    }

    /// Who is granted behind others came before all who wait, and in this order.
    pub(super) fn a_run_keeps_the_order(&self) -> bool {
        let first = self.patient().map(|claim| claim.arrival).next();
        let in_order = self.followers.is_sorted_by_key(|follower| follower.arrival)
            && self.followers.is_sorted_by_key(|follower| follower.token);
        let before = |follower: &Follower| first.is_none_or(|first| follower.arrival < first);
        in_order && self.followers.iter().all(before)
    }

    /// Whether the first in line might be granted behind the last that is.
    pub(super) fn a_run_could_go_on(&self) -> bool {
        let Some(first) = self.line().next() else {
            return false;
        };
        let last = self.followers.last().map(|follower| follower.arrival);
        let last = last.or_else(|| self.is.holders.last().map(|holder| holder.claim.arrival));
        let mut claims = super::claims(&self.is);
        let last = claims.find(|claim| Some(claim.arrival) == last);
        last.is_some_and(|last| {
            let client = |claim: &ClaimView| self.model.parts[number(claim)].runs;
            let alone = last.mode == Mode::EXCLUSIVE && first.mode == Mode::EXCLUSIVE;
            let in_order = last.arrival < first.arrival;
            alone && in_order && client(first).is_some() && client(first) == client(last)
        })
    }

    /// A claim that is granted behind others stays so until it holds.
    pub(super) fn those_who_follow_stand(&self) -> bool {
        let leaves = |follower: &Follower| {
            let mut claims = super::claims(&self.was);
            let claim = claims.find(|claim| claim.arrival == follower.arrival);
            claim.is_none_or(|claim| self.leaves(claim) || self.steps_back(claim))
        };
        let stands = |follower: &Follower| {
            let holder = holder(&self.is, follower.arrival).map(|holder| holder.token);
            let follows = self.follower(follower.arrival).map(|is| is.token);
            [holder, follows].contains(&Some(follower.token))
        };
        let mut followers = self.followed.iter();
        self.act == Act::Break || followers.all(|follower| leaves(follower) || stands(follower))
    }
}
