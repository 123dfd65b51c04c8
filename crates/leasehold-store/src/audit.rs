//! The audit log of a store: who was granted which key, and how each hold ended.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{AuditEntry, Invalid, Key, StoreTime};
use serde::{Deserialize, Serialize};

use crate::duration::{format_duration, parse_duration};
use crate::error::StoreError;

/// An entry of an audit log, with its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditRecord {
    /// The key.
    pub key: Key,
    /// The server in whose log it is, where each of several has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// What one step changed.
    #[serde(flatten)]
    pub entry: AuditEntry,
}

impl AuditRecord {
    /// Returns whether a reader of that key, or of all keys, from `since` on is meant to see it.
    #[must_use]
    pub fn is_for(&self, key: Option<&Key>, since: StoreTime) -> bool {
        self.entry.at >= since && key.is_none_or(|key| *key == self.key)
    }

    /// Makes an entry of the only log of a store.
    #[must_use]
    pub fn new(key: Key, entry: AuditEntry) -> Self {
        let server = None;
        Self { key, server, entry }
    }
}

/// Reads an audit log: see [`LockStore::audit_log`](crate::LockStore::audit_log).
#[async_trait]
pub trait AuditLog: Send {
    /// Returns the entries after those of the previous call, a bounded number of them, in the
    /// order in which each server or file has them. An empty list means that there are no more
    /// entries yet; entries of other keys and of earlier times may be among them. In a cluster a
    /// new log is found after a while.
    ///
    /// After an error, or if the future is dropped, the next call repeats the same page.
    async fn next_page(&mut self) -> Result<Vec<AuditRecord>, StoreError>;
}

/// How much of an audit log is kept: a minimum number of entries, or a minimum age. Logs are
/// trimmed in pieces, so somewhat more can remain.
///
/// ```
/// use leasehold::store::AuditLimit;
/// assert_eq!("10000".parse(), Ok(AuditLimit::Entries(10_000)));
/// assert_eq!("36h".parse::<AuditLimit>()?.to_string(), "36h");
/// assert!("a while".parse::<AuditLimit>().is_err());
/// # Ok::<(), leasehold::core::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditLimit {
    /// At least this number of entries.
    Entries(u64),
    /// All entries of this time, in whole seconds.
    Age(Duration),
}

impl FromStr for AuditLimit {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let seconds = |age: Duration| Self::Age(Duration::from_secs(age.as_secs()));
        let limit = match text.parse() {
            Ok(entries) => Some(Self::Entries(entries)),
            Err(_) => parse_duration(text).ok().map(seconds),
        };
        let bounds = |limit: &Self| match limit {
            Self::Entries(entries) => (100..=10_000_000).contains(entries),
            Self::Age(age) => (60..=366 * 86_400).contains(&age.as_secs()),
        };
        limit.filter(bounds).ok_or_else(|| {
            Invalid::new(
                format!("audit = {text:?} is not a limit for the audit log"),
                "write a number of entries from 100 to 10000000, or a time from 1m to 366d: \
                 audit=10000, audit=24h",
            )
        })
    }
}

impl fmt::Display for AuditLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries(entries) => write!(f, "{entries}"),
            Self::Age(age) => f.write_str(&format_duration(*age)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_they_are_shown() {
        for text in [
            "100", "10000000", "1m", "90s", "24h", "1d", "366d", "36h", "10min", "1h30m", "5w",
        ] {
            let limit: AuditLimit = text.parse().unwrap();
            assert_eq!(limit.to_string().parse(), Ok(limit), "{text}");
        }
        for bad in [
            "",
            "99",
            "10000001",
            "59s",
            "367d",
            "5 parsecs",
            "-1",
            "h",
            "99999999999999999999d",
        ] {
            let error = bad.parse::<AuditLimit>().unwrap_err();
            assert!(error.hint.is_some(), "{bad}");
        }
    }
}
