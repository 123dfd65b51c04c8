use leasehold::audit::AuditEntry;
use leasehold::core::{Arrival, Key, Token};
use leasehold::{ClientInfo, Mode};

use super::*;

const AT: StoreTime = StoreTime(1_769_860_800_123_456);

fn before(millis: u64) -> StoreTime {
    AT.before(Duration::from_millis(millis))
}

fn record(event: AuditEvent) -> AuditRecord {
    let (token, arrival) = (Token::from(7), Arrival(9));
    let (claim, owner) = (
        "1a2b3c…".to_owned(),
        ClientInfo::new("build7", 812, Some("deploy")),
    );
    let hold = AuditedHold::new(token, arrival, claim, Mode::EXCLUSIVE, owner);
    let resized = matches!(event, AuditEvent::Resized { .. });
    let entry = AuditEntry::new(AT, event, (!resized).then_some(hold));
    AuditRecord::new(Key::new("orders/42").unwrap(), entry)
}

/// Some entries, for what shows them.
pub(crate) fn entries() -> Vec<EntryView> {
    let granted = || AuditEvent::Granted {
        asked: AT,
        behind: None,
    };
    let records = [record(granted()), record(AuditEvent::Returned)];
    records.iter().map(EntryView::from).collect()
}

fn expired() -> AuditEvent {
    AuditEvent::Expired {
        since: before(32_000),
        deadline: before(2_000),
        found_by: "9f9f9f…".to_owned(),
    }
}

#[test]
fn sentences() {
    let kept_until = Some(AT + Duration::from_secs(60));
    let granted = |asked, behind| AuditEvent::Granted { asked, behind };
    let released = |millis, kept_until| AuditEvent::Released {
        since: before(millis),
        kept_until,
    };
    let (since, by) = (before(1_000), ClientInfo::new("ops1", 3, None));
    let died = AuditEvent::Died {
        since,
        kept_until: None,
    };
    let former = Token::from(6);
    let rotated = AuditEvent::Rotated {
        former: "0…".to_owned(),
    };
    let events = [
        granted(AT, None),
        granted(before(3_200), Some(Arrival(8))),
        released(250_000, None),
        released(100, kept_until),
        expired(),
        died,
        AuditEvent::Broken { since, by },
        AuditEvent::Returned,
        AuditEvent::Adopted { former },
        rotated,
        AuditEvent::Downgraded,
        AuditEvent::Resized { from: 3, to: 5 },
    ];
    let shown = events.map(|event| EntryView::from(&record(event)).to_string());
    let expected = SENTENCES
        .trim()
        .replace("WHO", "build7 (pid 812, label deploy)");
    assert_eq!(shown.len(), expected.lines().count());
    for (shown, says) in shown.iter().zip(expected.lines()) {
        let says = says.trim();
        assert_eq!(
            *shown,
            format!("2026-01-31T12:00:00.123Z  orders/42  {says}")
        );
    }
}

const SENTENCES: &str = "
    granted to WHO at once, token 7
    granted to WHO after waiting 3.2 s, behind another claim of the same client, token 7
    released by WHO after 4 min 10 s, token 7
    released by WHO after 100 ms, stays taken until 2026-01-31T12:01:00Z (minimum hold), token 7
    expired: WHO had it for 30 s, found 2.0 s later, token 7
    ended after 1.0 s: WHO has died, token 7
    taken from WHO after 1.0 s by ops1 (pid 3), token 7
    grant taken back from WHO, which waits in its place again, token 7
    taken over by WHO, token 7
    new claim id for WHO, token 7
    held as a reader by WHO, token 7
    resized from 3 to 5 permits
";

#[test]
fn an_entry_in_json() {
    assert_eq!(
        serde_json::to_string(&EntryView::from(&record(expired()))).unwrap(),
        r#"{"at":"2026-01-31T12:00:00.123456Z","key":"orders/42","event":"expired","token":7,"arrival":9,"claim":"1a2b3c…","mode":"exclusive","owner":{"host":"build7","pid":812,"label":"deploy"},"held_ms":30000,"expired_at":"2026-01-31T11:59:58.123456Z","found_by":"9f9f9f…"}"#
    );
}

#[test]
fn an_entry_of_a_set_names_its_server() {
    let mut record = record(AuditEvent::Returned);
    record.server = Some("db1:6379".to_owned());
    let entry = EntryView::from(&record);
    let said = "vote taken back by build7 (pid 812, label deploy), which has no quorum, token 7";
    let place = "2026-01-31T12:00:00.123Z  db1:6379";
    assert_eq!(entry.to_string(), format!("{place}  orders/42  {said}"));
    assert_eq!(entry.without_key(), format!("{place}  {said}"));
    assert_eq!(serde_json::to_value(&entry).unwrap()["server"], "db1:6379");
}

#[test]
fn owners_are_found_by_label_host_and_process() {
    let entry = EntryView::from(&record(AuditEvent::Returned));
    for owner in ["deploy", "build7", "812", "build7:812"] {
        assert!(entry.is_of(owner), "{owner}");
    }
    for other in ["dep", "build", "81", "build7:81", "x"] {
        assert!(!entry.is_of(other), "{other}");
    }
    assert!(!EntryView::from(&record(AuditEvent::Resized { from: 1, to: 2 })).is_of("deploy"));
}
