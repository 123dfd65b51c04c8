//! What the command has to say: each event as an object for programs and a sentence for people.

mod of_processes;

use std::time::Duration;

use jiff::Timestamp;
use leasehold::Loss;
use leasehold::store::Acknowledged;
use rustix::process::Signal;
use serde::Serialize;

pub(crate) use self::of_processes::Sequel;
use super::fields::{Fields, Tokens};
use crate::duration::{millis, spoken};
use crate::failure::Failure;
use crate::view::{ClaimView, KeyView, held_by, ran};

/// One thing that happened: an object per line with `--json`, otherwise a sentence, or nothing.
#[derive(Debug)]
pub(crate) struct Event {
    pub(super) fields: Fields,
    pub(super) tone: Tone,
    sentence: String,
    /// What to do about it; a line of its own.
    pub(super) hint: Option<String>,
    /// What it means for a lock that is held.
    pub(super) milestone: Option<Milestone>,
}

/// To whom the sentence is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// With `-v` only; programs are told in any case.
    Detail,
    Usual,
    /// With `-q`, too.
    Urgent,
}

/// What metrics count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Milestone {
    Acquired,
    Released,
    Lost,
    TermEnded,
    /// The job has ended with this status; no event of its own tells that.
    Ended(u8),
}

/// How a lease ends, or has ended.
#[derive(Debug, Clone)]
pub(crate) struct LeaseEnd<'a> {
    pub(crate) key: &'a str,
    pub(crate) reason: Loss,
    pub(crate) action: Measure,
    /// What kept it from being renewed.
    pub(crate) cause: Option<String>,
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

impl Event {
    fn new(name: &str, tone: Tone, sentence: String) -> Self {
        Self {
            fields: Fields::default().with("event", name),
            tone,
            sentence,
            hint: None,
            milestone: None,
        }
    }

    /// As most are: of one key.
    fn of_key(name: &str, key: &str, sentence: String) -> Self {
        Self::new(name, Tone::Usual, sentence).with("key", key)
    }

    /// Of the keys of one lock: of several the first stands for all.
    fn of_keys(name: &str, keys: &[String], sentence: String) -> Self {
        let first = keys.first().map_or("", String::as_str);
        let several = (keys.len() > 1).then_some(keys);
        Self::of_key(name, first, sentence).with_known("keys", several)
    }

    fn with(self, name: &'static str, value: impl Serialize) -> Self {
        self.with_known(name, Some(value))
    }

    fn with_known(self, name: &'static str, value: Option<impl Serialize>) -> Self {
        let fields = self.fields.with_known(name, value);
        Self { fields, ..self }
    }

    fn hint(self, hint: Option<&str>) -> Self {
        let hint = hint.map(str::to_owned);
        Self { hint, ..self }
    }

    fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    fn milestone(self, milestone: Milestone) -> Self {
        let milestone = Some(milestone);
        Self { milestone, ..self }
    }

    /// For people.
    pub(super) fn sentence(&self, verbose: bool) -> Option<&str> {
        (verbose || self.tone != Tone::Detail).then_some(&*self.sentence)
    }

    // ---- the way to the lock ----

    /// The waiting begins.
    pub(crate) fn waiting(key: &str, position: u64, holders: &[ClaimView]) -> Self {
        let held = held_by(holders).map_or_else(String::new, |held| format!(", {held}"));
        let sentence = format!("waiting for {key} (position {position}){held}");
        Self::of_key("waiting", key, sentence)
            .with("position", position)
            .with("holders", holders)
    }

    /// Waits until nobody holds the key, and does not claim it.
    pub(crate) fn waiting_until_free(key: &str, holders: &[ClaimView]) -> Self {
        let held = held_by(holders).map_or_else(String::new, |held| format!(": {held}"));
        let sentence = format!("waiting until {key} is free{held}");
        Self::of_key("waiting_until_free", key, sentence).with("holders", holders)
    }

    /// Nobody holds the key that was waited for. `announced`: it was said that it was waited for.
    pub(crate) fn free(key: &str, waited: Duration, announced: bool) -> Self {
        let said = format!("{key} is free, after {}", spoken(waited));
        let (tone, sentence) = match announced {
            true => (Tone::Usual, said),
            false => (Tone::Detail, format!("{key} is free")),
        };
        Self::of_key("free", key, sentence)
            .with("waited_ms", millis(waited))
            .tone(tone)
    }

    /// The position in the queue has changed.
    pub(crate) fn moved(key: &str, position: u64, waited: Duration) -> Self {
        let after = spoken(waited);
        let sentence = format!("still waiting for {key} (position {position}), after {after}");
        Self::of_key("moved", key, sentence)
            .with("position", position)
            .with("waited_ms", millis(waited))
    }

    /// The store cannot be used, and is asked again: for how long, if not for ever.
    pub(crate) fn store_unavailable(
        keys: &[String],
        failure: &Failure,
        left: Option<Duration>,
    ) -> Self {
        let reason = &failure.message;
        let sentence = match left {
            Some(left) => format!("{reason}; trying again for {}", spoken(left)),
            None => format!("{reason}; trying again"),
        };
        Self::of_keys("store_unavailable", keys, sentence)
            .with("reason", reason)
            .with("hint", &failure.hint)
            .with("left_ms", left.map(millis))
    }

