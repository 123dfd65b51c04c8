//! The audit log of a set of servers, combined from the logs of each server: see [`QuorumAudit`].

use std::collections::{BTreeMap, BTreeSet};

use super::{Node, Part, QuorumSize};
use crate::{
    Arrival, AuditEntry, AuditEvent, AuditedHold, ClaimId, ClientInfo, Key, Mode, StoreTime, Token,
};

/// A log entry of one server about its vote for a key, written in the step that changed the vote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VoteNote {
    /// This server's time of the step.
    pub at: StoreTime,
    /// The claim that had or has the vote. A broken key may have none.
    pub hold: Option<AuditedHold>,
    /// What happened.
    pub event: VoteEvent,
}

/// A change of a vote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VoteEvent {
    /// The server votes for the claim. A vote that a renewal brought back is not noted.
    Given {
        /// Until when, unless it is renewed.
        until: StoreTime,
    },
    /// The client has released the key that it held.
    Released {
        /// Since when the server had voted for it.
        since: StoreTime,
        /// Whether this client had counted the votes itself. Another process may release a claim,
        /// too.
        known: bool,
    },
    /// The client did not get a quorum of votes, and has released this vote.
    GivenUp,
    /// The vote had expired and was replaced by another.
    Lapsed {
        /// Since when the server had voted for it.
        since: StoreTime,
        /// When it lapsed.
        until: StoreTime,
        /// The first characters of the id of the claim whose request found it, or nothing.
        found_by: String,
    },
    /// An administrator took the key.
    Broken {
        /// Who did it.
        by: ClientInfo,
        /// No token up to this one gets this server's vote any more.
        up_to: Token,
    },
}

