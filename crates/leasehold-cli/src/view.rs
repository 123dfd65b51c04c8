//! What is shown of a key: the shape that programs read, and the words for people.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, SystemTime};

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use leasehold::{Capacity, ClientInfo, HolderInfo, Inspection, Mode, Token, WaiterInfo};
use serde::Serialize;

use crate::duration::{millis, spoken};

/// One key, as `show --json` and `ls --json` write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct KeyView {
    pub(crate) key: String,
    pub(crate) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permits: Option<u32>,
    pub(crate) last_token: u64,
    pub(crate) at: Timestamp,
    pub(crate) holders: Vec<ClaimView>,
    pub(crate) waiters: Vec<ClaimView>,
}

/// A holder, with its token, or a waiter, with its position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ClaimView {
    pub(crate) mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<u64>,
    /// Of how many permits: the key says so.
    #[serde(skip)]
    pub(crate) of: Option<u32>,
    /// How long ago it was made, when it was looked at.
    #[serde(skip)]
    pub(crate) age: Option<Duration>,
    /// Null where the store does not keep who it is.
    pub(crate) owner: Option<OwnerView>,
    /// The beginning of the claim id, where nothing else tells who it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id_hint: Option<String>,
    /// Null where the store does not keep it.
    pub(crate) since: Option<Timestamp>,
    /// Null if it does not expire.
    pub(crate) expires_in_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) position: Option<u64>,
    /// What a leader tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// The keys that its context waits for: see `show`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) waits_for: Vec<String>,
    /// Until when the key stays taken although its holder has left or died.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kept_until: Option<Timestamp>,
}

/// Who asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct OwnerView {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) label: Option<String>,
    /// The piece of work that the claim belongs to, where it tells: see `deadlocks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<String>,
}

impl From<&Inspection> for KeyView {
    fn from(seen: &Inspection) -> Self {
        let permits = seen.permits;
        let kind = permits.map_or("lock", |_| "semaphore");
        // A claim knows the number of permits from before a resize.
        let at = time(seen.at);
        let now = |claim: ClaimView| ClaimView {
            of: claim.of.and(permits),
            age: claim.since.map(|since| age(at, since)),
            ..claim
        };
        Self {
            key: seen.key.to_string(),
            kind,
            permits,
            last_token: seen.last_token.get(),
            at,
            holders: seen
                .holders
                .iter()
                .map(|holder| now(ClaimView::of_holder(holder, seen.at)))
                .collect(),
            waiters: seen
                .waiters
                .iter()
                .map(|waiter| now(ClaimView::from(waiter)))
                .collect(),
        }
    }
}

impl KeyView {
    /// The token of its holder, of several the highest.
    pub(crate) fn token(&self) -> Option<u64> {
        self.holders.iter().filter_map(|holder| holder.token).max()
    }

    /// Whether somebody holds it or waits for it.
    pub(crate) fn is_used(&self) -> bool {
        !(self.holders.is_empty() && self.waiters.is_empty())
    }

    /// `2/3`: how many permits of a semaphore are taken.
    pub(crate) fn taken(&self) -> Option<String> {
        let permits = self.permits?;
        // Holders with one token count once.
        let mut counted = BTreeSet::new();
        let counts = |holder: &&ClaimView| holder.token.is_none_or(|it| counted.insert(it));
        let weights = self.holders.iter().filter(counts);
        let taken: u64 = weights.filter_map(|holder| holder.weight).sum();
        Some(format!("{taken}/{permits}"))
    }

    /// Whether the same claims stand there, however much of their time is left.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.key == other.key
            && self.permits == other.permits
            && same_claims(&self.holders, &other.holders)
            && same_claims(&self.waiters, &other.waiters)
    }

    /// How long ago that claim was made, when the key was looked at.
    pub(crate) fn age(&self, claim: &ClaimView) -> Duration {
        claim
            .since
            .map_or(Duration::ZERO, |since| age(self.at, since))
    }
}

impl From<&WaiterInfo> for ClaimView {
    fn from(waiter: &WaiterInfo) -> Self {
        let view = Self::new(waiter.mode, &waiter.owner, waiter.since, waiter.expires_in);
        Self {
            id_hint: hint_of(&waiter.owner, &waiter.id_hint),
            position: Some(waiter.position),
            ..view
        }
    }
}

impl ClaimView {
    fn new(mode: Mode, owner: &ClientInfo, since: SystemTime, expires_in: Duration) -> Self {
        let (mode, weight, of) = match mode.capacity() {
            Capacity::Permits(of) => ("permits", Some(mode.weight()), Some(of)),
            Capacity::Lock if mode == Mode::EXCLUSIVE => ("exclusive", None, None),
            Capacity::Lock => ("shared", None, None),
        };
        Self {
            mode,
            weight,
            of,
            age: None,
            owner: OwnerView::of(owner),
            id_hint: None,
            since: known(since),
            expires_in_ms: (expires_in != Duration::MAX).then(|| millis(expires_in)),
            token: None,
            position: None,
            note: None,
            waits_for: Vec::new(),
            kept_until: None,
        }
    }

