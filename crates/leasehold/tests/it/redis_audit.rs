//! The audit log as it lies on a server.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails with the message")]

use std::time::Duration;

use crate::redis_support::*;
use leasehold::core::{Claim, Note, OwnerSecret, Renew, Rotate};
use leasehold::store::Verbs as _;
use leasehold::store::redis::{RedisOptions, RedisStore};

/// Whoever may read the log cannot release, take over or enter anything, and a note is none of its
/// business. Not what is shown of it counts here, but what lies there.
#[tokio::test]
async fn no_secret_is_in_the_audit_log() {
    let server = RedisServer::start();
    let url = format!("{}?audit=1000", server.url());
    let options = RedisOptions::from_url(&url).unwrap();
    let store = RedisStore::connect(options).await.unwrap();
    let secret = OwnerSecret::from_random(0x1234_5678_9abc_def0_1234_5678_9abc_def0);
    let note = Some(Note::new("10.0.0.7:80").unwrap());
    let owned = Claim {
        secret: Some(secret),
        note: note.clone(),
        min_hold: Duration::from_millis(1),
        ..claim(&store, 1)
    };
    let lean = Claim {
        secret: Some(secret),
        ..claim(&store, 3)
    };
    let key = key("k");
    store.claim(&key, &lean).await.unwrap();
    store.release(&key, &release(3)).await.unwrap();
    store.claim(&key, &owned).await.unwrap();
    store.claim(&key, &claim(&store, 4)).await.unwrap();
    let rotate = Rotate {
        to: id(2),
        version: 0,
        adopt: None,
    };
    let rotates = Renew {
        rotate: Some(rotate),
        note,
        ..renew(1)
    };
    store.renew(&key, &rotates).await.unwrap();
    store.release(&key, &release(2)).await.unwrap();
    store.release(&key, &release(4)).await.unwrap();

    let log: Vec<(String, Vec<Vec<u8>>)> = server.query(&["XRANGE", "leasehold:audit", "-", "+"]);
    let log: Vec<u8> = log
        .into_iter()
        .flat_map(|(_, fields)| fields.concat())
        .collect();
    let holds = |text: &str| log.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(
        holds("a label") && holds("leasehold:lock:k"),
        "it is the log"
    );
    for number in 1..=4 {
        assert!(!holds(id(number).expose()), "the id of claim {number}");
    }
    assert!(!holds(&secret.expose()), "the owner's secret");
    assert!(!holds("10.0.0.7"), "the note");
}
