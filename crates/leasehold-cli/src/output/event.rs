//! What the command has to say, as data.

use std::time::Duration;

use leasehold::Loss;
use serde::{Serialize, Serializer};

use crate::duration::spoken;
use crate::failure::Failure;
use crate::view::{ClaimView, held_by};

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
    Rejoined { key: String, times: u32 },
    /// The waiting was ended by a signal.
    Withdrawn {
        key: String,
        signal: i32,
        waited_ms: u64,
    },
    /// The lock was not obtained in time.
    Conflict {
        key: String,
        waited_ms: u64,
        holders: Vec<ClaimView>,
    },
    /// The lock was obtained.
    Acquired {
        key: String,
        token: u64,
        waited_ms: u64,
        /// Whether that was said before: then the end of the waiting is too.
        #[serde(skip)]
        announced: bool,
    },
    /// No renewal was answered and the end is near.
    Expiring {
        key: String,
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
    Released { key: String, still_ours: bool },
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
            Self::Rejoined { key, .. } => {
                format!("warning: the place in the queue of {key} was lost; waiting at its end")
            }
            Self::Withdrawn { key, waited_ms, .. } => {
                format!("stopped waiting for {key} after {}", spoken_ms(waited_ms))
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
            Self::Acquired {
                key,
                waited_ms,
                announced: true,
                ..
            } => {
                format!("got {key} after {}", spoken_ms(waited_ms))
            }
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
                key,
                still_ours: false,
            } => {
                format!("lost {key}: it was not ours any more when it was released")
            }
            Self::Warning { message } => format!("warning: {message}"),
            Self::Log { level, message } => format!("{}: {message}", level.to_lowercase()),
            Self::Error { message, hint, .. } => match hint {
                None => message.clone(),
                Some(hint) => format!("{message}\nhint: {hint}"),
            },
            Self::Acquired { key, token, .. } if verbose => format!("got {key}, token {token}"),
            Self::Released { key, .. } if verbose => format!("released {key}"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::claim;

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
            key: "k".into(),
            token: 7,
            waited_ms: 1500,
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