    /// The store can be used again.
    pub(crate) fn store_available(keys: &[String], after: Duration) -> Self {
        let sentence = format!("the store is available again after {}", spoken(after));
        Self::of_keys("store_available", keys, sentence).with("after_ms", millis(after))
    }

    /// The place in the queue was lost, and a new one taken at its end.
    pub(crate) fn rejoined(keys: &[String], times: u32) -> Self {
        let names = keys.join(", ");
        let sentence =
            format!("warning: lost the position in the queue of {names}; waiting at its end");
        Self::of_keys("rejoined", keys, sentence).with("times", times)
    }

    /// The claim waits for itself, by way of others: who holds what and waits for what.
    pub(crate) fn deadlocked(keys: &[String], deadlock: &str) -> Self {
        let names = keys.join(", ");
        let sentence = format!("warning: the wait for {names} is a deadlock: {deadlock}");
        let hint = "end one of them, or use --deadlock-timeout, which ends the youngest";
        Self::of_keys("deadlocked", keys, sentence)
            .with("deadlock", deadlock)
            .hint(Some(hint))
    }

    /// The waiting was ended by a signal.
    pub(crate) fn withdrawn(keys: &[String], signal: Signal, waited: Duration) -> Self {
        let (names, after) = (keys.join(", "), spoken(waited));
        let sentence = format!("stopped waiting for {names} after {after}");
        Self::of_keys("withdrawn", keys, sentence)
            .with("signal", signal.as_raw())
            .with("waited_ms", millis(waited))
    }

    /// The lock was not obtained in time.
    pub(crate) fn conflict(key: &str, waited: Duration, holders: &[ClaimView]) -> Self {
        let held = held_by(holders).unwrap_or_else(|| "held or waited for".to_owned());
        let waited_ms = millis(waited);
        let sentence = match waited_ms {
            0 => format!("{key} is {held}"),
            _ => format!("gave up after {}: {key} is {held}", spoken(waited)),
        };
        Self::of_key("conflict", key, sentence)
            .with("waited_ms", waited_ms)
            .with("holders", holders)
    }

    /// What is done once in a period, of which the lock is kept for `least`, was done or is being
    /// done.
    pub(crate) fn skipped(seen: &KeyView, least: Duration) -> Self {
        let (key, holder) = (&seen.key, seen.holders.first());
        let running = holder.is_some_and(|holder| holder.kept_until.is_none());
        let again = holder.map(|holder| match running {
            // It ends at any time, and its lock is kept then for what is left.
            true => least.saturating_sub(holder.age.unwrap_or_default()),
            false => holder.expires_in().unwrap_or(Duration::MAX),
        });
        let again_in_ms = millis(again.unwrap_or_default());
        let ran = holder.map_or_else(|| "is taken".to_owned(), ran);
        let again = match again_in_ms {
            0 => "when that has ended".to_owned(),
            ms => format!("in {}", spoken(Duration::from_millis(ms))),
        };
        let sentence = format!("skipped: {key} {ran}; it can run again {again}");
        Self::of_key("skipped", key, sentence)
            .with("running", running)
            .with("again_in_ms", again_in_ms)
            .with("holders", &seen.holders)
    }

    // ---- the lock, from the grant to the release ----

    /// The lock was obtained. `recovered`: it is the lease of a process that is gone. `announced`:
    /// it was said that it was waited for, and so the end of the waiting is, too.
    pub(crate) fn acquired(
        keys: &[String],
        tokens: &Tokens,
        waited: Duration,
        acknowledged: Option<Acknowledged>,
        (recovered, announced): (bool, bool),
    ) -> Self {
        let acknowledged = acknowledged.map(|it| {
            let fields = Fields::default().with("replicas", it.replicas);
            fields.with("wanted", it.wanted).with_known("disk", it.disk)
        });
        let (names, after) = (keys.join(", "), spoken(waited));
        let (tone, sentence) = match (recovered, announced) {
            (true, _) => (
                Tone::Usual,
                format!("recovered {names} after {after}: the previous process is gone"),
            ),
            (_, true) => (Tone::Usual, format!("acquired {names} after {after}")),
            _ => {
                let tokens = words_of(tokens);
                (Tone::Detail, format!("acquired {names}, {tokens}"))
            }
        };
        let event = Self::of_keys("acquired", keys, sentence);
        let fields = event.fields.with_tokens(tokens);
        Self { fields, ..event }
            .with("waited_ms", millis(waited))
            .with_known("acknowledged", acknowledged)
            .with_known("recovered", recovered.then_some(true))
            .tone(tone)
            .milestone(Milestone::Acquired)
    }

    /// The end is near: no renewal was answered, or it was held long enough.
    pub(crate) fn expiring(end: &LeaseEnd<'_>, left: Duration) -> Self {
        let LeaseEnd { key, reason, .. } = end;
        let in_time = spoken(left);
        let sentence = match &end.cause {
            _ if *reason == Loss::MaxHold => format!("{key} ends in {in_time}: {reason}"),
            None => format!("cannot renew {key}: no answer; the lease ends in {in_time}"),
            Some(cause) => format!("cannot renew {key} ({cause}); the lease ends in {in_time}"),
        };
        Self::of_end("expiring", end, Some(left), sentence)
    }

