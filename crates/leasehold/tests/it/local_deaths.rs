//! Crashes of clients of the local store: each test kills real processes, which run this binary
//! in a special role.
#![cfg(all(unix, feature = "local"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on fails"
)]

use std::env;
use std::fs;
use std::future::pending;
use std::path::Path;
use std::time::Duration;

use crate::local_support::{LIMIT, Place, claim, release};
use leasehold::core::{Claim, ClaimId, Key, Renew, Snapshot};
use leasehold::store::local::{LocalOptions, LocalStore};
use leasehold::store::{AllAnswer, LockStore, Verbs as _};
use leasehold::{Lease, Owner, connect};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How soon what a dead process held is free: far below any TTL used here.
const FREED: Duration = Duration::from_secs(5);

/// Long enough for a busy machine to look while it lasts.
const MIN_HOLD: Duration = Duration::from_secs(3);

/// The owner that several processes are.
const OWNER: &str = "00000000000000000000000000000007";

// ---- the roles ----

/// Not a test by itself: what the other processes do, until they are killed.
#[tokio::test]
async fn role() {
    let Ok(role) = env::var("LEASEHOLD_TEST_ROLE") else {
        return;
    };
    let url = env::var("LEASEHOLD_TEST_URL").unwrap();
    match role.as_str() {
        "keep" => keep(&url).await,
        "nest" => nest(&url).await,
        "watch" => watch(&url).await,
        "churn all" => churn_all(&url).await,
        other => panic!("no role {other}"),
    }
}

async fn keep(url: &str) {
    let client = connect(url).await.unwrap();
    let mutex = client.mutex("k").unwrap().with_min_hold(MIN_HOLD).unwrap();
    let lease = mutex.lock().await.unwrap();
    eprintln!("held {}", lease.token());
    pending::<()>().await;
}

async fn nest(url: &str) {
    let client = connect(url).await.unwrap();
    let owner = Owner::parse(OWNER).unwrap();
    let lock = client.reentrant("k", &owner).unwrap();
    let lease = lock.lock().await.unwrap();
    eprintln!("held {}", lease.token());
    pending::<()>().await;
}

async fn watch(url: &str) {
    let store = open(url).await;
    store.watch(&key("k"), LIMIT).await.unwrap();
    eprintln!("watching");
    pending::<()>().await;
}

/// Claims all keys and releases them, for ever.
async fn churn_all(url: &str) {
    let store = open(url).await;
    for number in 0.. {
        let id = u128::from(std::process::id()) << 64 | number;
        assert!(all(&store, id).await, "nobody else wants them");
        for key in all_keys() {
            store.release(&key, &release(id)).await.unwrap();
        }
        if number == 0 {
            eprintln!("churning");
        }
    }
}

// ---- what they have in common ----

