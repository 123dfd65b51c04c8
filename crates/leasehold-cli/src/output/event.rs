//! What the command has to say, as data.

use std::fmt;
use std::time::Duration;

use leasehold::Loss;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::duration::{millis, spoken};
use crate::failure::Failure;
use crate::view::{ClaimView, KeyView, held_by, ran};

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
    /// The place in the queue was lost, and a new one taken at its end.
    Rejoined {
        #[serde(flatten)]
        keys: Keys,
        times: u32,
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
        tokens: Vec<(String, u64)>,
        waited_ms: u64,
        /// Whether it is the lease of a process that is gone.
        #[serde(skip_serializing_if = "is_false")]
        recovered: bool,
        /// Whether that was said before: then the end of the waiting is too.
        #[serde(skip)]
        announced: bool,
    },
    /// The end is near: no renewal was answered, or it was held long enough.
    Expiring {
        key: String,
        #[serde(serialize_with = "by_name")]
        reason: Loss,
        remaining_ms: u64,
        action: Measure,
    },
    /// The lease is lost.
    Lost {
        key: String,
        #[serde(serialize_with = "by_name")]
        reason: Loss,
        action: Measure,
    },
    /// The lock was given back.
    Released {
        #[serde(flatten)]
        keys: Keys,
        still_ours: bool,
    },
    /// We lead.
    Leading { key: String, term: u64 },
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
    Warning { message: String },
    /// From the library's log.
    Log { level: String, message: String },
    /// Why it did not work.
    Error {
        message: String,
        hint: Option<String>,
        cause: Option<String>,
        status: u8,
    },
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
    /// There is no child.
    None,
}

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    Notice,
    Error,
}

impl Event {
    /// What `-q` leaves.
    pub(crate) fn weight(&self) -> Weight {
        match self {
            Self::Expiring { .. }
            | Self::Lost { .. }
            | Self::Released {
                still_ours: false, ..
            }
            | Self::Error { .. } => Weight::Error,
            _ => Weight::Notice,
        }
    }

    /// What is done once in a period, of which the lock is kept for `least`, is taken.
    pub(crate) fn skipped(seen: &KeyView, least: Duration) -> Self {
        let holder = seen.holders.first();
        let running = holder.is_some_and(|holder| holder.kept_until.is_none());
        let again = holder.map(|holder| match running {
            // It ends at any time, and its lock is kept then for what is left.
            true => least.saturating_sub(seen.age(holder)),
            false => holder.expires_in(),
        });
        Self::Skipped {
            key: seen.key.clone(),
            running,
            again_in_ms: millis(again.unwrap_or_default()),
            holders: seen.holders.clone(),
        }
    }

    /// For people; nothing where only programs want to know, or those who said `-v`.
    pub(crate) fn sentence(&self, verbose: bool) -> Option<String> {
        let spoken_ms = |ms: &u64| spoken(Duration::from_millis(*ms));
        Some(match self {
            Self::Waiting {
                key,
                position,
                holders,
            } => {
                let held = held_by(holders)
                    .map(|held| format!(", {held}"))
                    .unwrap_or_default();
                format!("waiting for {key} (position {position}){held}")
            }
            Self::Rejoined { keys, .. } => {
                format!("warning: the place in the queue of {keys} was lost; waiting at its end")
            }
            Self::Withdrawn {
                keys, waited_ms, ..
            } => {
                format!("stopped waiting for {keys} after {}", spoken_ms(waited_ms))
            }
            Self::Conflict {
                key,
                holders,
                waited_ms,
            } => {
                let after = match waited_ms {
                    0 => String::new(),
                    waited_ms => format!("gave up after {}: ", spoken_ms(waited_ms)),
                };
                let held = held_by(holders).unwrap_or_else(|| "held or waited for".to_owned());
                format!("{after}{key} is {held}")
            }
            Self::Skipped {
                key,
                again_in_ms,
                holders,
                ..
            } => {
                let ran = holders.first().map(ran);
                let ran = ran.unwrap_or_else(|| "is taken".to_owned());
                let again = match again_in_ms {
                    0 => "when that has ended".to_owned(),
                    again_in_ms => format!("in {}", spoken_ms(again_in_ms)),
                };
                format!("skipped: {key} {ran}; it can run again {again}")
            }
            Self::Acquired {
                keys,
                waited_ms,
                recovered: true,
                ..
            } => format!(
                "recovered {keys} after {}: the process before is gone",
                spoken_ms(waited_ms)
            ),
            Self::Acquired {
                keys,
                waited_ms,
                announced: true,
                ..
            } => {
                format!("got {keys} after {}", spoken_ms(waited_ms))
            }
            Self::Expiring {
                key,
                reason: reason @ Loss::MaxHold,
                remaining_ms,
                action,
            } => format!(
                "{key} ends in {}: {reason}{}",
                spoken_ms(remaining_ms),
                action.words()
            ),
            Self::Expiring {
                key,
                remaining_ms,
                action,
                ..
            } => format!(
                "no answer to the renewals of {key}, which ends in {}{}",
                spoken_ms(remaining_ms),
                action.words()
            ),
            Self::Lost {
                key,
                reason,
                action,
            } => {
                format!("lost {key}: {reason}{}", action.words())
            }
            Self::Released {
                keys,
                still_ours: false,
            } => {
                format!("lost {keys}: it was not ours any more when it was released")
            }
            Self::Warning { message } => format!("warning: {message}"),
            Self::Log { level, message } => format!("{}: {message}", level.to_lowercase()),
            Self::Error { message, hint, .. } => match hint {
                None => message.clone(),
                Some(hint) => format!("{message}\nhint: {hint}"),
            },
            Self::Leading { key, term } => format!("leading {key}, term {term}"),
            Self::TermEnded {
                key,
                status,
                again_in_ms,
            } => {
                let ended = match status {
                    Some(status) => format!("the command ended with status {status}; "),
                    None => String::new(),
                };
                let again = spoken_ms(again_in_ms);
                format!("{ended}standing for {key} again in {again}")
            }
            Self::Acquired { keys, tokens, .. } if verbose => {
                let numbers: Vec<_> = tokens.iter().map(|(_, token)| token.to_string()).collect();
                let s = if numbers.len() > 1 { "s" } else { "" };
                format!("got {keys}, token{s} {}", numbers.join(", "))
            }
            Self::Released { keys, .. } if verbose => format!("released {keys}"),
            Self::Exit { status, .. } if verbose => format!("exit status {status}"),
            Self::Acquired { .. } | Self::Released { .. } | Self::Exit { .. } => return None,
        })
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

impl Measure {
    fn words(self) -> &'static str {
        match self {
            Self::Term => "; telling the command to stop",
            Self::Kill => "; killing the command",
            Self::Ignore => "; the command runs on, unguarded",
            Self::None => "",
        }
    }
}

fn reason_name(reason: &Loss) -> &'static str {
    match reason {
        Loss::Gone => "gone",
        Loss::Unanswered => "unanswered",
        Loss::Expired => "expired",
        Loss::Revoked => "revoked",
        Loss::Shutdown => "shutdown",
        Loss::Superseded => "superseded",
        Loss::MaxHold => "max-hold",
        Loss::HandedOver => "handed-over",
    }
}

