//! What is shown of an audit entry: the shape that programs read, and the sentence for people.

use std::fmt;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use leasehold::audit::{AuditEvent, AuditRecord, AuditedHold};
use leasehold::core::StoreTime;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::duration::{millis, spoken};
use crate::escape::escape;
use crate::view::{OwnerView, mode_of, time, to_the_second};

/// One entry, as `log --json` writes it. What does not belong to an event is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryView {
    /// When it happened, by the store's clock.
    pub at: Timestamp,
    key: String,
    /// In whose log it is, where each of several servers has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    event: &'static str,
    #[serde(flatten)]
    hold: Option<HoldView>,
    #[serde(flatten, serialize_with = "without_nulls")]
    details: Details,
    /// What happened, without time and key.
    #[serde(skip)]
    sentence: String,
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

/// What an event tells beside the hold.
type Details = Vec<(&'static str, Value)>;

fn without_nulls<S: Serializer>(details: &Details, serializer: S) -> Result<S::Ok, S::Error> {
    let told = details.iter().filter(|(_, value)| !value.is_null());
    serializer.collect_map(told.map(|(name, value)| (name, value)))
}

impl From<&AuditRecord> for EntryView {
    fn from(record: &AuditRecord) -> Self {
        let (event, details, mut sentence) = told(record);
        let hold = record.entry.hold.as_ref();
        if let Some(hold) = hold {
            sentence += &format!(", token {}", hold.token.get());
        }
        let view = |hold: &AuditedHold| {
            let (mode, weight, _) = mode_of(hold.mode);
            HoldView {
                token: hold.token.get(),
                arrival: hold.arrival.0,
                claim: hold.claim.clone(),
                mode,
                weight,
                owner: OwnerView::of(&hold.owner),
            }
        };
        Self {
            at: at(record.entry.at),
            key: record.key.to_string(),
            server: record.server.clone(),
            event,
            hold: hold.map(view),
            details,
            sentence,
        }
    }
}

/// What is told of an event: its name, its details, and the sentence.
fn told(record: &AuditRecord) -> (&'static str, Details, String) {
    let entry = &record.entry;
    let owner = entry.hold.as_ref().map(who).unwrap_or_default();
    // Of a hold that was granted behind another of its client: from the grant on, and so longer
    // than it was held.
    let held = |since: &StoreTime| ("held_ms", json!(millis(entry.at.since(*since))));
    let after = |since: &StoreTime| format!(" after {}", spoken(entry.at.since(*since)));
    let kept = |until: &Option<StoreTime>| ("kept_until", json!(until.map(at)));
    let stays = |until: &Option<StoreTime>| {
        let until = until.map(|until| to_the_second(at(until)));
        let stays = until.map(|until| format!(", stays taken until {until} (minimum hold)"));
        stays.unwrap_or_default()
    };
    match &entry.event {
        AuditEvent::Granted { asked, behind } => {
            let waited = entry.at.since(*asked);
            let waiting = match millis(waited) {
                0 => "at once".to_owned(),
                _ => format!("after waiting {}", spoken(waited)),
            };
            let other = behind.map_or("", |_| ", behind another claim of the same client");
            // The arrival of the claim of the same client that it is granted behind.
            let behind = ("behind", json!(behind.map(|arrival| arrival.0)));
            let details = vec![("waited_ms", json!(millis(waited))), behind];
            let sentence = format!("granted to {owner} {waiting}{other}");
            ("granted", details, sentence)
        }
        AuditEvent::Released { since, kept_until } => {
            let sentence = format!("released by {owner}{}{}", after(since), stays(kept_until));
            ("released", vec![held(since), kept(kept_until)], sentence)
        }
        AuditEvent::Died { since, kept_until } => {
            let (after, stays) = (after(since), stays(kept_until));
            let sentence = format!("ended{after}: {owner} has died{stays}");
            ("died", vec![held(since), kept(kept_until)], sentence)
        }
        AuditEvent::Expired {
            since,
            deadline,
            found_by,
        } => {
            let (had, late) = (deadline.since(*since), entry.at.since(*deadline));
            let found_by = Some(found_by).filter(|by| !by.is_empty());
            let details = vec![
                ("held_ms", json!(millis(had))),
                ("expired_at", json!(at(*deadline))),
                ("found_by", json!(found_by)),
            ];
            let (had, late) = (spoken(had), spoken(late));
            let sentence = format!("expired: {owner} had it for {had}, found {late} later");
            ("expired", details, sentence)
        }
        AuditEvent::Broken { since, by } => {
            let by = OwnerView::of(by);
            let name = by.as_ref().map(ToString::to_string);
            let name = name.unwrap_or_else(|| "somebody".to_owned());
            let sentence = format!("taken from {owner}{} by {name}", after(since));
            ("broken", vec![held(since), ("by", json!(by))], sentence)
        }
        _ => told_of_change(record, &owner),
    }
}

/// As [`told`], of what neither begins nor ends a hold.
fn told_of_change(record: &AuditRecord, owner: &str) -> (&'static str, Details, String) {
    let (name, details, sentence) = match &record.entry.event {
        AuditEvent::Returned => {
            let sentence = match record.server {
                Some(_) => format!("vote taken back by {owner}, which has no quorum"),
                None => format!("grant taken back from {owner}, which waits in its place again"),
            };
            return ("returned", vec![], sentence);
        }
        AuditEvent::Adopted { former } => {
            let former = ("former_token", json!(former.get()));
            ("adopted", vec![former], "taken over by")
        }
        AuditEvent::Rotated { former } => {
            let former = ("former_claim", json!(former));
            ("rotated", vec![former], "new claim id for")
        }
        AuditEvent::Downgraded => ("downgraded", vec![], "held as a reader by"),
        AuditEvent::Resized { from, to } => {
            let details = vec![("permits_before", json!(from)), ("permits", json!(to))];
            let sentence = format!("resized from {from} to {to} permits");
            return ("resized", details, sentence);
        }
        _ => ("unknown", vec![], "unknown:"),
    };
    (name, details, format!("{sentence} {owner}"))
}

fn at(at: StoreTime) -> Timestamp {
    time(SystemTime::UNIX_EPOCH + Duration::from_micros(at.0))
}

fn who(hold: &AuditedHold) -> String {
    let owner = OwnerView::of(&hold.owner).map(|owner| owner.to_string());
    owner.unwrap_or_else(|| format!("the claim {}", hold.claim))
}

impl EntryView {
    /// Whether it is about this owner: its label, its host, its process id, or `host:pid`.
    pub fn is_of(&self, owner: &str) -> bool {
        let of_hold = self.hold.as_ref().and_then(|hold| hold.owner.as_ref());
        of_hold.is_some_and(|of| {
            let OwnerView { host, pid, .. } = of;
            of.label.as_deref() == Some(owner)
                || host == owner
                || pid.to_string() == owner
                || format!("{host}:{pid}") == owner
        })
    }

    /// What happened and when, of a key that is known: `2026-01-31T12:00:00.123Z  granted to …`.
    pub fn without_key(&self) -> String {
        format!("{}  {}", self.place(), escape(&self.sentence))
    }

    /// When it happened, and in whose log it is.
    fn place(&self) -> String {
        match &self.server {
            Some(server) => format!("{:.3}  {}", self.at, escape(server)),
            None => format!("{:.3}", self.at),
        }
    }
}

impl fmt::Display for EntryView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, sentence) = (escape(&self.key), escape(&self.sentence));
        write!(f, "{}  {key}  {sentence}", self.place())
    }
}

#[cfg(test)]
pub(crate) mod tests;
