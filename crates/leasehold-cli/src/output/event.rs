//! What the command has to say, as data.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use leasehold::Loss;
use leasehold::store::Acknowledged;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::child::NamedProcess;
use crate::duration::millis;
use crate::failure::Failure;
use crate::view::{ClaimView, KeyView};

/// One thing that happened: an object per line with `--json`, otherwise a sentence, or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    /// The waiting begins.
    Waiting {
        key: String,
        position: u64,
        holders: Vec<ClaimView>,
    },
    /// Waits until nobody holds the key, and does not claim it.
    WaitingUntilFree {
        key: String,
        holders: Vec<ClaimView>,
    },
    /// Nobody holds the key that was waited for.
    Free {
        key: String,
        waited_ms: u64,
        /// Whether it was said that it was waited for.
        #[serde(skip)]
        announced: bool,
    },
    /// The position in the queue has changed.
    Moved {
        key: String,
        position: u64,
        waited_ms: u64,
    },
    /// The store cannot be used, and is asked again.
    StoreUnavailable {
        #[serde(flatten)]
        keys: Keys,
        reason: String,
        hint: Option<String>,
        /// For how long, if not for ever.
        left_ms: Option<u64>,
    },
    /// The store can be used again.
    StoreAvailable {
        #[serde(flatten)]
        keys: Keys,
        after_ms: u64,
    },
    /// The place in the queue was lost, and a new one taken at its end.
    Rejoined {
        #[serde(flatten)]
        keys: Keys,
        times: u32,
    },
    /// The claim waits for itself, by way of others.
    Deadlocked {
        #[serde(flatten)]
        keys: Keys,
        /// Who holds what and waits for what.
        deadlock: String,
    },
    /// The waiting was ended by a signal.
    Withdrawn {
        #[serde(flatten)]
        keys: Keys,
        signal: i32,
        waited_ms: u64,
    },
    /// The lock was not obtained in time.
    Conflict {
        key: String,
        waited_ms: u64,
        holders: Vec<ClaimView>,
    },
    /// It is done once in a period, and was done or is being done.
    Skipped {
        key: String,
        /// Whether it is being done now.
        running: bool,
        /// When it can be done again, at the earliest.
        again_in_ms: u64,
        holders: Vec<ClaimView>,
    },
    /// The lock was obtained.
    Acquired {
        #[serde(flatten)]
        keys: Keys,
        #[serde(flatten, serialize_with = "token_fields")]
        tokens: Vec<(String, Option<u64>)>,
        waited_ms: u64,
        /// Who has it besides the server, where the store's policy asks for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        acknowledged: Option<Acknowledgements>,
        /// Whether it is the lease of a process that is gone.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        recovered: bool,
        /// Whether that was said before: then the end of the waiting is too.
        #[serde(skip)]
        announced: bool,
    },
    /// The end is near: no renewal was answered, or it was held long enough.
    Expiring(LeaseEnd),
    /// The lease is lost.
    Lost(LeaseEnd),
    /// It was held for the longest time allowed, and is kept until the command has gone.
    Overdue {
        key: String,
        #[serde(serialize_with = "loss_name")]
        reason: Loss,
    },
    /// The system did not let us signal these processes of the command.
    Refused {
        key: String,
        signal: i32,
        processes: Vec<NamedProcess>,
        #[serde(skip_serializing_if = "Option::is_none")]
        then: Option<Sequel>,
    },
    /// The command has ended, and the lock is held until what it has left running has, too.
    LeftRunning {
        #[serde(flatten)]
        keys: Keys,
        /// The command's own.
        status: u8,
        signal: Option<i32>,
        /// Those that are known.
        processes: Vec<NamedProcess>,
    },
    /// The lock was given back.
    Released {
        #[serde(flatten)]
        keys: Keys,
        still_ours: bool,
    },
    /// We lead.
    Leading {
        key: String,
        /// Absent where the store has no tokens.
        #[serde(skip_serializing_if = "Option::is_none")]
        term: Option<u64>,
    },
    /// The command of a leader has ended, and another term is stood for.
    TermEnded {
        key: String,
        /// How the command ended, if by itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<u8>,
        again_in_ms: u64,
    },
    /// The end.
    Exit { status: u8, signal: Option<i32> },
    /// Worth knowing.
    Warning {
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    /// From the library's log.
    Log {
        #[serde(skip)]
        at: Timestamp,
        level: String,
        message: String,
    },
    /// Why it did not work.
    Error {
        message: String,
        hint: Option<String>,
        cause: Option<String>,
        status: u8,
    },
}

