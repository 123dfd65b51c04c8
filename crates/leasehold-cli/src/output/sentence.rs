//! What the command has to say, in words.

use std::time::Duration;

use leasehold::Loss;
use rustix::io::Errno;
use rustix::process::Signal;

use super::event::{Event, Keys, LeaseEnd, Measure, Sequel};
use crate::child::NamedProcess;
use crate::duration::spoken;
use crate::view::{ClaimView, held_by, ran};

impl Event {
    /// For people; nothing where only programs want to know, or those who said `-v`.
    pub(crate) fn sentence(&self, verbose: bool) -> Option<String> {
        let sentence = self.of_waiting().or_else(|| self.of_lease(verbose));
        sentence.or_else(|| self.of_the_rest(verbose))
    }

    /// What to do about it; a line of its own.
    pub(crate) fn hint(&self) -> Option<&str> {
        match self {
            Self::Error { hint, .. } => hint.as_deref(),
            Self::Warning { hint, .. } => hint.as_deref(),
            Self::Deadlocked { .. } => {
                Some("end one of them, or use --deadlock-timeout, which ends the youngest")
            }
            Self::Refused { .. } => Some(
                "run leasehold as a user who may signal them, such as root, or end them yourself",
            ),
            Self::LeftRunning { .. } => Some("SIGTERM to leasehold, or Ctrl-C, asks them to stop"),
            _ => None,
        }
    }

    /// The way to the lock, and the store on that way.
    fn of_waiting(&self) -> Option<String> {
        Some(match self {
            Self::Waiting {
                key,
                position,
                holders,
            } => {
                let held = held_by(holders).map(|held| format!(", {held}"));
                let held = held.unwrap_or_default();
                format!("waiting for {key} (position {position}){held}")
            }
            Self::WaitingUntilFree { key, holders } => {
                let held = held_by(holders).map(|held| format!(": {held}"));
                format!("waiting until {key} is free{}", held.unwrap_or_default())
            }
            Self::Moved {
                key,
                position,
                waited_ms,
            } => {
                let waited = millis(*waited_ms);
                format!("still waiting for {key} (position {position}), after {waited}")
            }
            Self::StoreUnavailable {
                reason, left_ms, ..
            } => match left_ms {
                Some(left_ms) => format!("{reason}; trying again for {}", millis(*left_ms)),
                None => format!("{reason}; trying again"),
            },
            Self::StoreAvailable { after_ms, .. } => {
                format!("the store is available again after {}", millis(*after_ms))
            }
            Self::Rejoined { keys, .. } => {
                format!("warning: lost the position in the queue of {keys}; waiting at its end")
            }
            Self::Deadlocked { keys, deadlock } => {
                format!("warning: the wait for {keys} is a deadlock: {deadlock}")
            }
            Self::Withdrawn {
                keys, waited_ms, ..
            } => format!("stopped waiting for {keys} after {}", millis(*waited_ms)),
            Self::Conflict {
                key,
                holders,
                waited_ms,
            } => conflict(key, holders, *waited_ms),
            Self::Skipped {
                key,
                again_in_ms,
                holders,
                ..
            } => skipped(key, holders.first(), *again_in_ms),
            _ => return None,
        })
    }

    /// The lock, from the grant to the release.
    fn of_lease(&self, verbose: bool) -> Option<String> {
        Some(match self {
            Self::Acquired {
                keys,
                tokens,
                waited_ms,
                recovered,
                announced,
                ..
            } => match (recovered, announced) {
                (true, _) => {
                    let after = millis(*waited_ms);
                    format!("recovered {keys} after {after}: the previous process is gone")
                }
                (_, true) => format!("acquired {keys} after {}", millis(*waited_ms)),
                _ if verbose => format!("acquired {keys}, {}", words_of(tokens)),
                _ => return None,
            },
            Self::Expiring(end) => expiring(end) + end.action.words(),
            Self::Lost(end) => {
                let LeaseEnd { key, reason, .. } = end;
                let because = because(end.cause.as_deref().unwrap_or_default());
                format!("lost {key}: {reason}{because}{}", end.action.words())
            }
            Self::Overdue { key, reason } => {
                format!("{key} is overdue: {reason}, and the command has not ended")
            }
            Self::Refused {
                key,
                signal,
                processes,
                then,
            } => refused(key, *signal, processes, *then),
            Self::LeftRunning {
                keys,
                status,
                processes,
                ..
            } => left_running(keys, *status, processes),
            Self::Released {
                keys,
                still_ours: false,
            } => format!("lost {keys}: the lease had ended before it was released"),
            Self::Released { keys, .. } if verbose => format!("released {keys}"),
            Self::Free {
                key,
                waited_ms,
                announced: true,
            } => format!("{key} is free, after {}", millis(*waited_ms)),
            Self::Free { key, .. } if verbose => format!("{key} is free"),
            _ => return None,
        })
    }

