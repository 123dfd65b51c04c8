//! The audit entries alone must reproduce the state of the queue.

use serde_json::Value;

use crate::common::*;
use crate::queue_properties::world::{arrival, granted};

/// Those who hold, by what the entries have said so far.
#[derive(Debug, Default)]
pub(crate) struct Audited {
    holds: BTreeMap<Arrival, Token>,
    /// Those of whom a minimum hold was kept, whenever.
    kept: BTreeSet<Arrival>,
}

impl Audited {
    /// Adds what a step has noted, after which the queue is as it is now.
    pub(crate) fn add(&mut self, entries: &[AuditEntry], queue: &Queue) {
        for entry in entries {
            let Some(hold) = &entry.hold else {
                let resized = matches!(entry.event, AuditEvent::Resized { .. });
                assert!(resized, "{entry:?}");
                continue;
            };
            let known = self.holds.get(&hold.arrival).copied();
            match &entry.event {
                AuditEvent::Granted { asked, .. } => {
                    assert!(known.is_none() && *asked <= entry.at, "{entry:?}");
                    self.holds.insert(hold.arrival, hold.token);
                }
                AuditEvent::Adopted { former } => {
                    assert!(known == Some(*former) && hold.token > *former, "{entry:?}");
                    self.holds.insert(hold.arrival, hold.token);
                }
                AuditEvent::Rotated { .. } | AuditEvent::Downgraded => {
                    assert_eq!(known, Some(hold.token), "{entry:?}");
                }
                // What is kept of a claim that has left can be broken, too.
                AuditEvent::Broken { .. } if known.is_none() => {
                    assert!(self.kept.remove(&hold.arrival), "{entry:?}");
                }
                event => {
                    assert_eq!(known, Some(hold.token), "{entry:?}");
                    self.holds.remove(&hold.arrival);
                    if let AuditEvent::Released { kept_until, .. }
                    | AuditEvent::Died { kept_until, .. } = event
                        && kept_until.is_some()
                    {
                        self.kept.insert(hold.arrival);
                    }
                }
            }
        }
        assert_eq!(self.holds, holds(queue), "{entries:?}");
    }

    /// The record is lost, and nobody says so.
    pub(crate) fn lose(&mut self) {
        *self = Self::default();
    }
}

/// Those in the record who are granted and have not left.
fn holds(queue: &Queue) -> BTreeMap<Arrival, Token> {
    let granted = granted(queue).into_iter();
    let live = granted.filter(|(_, entry)| entry["kept"] != Value::Bool(true));
    live.map(|(token, entry)| (arrival(&entry), token))
        .collect()
}
