//! What is shown of a key: the shape that programs read, and the words for people.

use std::collections::BTreeSet;
use std::fmt;
use std::slice::from_ref;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use leasehold::{Capacity, ClientInfo, HolderInfo, Inspection, Mode, Token, WaiterInfo};
use serde::Serialize;

use crate::duration::{millis, spoken};

/// One key, as `show --json` and `ls --json` write it. Two are equal if the same claims stand there,
/// however much of their time is left.
#[derive(Debug, Clone, Serialize)]
pub struct KeyView {
    /// Its name.
    pub key: String,
    /// `lock` or `semaphore`.
    pub kind: &'static str,
    /// How many permits a semaphore has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    /// The last token that was given; it may be that of all keys of the store.
    pub last_token: u64,
    /// When it was looked at, by the store's clock.
    pub at: Timestamp,
    /// Those who hold it.
    pub holders: Vec<ClaimView>,
    /// Those who wait for it, in their order.
    pub waiters: Vec<ClaimView>,
}

/// A holder, with its token, or a waiter, with its position. Two are equal if they are the same claim
/// in the same state, however much of its time is left.
#[derive(Debug, Clone, Serialize)]
pub struct ClaimView {
    /// `exclusive`, `shared` or `permits`.
    pub mode: &'static str,
    /// How many permits it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u64>,
    /// Of how many permits: the key says so.
    #[serde(skip)]
    pub of: Option<u32>,
    /// How long ago it was made, when it was looked at.
    #[serde(skip)]
    pub age: Option<Duration>,
    /// Null where the store does not keep who it is.
    pub owner: Option<OwnerView>,
    /// The beginning of the claim id, where nothing else tells who it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id_hint: Option<String>,
    /// Null where the store does not keep it.
    pub since: Option<Timestamp>,
    /// Null if it does not expire.
    pub expires_in_ms: Option<u64>,
    /// The token of a holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// The place of a waiter, from 1 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// What a leader tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The keys that its context waits for: see `show`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// Until when the key stays taken although its holder has left or died.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<Timestamp>,
}

/// Who asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwnerView {
    /// The name of its machine.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// How it calls itself.
    pub label: Option<String>,
    /// The piece of work that the claim belongs to, where it tells: see `deadlocks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

impl From<&Inspection> for KeyView {
    fn from(seen: &Inspection) -> Self {
        // A claim knows the number of permits from before a resize.
        let now = |claim: ClaimView| ClaimView {
            of: claim.of.and(seen.permits),
            ..claim
        };
        let holder = |holder| now(ClaimView::of_holder(holder, seen.at));
        let waiter = |waiter| now(ClaimView::of_waiter(waiter, seen.at));
        Self {
            key: seen.key.to_string(),
            kind: seen.permits.map_or("lock", |_| "semaphore"),
            permits: seen.permits,
            last_token: seen.last_token.get(),
            at: time(seen.at),
            holders: seen.holders.iter().map(holder).collect(),
            waiters: seen.waiters.iter().map(waiter).collect(),
        }
    }
}

impl KeyView {
    /// The token of its holder, of several the highest.
    pub fn token(&self) -> Option<u64> {
        self.holders.iter().filter_map(|holder| holder.token).max()
    }

    /// Whether somebody holds it or waits for it.
    pub fn is_used(&self) -> bool {
        !(self.holders.is_empty() && self.waiters.is_empty())
    }

    /// `2/3`: how many permits of a semaphore are taken.
    pub fn taken(&self) -> Option<String> {
        let permits = self.permits?;
        // Holders with one token count once.
        let mut counted = BTreeSet::new();
        let counts = |holder: &&ClaimView| holder.token.is_none_or(|it| counted.insert(it));
        let weights = self.holders.iter().filter(counts);
        let taken: u64 = weights.filter_map(|holder| holder.weight).sum();
        Some(format!("{taken}/{permits}"))
    }
}

impl PartialEq for KeyView {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
            && self.permits == other.permits
            && self.holders == other.holders
            && self.waiters == other.waiters
    }
}

impl Eq for KeyView {}