    pub(crate) fn of_holder(holder: &HolderInfo, at: SystemTime) -> Self {
        let view = Self::new(holder.mode, &holder.owner, holder.since, holder.expires_in);
        Self {
            id_hint: hint_of(&holder.owner, &holder.id_hint),
            token: holder.token.some().map(Token::get),
            note: holder.note.clone(),
            kept_until: holder.kept.then(|| time(at + holder.expires_in)),
            ..view
        }
    }

    /// `exclusive`, `shared`, `2 of 3 permits`.
    pub(crate) fn mode(&self) -> String {
        match (self.weight, self.of) {
            (Some(weight), Some(of)) => format!("{weight} of {of} permits"),
            _ => self.mode.to_owned(),
        }
    }

    /// When it expires, counted from when it was asked; `None`: never.
    pub(crate) fn expires_in(&self) -> Option<Duration> {
        self.expires_in_ms.map(Duration::from_millis)
    }

    /// `12 s`, or `never`.
    pub(crate) fn lapse(&self) -> String {
        let left = self.expires_in();
        left.map_or_else(|| "never".to_owned(), spoken)
    }

    /// `build7 (pid 812, label deploy)`, or what little is known.
    pub(crate) fn who(&self) -> String {
        match (&self.owner, self.id_hint.as_deref()) {
            (Some(owner), _) => owner.to_string(),
            (None, Some(hint)) if !hint.is_empty() => format!("the claim {hint}…"),
            (None, _) => "somebody".to_owned(),
        }
    }

    /// The label, or `build7 (pid 812)`: short, for a table of many.
    pub(crate) fn short_name(&self) -> String {
        let label = self.owner.as_ref().and_then(|owner| owner.label.clone());
        label.unwrap_or_else(|| self.who())
    }

    /// Whether it is the same claim in the same state, however much of its time is left.
    fn is_same(&self, other: &Self) -> bool {
        let timeless = |claim: &Self| Self {
            expires_in_ms: None,
            age: None,
            kept_until: claim.kept_until.and(Some(Timestamp::UNIX_EPOCH)),
            ..claim.clone()
        };
        timeless(self) == timeless(other)
    }

    /// `2026-01-31T12:00:00Z`, if that is known.
    pub(crate) fn began(&self) -> String {
        self.since.map(to_the_second).unwrap_or_default()
    }

    /// `4 min`, when it was looked at, if that is known.
    pub(crate) fn held_for(&self) -> String {
        self.age.map(spoken).unwrap_or_default()
    }

    /// `held by build7 (pid 812, label deploy) for 4 min; free in 12 s unless renewed`, or
    /// `taken until 2026-01-31T13:00:00Z (minimum hold; pid 812 on build7 has finished)`.
    fn in_full(&self) -> String {
        let who = self.who();
        match self.kept_until {
            Some(until) => {
                let who = match &self.owner {
                    Some(owner) => format!("pid {} on {}", owner.pid, owner.host),
                    None => who,
                };
                let until = to_the_second(until);
                format!("taken until {until} (minimum hold; {who} has finished)")
            }
            None => {
                let age = self.age.map(|age| format!(" for {}", spoken(age)));
                let ends = match self.expires_in() {
                    Some(left) => format!("free in {} unless renewed", spoken(left)),
                    None => "it does not expire".to_owned(),
                };
                format!("held by {who}{}; {ends}", age.unwrap_or_default())
            }
        }
    }
}

impl OwnerView {
    /// `None` where the store does not keep who it is.
    pub(crate) fn of(owner: &ClientInfo) -> Option<Self> {
        (!owner.is_unknown()).then(|| Self {
            host: owner.host.clone(),
            pid: owner.pid,
            label: owner.label.clone(),
            context: owner.context.as_ref().map(ToString::to_string),
        })
    }
}

impl fmt::Display for OwnerView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host, pid, label, ..
        } = self;
        match label {
            None => write!(f, "{host} (pid {pid})"),
            Some(label) => write!(f, "{host} (pid {pid}, label {label})"),
        }
    }
}

/// How long before `at` something began.
fn age(at: Timestamp, since: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(since)).unwrap_or_default()
}

/// Whether these are the same claims in the same order, however much of their time is left.
pub(crate) fn same_claims(some: &[ClaimView], others: &[ClaimView]) -> bool {
    some.len() == others.len()
        && some
            .iter()
            .zip(others)
            .all(|(one, other)| one.is_same(other))
}

/// What is done under the key, by whom and since when: `is running on build7 (pid 812) since
/// 2026-01-31T12:00:00Z`, or that it `ran` there.
pub(crate) fn ran(claim: &ClaimView) -> String {
    let who = claim.who();
    // It is the last thing that a job says, and only of a failure.
    let failed = claim
        .note
        .as_ref()
        .map(|note| format!(" and failed ({note})"));
    let failed = failed.unwrap_or_default();
    match (claim.kept_until, claim.since) {
        (Some(_), Some(since)) => format!("ran on {who} at {}{failed}", to_the_second(since)),
        (Some(_), None) => format!("ran on {who}{failed}"),
        (None, _) => {
            let age = claim.age.map(|age| format!(" for {}", spoken(age)));
            format!("has been running on {who}{}", age.unwrap_or_default())
        }
    }
}

