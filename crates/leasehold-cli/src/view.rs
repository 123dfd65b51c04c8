//! What is shown of a key: the shape that programs read, and the words for people.

use std::time::{Duration, SystemTime};

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use leasehold::core::{Mode, Owner};
use leasehold::{HolderInfo, Inspection, Kind, WaiterInfo};
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
    pub(crate) at: String,
    pub(crate) holders: Vec<ClaimView>,
    pub(crate) waiters: Vec<ClaimView>,
}

/// A holder, with its token, or a waiter, with its position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ClaimView {
    pub(crate) mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<u32>,
    pub(crate) owner: OwnerView,
    pub(crate) since: String,
    pub(crate) expires_in_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) position: Option<u64>,
}

/// Who asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct OwnerView {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) label: Option<String>,
}

impl From<&Inspection> for KeyView {
    fn from(seen: &Inspection) -> Self {
        let (kind, permits) = match seen.kind {
            Kind::Semaphore { permits } => ("semaphore", Some(permits)),
            _ => ("lock", None),
        };
        Self {
            key: seen.key.to_string(),
            kind,
            permits,
            last_token: seen.last_token.get(),
            at: time(seen.at),
            holders: seen.holders.iter().map(ClaimView::from).collect(),
            waiters: seen.waiters.iter().map(ClaimView::from).collect(),
        }
    }
}

impl From<&HolderInfo> for ClaimView {
    fn from(holder: &HolderInfo) -> Self {
        let view = Self::new(holder.mode, &holder.owner, holder.since, holder.expires_in);
        Self {
            token: Some(holder.token.get()),
            ..view
        }
    }
}

impl From<&WaiterInfo> for ClaimView {
    fn from(waiter: &WaiterInfo) -> Self {
        let view = Self::new(waiter.mode, &waiter.owner, waiter.since, waiter.expires_in);
        Self {
            position: Some(waiter.position),
            ..view
        }
    }
}

impl ClaimView {
    fn new(mode: Mode, owner: &Owner, since: SystemTime, expires_in: Duration) -> Self {
        let (mode, weight) = match mode {
            Mode::Exclusive => ("exclusive", None),
            Mode::Shared => ("shared", None),
            Mode::Permits { take, .. } => ("permits", Some(take)),
        };
        Self {
            mode,
            weight,
            owner: OwnerView {
                host: owner.host.clone(),
                pid: owner.pid,
                label: owner.label.clone(),
            },
            since: time(since),
            expires_in_ms: millis(expires_in),
            token: None,
            position: None,
        }
    }

    /// `exclusive`, `shared`, `2 permits`.
    pub(crate) fn mode(&self) -> String {
        match self.weight {
            None => self.mode.to_owned(),
            Some(1) => "1 permit".to_owned(),
            Some(weight) => format!("{weight} permits"),
        }
    }

    /// When it expires, counted from when it was asked.
    pub(crate) fn expires_in(&self) -> Duration {
        Duration::from_millis(self.expires_in_ms)
    }

    /// `build7 (pid 812, label deploy)`.
    pub(crate) fn who(&self) -> String {
        let OwnerView { host, pid, label } = &self.owner;
        match label {
            None => format!("{host} (pid {pid})"),
            Some(label) => format!("{host} (pid {pid}, label {label})"),
        }
    }

    /// `build7 (pid 812, label deploy) since 2026-01-31T12:00:00Z, expires in 12 s`.
    fn in_full(&self) -> String {
        let (who, since) = (self.who(), to_the_second(&self.since));
        format!(
            "{who} since {since}, expires in {}",
            spoken(self.expires_in())
        )
    }
}

/// `held by …`, of several holders the first and how many more.
pub(crate) fn held_by(holders: &[ClaimView]) -> Option<String> {
    let (first, more) = holders.split_first()?;
    let first = first.in_full();
    Some(match more.len() {
        0 => format!("held by {first}"),
        1 => format!("held by {first}, and 1 more"),
        more => format!("held by {first}, and {more} more"),
    })
}

/// RFC 3339, UTC.
fn time(time: SystemTime) -> String {
    // Times outside of the years that can be written do not come from a clock.
    Timestamp::try_from(time).unwrap_or_default().to_string()
}

/// The same time for people, who do not read microseconds.
pub(crate) fn to_the_second(time: &str) -> String {
    let rounding = TimestampRound::new()
        .smallest(Unit::Second)
        .mode(RoundMode::Floor);
    let rounded = time
        .parse::<Timestamp>()
        .and_then(|time| time.round(rounding));
    rounded.map_or_else(|_| time.to_owned(), |time| time.to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn claim(label: Option<&str>) -> ClaimView {
        let owner = Owner::new("build7", 812, label);
        let since = SystemTime::UNIX_EPOCH + Duration::from_micros(1_769_860_800_123_456);
        ClaimView::new(
            Mode::Exclusive,
            &owner,
            since,
            Duration::from_millis(12_345),
        )
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

    #[test]
    fn permits_have_their_weight() {
        let owner = Owner::new("h", 1, None);
        let mode = Mode::Permits { of: 3, take: 2 };
        let view = ClaimView::new(mode, &owner, SystemTime::UNIX_EPOCH, Duration::ZERO);
        assert_eq!(
            (view.mode, view.weight, view.mode()),
            ("permits", Some(2), "2 permits".into())
        );
    }

    #[test]
    fn holders_in_words() {
        let one = "held by build7 (pid 812, label deploy) since 2026-01-31T12:00:00Z, \
                   expires in 12 s";
        let holders = [claim(Some("deploy")), claim(None), claim(None)];
        assert_eq!(held_by(&holders[..0]), None);
        assert_eq!(held_by(&holders[..1]).unwrap(), one);
        assert_eq!(
            held_by(&holders[..2]).unwrap(),
            format!("{one}, and 1 more")
        );
        assert_eq!(held_by(&holders).unwrap(), format!("{one}, and 2 more"));
        assert_eq!(holders[1].who(), "build7 (pid 812)");
    }
}