impl PartialEq for ClaimView {
    fn eq(&self, other: &Self) -> bool {
        same_holders(from_ref(self), from_ref(other))
            && self.mode == other.mode
            && self.weight == other.weight
            && self.of == other.of
            && self.position == other.position
            && self.note == other.note
            && self.waits_for == other.waits_for
            && self.kept_until.is_some() == other.kept_until.is_some()
    }
}

impl Eq for ClaimView {}

impl ClaimView {
    fn new(
        mode: Mode,
        (owner, id_hint): (&ClientInfo, &str),
        (since, at): (SystemTime, SystemTime),
        expires_in: Duration,
    ) -> Self {
        let (mode, weight, of) = mode_of(mode);
        let since = known(since);
        let age = |since| Duration::try_from(time(at).duration_since(since)).unwrap_or_default();
        Self {
            mode,
            weight,
            of,
            age: since.map(age),
            owner: OwnerView::of(owner),
            id_hint: owner.is_unknown().then(|| id_hint.to_owned()),
            since,
            expires_in_ms: (expires_in != Duration::MAX).then(|| millis(expires_in)),
            token: None,
            position: None,
            note: None,
            waits_for: Vec::new(),
            kept_until: None,
        }
    }

    /// A holder, as it was seen at that time of the store.
    pub fn of_holder(holder: &HolderInfo, at: SystemTime) -> Self {
        let owner = (&holder.owner, &*holder.id_hint);
        Self {
            token: holder.token.some().map(Token::get),
            note: holder.note.clone(),
            kept_until: (at.checked_add(holder.expires_in).filter(|_| holder.kept)).map(time),
            ..Self::new(holder.mode, owner, (holder.since, at), holder.expires_in)
        }
    }

    /// A waiter, as it was seen at that time of the store.
    pub fn of_waiter(waiter: &WaiterInfo, at: SystemTime) -> Self {
        let owner = (&waiter.owner, &*waiter.id_hint);
        Self {
            position: Some(waiter.position),
            ..Self::new(waiter.mode, owner, (waiter.since, at), waiter.expires_in)
        }
    }

    /// `exclusive`, `shared`, `2 of 3 permits`.
    pub fn mode(&self) -> String {
        match (self.weight, self.of) {
            (Some(weight), Some(of)) => format!("{weight} of {of} permits"),
            _ => self.mode.to_owned(),
        }
    }

    /// When it expires, counted from when it was asked; `None`: never.
    pub fn expires_in(&self) -> Option<Duration> {
        self.expires_in_ms.map(Duration::from_millis)
    }

    /// `12 s`, or `never`.
    pub fn lapse(&self) -> String {
        let left = self.expires_in();
        left.map_or_else(|| "never".to_owned(), spoken)
    }

    /// `build7 (pid 812, label deploy)`, or what little is known.
    pub fn who(&self) -> String {
        match (&self.owner, self.id_hint.as_deref()) {
            (Some(owner), _) => owner.to_string(),
            (None, Some(hint)) if !hint.is_empty() => format!("the claim {hint}…"),
            (None, _) => "somebody".to_owned(),
        }
    }

    /// The label, or `build7 (pid 812)`: short, for a table of many.
    pub fn short_name(&self) -> String {
        let label = self.owner.as_ref().and_then(|owner| owner.label.clone());
        label.unwrap_or_else(|| self.who())
    }

    /// `2026-01-31T12:00:00Z`, if that is known.
    pub fn began(&self) -> String {
        self.since.map(to_the_second).unwrap_or_default()
    }

    /// `4 min`, when it was looked at, if that is known.
    pub fn held_for(&self) -> String {
        self.age.map(spoken).unwrap_or_default()
    }

    /// ` for 4 min`, if that is known.
    fn for_so_long(&self) -> String {
        let age = self.age.map(|age| format!(" for {}", spoken(age)));
        age.unwrap_or_default()
    }

    /// `held by build7 (pid 812, label deploy) for 4 min; free in 12 s unless renewed`, or
    /// `taken until 2026-01-31T13:00:00Z (minimum hold; pid 812 on build7 has finished)`.
    fn in_full(&self) -> String {
        let Some(until) = self.kept_until else {
            let ends = match self.expires_in() {
                Some(left) => format!("free in {} unless renewed", spoken(left)),
                None => "it does not expire".to_owned(),
            };
            return format!("held by {}{}; {ends}", self.who(), self.for_so_long());
        };
        let who = match &self.owner {
            Some(owner) => format!("pid {} on {}", owner.pid, owner.host),
            None => self.who(),
        };
        let until = to_the_second(until);
        format!("taken until {until} (minimum hold; {who} has finished)")
    }
}

