//! Inspects a key: what a majority of the members reports.

use std::time::Duration;

use leasehold_core::quorum::QuorumSize;
use leasehold_core::{Holder, Key, Snapshot, StoreTime, Token};
use leasehold_store::{ErrorKind, StoreError};

use super::Inner;
use crate::classic::wall;

impl Inner {
    /// A key as a quorum of members sees it.
    pub(super) async fn look(&self, key: &Key) -> Result<Snapshot, StoreError> {
        let limit = self.options.node_timeout;
        let looks = self.each(limit, |member| member.store.inspect(key)).await;
        let (seen, report) = self.gather(looks);
        let is_quorum = seen.len() >= self.size.quorum();
        // Something else stands there. Where votes are our own, it is one that is missing.
        let is_corrupt = |error: &&StoreError| error.kind() == ErrorKind::Corrupt;
        match report.errors().find(is_corrupt) {
            Some(error) if !is_quorum || self.options.is_classic() => Err(error.clone()),
            _ if !is_quorum => Err(report.error(self, ErrorKind::Unavailable, limit)),
            _ => Ok(view(self.size, &seen, wall())),
        }
    }
}

/// What so many of the members say of a key together. Its last token is the highest that any of
/// them has accepted.
pub(super) fn view(size: QuorumSize, seen: &[Snapshot], wall: StoreTime) -> Snapshot {
    let silent = size.servers() - seen.len();
    let held = || {
        seen.iter()
            .filter_map(|look| Some((look, look.holders.first()?)))
    };
    let is_same = |one: &Holder, other: &Holder| {
        (one.token, one.claim.arrival, &one.claim.id_hint)
            == (other.token, other.claim.arrival, &other.claim.id_hint)
    };
    let votes = |holder: &Holder| held().filter(|(_, other)| is_same(holder, other)).count();
    // What a claim says of itself may have been changed since a member heard of it: a
    // change that was confirmed is known to most.
    let say_so = |holder: &Holder| {
        let alike = held().filter(|(_, other)| is_same(holder, other));
        let notes = alike.map(|(_, other)| &other.claim.note);
        notes.filter(|note| **note == holder.claim.note).count()
    };
    // A claim that holds, or may hold by the votes of those who are silent.
    let holder = held()
        .filter(|(_, holder)| votes(holder) + silent >= size.quorum())
        .rev()
        .max_by_key(|(_, holder)| (votes(holder), say_so(holder)));
    let at = holder.map(|(look, _)| look).or_else(|| seen.first());
    let last_token = seen.iter().map(|look| look.last_token).max();
    let holders = holder.map(|(_, holder)| holder.clone());
    Snapshot {
        capacity: holder.and_then(|(look, _)| look.capacity),
        last_token: last_token.unwrap_or_default(),
        at: at.map_or(wall, |look| look.at),
        clock: at.map_or(wall, |look| look.clock),
        holders: holders.into_iter().collect(),
        waiters: Vec::new(),
    }
}

/// Up to which token a break voids: all that was seen, and what claims propose by now, but no
/// further ahead of a member's clock than they may. A wrong clock here cannot use up the tokens.
pub(super) fn void_up_to(seen: &Snapshot, wall: StoreTime, ahead: Duration) -> Token {
    let most = wall.min(seen.clock + ahead);
    Token::from(most.0.max(seen.last_token.get() + 1))
}