/// The request of a step that may have changed votes.
#[derive(Debug, Clone, Copy)]
pub enum VoteChange<'a> {
    /// [`Node::acquire`].
    Acquire(&'a ClaimId),
    /// [`Node::extend`].
    Extend(&'a ClaimId),
    /// [`Node::release`].
    Release(&'a Part),
    /// [`Node::break_key`], up to that token and by that client.
    Break(Token, &'a ClientInfo),
}

impl Node {
    /// Returns the log entries of a step: the difference between this server's record `before`
    /// the step and now.
    #[must_use]
    pub fn noted(&self, before: &Self, change: VoteChange<'_>, at: StoreTime) -> Vec<VoteNote> {
        let mut notes = Vec::new();
        let mut note = |hold, event| notes.push(VoteNote { at, hold, event });
        let audited = |hold: &super::Hold| AuditedHold {
            token: hold.token,
            arrival: Arrival(hold.token.0),
            claim: hold.id.to_string(),
            mode: Mode::EXCLUSIVE,
            owner: hold.body.owner.clone(),
        };
        let same = |a: &super::Hold, b: &super::Hold| (&a.id, a.token) == (&b.id, b.token);
        let kept = |hold: &super::Hold| self.hold.as_ref().is_some_and(|now| same(hold, now));
        let former = before.hold.as_ref().filter(|hold| !kept(hold));
        let lapsed = former.filter(|hold| hold.until <= at);
        let found_by = match change {
            VoteChange::Acquire(id) | VoteChange::Extend(id) => id.to_string(),
            VoteChange::Release(part) => part.id.to_string(),
            VoteChange::Break(..) => String::new(),
        };
        if let Some(hold) = lapsed {
            let (since, until) = (hold.since, hold.until);
            let event = VoteEvent::Lapsed {
                since,
                until,
                found_by,
            };
            note(Some(audited(hold)), event);
        }
        let ended = former.filter(|hold| hold.until > at);
        let since = ended.map(|hold| hold.since);
        let event = match (change, since) {
            (VoteChange::Break(up_to, by), _) => {
                let by = by.clone();
                Some(VoteEvent::Broken { by, up_to })
            }
            (VoteChange::Release(part), Some(since)) if part.wake => Some(VoteEvent::Released {
                since,
                known: !part.token.is_none(),
            }),
            // It gave up, or bids with another token.
            (_, Some(_)) => Some(VoteEvent::GivenUp),
            (_, None) => None,
        };
        if let Some(event) = event {
            note(ended.map(audited), event);
        }
        let is_new = |hold: &&super::Hold| {
            let was = before.hold.as_ref();
            // One that has lapsed may lie there still.
            was != Some(*hold) && !was.is_some_and(|was| same(was, hold) && was.until > at)
        };
        if let (VoteChange::Acquire(_), Some(hold)) = (change, self.hold.as_ref().filter(is_new)) {
            let until = hold.until;
            note(Some(audited(hold)), VoteEvent::Given { until });
        }
        notes
    }
}

/// The audit log of a set of servers, of which each has a log of its own votes.
///
/// - A claim was granted when a quorum of servers had noted that they vote for it, with votes that
///   stood together, by the servers' clocks. A release by the client that had counted the votes
///   proves the grant, too, whatever else was lost. The time is that of the vote that made the
///   quorum, or of the last that is known.
/// - Any server that noted its release proves that the client gave it back. It was broken or has
///   expired once so many servers noted it that no quorum of votes can be left, or once one has and
///   the key was granted again. A server that has noted the end of a vote never votes for that
///   token again.
/// - What came from a claim that never had a quorum is no entry; nor are the votes for one that gave
///   up before it had counted them, unless they were read while they stood: then it was returned.
///
/// Servers are read one beside the other, not in one step. So a claim is decided when a whole round
/// of reading has brought nothing new of it: a note that came before one which is known is known
/// by then.
#[derive(Debug, Clone)]
pub struct QuorumAudit {
    size: QuorumSize,
    keys: BTreeMap<Key, History>,
    /// The keys of which the last round has brought notes.
    unsettled: BTreeSet<Key>,
}

/// So many keys are remembered, and those that somebody holds beside them. A late note of a key that
/// was forgotten adds nothing.
const KEYS: usize = 65_536;

/// What names a hold: two claims may propose one token, at different servers.
type HoldId = (Token, String);

#[derive(Debug, Clone, Default)]
struct History {
    holds: BTreeMap<HoldId, VotedHold>,
    /// What administrators broke: at which server, and when.
    breaks: Vec<Break>,
    /// Holds before that one are settled, up to that time.
    settled: Option<(HoldId, StoreTime)>,
}

#[derive(Debug, Clone)]
struct VotedHold {
    hold: AuditedHold,
    /// At which server, when, and until when.
    votes: Vec<(usize, StoreTime, StoreTime)>,
    ends: Vec<(usize, StoreTime, VoteEvent)>,
    /// Whether the last round has brought something.
    changed: bool,
    granted: Option<StoreTime>,
    over: Option<StoreTime>,
}

impl QuorumAudit {
    /// Makes the combined log of a set, before anything was read.
    #[must_use]
    pub fn new(size: QuorumSize) -> Self {
        Self {
            size,
            keys: BTreeMap::new(),
            unsettled: BTreeSet::new(),
        }
    }

    /// Adds the next entry of a server's log.
    pub fn add(&mut self, server: usize, key: &Key, note: VoteNote) {
        let history = self.keys.entry(key.clone()).or_default();
        if history.add(server, note) {
            self.unsettled.insert(key.clone());
        }
    }

    /// Ends a round of reading: each server that answers was read to the end of its log, as it
    /// was at the previous call. `all` says that all servers answered. Returns the entries that
    /// are now decided, in order for each key. An entry that depended on a silent server comes
    /// late.
    pub fn settle(&mut self, all: bool) -> Vec<(Key, AuditEntry)> {
        let mut entries = Vec::new();
        for key in std::mem::take(&mut self.unsettled) {
            let Some(history) = self.keys.get_mut(&key) else {
                continue;
            };
            let decided = history.settle(self.size, all);
            entries.extend(decided.into_iter().map(|entry| (key.clone(), entry)));
            if history.quieten() {
                self.unsettled.insert(key);
            }
        }
        if self.keys.len() > KEYS {
            let unsettled = &self.unsettled;
            let held = |history: &History| history.holds.values().any(VotedHold::is_open);
            self.keys
                .retain(|key, history| unsettled.contains(key) || held(history));
        }
        entries
    }

    /// Returns whether another round could decide more, even without new entries.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        !self.unsettled.is_empty()
    }
}

impl History {
    /// Whether it says anything new.
    fn add(&mut self, server: usize, note: VoteNote) -> bool {
        let VoteNote { at, hold, event } = note;
        if let VoteEvent::Broken { by, up_to } = &event {
            self.breaks.push((server, at, *up_to, by.clone()));
            let broken = self
                .holds
                .iter_mut()
                .filter(|((token, _), _)| token <= up_to);
            broken.for_each(|(_, hold)| hold.changed = true);
        }
        let Some(hold) = hold else { return true };
        let id = (hold.token, hold.claim.clone());
        if (self.settled.as_ref()).is_some_and(|(settled, _)| id < *settled) {
            return false;
        }
        let voted = self.holds.entry(id).or_insert_with(|| VotedHold {
            hold,
            votes: Vec::new(),
            ends: Vec::new(),
            changed: false,
            granted: None,
            over: None,
        });
        voted.changed = true;
        match event {
            VoteEvent::Given { until } => voted.votes.push((server, at, until)),
            // Noted above, for all holds.
            VoteEvent::Broken { .. } => {}
            event => voted.ends.push((server, at, event)),
        }
        true
    }

    /// Forgets what has changed; whether something had.
    fn quieten(&mut self) -> bool {
        let changed = self.holds.values_mut();
        let changed = changed.map(|hold| std::mem::take(&mut hold.changed));
        changed.fold(false, |any, changed| any | changed)
    }

    fn settle(&mut self, size: QuorumSize, all: bool) -> Vec<AuditEntry> {
        let mut entries = Vec::new();
        // Servers' clocks differ, and the entries of a key are in order.
        let mut last = self.settled.as_ref().map_or(StoreTime(0), |(_, at)| *at);
        let (mut newest, mut newest_from) = (None, last);
        let ids: Vec<_> = self.holds.keys().cloned().collect();
        for (at, id) in ids.iter().enumerate() {
            let voted = &self.holds[id];
            if voted.over.is_none() && voted.changed {
                break;
            }
            let is_known = voted.granted.is_some();
            let before = last;
            let Some(granted) = voted.granted.or_else(|| {
                let complete = voted.complete(size, &self.breaks)?;
                Some(complete.max(last))
            }) else {
                continue;
            };
            let next = ids[at + 1..].iter().find_map(|id| {
                let next = self.holds.get(id).filter(|next| !next.changed)?;
                next.granted.or_else(|| next.complete(size, &self.breaks))
            });
            let end = match voted.over {
                Some(_) => None,
                None => voted.end(size, &self.breaks, granted, next),
            };
            let hold = Some(voted.hold.clone());
            if !is_known {
                let (asked, behind) = (granted, None);
                let event = AuditEvent::Granted { asked, behind };
                let (at, hold) = (granted, hold.clone());
                entries.push(AuditEntry { at, event, hold });
            }
            last = last.max(granted).max(voted.over.unwrap_or_default());
            let mut over = voted.over;
            if let Some((at, event)) = end {
                last = last.max(at);
                over = Some(last);
                entries.push(AuditEntry {
                    at: last,
                    event,
                    hold,
                });
            }
            if let Some(voted) = self.holds.get_mut(id) {
                (voted.granted, voted.over) = (Some(granted), over);
            }
            (newest, newest_from) = (Some(id.clone()), before);
        }
        if let Some(newest) = newest.filter(|_| all) {
            // A quorum has turned to that one: nothing of those before is to come.
            self.holds = self.holds.split_off(&newest);
            self.breaks.retain(|(_, _, up_to, _)| *up_to >= newest.0);
            self.settled = Some((newest, newest_from));
        }
        entries
    }
}

impl VotedHold {
    fn is_open(&self) -> bool {
        self.granted.is_some() && self.over.is_none()
    }

    /// When a quorum of servers had voted for it.
    fn complete(&self, size: QuorumSize, breaks: &[Break]) -> Option<StoreTime> {
        let quorum = size.quorum();
        let standing = |at: StoreTime| {
            let stands = |(server, since, until): &&(usize, StoreTime, StoreTime)| {
                let ends = self.ends_at(*server, breaks);
                *since <= at && at < *until && ends.is_none_or(|(ended, _)| ended > at)
            };
            servers(self.votes.iter().filter(stands).map(|vote| vote.0)) >= quorum
        };
        let mut times: Vec<_> = self.votes.iter().map(|(_, at, _)| *at).collect();
        times.sort_unstable();
        let together = times.iter().copied().find(|at| standing(*at));
        let counted = self.counted(quorum);
        counted.map(|at| together.unwrap_or(at)).or_else(|| {
            let given_up = self.ends.iter().any(|end| end.2 == VoteEvent::GivenUp);
            together.filter(|_| !given_up)
        })
    }

    /// When its client can have counted a quorum of votes at the latest, where it says that it did:
    /// whatever servers' clocks are, and whatever notes are lost.
    fn counted(&self, quorum: usize) -> Option<StoreTime> {
        let released = self
            .ends
            .iter()
            .filter_map(|(server, _, event)| match event {
                VoteEvent::Released { since, known: true } => Some((*server, *since)),
                _ => None,
            });
        let released: Vec<_> = released.collect();
        if released.is_empty() {
            return None;
        }
        let mut firsts = BTreeMap::new();
        let votes = self.votes.iter().map(|(server, at, _)| (*server, *at));
        for (server, at) in votes.chain(released) {
            let first = firsts.entry(server).or_insert(at);
            *first = at.min(*first);
        }
        let mut firsts: Vec<_> = firsts.into_values().collect();
        firsts.sort_unstable();
        firsts.get(quorum - 1).or_else(|| firsts.last()).copied()
    }

    /// When a server has stopped to vote for it for good, and whether that was as the key was
    /// broken.
    fn ends_at(&self, server: usize, breaks: &[Break]) -> Option<(StoreTime, bool)> {
        let noted = self.ends.iter().filter(|end| end.0 == server);
        let noted = noted.map(|end| (end.1, false)).min();
        let broken = breaks
            .iter()
            .filter(|(at, _, up_to, _)| *at == server && *up_to >= self.hold.token)
            .map(|(_, at, ..)| (*at, true))
            .min();
        noted.or(broken)
    }

    /// How it has ended, if that is known; `next` is when the key was granted again.
    fn end(
        &self,
        size: QuorumSize,
        breaks: &[Break],
        since: StoreTime,
        next: Option<StoreTime>,
    ) -> Option<(StoreTime, AuditEvent)> {
        let first = |like: fn(&VoteEvent) -> bool| {
            let like = self.ends.iter().filter(|end| like(&end.2));
            like.map(|end| end.1).min()
        };
        let taken =
            |event: &VoteEvent| matches!(event, VoteEvent::Released { .. } | VoteEvent::GivenUp);
        let mut lost: Vec<_> = (0..size.servers())
            .filter(|at| !self.ends.iter().any(|end| end.0 == *at && taken(&end.2)))
            .filter_map(|server| self.ends_at(server, breaks))
            .collect();
        lost.sort_unstable();
        // So many, and no quorum is left.
        let enough = lost.get(size.may_be_down()).map(|(at, _)| *at);
        let released = first(|event| matches!(event, VoteEvent::Released { .. }));
        let given_up = first(|event| matches!(event, VoteEvent::GivenUp));
        let earlier = |at: &StoreTime| enough.is_none_or(|enough| *at <= enough);
        if let Some(at) = released.filter(earlier) {
            let kept_until = None;
            return Some((at, AuditEvent::Released { since, kept_until }));
        }
        if let Some(at) = given_up.filter(earlier) {
            return Some((at, AuditEvent::Returned));
        }
        let at = enough.or_else(|| next.filter(|_| !lost.is_empty()))?;
        let broken = lost.iter().filter(|(_, broken)| *broken).count();
        if 2 * broken >= lost.len() {
            let by = breaks.iter().rev().find(|it| it.2 >= self.hold.token)?;
            let by = by.3.clone();
            return Some((at, AuditEvent::Broken { since, by }));
        }
        Some((at, self.expired(since)?))
    }

    fn expired(&self, granted: StoreTime) -> Option<AuditEvent> {
        let lapsed = self
            .ends
            .iter()
            .filter_map(|(server, _, event)| match event {
                VoteEvent::Lapsed {
                    since,
                    until,
                    found_by,
                } => {
                    let voted = |vote: &&(usize, StoreTime, StoreTime)| vote.0 == *server;
                    let is_first = self.votes.iter().filter(voted).any(|vote| vote.1 == *since);
                    // For so long by one clock, from the grant on.
                    let deadline = match is_first {
                        true => granted + until.since(*since),
                        false => *until,
                    };
                    Some((deadline, found_by.clone()))
                }
                _ => None,
            });
        let (deadline, found_by) = lapsed.max()?;
        Some(AuditEvent::Expired {
            since: granted,
            deadline,
            found_by,
        })
    }
}

type Break = (usize, StoreTime, Token, ClientInfo);

fn servers(of: impl Iterator<Item = usize>) -> usize {
    of.collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests;