    /// Terms of a leader, the end, and what is worth knowing.
    fn of_the_rest(&self, verbose: bool) -> Option<String> {
        Some(match self {
            Self::Warning { message, .. } => format!("warning: {message}"),
            Self::Log { at, level, message } => {
                format!("{at:.3} {}: {message}", level.to_lowercase())
            }
            Self::Error { message, .. } => message.clone(),
            Self::Leading { key, term } => match term {
                Some(term) => format!("leading {key}, term {term}"),
                None => format!("leading {key}"),
            },
            Self::TermEnded {
                key,
                status,
                again_in_ms,
            } => {
                let again = format!("candidate for {key} again in {}", millis(*again_in_ms));
                match status {
                    Some(status) => format!("the command ended with status {status}; {again}"),
                    None => again,
                }
            }
            Self::Exit { status, .. } if verbose => format!("exit status {status}"),
            _ => return None,
        })
    }
}

fn millis(ms: u64) -> String {
    spoken(Duration::from_millis(ms))
}

fn conflict(key: &str, holders: &[ClaimView], waited_ms: u64) -> String {
    let held = held_by(holders).unwrap_or_else(|| "held or waited for".to_owned());
    match waited_ms {
        0 => format!("{key} is {held}"),
        _ => format!("gave up after {}: {key} is {held}", millis(waited_ms)),
    }
}

fn skipped(key: &str, holder: Option<&ClaimView>, again_in_ms: u64) -> String {
    let ran = holder.map_or_else(|| "is taken".to_owned(), ran);
    let again = match again_in_ms {
        0 => "when that has ended".to_owned(),
        _ => format!("in {}", millis(again_in_ms)),
    };
    format!("skipped: {key} {ran}; it can run again {again}")
}

fn words_of(tokens: &[(String, Option<u64>)]) -> String {
    let numbers = tokens.iter().filter_map(|(_, token)| *token);
    let numbers: Vec<_> = numbers.map(|token| token.to_string()).collect();
    match numbers.len() {
        0 => "without a token".to_owned(),
        1 => format!("token {}", numbers.concat()),
        _ => format!("tokens {}", numbers.join(", ")),
    }
}

fn because(cause: &str) -> String {
    match cause {
        "" => String::new(),
        cause => format!(" ({cause})"),
    }
}

fn expiring(end: &LeaseEnd) -> String {
    let (key, left) = (&end.key, millis(end.remaining_ms.unwrap_or_default()));
    if end.reason == Loss::MaxHold {
        return format!("{key} ends in {left}: {}", end.reason);
    }
    let because = match &end.cause {
        None => ": no answer".to_owned(),
        Some(cause) => because(cause),
    };
    format!("cannot renew {key}{because}; the lease ends in {left}")
}

impl Measure {
    fn words(self) -> &'static str {
        match self {
            Self::Term => "; stopping the command",
            Self::Kill => "; killing the command",
            Self::Ignore => "; the command continues without the lock",
            Self::Refused | Self::None => "",
        }
    }
}

/// Names as many as fit a line.
fn left_running(keys: &Keys, status: u8, processes: &[NamedProcess]) -> String {
    const NAMED: usize = 5;
    let named = processes.iter().take(NAMED);
    let mut names: Vec<_> = named.map(NamedProcess::in_short).collect();
    if processes.len() > NAMED {
        names.push(format!("and {} more", processes.len() - NAMED));
    }
    let names = names.join(", ");
    let until = match processes.len() {
        0 => "its process group is empty".to_owned(),
        1 => format!("a process that it left is gone: {names}"),
        left => format!("{left} processes that it left are gone: {names}"),
    };
    format!("the command has ended with status {status}; holding {keys} until {until}")
}

