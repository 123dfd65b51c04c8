//! The history of the locks, from the audit log alone: it must make sense by itself, and agree with
//! what the clients saw.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::Mode;
use leasehold::audit::{AuditEvent, AuditRecord};
use leasehold::core::{Arrival, Token};

use super::{Finding, Property, by_key, name};
use crate::faults::history::{Micros, Op};

/// What a log says of a key, up to some entry.
#[derive(Debug, Default)]
struct Told {
    /// Those who hold, or are granted behind one of these.
    open: BTreeMap<Arrival, (Token, Mode)>,
    granted: BTreeSet<u64>,
    released: BTreeSet<u64>,
    expired: BTreeSet<u64>,
}

/// Reads the log of each key, and looks in it for what the clients saw. Where several servers have a
/// log each, each must make sense, and what a client saw must be in one of them.
#[must_use]
pub fn audit(ops: &[Op], log: &[AuditRecord]) -> Vec<Finding> {
    let mut keys: BTreeMap<_, BTreeMap<_, Told>> = BTreeMap::new();
    let mut findings = Vec::new();
    let mut find = |at: Micros, key: &str, what: String| {
        findings.push(Finding::new(Property::Audit, at, key, what));
    };
    for record in log {
        let key = record.key.as_str();
        let logs = keys.entry(key).or_default();
        if let Err(what) = logs.entry(&record.server).or_default().add(record) {
            find(0, key, format!("{what}: {:?}", record.entry));
        }
    }
    for (key, ops) in by_key(ops) {
        let logs = keys.get(key);
        let told = |of: fn(&Told) -> &BTreeSet<u64>, token| {
            logs.is_some_and(|logs| logs.values().any(|told| of(told).contains(&token)))
        };
        for (op, grant) in ops.iter().filter_map(|op| Some((op, op.grant.as_ref()?))) {
            let Some(token) = grant.token else {
                continue;
            };
            if !told(|told| &told.granted, token) {
                let what = format!("{} is not in the audit log", name(op));
                find(grant.at, key, what);
            }
            let Some((at, true)) = grant.released else {
                continue;
            };
            let has_expired = told(|told| &told.expired, token);
            // The first request may never have arrived, and the lease have expired before the next.
            let late = grant.resent && has_expired;
            if !told(|told| &told.released, token) && !late {
                let what = match has_expired {
                    true => "was released, and has expired by the audit log",
                    false => "was released, and the audit log does not say so",
                };
                find(at, key, format!("{} {what}", name(op)));
            }
        }
    }
    findings
}

impl Told {
    fn add(&mut self, record: &AuditRecord) -> Result<(), &'static str> {
        let Some(hold) = &record.entry.hold else {
            return Ok(());
        };
        let weight: u64 = self.open.values().map(|(_, mode)| mode.weight()).sum();
        let known = self.open.get(&hold.arrival).map(|(token, _)| *token);
        match &record.entry.event {
            AuditEvent::Granted { behind, .. } => {
                self.granted.insert(hold.token.get());
                let before = self.open.insert(hold.arrival, (hold.token, hold.mode));
                if before.is_some() {
                    return Err("granted twice");
                }
                let fits = weight + hold.mode.weight() <= hold.mode.capacity().units();
                if behind.is_none() && !fits {
                    return Err("granted beside others");
                }
            }
            AuditEvent::Adopted { .. } => {
                self.open.insert(hold.arrival, (hold.token, hold.mode));
            }
            AuditEvent::Rotated { .. } | AuditEvent::Downgraded => {}
            event => {
                self.open.remove(&hold.arrival);
                let ended = match event {
                    AuditEvent::Released { .. } => Some(&mut self.released),
                    AuditEvent::Expired { .. } => Some(&mut self.expired),
                    _ => None,
                };
                if let Some(ended) = ended {
                    ended.insert(hold.token.get());
                }
                if known != Some(hold.token) {
                    return Err("ended, and was never granted");
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use leasehold::ClientInfo;
    use leasehold::audit::{AuditEntry, AuditedHold};
    use leasehold::core::{Key, StoreTime};

    use super::super::examples::lease;
    use super::*;

    fn record(token: u64, event: AuditEvent) -> AuditRecord {
        let hold = AuditedHold::new(
            Token::from(token),
            Arrival(token),
            String::new(),
            Mode::EXCLUSIVE,
            ClientInfo::unknown(),
        );
        let entry = AuditEntry::new(StoreTime(token), event, Some(hold));
        let key = Key::new("k").unwrap();
        AuditRecord::new(key, entry)
    }

    fn granted(token: u64) -> AuditRecord {
        let (asked, behind) = (StoreTime(token), None);
        record(token, AuditEvent::Granted { asked, behind })
    }

    fn released(token: u64) -> AuditRecord {
        let (since, kept_until) = (StoreTime(token), None);
        record(token, AuditEvent::Released { since, kept_until })
    }

    fn expired(token: u64) -> AuditRecord {
        let (since, deadline) = (StoreTime(token), StoreTime(token));
        let found_by = String::new();
        let event = AuditEvent::Expired {
            since,
            deadline,
            found_by,
        };
        record(token, event)
    }

    #[test]
    fn a_log_that_says_what_clients_saw_is_fine() {
        let ops = [lease(0, 0, 1, 2, 7), lease(1, 3, 4, 5, 9)];
        let log = [granted(7), released(7), granted(9), released(9)];
        assert_eq!(audit(&ops, &log), []);
    }

    #[test]
    fn only_a_release_that_was_sent_again_may_have_come_too_late() {
        let mut op = lease(0, 0, 1, 2, 7);
        let log = [granted(7), expired(7)];
        let found = audit(std::slice::from_ref(&op), &log);
        assert!(found[0].what.contains("has expired by the audit log"));
        op.grant.as_mut().unwrap().resent = true;
        assert_eq!(audit(std::slice::from_ref(&op), &log), []);
        assert_eq!(audit(&[op], &log[..1]).len(), 1, "nor is it left out");
    }

    #[test]
    fn what_is_missing_or_impossible_is_found() {
        let ops = [lease(0, 0, 1, 2, 7)];
        for (log, says) in [
            (vec![], "not in the audit log"),
            (vec![granted(7)], "does not say so"),
            (vec![granted(7), granted(8), released(7)], "beside others"),
            (vec![granted(7), granted(7), released(7)], "granted twice"),
            (vec![released(7), granted(7)], "never granted"),
        ] {
            let findings = audit(&ops, &log);
            let found = findings.iter().any(|finding| finding.what.contains(says));
            assert!(found, "{says}: {findings:?}");
        }
    }
}
