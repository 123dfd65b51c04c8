//! Several keys of the local store in one step, while others use them too.
#![cfg(all(unix, feature = "local"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::local_support::{LIMIT, Place, claim, release};
use leasehold::core::{Claim, Key};
use leasehold::store::local::{LocalOptions, LocalStore};
use leasehold::store::{AllAnswer, LockStore, Verbs as _};
use tokio::time::timeout;

async fn open(place: &Place) -> LocalStore {
    let options = LocalOptions::from_url(&place.1).unwrap();
    LocalStore::open(options).await.unwrap()
}

fn parts(store: &LocalStore, keys: &[&str], id: u128) -> Vec<(Key, Claim)> {
    let trying = Claim {
        wait: false,
        ..claim(store, id)
    };
    keys.iter()
        .map(|key| (Key::new(key).unwrap(), trying.clone()))
        .collect()
}

async fn has_all(store: &LocalStore, parts: &[(Key, Claim)]) -> bool {
    match store.claim_all(parts).await.unwrap() {
        Some(AllAnswer::All(answers)) => {
            assert_eq!(answers.len(), parts.len());
            true
        }
        other => {
            assert!(matches!(other, Some(AllAnswer::NotAll { .. })), "{other:?}");
            false
        }
    }
}

/// Clients that want the same keys in all orders exclude each other, and all
/// get through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_claims_exclude_each_other_and_none_waits_for_ever() {
    const ROUNDS: u128 = 25;
    const WANTED: [&[&str]; 6] = [
        &["a", "b", "c"],
        &["c", "b", "a"],
        &["d", "a"],
        &["b", "d"],
        &["d", "c", "b", "a"],
        &["b"],
    ];
    let place = Place::new();
    let names = ["a", "b", "c", "d"];
    let in_use: HashMap<_, _> = names.map(|name| (name, AtomicBool::new(false))).into();
    let in_use = Arc::new(in_use);
    let mut clients = Vec::new();
    for (number, keys) in (0..).zip(WANTED) {
        let (store, in_use) = (open(&place).await, in_use.clone());
        clients.push(tokio::spawn(async move {
            for round in 0..ROUNDS {
                let id = number << 32 | round;
                let parts = parts(&store, keys, id);
                while !has_all(&store, &parts).await {
                    tokio::task::yield_now().await;
                }
                for key in keys {
                    assert!(!in_use[key].swap(true, Ordering::SeqCst), "{key}");
                }
                tokio::task::yield_now().await;
                for key in keys {
                    assert!(in_use[key].swap(false, Ordering::SeqCst), "{key}");
                }
                for (key, _) in &parts {
                    store.release(key, &release(id)).await.unwrap();
                }
            }
        }));
    }
    for client in clients {
        timeout(LIMIT, client).await.expect("gets through").unwrap();
    }
}

/// A process that was stopped in the middle of a step on one key holds up those
/// who want that key, and not those who want the others.
#[tokio::test]
async fn nobody_holds_up_a_key_while_it_waits_for_another() {
    let place = Place::new();
    let store = Arc::new(open(&place).await);
    let both = parts(&store, &["a", "b"], 1);
    assert!(has_all(&store, &both).await);
    for (key, _) in &both {
        store.release(key, &release(1)).await.unwrap();
    }
    for locked in ["a", "b"] {
        let lock = place.0.path().join(format!("store/records/{locked}.rec"));
        let stopped = fs::File::open(lock).unwrap();
        stopped.lock().unwrap();
        let id = u128::from(locked.as_bytes()[0]);
        let (waiting, both) = (store.clone(), parts(&store, &["b", "a"], id));
        let asked = both.clone();
        let mut all = tokio::spawn(async move { has_all(&waiting, &asked).await });
        let early = timeout(Duration::from_millis(100), &mut all).await;
        assert!(early.is_err(), "it waits");
        let other = Key::new(if locked == "a" { "b" } else { "a" }).unwrap();
        for number in 0..20 {
            let release = release(1_000 + number);
            timeout(Duration::from_secs(2), store.release(&other, &release))
                .await
                .expect("nobody is in the way")
                .unwrap();
        }
        stopped.unlock().unwrap();
        assert!(all.await.unwrap());
        for (key, _) in &both {
            store.release(key, &release(id)).await.unwrap();
        }
    }
}

/// Whoever gave up has made the claim or not, and has no lock.
#[tokio::test]
async fn a_claim_that_was_given_up_leaves_no_lock() {
    let place = Place::new();
    let store = open(&place).await;
    let both = parts(&store, &["a", "b"], 1);
    assert!(has_all(&store, &both).await);
    for (key, _) in &both {
        store.release(key, &release(1)).await.unwrap();
    }
    let lock = place.0.path().join("store/records/b.rec");
    let stopped = fs::File::open(&lock).unwrap();
    stopped.lock().unwrap();
    let given_up = parts(&store, &["a", "b"], 2);
    let early = timeout(Duration::from_millis(100), has_all(&store, &given_up)).await;
    assert!(early.is_err(), "dropped while it waits");
    stopped.unlock().unwrap();
    for (key, _) in &both {
        store.release(key, &release(2)).await.unwrap();
    }
    assert!(has_all(&store, &parts(&store, &["a", "b"], 3)).await);
}