fn refused(key: &str, signal: i32, processes: &[NamedProcess], then: Option<Sequel>) -> String {
    let does = match Signal::from_named_raw(signal) {
        Some(Signal::KILL) => "kill",
        Some(Signal::TERM) => "stop",
        _ => "signal",
    };
    let names: Vec<_> = processes.iter().map(NamedProcess::to_string).collect();
    let (it, ends, runs) = match names.len() {
        1 => ("it", "ends", "runs"),
        _ => ("they", "end", "run"),
    };
    let then = match then {
        None => String::new(),
        Some(Sequel::Kept) => format!("; {key} stays locked and is renewed until {it} {ends}"),
        Some(Sequel::MayOverlap) => {
            format!("; {it} still {runs}, and the next holder of {key} may begin meanwhile")
        }
    };
    format!(
        "cannot {does} {} of the command: {}{then}",
        names.join(", "),
        Errno::PERM,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::example as claim;

    fn keys(keys: &[&str]) -> Keys {
        let keys: Vec<_> = keys.iter().map(|&key| key.to_owned()).collect();
        Keys::from(&*keys)
    }

    #[test]
    fn several_keys_have_a_token_each() {
        let acquired = Event::Acquired {
            keys: keys(&["b", "a"]),
            tokens: vec![("b".into(), Some(7)), ("a".into(), Some(9))],
            waited_ms: 0,
            acknowledged: None,
            recovered: false,
            announced: false,
        };
        assert_eq!(
            acquired.sentence(true).unwrap(),
            "acquired b, a, tokens 7, 9"
        );
        assert_eq!(
            serde_json::to_value(acquired).unwrap(),
            serde_json::json!({
                "event": "acquired", "key": "b", "keys": ["b", "a"],
                "token": 7, "tokens": {"b": 7, "a": 9}, "waited_ms": 0,
            })
        );
    }

    #[test]
    fn what_was_not_killed_is_named_with_what_comes_of_it() {
        let pid = rustix::process::getpid();
        let refused = |then| Event::Refused {
            key: "k".into(),
            signal: Signal::KILL.as_raw(),
            processes: vec![NamedProcess::of(pid)],
            then,
        };
        let named = format!("cannot kill {} of the command: ", NamedProcess::of(pid));
        for (then, says) in [
            (
                Sequel::Kept,
                "; k stays locked and is renewed until it ends",
            ),
            (
                Sequel::MayOverlap,
                "; it still runs, and the next holder of k may begin meanwhile",
            ),
        ] {
            let sentence = refused(Some(then)).sentence(false).unwrap();
            assert!(sentence.starts_with(&named), "{sentence}");
            assert!(sentence.ends_with(says), "{sentence}");
        }
        let shown = serde_json::to_value(refused(Some(Sequel::MayOverlap))).unwrap();
        assert_eq!(shown["then"], "may_overlap");
        assert_eq!(shown["processes"][0]["pid"], pid.as_raw_nonzero().get());
    }

    #[test]
    fn what_is_left_running_is_named_as_far_as_a_line_goes() {
        let ours = NamedProcess::of(rustix::process::getpid());
        let sentence = |left| {
            let event = Event::LeftRunning {
                keys: keys(&["b", "a"]),
                status: 3,
                signal: None,
                processes: vec![ours.clone(); left],
            };
            event.sentence(false).unwrap()
        };
        let begins = "the command has ended with status 3; holding b, a until ";
        let name = ours.in_short();
        let two = format!("2 processes that it left are gone: {name}, {name}");
        let seven = [&*name; 5].join(", ");
        let seven = format!("7 processes that it left are gone: {seven}, and 2 more");
        for (left, until) in [
            (0, "its process group is empty"),
            (1, &format!("a process that it left is gone: {name}")),
            (2, &two),
            (7, &seven),
        ] {
            assert_eq!(sentence(left), format!("{begins}{until}"));
        }
    }

    #[test]
    fn without_a_token_there_is_no_number() {
        let acquired = Event::Acquired {
            keys: keys(&["a", "b"]),
            tokens: vec![("a".into(), None), ("b".into(), None)],
            waited_ms: 0,
            acknowledged: None,
            recovered: false,
            announced: false,
        };
        let sentence = acquired.sentence(true).unwrap();
        assert_eq!(sentence, "acquired a, b, without a token");
        assert_eq!(
            serde_json::to_value(acquired).unwrap(),
            serde_json::json!({
                "event": "acquired", "key": "a", "keys": ["a", "b"], "waited_ms": 0,
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
            "orders/42 is held by build7 (pid 812, label deploy) for 4 min; \
             free in 12 s unless renewed"
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
            tokens: vec![("k".into(), Some(7))],
            waited_ms: 1500,
            acknowledged: None,
            recovered: false,
            announced,
        };
        assert_eq!(acquired(false).sentence(false), None);
        assert_eq!(
            acquired(false).sentence(true).unwrap(),
            "acquired k, token 7"
        );
        assert_eq!(
            acquired(true).sentence(false).unwrap(),
            "acquired k after 1.5 s"
        );
        assert_eq!(
            serde_json::to_value(acquired(true)).unwrap(),
            serde_json::json!({"event": "acquired", "key": "k", "token": 7, "waited_ms": 1500})
        );
    }

    #[test]
    fn what_the_store_said_is_told() {
        let expiring = |why: Option<&str>| {
            Event::Expiring(LeaseEnd {
                key: "k".into(),
                reason: Loss::Unanswered,
                remaining_ms: Some(1_500),
                action: Measure::None,
                cause: why.map(str::to_owned),
            })
        };
        assert_eq!(
            expiring(Some("NOREPLICAS")).sentence(false).unwrap(),
            "cannot renew k (NOREPLICAS); the lease ends in 1.5 s",
            "the server has answered"
        );
        assert_eq!(
            expiring(None).sentence(false).unwrap(),
            "cannot renew k: no answer; the lease ends in 1.5 s"
        );
        let json = serde_json::to_value(expiring(Some("NOREPLICAS"))).unwrap();
        assert_eq!(json["cause"], "NOREPLICAS");
    }

    #[test]
    fn loss_is_an_error() {
        let lost = Event::Lost(LeaseEnd {
            key: "k".into(),
            reason: Loss::Gone,
            remaining_ms: None,
            action: Measure::Term,
            cause: None,
        });
        assert!(lost.is_urgent());
        assert_eq!(
            lost.sentence(false).unwrap(),
            "lost k: the store no longer has the claim: it was broken, it expired, or the store \
             lost data; stopping the command"
        );
        assert_eq!(
            serde_json::to_value(lost).unwrap(),
            serde_json::json!({"event": "lost", "key": "k", "reason": "gone", "action": "term"})
        );
    }
}