fn by_name<S: Serializer>(reason: &Loss, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason_name(reason))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde asks for it")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// `token`, and of several keys `tokens` by key.
fn token_fields<S: Serializer>(tokens: &[(String, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    if let Some((_, first)) = tokens.first() {
        map.serialize_entry("token", first)?;
    }
    if tokens.len() > 1 {
        map.serialize_entry("tokens", &ByKey(tokens))?;
    }
    map.end()
}

/// Tokens as an object, in the order of their keys as they were named.
pub(crate) struct ByKey<'a>(pub(crate) &'a [(String, u64)]);

impl Serialize for ByKey<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, token)| (key, token)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::claim;

    fn keys(keys: &[&str]) -> Keys {
        let keys: Vec<_> = keys.iter().map(|&key| key.to_owned()).collect();
        Keys::from(&*keys)
    }

    #[test]
    fn several_keys_have_a_token_each() {
        let acquired = Event::Acquired {
            keys: keys(&["b", "a"]),
            tokens: vec![("b".into(), 7), ("a".into(), 9)],
            waited_ms: 0,
            recovered: false,
            announced: false,
        };
        assert_eq!(acquired.sentence(true).unwrap(), "got b, a, tokens 7, 9");
        assert_eq!(
            serde_json::to_value(acquired).unwrap(),
            serde_json::json!({
                "event": "acquired", "key": "b", "keys": ["b", "a"],
                "token": 7, "tokens": {"b": 7, "a": 9}, "waited_ms": 0,
            })
        );
    }

    #[test]
    fn says_who_holds() {
        let holders = vec![claim(Some("deploy"))];
        let conflict = Event::Conflict {
            key: "orders/42".into(),
            waited_ms: 0,
            holders,
        };
        assert_eq!(
            conflict.sentence(false).unwrap(),
            "orders/42 is held by build7 (pid 812, label deploy) since 2026-01-31T12:00:00Z, \
             expires in 12 s"
        );
        let waiting = Event::Waiting {
            key: "k".into(),
            position: 2,
            holders: vec![],
        };
        assert_eq!(
            waiting.sentence(false).unwrap(),
            "waiting for k (position 2)"
        );
    }

    #[test]
    fn what_was_not_announced_ends_in_silence() {
        let acquired = |announced| Event::Acquired {
            keys: keys(&["k"]),
            tokens: vec![("k".into(), 7)],
            waited_ms: 1500,
            recovered: false,
            announced,
        };
        assert_eq!(acquired(false).sentence(false), None);
        assert_eq!(acquired(false).sentence(true).unwrap(), "got k, token 7");
        assert_eq!(acquired(true).sentence(false).unwrap(), "got k after 1.5 s");
        assert_eq!(
            serde_json::to_value(acquired(true)).unwrap(),
            serde_json::json!({"event": "acquired", "key": "k", "token": 7, "waited_ms": 1500})
        );
    }

    #[test]
    fn loss_is_an_error() {
        let lost = Event::Lost {
            key: "k".into(),
            reason: Loss::Gone,
            action: Measure::Term,
        };
        assert_eq!(lost.weight(), Weight::Error);
        assert_eq!(
            lost.sentence(false).unwrap(),
            "lost k: the store has no such claim any more; telling the command to stop"
        );
        assert_eq!(
            serde_json::to_value(lost).unwrap(),
            serde_json::json!({"event": "lost", "key": "k", "reason": "gone", "action": "term"})
        );
    }
}
