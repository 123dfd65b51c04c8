//! What is shown of an audit entry: the shape that programs read, and the sentence for people.

use std::fmt;
use std::time::{Duration, SystemTime};

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use leasehold::audit::{AuditEvent, AuditRecord, AuditedHold};
use leasehold::core::StoreTime;
use leasehold::{Capacity, Mode};
use serde::Serialize;

use crate::duration::{millis, spoken};
use crate::output::escape;
use crate::view::{OwnerView, to_the_second};

/// One entry, as `log --json` writes it. What does not belong to an event is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct EntryView {
    pub(crate) at: Timestamp,
    key: String,
    /// Where each of several servers has a log.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    event: &'static str,
    #[serde(flatten)]
    hold: Option<HoldView>,
    #[serde(flatten)]
    details: Details,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct HoldView {
    token: u64,
    arrival: u64,
    claim: String,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u64>,
    /// Null where the client has not said who it is.
    owner: Option<OwnerView>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct Details {
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    /// Of a hold that was granted behind another of its client: from the grant on, and so longer
    /// than it was held.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_ms: Option<u64>,
    /// The arrival of the claim of the same client that it is granted behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    behind: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expired_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    found_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<OwnerView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    former_token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    former_claim: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits_before: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
}

fn time(at: StoreTime) -> Timestamp {
    let time = SystemTime::UNIX_EPOCH + Duration::from_micros(at.0);
    Timestamp::try_from(time).unwrap_or_default()
}

impl From<&AuditRecord> for EntryView {
    fn from(record: &AuditRecord) -> Self {
        let at = record.entry.at;
        let since = |since: StoreTime| Some(millis(at.since(since)));
        let mut details = Details::default();
        let event = match &record.entry.event {
            AuditEvent::Granted { asked, behind } => {
                details.waited_ms = since(*asked);
                details.behind = behind.map(|arrival| arrival.0);
                "granted"
            }
            AuditEvent::Released {
                since: from,
                kept_until,
            } => {
                details.held_ms = since(*from);
                details.kept_until = kept_until.map(time);
                "released"
            }
            AuditEvent::Expired {
                since: from,
                deadline,
                found_by,
            } => {
                details.held_ms = Some(millis(deadline.since(*from)));
                details.expired_at = Some(time(*deadline));
                details.found_by = Some(found_by.clone()).filter(|by| !by.is_empty());
                "expired"
            }
            AuditEvent::Died {
                since: from,
                kept_until,
            } => {
                details.held_ms = since(*from);
                details.kept_until = kept_until.map(time);
                "died"
            }
            AuditEvent::Broken { since: from, by } => {
                details.held_ms = since(*from);
                details.by = OwnerView::of(by);
                "broken"
            }
            AuditEvent::Returned => "returned",
            AuditEvent::Adopted { former } => {
                details.former_token = Some(former.get());
                "adopted"
            }
            AuditEvent::Rotated { former } => {
                details.former_claim = Some(former.clone());
                "rotated"
            }
            AuditEvent::Downgraded => "downgraded",
            AuditEvent::Resized { from, to } => {
                (details.permits_before, details.permits) = (Some(*from), Some(*to));
                "resized"
            }
            _ => "unknown",
        };
        Self {
            at: time(at),
            key: record.key.to_string(),
            server: record.server.clone(),
            event,
            hold: record.entry.hold.as_ref().map(HoldView::from),
            details,
        }
    }
}

impl From<&AuditedHold> for HoldView {
    fn from(hold: &AuditedHold) -> Self {
        let (mode, weight) = match hold.mode.capacity() {
            Capacity::Permits(_) => ("permits", Some(hold.mode.weight())),
            Capacity::Lock if hold.mode == Mode::EXCLUSIVE => ("exclusive", None),
            Capacity::Lock => ("shared", None),
        };
        Self {
            token: hold.token.get(),
            arrival: hold.arrival.0,
            claim: hold.claim.clone(),
            mode,
            weight,
            owner: OwnerView::of(&hold.owner),
        }
    }
}

impl EntryView {
    /// Whether it is about this owner: its label, its host, its process id, or `host:pid`.
    pub(crate) fn is_of(&self, owner: &str) -> bool {
        let view = self.hold.as_ref().and_then(|hold| hold.owner.as_ref());
        view.is_some_and(
            |OwnerView {
                 host, pid, label, ..
             }| {
                label.as_deref() == Some(owner)
                    || host == owner
                    || pid.to_string() == owner
                    || format!("{host}:{pid}") == owner
            },
        )
    }

    /// `2026-01-31T12:00:00.123Z`.
    fn at(&self) -> String {
        let rounding = TimestampRound::new()
            .smallest(Unit::Millisecond)
            .mode(RoundMode::Floor);
        let at = self.at.round(rounding).unwrap_or(self.at);
        format!("{at:.3}")
    }

    /// What happened and when, of a key that is known.
    pub(crate) fn without_key(&self) -> String {
        format!(
            "{}{}  {}",
            self.at(),
            self.of_server(),
            escape(&self.sentence())
        )
    }

    /// In whose log it is, where that is to be said.
    fn of_server(&self) -> String {
        let server = self.server.iter();
        server
            .map(|server| format!("  {}", escape(server)))
            .collect()
    }

    /// What happened, without time and key.
    fn sentence(&self) -> String {
        let details = &self.details;
        let for_so_long = |word, time: Option<u64>| match time {
            Some(time) => format!(" {word} {}", spoken(Duration::from_millis(time))),
            None => String::new(),
        };
        let held = for_so_long("after", details.held_ms);
        let kept = details.kept_until.map_or_else(String::new, |until| {
            format!(
                ", stays taken until {} (minimum hold)",
                to_the_second(until)
            )
        });
        let Some(hold) = &self.hold else {
            let permits = |permits: Option<u32>| permits.unwrap_or_default();
            return format!(
                "resized from {} to {} permits",
                permits(details.permits_before),
                permits(details.permits)
            );
        };
        let owner = hold.owner.as_ref().map(ToString::to_string);
        let owner = owner.unwrap_or_else(|| format!("the claim {}", hold.claim));
        let event = match self.event {
            "granted" => {
                let waited = match details.waited_ms {
                    None | Some(0) => " at once".to_owned(),
                    waited => for_so_long("after waiting", waited),
                };
                let behind = match details.behind {
                    Some(_) => ", behind another claim of the same client",
                    None => "",
                };
                format!("granted to {owner}{waited}{behind}")
            }
            "released" => format!("released by {owner}{held}{kept}"),
            "expired" => {
                let late = details.expired_at.map(|at| self.at.duration_since(at));
                let late = late.and_then(|late| Duration::try_from(late).ok());
                let late = spoken(late.unwrap_or_default());
                format!(
                    "expired: {owner} had it{}, found {late} later",
                    for_so_long("for", details.held_ms)
                )
            }
            "died" => format!("ended{held}: {owner} has died{kept}"),
            "broken" => {
                let by = details.by.as_ref().map(ToString::to_string);
                let by = by.unwrap_or_else(|| "somebody".to_owned());
                format!("taken from {owner}{held} by {by}")
            }
            "returned" => match self.server {
                Some(_) => format!("vote taken back by {owner}, which has no quorum"),
                None => format!("grant taken back from {owner}, which waits in its place again"),
            },
            "adopted" => format!("taken over by {owner}"),
            "rotated" => format!("new claim id for {owner}"),
            "downgraded" => format!("held as a reader by {owner}"),
            other => format!("{other}: {owner}"),
        };
        format!("{event}, token {}", hold.token)
    }
}

impl fmt::Display for EntryView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, key) = (self.at(), escape(&self.key));
        write!(
            f,
            "{at}{}  {key}  {}",
            self.of_server(),
            escape(&self.sentence())
        )
    }
}

#[cfg(test)]
pub(crate) mod tests;
