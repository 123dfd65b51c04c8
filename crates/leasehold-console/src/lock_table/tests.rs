use std::sync::LazyLock;

use super::*;
use crate::view::example as claim;

/// So many seconds from the start.
pub(crate) fn at(seconds: u64) -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START + Duration::from_secs(seconds)
}

/// A lock that build7 holds for a minute with a lease of 30 s, and so many that wait for it.
pub(crate) fn held(key: &str, token: u64, waiting: u64) -> KeyView {
    let claim = |label| ClaimView {
        expires_in_ms: Some(30_000),
        since: Some("2026-01-31T12:00:00Z".parse().unwrap()),
        age: Some(Duration::from_secs(60)),
        ..claim(label)
    };
    let waiter = |position| ClaimView {
        position: Some(position),
        ..claim(None)
    };
    KeyView {
        key: key.to_owned(),
        kind: "lock",
        permits: None,
        last_token: token,
        at: "2026-01-31T12:01:00Z".parse().unwrap(),
        holders: vec![ClaimView {
            token: Some(token),
            ..claim(Some("deploy"))
        }],
        waiters: (1..=waiting).map(waiter).collect(),
    }
}

/// The same without a label, taken in that second of the minute.
pub(crate) fn held_since(key: &str, second: u64, waiting: u64) -> KeyView {
    let mut view = held(key, 7, waiting);
    let since = format!("2026-01-31T12:00:{second:02}Z").parse().unwrap();
    for claim in view.holders.iter_mut().chain(&mut view.waiters) {
        (claim.since, claim.token) = (Some(since), None);
        claim.owner.as_mut().unwrap().label = None;
    }
    view
}

pub(crate) fn free(key: &str) -> KeyView {
    KeyView {
        holders: vec![],
        ..held(key, 7, 0)
    }
}

/// A whole pass.
pub(crate) fn pass(locks: Vec<KeyView>) -> [Update; 4] {
    let page = Update::Page(locks, vec![]);
    [Update::Asked, Update::Began, page, Update::Ended]
}

/// A table as after a pass.
pub(crate) fn table(locks: Vec<KeyView>) -> LockTable {
    let mut table = LockTable::of_at_most(1000);
    take_all(&mut table, pass(locks), at(0));
    table
}

fn take_all(table: &mut LockTable, updates: impl IntoIterator<Item = Update>, now: Instant) {
    for update in updates {
        table.take(update, now);
    }
}

fn keys(table: &LockTable, sort: SortBy) -> Vec<&str> {
    let sorted = table.sorted(sort, at(9), |_| true);
    sorted.iter().map(|lock| &*lock.view.key).collect()
}

#[test]
fn a_lock_with_very_many_claims_is_counted_and_shortened() {
    let mut many = held("k", 1, 1234);
    many.holders = many.waiters.clone();
    let table = table(vec![many]);
    let kept = table.lock("k").unwrap();
    assert_eq!(
        (kept.view.holders.len(), kept.view.waiters.len()),
        (1000, 1000)
    );
    assert_eq!(kept.waiting, 1234);
}

#[test]
fn what_is_not_found_any_more_goes() {
    let mut table = table(vec![held("a", 1, 0), held("b", 1, 0)]);
    table.take(Update::Began, at(1));
    // Looked at by themselves meanwhile.
    let shown = vec![free("a"), held("c", 2, 0)];
    table.take(Update::Shown(shown), at(2));
    assert_eq!(keys(&table, SortBy::Key), ["b", "c"]);
    table.take(Update::Ended, at(3));
    assert_eq!(keys(&table, SortBy::Key), ["c"]);
    // It is forgotten in the end.
    take_all(&mut table, pass(vec![]), at(20));
    assert!(table.locks.is_empty());
}

#[tokio::test]
async fn an_error_stays_until_there_is_an_answer() {
    let mut table = table(vec![held("a", 1, 0)]);
    let error = leasehold::connect("no-store:").await.unwrap_err();
    table.take(Update::Failed(error), at(1));
    assert!(table.failure().is_some());
    assert_eq!(keys(&table, SortBy::Key), ["a"]);
    take_all(&mut table, pass(vec![held("a", 1, 0)]), at(2));
    assert!(table.failure().is_none());
}

#[test]
fn changes_of_holders_are_counted_once_a_pass() {
    let mut lock = Lock::new(held("k", 1, 0), 0, at(0));
    assert_eq!(lock.rate(at(0)), 0.0);
    for second in 1..=60 {
        lock.update(held("k", 2 * second, 0), 0, at(second));
        lock.update(held("k", 2 * second + 1, 0), 0, at(second));
        lock.count(at(second));
    }
    let rate = lock.rate(at(60));
    assert!((59.0..61.5).contains(&rate), "{rate}");
    for second in 61..=300 {
        lock.update(held("k", 121, 0), 0, at(second));
        lock.count(at(second));
    }
    let rate = lock.rate(at(300));
    assert!((0.5..1.5).contains(&rate), "{rate}");
}

#[test]
fn a_lock_that_is_free_between_looks_changes_its_holders_too() {
    let mut lock = Lock::new(held("k", 1, 0), 0, at(0));
    for second in 1..=60 {
        lock.free = second % 2 == 1;
        if !lock.free {
            lock.update(held("k", second, 0), 0, at(second));
        }
        lock.count(at(second));
    }
    let rate = lock.rate(at(60));
    assert!((29.0..31.0).contains(&rate), "{rate}");
    // The same holder as before is none that is new, also if only waiters were seen meanwhile.
    lock.free = true;
    lock.update(
        KeyView {
            holders: vec![],
            ..held("k", 60, 1)
        },
        1,
        at(61),
    );
    lock.update(held("k", 60, 0), 0, at(61));
    lock.count(at(61));
    assert!(lock.rate(at(61)) < rate);
}

#[test]
fn times_go_on_between_looks() {
    let mut lock = Lock::new(held("k", 1, 0), 0, at(5));
    let (half_a_minute, ten) = (Duration::from_secs(30), Duration::from_secs(10));
    let age = lock.age(at(5)).unwrap();
    assert_eq!(lock.left(at(5)).unwrap(), (half_a_minute, 1.0));
    assert_eq!(lock.age(at(20)), Some(age + half_a_minute / 2));
    assert_eq!(lock.left(at(20)), Some((half_a_minute / 2, 0.5)));
    assert_eq!(lock.left(at(99)), Some((Duration::ZERO, 0.0)));
    // The bar of the next holder begins with its own lease.
    let mut next = held("k", 2, 0);
    next.holders[0].expires_in_ms = Some(10_000);
    lock.update(next, 0, at(20));
    assert_eq!(lock.left(at(20)), Some((ten, 1.0)));
}
