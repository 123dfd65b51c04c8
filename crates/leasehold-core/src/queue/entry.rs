//! One claim of the queue, and its position.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Queue;
use crate::{Arrival, ClaimId, ClientInfo, Inbox, Mode, Note, OwnerSecret, StoreTime, Token};

/// One claim of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its id.
    pub id: ClaimId,
    /// Its number in order of arrival.
    pub arrival: Arrival,
    /// The mode in which it holds.
    pub mode: Mode,
    /// When it expires.
    pub deadline: StoreTime,
    /// When it joined; from the grant on, when it was granted.
    pub since: StoreTime,
    /// Where its client receives pushes.
    pub inbox: Option<Inbox>,
    /// Its client, for people.
    pub owner: ClientInfo,
    /// The secret of its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<OwnerSecret>,
    /// How long it holds at least.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub min_hold: Duration,
    /// With a minimum hold, from the grant on: until when the client has renewed it. The
    /// deadline can be later, and alone it does not tell whether the client still runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<StoreTime>,
    /// What its client notes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
    /// How often the id was replaced.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub version: u64,
    /// The id before the last rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<ClaimId>,
    /// It has left, and only its minimum hold keeps the key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// Its client keeps the order of its claims.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub runs: bool,
    /// Its client listened when it last sent this claim, or renewed it while it waited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub listens: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Entry {
    /// Until when the key stays taken, whatever becomes of the claim.
    pub(super) fn keep_until(&self) -> StoreTime {
        self.since + self.min_hold
    }

    /// Notes until when the client of a granted claim has renewed it.
    pub(super) fn note_renewal(&mut self, until: StoreTime) {
        if !self.min_hold.is_zero() {
            self.renewed = self.renewed.max(Some(until));
        }
    }
}

impl Queue {
    pub(super) fn entry(&self, id: &ClaimId) -> Option<&Entry> {
        match *self.places.get(id)? {
            (Some(token), arrival) => self.granted.get(&(token, arrival)),
            (None, arrival) => self.waiting.get(&arrival),
        }
    }

    pub(super) fn entry_mut(&mut self, id: &ClaimId) -> Option<&mut Entry> {
        match *self.places.get(id)? {
            (Some(token), arrival) => self.granted.get_mut(&(token, arrival)),
            (None, arrival) => self.waiting.get_mut(&arrival),
        }
    }

    /// The token of a claim that is granted.
    pub(super) fn token_of(&self, id: &ClaimId) -> Option<Token> {
        self.places.get(id)?.0
    }

    pub(super) fn drop_if_lapsed(&mut self, id: &ClaimId, now: StoreTime) {
        if self.entry(id).is_some_and(|entry| entry.deadline <= now) {
            self.remove(id);
        }
    }

    pub(super) fn remove(&mut self, id: &ClaimId) {
        match self.places.remove(id) {
            Some((Some(token), arrival)) => {
                if let Some(entry) = self.granted.remove(&(token, arrival))
                    && !self.is_held(token)
                {
                    self.used -= entry.mode.weight();
                }
            }
            Some((None, arrival)) => {
                self.take_waiting(arrival);
            }
            None => {}
        }
    }

    /// Takes a waiting claim out of the line; its place in `places` stays.
    pub(super) fn take_waiting(&mut self, arrival: Arrival) -> Option<Entry> {
        let entry = self.waiting.remove(&arrival)?;
        if let Some(secret) = entry.secret
            && let Some(siblings) = self.siblings.get_mut(&secret)
        {
            siblings.remove(&arrival);
            if siblings.is_empty() {
                self.siblings.remove(&secret);
            }
        }
        Some(entry)
    }

    /// Whether any claim has that token.
    pub(super) fn is_held(&self, token: Token) -> bool {
        let one = (token, Arrival(0))..=(token, Arrival(u64::MAX));
        self.granted.range(one).next().is_some()
    }

    pub(super) fn first_waiting(&self) -> Option<Arrival> {
        self.waiting.keys().next().copied()
    }

    pub(super) fn first_holder(&self) -> Option<(Token, Arrival)> {
        self.granted.keys().next().copied()
    }
}
