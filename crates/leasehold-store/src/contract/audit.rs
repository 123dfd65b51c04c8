//! Contract cases of the audit log.

use std::time::Duration;

use crate::{AuditLog, AuditRecord, Verbs as _};
use leasehold_core::{AuditEvent, ClientInfo, StoreTime};

use super::actor::{Actor, key};
use super::{Fixture, PUSH_LIMIT};

async fn read(log: &mut Box<dyn AuditLog + '_>) -> Vec<AuditRecord> {
    let mut records = Vec::new();
    loop {
        let page = log.next_page().await.expect("a page of the log");
        if page.is_empty() {
            return records;
        }
        records.extend(page);
    }
}

/// Who follows a cluster does not look for new logs all the time.
async fn read_more(log: &mut Box<dyn AuditLog + '_>) -> Vec<AuditRecord> {
    let more = async {
        loop {
            let records = read(log).await;
            if !records.is_empty() {
                return records;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let more = tokio::time::timeout(PUSH_LIMIT, more).await;
    more.expect("more entries")
}

/// The log contains each grant and its end: released, broken or expired, by whom and after how
/// long.
pub async fn audit_says_who_held_and_how_it_ended(fixture: &dyn Fixture) {
    let (a, b) = (Actor::audited(fixture).await, Actor::audited(fixture).await);
    let (k, other) = (key("k"), key("other"));
    let Some(mut log) = a.store.audit_log(Some(&k), StoreTime(0)) else {
        return;
    };
    let who = ClientInfo::new("host", 7, Some("case"));
    let (first, one) = a.granted(&k, &a.want(1)).await;
    let mut brief = a.want(1);
    brief.lease_ttl = fixture.short();
    a.granted(&other, &brief).await;
    let queues = a.store.capabilities().queueing;
    let mut waiting = None;
    if queues {
        waiting = Some(b.waiting(&k, &b.want(2)).await);
    }
    a.release(&k, &a.want(1)).await;
    let (second, two) = b.granted(&k, &b.want(2)).await;
    assert_eq!(second, waiting.map_or(second, |waiting| waiting.arrival));
    let by = ClientInfo::new("ops", 1, None);
    a.store.break_key(&k, &by).await.expect("an answer");
    let mut short = a.want(3);
    short.lease_ttl = fixture.short();
    let (third, three) = a.granted(&k, &short).await;
    fixture.pass(2 * fixture.short()).await;
    let (fourth, four) = b.granted(&k, &b.want(4)).await;
    b.granted(&other, &b.want(1_000)).await;

    let records = read(&mut log).await;
    let all = a.store.audit_log(None, StoreTime(0));
    let all = read(&mut all.expect("the log of all keys")).await;
    let elsewhere = all.iter().filter(|record| record.key == other);
    let events: Vec<_> = elsewhere.map(|record| &record.entry.event).collect();
    // Nobody waited for it, and it is noted all the same.
    assert!(
        matches!(
            events[..],
            [
                AuditEvent::Granted { .. },
                AuditEvent::Expired { .. },
                AuditEvent::Granted { .. }
            ]
        ),
        "{events:?}"
    );
    assert_eq!(all.len(), records.len() + events.len());
    assert!(!format!("{all:?}").contains(a.want(1).id.expose()));
    let mut last = StoreTime(0);
    let mut said = Vec::new();
    for AuditRecord { key, entry } in records {
        let hold = entry.hold.expect("a hold");
        assert_eq!((key, &hold.owner), (k.clone(), &who));
        assert!(entry.at >= last, "in order");
        last = entry.at;
        said.push((hold.arrival, hold.token, entry.at, entry.event));
    }
    let [granted, released, next, broken, again, expired, at_last] = &said[..] else {
        panic!("{said:?}");
    };
    let holds = [granted, released, next, broken, again, expired, at_last];
    let wanted = [
        (first, one),
        (first, one),
        (second, two),
        (second, two),
        (third, three),
        (third, three),
        (fourth, four),
    ];
    assert_eq!(holds.map(|said| (said.0, said.1)), wanted);
    let at_once = |at| AuditEvent::Granted {
        asked: at,
        behind: None,
    };
    assert_eq!(granted.3, at_once(granted.2));
    let (since, kept_until) = (granted.2, None);
    assert_eq!(released.3, AuditEvent::Released { since, kept_until });
    assert!(
        matches!(next.3, AuditEvent::Granted { asked, behind: None } if asked <= next.2),
        "{next:?}"
    );
    if queues {
        assert_eq!(next.2, released.2, "in the same step");
    }
    assert_eq!(broken.3, AuditEvent::Broken { since: next.2, by });
    assert_eq!(again.3, at_once(again.2));
    let found_by = b.want(4).id.to_string();
    let expired_as = AuditEvent::Expired {
        since: again.2,
        deadline: again.2 + fixture.short(),
        found_by,
    };
    assert_eq!(expired.3, expired_as);
    assert_eq!(at_last.3, at_once(at_last.2));
}

/// A reader that has read all entries reads later ones, and can start from a given time.
pub async fn audit_log_is_followed(fixture: &dyn Fixture) {
    let a = Actor::audited(fixture).await;
    let k = key("k");
    let Some(mut log) = a.store.audit_log(None, StoreTime(0)) else {
        return;
    };
    assert_eq!(read(&mut log).await, []);
    a.granted(&k, &a.want(1)).await;
    let granted = read_more(&mut log).await;
    assert_eq!(granted.len(), 1, "{granted:?}");
    assert_eq!(read(&mut log).await, []);
    fixture.pass(Duration::from_millis(2)).await;
    a.release(&k, &a.want(1)).await;
    let released = read_more(&mut log).await;
    assert_eq!(released.len(), 1, "{released:?}");
    let since = released[0].entry.at;
    let later = a.store.audit_log(Some(&k), since);
    assert_eq!(read(&mut later.expect("the log")).await, released);
}