/// `held by …`, of several holders the first and how many more.
pub(crate) fn held_by(holders: &[ClaimView]) -> Option<String> {
    let (first, more) = holders.split_first()?;
    let first = first.in_full();
    Some(match more.len() {
        0 => first,
        more => format!("{first}, and {more} more"),
    })
}

/// The beginning of an id, where the owner is not known.
fn hint_of(owner: &ClientInfo, hint: &str) -> Option<String> {
    owner.is_unknown().then(|| hint.to_owned())
}

/// When it began, if the store keeps that.
pub(crate) fn known(since: SystemTime) -> Option<Timestamp> {
    (since != SystemTime::UNIX_EPOCH).then(|| time(since))
}

/// ` since 2026-01-31T12:00:00Z`, if that is known.
pub(crate) fn since(since: Option<Timestamp>) -> String {
    since.map_or(String::new(), |since| {
        format!(" since {}", to_the_second(since))
    })
}

/// A time that can be written; others do not come from a clock.
pub(crate) fn time(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or_default()
}

/// RFC 3339, UTC, for people, who do not read microseconds.
pub(crate) fn to_the_second(time: Timestamp) -> String {
    let rounding = TimestampRound::new()
        .smallest(Unit::Second)
        .mode(RoundMode::Floor);
    time.round(rounding).unwrap_or(time).to_string()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn claim(label: Option<&str>) -> ClaimView {
        let owner = ClientInfo::new("build7", 812, label);
        let since = SystemTime::UNIX_EPOCH + Duration::from_micros(1_769_860_800_123_456);
        let left = Duration::from_millis(12_345);
        ClaimView {
            age: Some(Duration::from_secs(240)),
            ..ClaimView::new(Mode::EXCLUSIVE, &owner, since, left)
        }
    }

    #[test]
    fn a_holder_in_json() {
        let holder = ClaimView {
            token: Some(7),
            ..claim(Some("deploy"))
        };
        assert_eq!(
            serde_json::to_value(holder).unwrap(),
            serde_json::json!({
                "mode": "exclusive",
                "owner": { "host": "build7", "pid": 812, "label": "deploy" },
                "since": "2026-01-31T12:00:00.123456Z",
                "expires_in_ms": 12345,
                "token": 7,
            })
        );
    }

    #[tokio::test]
    async fn what_is_not_known_is_not_made_up() {
        let client = leasehold::connect("memory:").await.unwrap();
        let lock = client.mutex("k").unwrap();
        let _lease = lock.lock().await.unwrap();
        let mut holder = lock.holders().await.unwrap().remove(0);
        holder.owner = ClientInfo::unknown();
        holder.since = SystemTime::UNIX_EPOCH;
        holder.expires_in = Duration::MAX;
        holder.token = Token::NONE;
        holder.id_hint = "0f3a".into();
        let view = ClaimView::of_holder(&holder, SystemTime::UNIX_EPOCH);
        assert_eq!(
            held_by(std::slice::from_ref(&view)).unwrap(),
            "held by the claim 0f3a…; it does not expire"
        );
        assert_eq!(
            serde_json::to_value(view).unwrap(),
            serde_json::json!({
                "mode": "exclusive", "owner": null, "id_hint": "0f3a", "since": null,
                "expires_in_ms": null,
            })
        );
    }

    #[test]
    fn permits_have_their_weight() {
        let owner = ClientInfo::new("h", 1, None);
        let mode = Mode::permits(3, 2);
        let view = ClaimView::new(mode, &owner, SystemTime::UNIX_EPOCH, Duration::ZERO);
        assert_eq!(
            (view.mode, view.weight, view.mode()),
            ("permits", Some(2), "2 of 3 permits".into())
        );
    }

    #[test]
    fn holders_in_words() {
        let one = "held by build7 (pid 812, label deploy) for 4 min; free in 12 s unless renewed";
        let holders = [claim(Some("deploy")), claim(None), claim(None)];
        assert_eq!(held_by(&holders[..0]), None);
        assert_eq!(held_by(&holders[..1]).unwrap(), one);
        assert_eq!(
            held_by(&holders[..2]).unwrap(),
            format!("{one}, and 1 more")
        );
        assert_eq!(held_by(&holders).unwrap(), format!("{one}, and 2 more"));
        assert_eq!(holders[1].who(), "build7 (pid 812)");
        let kept = ClaimView {
            kept_until: Some("2026-01-31T13:00:00.5Z".parse().unwrap()),
            ..claim(None)
        };
        assert_eq!(
            held_by(&[kept]).unwrap(),
            "taken until 2026-01-31T13:00:00Z (minimum hold; pid 812 on build7 has finished)"
        );
    }
}
