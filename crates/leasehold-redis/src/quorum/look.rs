//! Inspects a key: what a majority of the servers reports.

use std::sync::Arc;

use leasehold_core::quorum::{Hold, Node, QuorumSize, Vote};
use leasehold_core::{Arrival, Capacity, ClaimView, Holder, Key, Mode, Snapshot, StoreTime, Token};
use leasehold_store::{ErrorKind, StoreError};

use super::Inner;
use super::member::Member;
use super::report::Report;
use super::script::{SCRIPTS, read_look};
use crate::classic;
use crate::connection::multiplexed::Connection;
use crate::connection::step::run;

impl Inner {
    /// A key as a quorum of servers sees it, and the highest token that any of
    /// them has heard of.
    pub(super) async fn look(&self, key: &Key) -> Result<(Snapshot, Token), StoreError> {
        if self.options.is_classic() {
            return Ok((self.look_classic(key).await?, Token::NONE));
        }
        let look = async |wire: Arc<Connection>, key: String| {
            read_look(&run(&wire, &SCRIPTS.inspect, &[&key], |_| {}).await?)
        };
        Ok(view(self.size, &self.look_by(look, key).await?))
    }

    /// The same where other libraries hold, too.
    async fn look_classic(&self, key: &Key) -> Result<Snapshot, StoreError> {
        let look = async |wire: Arc<Connection>, key: String| classic::look(&wire, &key).await;
        let seen = self.look_by(look, key).await?;
        let silent = self.size.servers() - seen.len();
        // A claim that holds, or may hold by the votes of those who are silent.
        let holder = seen.iter().find(|one| {
            let alike = seen.iter().filter(|other| other.is_same_claim(one));
            alike.count() + silent >= self.size.quorum()
        });
        let nobody = classic::Found::Nothing;
        Ok(classic::view(holder.unwrap_or(&nobody), classic::wall()))
    }

    /// What a quorum of servers or more sees at a key.
    async fn look_by<T, F>(
        &self,
        look: impl Fn(Arc<Connection>, String) -> F,
        key: &Key,
    ) -> Result<Vec<T>, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let limit = self.options.node_timeout;
        let work = |member: &Member, wire| look(wire, member.lock_key(key.as_str()));
        let looks = self.each(limit, work).await;
        let mut report = Report::new(self.size);
        for (server, look) in looks.iter().enumerate() {
            report.note(server, look.as_ref().map(|_| Vote::Done));
        }
        // Something else stands there. Where votes are our own, it is one that is missing.
        let errors = looks.iter().filter_map(|look| look.as_ref().err());
        let mut foreign = errors.filter(|error| error.kind() == ErrorKind::Corrupt);
        let foreign = foreign.next().cloned();
        let is_quorum = looks.iter().flatten().count() >= self.size.quorum();
        match foreign {
            Some(error) if !is_quorum || self.options.is_classic() => Err(error),
            _ if !is_quorum => Err(report.error(self, ErrorKind::Unavailable, limit)),
            _ => Ok(looks.into_iter().flatten().collect()),
        }
    }
}

/// What so many of the servers say of a key together, and the highest token that any
/// has heard of.
pub(super) fn view(size: QuorumSize, seen: &[(StoreTime, Node)]) -> (Snapshot, Token) {
    let highest = seen.iter().map(|(_, node)| node.highest()).max();
    let silent = size.servers() - seen.len();
    let live: Vec<_> = seen
        .iter()
        .filter_map(|(clock, node)| Some((*clock, node.live(*clock)?)))
        .collect();
    let votes = |hold: &Hold| {
        let alike = |(_, other): &&(_, &Hold)| (&other.id, other.token) == (&hold.id, hold.token);
        live.iter().filter(alike).count()
    };
    // What a claim says of itself may have been changed since a server heard of it: a
    // change that was confirmed is known to most.
    let say_so = |hold: &Hold| {
        let alike = |(_, other): &&(_, &Hold)| {
            (&other.id, other.token, &other.body.note) == (&hold.id, hold.token, &hold.body.note)
        };
        live.iter().filter(alike).count()
    };
    // A claim that holds, or may hold by the votes of those who are silent.
    let holder = live
        .iter()
        .filter(|(_, hold)| votes(hold) + silent >= size.quorum())
        .rev()
        .max_by_key(|(_, hold)| (votes(hold), say_so(hold)));
    let clock = holder
        .map(|(clock, _)| *clock)
        .or_else(|| seen.first().map(|(clock, _)| *clock))
        .unwrap_or(StoreTime(0));
    let snapshot = Snapshot {
        capacity: holder.map(|_| Capacity::Lock),
        last_token: seen
            .iter()
            .map(|(_, node)| node.accepted)
            .max()
            .unwrap_or_default(),
        at: clock,
        clock,
        holders: holder.map(|(_, hold)| view_of(hold)).into_iter().collect(),
        waiters: Vec::new(),
    };
    (snapshot, highest.unwrap_or_default())
}

fn view_of(hold: &Hold) -> Holder {
    Holder {
        claim: ClaimView {
            arrival: Arrival(hold.token.0),
            mode: Mode::EXCLUSIVE,
            owner: hold.body.owner.clone(),
            since: hold.since,
            deadline: hold.until,
            id_hint: hold.id.to_string(),
            note: hold.body.note.clone(),
            kept: false,
            renewed: None,
        },
        token: hold.token,
    }
}