async fn open(url: &str) -> LocalStore {
    let options = LocalOptions::from_url(url).unwrap();
    LocalStore::open(options).await.unwrap()
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn all_keys() -> [Key; 3] {
    ["c", "a", "b"].map(key)
}

fn renew(id: u128) -> Renew {
    Renew::new(ClaimId::from_random(id), LIMIT)
}

async fn all(store: &LocalStore, id: u128) -> bool {
    let trying = Claim {
        wait: false,
        ..claim(store, id)
    };
    let parts = all_keys().map(|key| (key, trying.clone()));
    let answer = store.claim_all(&parts).await.unwrap();
    matches!(answer, Some(AllAnswer::All(_)))
}

/// Somebody who waits for `k`, and stands in line already.
async fn next_in_line(place: &Place) -> JoinHandle<Lease> {
    let client = connect(&place.1).await.unwrap();
    let watching = open(&place.1).await;
    let next = tokio::spawn(async move { client.mutex("k").unwrap().lock().await.unwrap() });
    seen(&watching, |look| !look.waiters.is_empty()).await;
    next
}

/// Looks at `k` until it is as it should be. A look buries the dead, but not
/// while somebody is at the key.
async fn seen(store: &LocalStore, as_it_should_be: impl Fn(&Snapshot) -> bool) -> Snapshot {
    timeout(LIMIT, async {
        loop {
            let look = store.inspect(&key("k")).await.unwrap();
            if as_it_should_be(&look) {
                return look;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("the dead are buried")
}

// ---- the tests ----

#[tokio::test]
async fn a_killed_holder_keeps_its_key_for_its_minimum_hold() {
    let place = Place::new();
    let mut holder = place.start("keep");
    holder.says("held").await;
    let next = next_in_line(&place).await;
    holder.kill();
    let store = open(&place.1).await;
    let kept = seen(&store, |look| look.holders[0].claim.kept).await;
    let kept = &kept.holders[0].claim;
    assert_eq!(kept.deadline, kept.since + MIN_HOLD);

    let lease = timeout(MIN_HOLD + FREED, next)
        .await
        .expect("free when the minimum hold is over")
        .unwrap();
    let holders = store.inspect(&key("k")).await.unwrap().holders;
    assert_eq!(holders[0].token, lease.token());
    assert!(holders[0].claim.since >= kept.deadline);
    let _ = lease.release().await.unwrap();
}

#[tokio::test]
async fn a_killed_process_leaves_the_key_to_the_others_of_its_owner() {
    for first_to_die in [0, 1] {
        let place = Place::new();
        let mut nested = [place.start("nest"), place.start("nest")];
        let held = nested[0].says("held").await;
        assert_eq!(nested[1].says("held").await, held, "one hold, one token");
        let mut next = next_in_line(&place).await;
        nested[first_to_die].kill();
        let store = open(&place.1).await;
        let look = seen(&store, |look| look.holders.len() == 1).await;
        assert_eq!(look.waiters.len(), 1);
        assert_eq!(held, format!("held {}", look.holders[0].token));
        // Several looks of the next in line.
        let early = timeout(Duration::from_millis(900), &mut next).await;
        assert!(early.is_err(), "the other process still works");
        nested[1 - first_to_die].kill();
        let lease = timeout(FREED, next)
            .await
            .expect("freed with the last of them")
            .unwrap();
        let _ = lease.release().await.unwrap();
    }
}

/// The queue of `k` as a whole: it is written down now and then, and steps are in between.
async fn written_anew(store: &LocalStore, record: &Path) -> String {
    let read = || fs::read(record).unwrap();
    let before = read();
    while read()[..128] == before[..128] {
        store.renew(&key("k"), &renew(1)).await.unwrap();
    }
    let bytes = read();
    let head: serde_json::Value = serde_json::from_slice(&bytes[..128]).unwrap();
    let frame = &bytes[usize::try_from(head["at"].as_u64().unwrap()).unwrap()..];
    let length = u64::from_le_bytes(frame[8..16].try_into().unwrap());
    let lines = &frame[24..][..usize::try_from(length).unwrap()];
    String::from_utf8(lines.to_vec()).unwrap()
}

#[tokio::test]
async fn killed_watchers_leave_the_record() {
    let place = Place::new();
    let record = place.0.path().join("store/records/k.rec");
    let store = open(&place.1).await;
    store.claim(&key("k"), &claim(&store, 1)).await.unwrap();
    let before = written_anew(&store, &record).await.len();
    let mut watchers = [(); 4].map(|()| place.start("watch"));
    for watcher in &mut watchers {
        watcher.says("watching").await;
    }
    let watched = written_anew(&store, &record).await.len();
    assert!(watched > before + 4 * 16, "an inbox each");
    for watcher in &mut watchers {
        watcher.kill();
    }
    store.release(&key("k"), &release(1)).await.unwrap();
    let text = written_anew(&store, &record).await;
    assert!(!text.contains("watchers"), "{text}");
}

#[tokio::test]
async fn killed_in_the_middle_of_several_keys_leaves_none_taken() {
    let place = Place::new();
    let store = open(&place.1).await;
    let mut random = leasehold_store::random::random_u128();
    for id in 0..30_u128 {
        let mut churning = place.start("churn all");
        churning.says("churning").await;
        random = random.rotate_left(13);
        tokio::time::sleep(Duration::from_micros((random % 5_000) as u64)).await;
        churning.kill();
        assert!(
            all(&store, id).await,
            "the dead are buried in the same step"
        );
        for key in all_keys() {
            store.release(&key, &release(id)).await.unwrap();
        }
    }
}