/// How a lease ends, or has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LeaseEnd {
    pub(crate) key: String,
    #[serde(serialize_with = "loss_name")]
    pub(crate) reason: Loss,
    /// Until then, if it has not ended yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remaining_ms: Option<u64>,
    pub(crate) action: Measure,
    /// What kept it from being renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<String>,
}

/// Who has a grant besides the server that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Acknowledgements {
    replicas: u32,
    wanted: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<bool>,
}

impl From<Acknowledged> for Acknowledgements {
    fn from(acknowledged: Acknowledged) -> Self {
        Self {
            replicas: acknowledged.replicas,
            wanted: acknowledged.wanted,
            disk: acknowledged.disk,
        }
    }
}

/// The keys of one lock: of several the first stands for all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Keys {
    key: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    keys: Vec<String>,
}

impl From<&[String]> for Keys {
    fn from(keys: &[String]) -> Self {
        let several = if keys.len() > 1 { keys } else { &[] };
        Self {
            key: keys.first().cloned().unwrap_or_default(),
            keys: several.to_vec(),
        }
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.keys {
            [] => f.write_str(&self.key),
            keys => f.write_str(&keys.join(", ")),
        }
    }
}

/// What was done to the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    Term,
    Kill,
    Ignore,
    /// The system did not let us do it to all of the child's processes.
    Refused,
    /// There is no child.
    None,
}

/// What comes of a command that is not to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sequel {
    /// The lock is kept and renewed while it runs.
    Kept,
    /// The next holder may begin while it runs.
    MayOverlap,
}

impl Event {
    /// Whether it is said with `-q` too.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(
            self,
            Self::Expiring(_)
                | Self::Lost(_)
                | Self::Overdue { .. }
                | Self::Refused { .. }
                | Self::Released {
                    still_ours: false,
                    ..
                }
                | Self::Error { .. }
        )
    }

    /// What is done once in a period, of which the lock is kept for `least`, is taken.
    pub(crate) fn skipped(seen: &KeyView, least: Duration) -> Self {
        let holder = seen.holders.first();
        let running = holder.is_some_and(|holder| holder.kept_until.is_none());
        let again = holder.map(|holder| match running {
            // It ends at any time, and its lock is kept then for what is left.
            true => least.saturating_sub(holder.age.unwrap_or_default()),
            false => holder.expires_in().unwrap_or(Duration::MAX),
        });
        Self::Skipped {
            key: seen.key.clone(),
            running,
            again_in_ms: millis(again.unwrap_or_default()),
            holders: seen.holders.clone(),
        }
    }
}

impl From<&Failure> for Event {
    fn from(failure: &Failure) -> Self {
        Self::Error {
            message: failure.message.clone(),
            hint: failure.hint.clone(),
            cause: failure.cause.clone(),
            status: failure.status,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn loss_name<S: Serializer>(loss: &Loss, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(loss.name())
}

/// `token`, and of several keys `tokens` by key; neither where the store has none.
pub(crate) fn token_fields<S: Serializer>(
    tokens: &[(String, Option<u64>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    let first = tokens.first().and_then(|(_, first)| *first);
    if let Some(first) = first {
        map.serialize_entry("token", &first)?;
    }
    if tokens.len() > 1 && first.is_some() {
        map.serialize_entry("tokens", &ByKey(tokens))?;
    }
    map.end()
}

/// Tokens as an object, in the order of their keys as they were named.
pub(crate) struct ByKey<'a>(pub(crate) &'a [(String, Option<u64>)]);

impl Serialize for ByKey<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, token)| (key, token)))
    }
}