    /// The lease is lost. `is_told`: the reason was told before.
    pub(crate) fn lost(end: &LeaseEnd<'_>, is_told: bool) -> Self {
        let LeaseEnd { key, reason, .. } = end;
        let cause = end.cause.as_ref().map(|cause| format!(" ({cause})"));
        let sentence = match is_told {
            true => format!("lost {key}"),
            false => format!("lost {key}: {reason}{}", cause.unwrap_or_default()),
        };
        let milestone = match reason {
            // An end that the holder has set itself is no loss.
            Loss::MaxHold => Milestone::Released,
            _ => Milestone::Lost,
        };
        Self::of_end("lost", end, None, sentence).milestone(milestone)
    }

    fn of_end(name: &str, end: &LeaseEnd<'_>, left: Option<Duration>, sentence: String) -> Self {
        let done = match end.action {
            Measure::Term => "; stopping the command",
            Measure::Kill => "; killing the command",
            Measure::Ignore => "; the command continues without the lock",
            Measure::Refused | Measure::None => "",
        };
        Self::of_key(name, end.key, sentence + done)
            .with("reason", end.reason.name())
            .with_known("remaining_ms", left.map(millis))
            .with("action", end.action)
            .with_known("cause", end.cause.as_ref())
            .tone(Tone::Urgent)
    }

    /// It was held for the longest time allowed, and is kept until the command has gone.
    pub(crate) fn overdue(key: &str, reason: Loss) -> Self {
        let sentence = format!("{key} is overdue: {reason}, and the command has not ended");
        Self::of_key("overdue", key, sentence)
            .with("reason", reason.name())
            .tone(Tone::Urgent)
    }

    /// The lock was given back, or had been lost before.
    pub(crate) fn released(keys: &[String], still_ours: bool) -> Self {
        let names = keys.join(", ");
        let late = format!("lost {names}: the lease had ended before it was released");
        let done = format!("released {names}");
        let (milestone, tone, sentence) = match still_ours {
            true => (Milestone::Released, Tone::Detail, done),
            false => (Milestone::Lost, Tone::Urgent, late),
        };
        Self::of_keys("released", keys, sentence)
            .with("still_ours", still_ours)
            .tone(tone)
            .milestone(milestone)
    }

    // ---- terms of a leader, the end, and what is worth knowing ----

    /// We lead. There is no term where the store has no tokens.
    pub(crate) fn leading(key: &str, term: Option<u64>) -> Self {
        let number = term.map(|term| format!(", term {term}"));
        let sentence = format!("leading {key}{}", number.unwrap_or_default());
        Self::of_key("leading", key, sentence).with_known("term", term)
    }

    /// The command of a leader has ended, with that status if by itself, and another term is stood
    /// for.
    pub(crate) fn term_ended(key: &str, status: Option<u8>, again_in: Duration) -> Self {
        let again = format!("candidate for {key} again in {}", spoken(again_in));
        let sentence = match status {
            Some(status) => format!("the command ended with status {status}; {again}"),
            None => again,
        };
        Self::of_key("term_ended", key, sentence)
            .with_known("status", status)
            .with("again_in_ms", millis(again_in))
            .milestone(Milestone::TermEnded)
    }

    /// The end.
    pub(crate) fn exit(status: u8, signal: Option<i32>) -> Self {
        Self::new("exit", Tone::Detail, format!("exit status {status}"))
            .with("status", status)
            .with("signal", signal)
    }

    /// Worth knowing, and what to do about it.
    pub(crate) fn warning(message: &str, hint: Option<&str>) -> Self {
        Self::new("warning", Tone::Usual, format!("warning: {message}"))
            .with("message", message)
            .with_known("hint", hint)
            .hint(hint)
    }

    /// From the library's log.
    pub(super) fn log(level: &str, message: &str) -> Self {
        let (now, shown) = (Timestamp::now(), level.to_lowercase());
        Self::new("log", Tone::Usual, format!("{now:.3} {shown}: {message}"))
            .with("level", level)
            .with("message", message)
    }
}

/// Why it did not work.
impl From<&Failure> for Event {
    fn from(failure: &Failure) -> Self {
        Self::new("error", Tone::Urgent, failure.message.clone())
            .with("message", &failure.message)
            .with("hint", &failure.hint)
            .with("cause", &failure.cause)
            .with("status", failure.status)
            .hint(failure.hint.as_deref())
    }
}

fn words_of(tokens: &Tokens) -> String {
    let numbers = tokens.iter().filter_map(|(_, token)| *token);
    let numbers: Vec<_> = numbers.map(|token| token.to_string()).collect();
    match numbers.len() {
        0 => "without a token".to_owned(),
        1 => format!("token {}", numbers.concat()),
        _ => format!("tokens {}", numbers.join(", ")),
    }
}

#[cfg(test)]
mod tests;