/// `exclusive`, `shared` or `permits`, and of these how many of how many.
pub(crate) fn mode_of(mode: Mode) -> (&'static str, Option<u64>, Option<u32>) {
    match mode.capacity() {
        Capacity::Permits(of) => ("permits", Some(mode.weight()), Some(of)),
        Capacity::Lock if mode == Mode::EXCLUSIVE => ("exclusive", None, None),
        Capacity::Lock => ("shared", None, None),
    }
}

impl OwnerView {
    /// `None` where the store does not keep who it is.
    pub fn of(owner: &ClientInfo) -> Option<Self> {
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
        write!(f, "{} (pid {}", self.host, self.pid)?;
        match &self.label {
            None => write!(f, ")"),
            Some(label) => write!(f, ", label {label})"),
        }
    }
}

/// What is done under the key, by whom and since when: `is running on build7 (pid 812) since
/// 2026-01-31T12:00:00Z`, or that it `ran` there.
pub fn ran(claim: &ClaimView) -> String {
    let who = claim.who();
    if claim.kept_until.is_none() {
        return format!("has been running on {who}{}", claim.for_so_long());
    }
    let at = claim.since.map(|at| format!(" at {}", to_the_second(at)));
    // It is the last thing that a job says, and only of a failure.
    let failed = claim.note.as_ref();
    let failed = failed.map(|note| format!(" and failed ({note})"));
    let (at, failed) = (at.unwrap_or_default(), failed.unwrap_or_default());
    format!("ran on {who}{at}{failed}")
}

/// Whether the same claims hold a key, whatever they tell of themselves by now.
pub fn same_holders(now: &[ClaimView], seen: &[ClaimView]) -> bool {
    let is_same = |(now, seen): (&ClaimView, &ClaimView)| {
        (now.token, now.since) == (seen.token, seen.since)
            && (&now.id_hint, &now.owner) == (&seen.id_hint, &seen.owner)
    };
    now.len() == seen.len() && now.iter().zip(seen).all(is_same)
}

/// `held by …`, of several holders the first and how many more.
pub fn held_by(holders: &[ClaimView]) -> Option<String> {
    let (first, more) = holders.split_first()?;
    let first = first.in_full();
    Some(match more.len() {
        0 => first,
        more => format!("{first}, and {more} more"),
    })
}

/// When it began, if the store keeps that.
pub fn known(since: SystemTime) -> Option<Timestamp> {
    (since != SystemTime::UNIX_EPOCH).then(|| time(since))
}

/// A time that can be written; others do not come from a clock.
pub fn time(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or_default()
}

/// RFC 3339, UTC, for people, who do not read microseconds.
pub fn to_the_second(time: Timestamp) -> String {
    format!("{time:.0}")
}

/// A claim that tests show.
#[doc(hidden)]
pub fn example(label: Option<&str>) -> ClaimView {
    let since = SystemTime::UNIX_EPOCH + Duration::from_micros(1_769_860_800_123_456);
    let owner = ClientInfo::new("build7", 812, label);
    let times = (since, since + Duration::from_secs(240));
    let left = Duration::from_millis(12_345);
    ClaimView::new(Mode::EXCLUSIVE, (&owner, ""), times, left)
}

#[cfg(test)]
mod tests {
    use super::example as claim;
    use super::*;

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
        holder.kept = true;
        holder.owner = ClientInfo::unknown();
        holder.since = SystemTime::UNIX_EPOCH;
        holder.expires_in = Duration::MAX;
        holder.token = Token::NONE;
        holder.id_hint = "0f3a".into();
        let view = ClaimView::of_holder(&holder, SystemTime::UNIX_EPOCH);
        assert_eq!(
            held_by(from_ref(&view)).unwrap(),
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
        let view = {
            let never = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH);
            ClaimView::new(mode, (&owner, ""), never, Duration::ZERO)
        };
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
