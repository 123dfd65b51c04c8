//! Contract cases of the audit log.

use std::time::Duration;

use leasehold_core::AuditEvent::{self, Broken, Expired, Granted, Released};
use leasehold_core::{ClientInfo, Key, StoreTime};

use super::actor::{Actor, brief};
use super::{Fixture, PUSH_LIMIT};
use crate::{AuditLog, AuditRecord, LockStore};

/// Reads a log of a key or of all; where each of several servers has one, that of a single server.
struct Reader<'a> {
    log: Box<dyn AuditLog + 'a>,
    meant: (Option<&'a Key>, StoreTime),
    server: Option<String>,
}

impl<'a> Reader<'a> {
    fn new(
        store: &'a dyn LockStore,
        meant: (Option<&'a Key>, StoreTime),
        server: Option<String>,
    ) -> Option<Self> {
        let log = store.audit_log(meant.0, meant.1);
        log.map(|log| Self { log, meant, server })
    }

    async fn read(&mut self) -> Vec<AuditRecord> {
        let mut records = Vec::new();
        loop {
            let page = self.log.next_page().await.expect("a page of the log");
            if page.is_empty() {
                return records;
            }
            for record in page {
                self.server = self.server.take().or_else(|| record.server.clone());
                if record.server == self.server && record.is_for(self.meant.0, self.meant.1) {
                    records.push(record);
                }
            }
        }
    }

    /// So many entries at least, and all that it gave before: a server may still have to take the
    /// last step, and who follows a cluster does not look for new logs all the time.
    async fn read_until(&mut self, records: &mut Vec<AuditRecord>, count: usize) {
        let more = async {
            while records.len() < count {
                records.extend(self.read().await);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let more = tokio::time::timeout(PUSH_LIMIT, more).await;
        more.expect("more entries");
    }

    async fn read_more(&mut self, count: usize) -> Vec<AuditRecord> {
        let mut records = Vec::new();
        self.read_until(&mut records, count).await;
        records
    }
}

/// The log contains each grant and its end: released, broken or expired, by whom and after how
/// long.
pub async fn audit_says_who_held_and_how_it_ended(fixture: &dyn Fixture) {
    let a = Actor::of(fixture.audited().await).await;
    let b = Actor::of(fixture.audited().await).await;
    let (elsewhere, queues) = (a.at("other"), a.can().queueing);
    let Some(mut log) = Reader::new(&*a.store, (Some(&a.key), StoreTime(0)), None) else {
        return;
    };
    let first = a.granted(1).await;
    elsewhere.granted(brief(1, fixture)).await;
    let waiting = b.waits_in_queue(2).await;
    a.release(1).await;
    // Of several servers the one that is read may be the last to take a step: a claim of another
    // client must not come before it there.
    let mut records = log.read_more(2).await;
    let second = b.granted(2).await;
    assert_eq!(second.0, waiting.unwrap_or(second.0));
    log.read_until(&mut records, 3).await;
    a.breaks(None).await;
    let third = a.granted(brief(3, fixture)).await;
    log.read_until(&mut records, 5).await;
    fixture.pass(2 * fixture.short()).await;
    let fourth = b.granted(4).await;
    b.at("other").granted(1_000).await;

    log.read_until(&mut records, 7).await;
    let all = Reader::new(&*a.store, (None, StoreTime(0)), log.server.clone());
    let all = all.expect("the log of all keys").read_more(10).await;
    assert!(!format!("{all:?}").contains(a.want(1).id.expose()));
    let others = || all.iter().filter(|record| record.key != a.key);
    assert_eq!(all.len(), records.len() + others().count());
    // Nobody waited for the other key, and it is noted all the same.
    let others: Vec<_> = others().map(|record| &record.entry.event).collect();
    let as_noted = matches!(others[..], [Granted { .. }, Expired { .. }, Granted { .. }]);
    assert!(as_noted, "{others:?}");

    let who = ClientInfo::new("host", 7, Some("case"));
    let (mut at, mut holds, mut events) = (Vec::new(), Vec::new(), Vec::new());
    for AuditRecord { key, entry, .. } in records {
        let hold = entry.hold.expect("a hold");
        assert_eq!((&key, &hold.owner), (&a.key, &who));
        at.push(entry.at);
        holds.push((hold.arrival, hold.token));
        events.push(entry.event);
    }
    assert!(at.is_sorted(), "{at:?}");
    assert_eq!(holds, [first, first, second, second, third, third, fourth]);
    assert!(!queues || at[2] == at[1], "handed on in the same step");
    let waited_since = match events[2] {
        Granted { asked, .. } if asked <= at[2] => asked,
        _ => panic!("{events:?}"),
    };
    let found_by = b.want(4).id.to_string();
    assert_eq!(events, ends(&at, waited_since, fixture.short(), found_by));
}

/// Released, broken, expired, and granted again each time.
fn ends(at: &[StoreTime], waited: StoreTime, ttl: Duration, found_by: String) -> [AuditEvent; 7] {
    let granted = |asked| {
        let behind = None;
        Granted { asked, behind }
    };
    let [first, second, third] = [at[0], at[2], at[4]];
    [
        granted(first),
        Released {
            since: first,
            kept_until: None,
        },
        granted(waited),
        Broken {
            since: second,
            by: ClientInfo::new("ops", 1, None),
        },
        granted(third),
        Expired {
            since: third,
            deadline: third + ttl,
            found_by,
        },
        granted(at[6]),
    ]
}

/// A reader that has read all entries reads later ones, and can start from a given time.
pub async fn audit_log_is_followed(fixture: &dyn Fixture) {
    let a = Actor::of(fixture.audited().await).await;
    let Some(mut log) = Reader::new(&*a.store, (None, StoreTime(0)), None) else {
        return;
    };
    assert_eq!(log.read().await, []);
    a.granted(1).await;
    let granted = log.read_more(1).await;
    assert_eq!(granted.len(), 1, "{granted:?}");
    assert_eq!(log.read().await, []);
    fixture.pass(Duration::from_millis(2)).await;
    a.release(1).await;
    let released = log.read_more(1).await;
    assert_eq!(released.len(), 1, "{released:?}");
    let since = released[0].entry.at;
    let later = Reader::new(&*a.store, (Some(&a.key), since), log.server.clone());
    assert_eq!(later.expect("the log").read().await, released);
}
