//! A reader of the servers' audit logs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::quorum::{QuorumAudit, QuorumSize, VoteEvent, VoteNote};
use leasehold_core::{AuditEvent, Key, StoreTime, Token};

use crate::quorum::checks::{Checks, Fault};
use crate::quorum::server::Server;

pub(crate) struct Reader {
    key: Key,
    merged: QuorumAudit,
    /// How much of each server's log was read.
    read: Vec<usize>,
    /// The holds that the log has, and whether they have ended.
    holds: BTreeMap<Token, bool>,
    last: StoreTime,
}

impl Reader {
    pub(crate) fn new(size: QuorumSize) -> Self {
        Self {
            key: Key::new("k").unwrap(),
            merged: QuorumAudit::new(size),
            read: vec![0; size.servers()],
            holds: BTreeMap::new(),
            last: StoreTime(0),
        }
    }

    /// Reads one server to the end of its log.
    pub(crate) fn read(&mut self, server: usize, log: &[VoteNote]) {
        let read = &mut self.read[server];
        // It may have lost its log meanwhile.
        *read = (*read).min(log.len());
        for note in &log[*read..] {
            self.merged.add(server, &self.key, note.clone());
        }
        *read = log.len();
    }

    /// All were read one after the other, or all that answered.
    pub(crate) fn settle(&mut self, all: bool, now: u64, checks: &mut Checks) {
        for (_, entry) in self.merged.settle(all) {
            let token = entry.hold.as_ref().map_or(Token::NONE, |hold| hold.token);
            let (relied, losses) = (checks.relies(token, now), checks.had.losses);
            let mut untrue = |what: &str| {
                let what = format!("{what}: {entry:?}");
                checks.faults.push(Fault::Untrue { at: now, what });
            };
            if let AuditEvent::Granted { .. } = entry.event {
                if self.holds.insert(token, false).is_some() {
                    untrue("granted twice");
                }
                let later = self.holds.range(token..).nth(1);
                let before = self.holds.range(..token).next_back();
                if all && later.is_some() {
                    untrue("out of order");
                }
                if all && before.is_some_and(|(_, over)| !over) && losses == 0 {
                    untrue("beside another");
                }
                checks.had.audited += 1;
            } else {
                if self.holds.insert(token, true) != Some(false) {
                    untrue("ended without a beginning");
                }
                if relied {
                    untrue("ended, and its client relies on it");
                }
                checks.had.audited_ends += 1;
            }
            if all && entry.at < self.last {
                let what = format!("earlier than the entry before: {entry:?}");
                checks.faults.push(Fault::Untrue { at: now, what });
            }
            self.last = entry.at;
        }
    }

    /// The world has ended, and all was read twice. What was lost with a server's data may be
    /// missing, and where clocks differ by about a TTL what nobody released.
    pub(crate) fn has_all(&self, servers: &[Server], ttl: Duration, now: u64, checks: &mut Checks) {
        let clocks = || servers.iter().map(|server| server.clock(now));
        let apart = clocks().max().unwrap().since(clocks().min().unwrap());
        let notes = servers.iter().flat_map(|server| &server.log);
        let released = notes.filter(|note| matches!(note.event, VoteEvent::Released { .. }));
        let released: BTreeSet<_> = released
            .filter_map(|note| Some(note.hold.as_ref()?.token))
            .collect();
        let newest = self.holds.keys().next_back().copied();
        for token in checks.tokens().collect::<Vec<_>>() {
            let lost = checks.had.losses > 0;
            let missing = match self.holds.get(&token) {
                None if lost && !released.contains(&token) => continue,
                None if released.contains(&token) || apart + apart < ttl => "granted",
                Some(false) if Some(token) < newest && !lost => "ended",
                _ => continue,
            };
            let what = missing;
            checks.faults.push(Fault::Missing { token, what });
        }
    }
}
