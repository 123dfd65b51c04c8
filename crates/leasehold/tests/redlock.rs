//! Redlock on real servers: what users see, and what fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails with the message"
)]
#![cfg(feature = "redis")]

mod redlock_support;

use std::time::Duration;

use leasehold::core::Reply;
use leasehold::store::LockStore;
use leasehold::{ErrorKind, Released, Settings};
use redlock_support::{Data, Set, claim, key, release, renew, token};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_lock_over_five_servers() {
    let set = Set::start(5, "").await;
    let (a, b) = (set.client().await, set.client().await);
    let lease = a.mutex("orders/42").unwrap().lock().await.unwrap();
    assert!(lease.is_valid());
    let lock = b.mutex("orders/42").unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    let seen = b.inspect("orders/42").await.unwrap();
    assert_eq!(seen.holders[0].token, lease.token());
    assert_eq!(b.list("orders/*").await.unwrap().len(), 1);
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
    assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
    let next = timeout(SOON, waiting).await.unwrap().unwrap();
    assert_eq!(next.release().await.unwrap(), Released::StillOurs);
}

#[tokio::test]
async fn two_of_five_may_be_down_stopped_or_slow() {
    let mut set = Set::start(5, "").await;
    let store = set.store().await;
    let key = key("k");
    let mut last = token(
        store
            .claim(&key, &claim(&store, 1, TTL))
            .await
            .unwrap()
            .reply,
    );
    set.servers[1].kill();
    set.servers[3].stop();
    let renewed = store.renew(&key, &renew(1, TTL)).await.unwrap().reply;
    assert_eq!(token(renewed), last);
    let released = store.release(&key, &release(1)).await.unwrap().reply;
    assert_eq!(released, Reply::Released { held: true });
    for number in 2..20 {
        let granted = store
            .claim(&key, &claim(&store, number, TTL))
            .await
            .unwrap();
        let next = token(granted.reply);
        assert!(next > last);
        last = next;
        let busy = store
            .claim(&key, &claim(&store, 99, TTL))
            .await
            .unwrap()
            .reply;
        assert!(matches!(busy, Reply::Busy { .. }), "{busy:?}");
        let released = store.release(&key, &release(number)).await.unwrap().reply;
        assert_eq!(released, Reply::Released { held: true });
    }
    // A client that comes now finds it so.
    let late = set.client().await;
    let lease = late.mutex("k").unwrap().lock().await.unwrap();
    lease.release().await.unwrap();
    set.servers[3].cont();
}

#[tokio::test]
async fn with_three_of_five_down_it_fails_in_time_and_says_who_did_what() {
    let mut set = Set::start(5, "max_ttl=10s").await;
    let settings = Settings {
        operation_timeout: Duration::from_secs(2),
        ..Settings::default()
    };
    let settings = Settings {
        ttl: TTL,
        ..settings
    };
    let client = set.client_with(settings).await;
    let other = set.store().await;
    set.servers[0].kill();
    set.servers[2].kill();
    set.servers[4].stop();
    let error = timeout(SOON, client.mutex("k").unwrap().lock())
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let said = error.to_string();
    assert!(
        said.contains("2 of 5 servers agreed, 3 are needed"),
        "{said}"
    );
    let port = |server: usize| format!("127.0.0.1:{}", set.servers[server].port());
    for server in [1, 3] {
        assert!(said.contains(&format!("{}: yes", port(server))), "{said}");
    }
    assert!(said.contains(&format!("{}: no answer", port(4))), "{said}");
    assert!(said.contains(&format!("{}: ", port(0))), "{said}");
    // What it had got is released: the two that are up vote for another.
    set.servers[4].cont();
    let granted = timeout(SOON, async {
        loop {
            match other
                .claim(&key("k"), &claim(&other, 1, TTL))
                .await
                .unwrap()
                .reply
            {
                Reply::Standing(_) => return,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    });
    granted.await.expect("all votes were given back");
}

#[tokio::test]
async fn a_server_without_its_data_does_not_vote_until_all_that_it_forgot_is_over() {
    let mut set = Set::start(3, "max_ttl=500ms").await;
    let store = set.store().await;
    let (key, ttl) = (key("k"), Duration::from_millis(500));
    set.servers[2].kill();
    let first = token(
        store
            .claim(&key, &claim(&store, 1, ttl))
            .await
            .unwrap()
            .reply,
    );
    set.servers[0].restart(Data::Lose);
    set.servers[2].start_again();
    let other = set.store().await;
    let began = std::time::SystemTime::now();
    let error = other.claim(&key, &claim(&other, 2, ttl)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(
        error.to_string().contains("it may have lost some"),
        "{error}"
    );
    let second = timeout(SOON, async {
        let mut number = 3;
        loop {
            if let Ok(answer) = other.claim(&key, &claim(&other, number, ttl)).await
                && matches!(answer.reply, Reply::Standing(_))
            {
                return token(answer.reply);
            }
            number += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(second.await.unwrap() > first);
    assert!(began.elapsed().unwrap() > Duration::from_millis(900));
}
