//! Batching: which requests of a client are sent together.
#![cfg(feature = "redis")]

use std::sync::Arc;
use std::time::Duration;

use crate::redis_support::*;
use leasehold::StoreError;
use leasehold::store::Verbs as _;
use leasehold::store::redis::{RedisOptions, RedisStore};
use leasehold_testkit::proxy::{Direction, Proxy};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(60);

/// Claims that key, in a task.
fn claims(store: &Arc<RedisStore>, number: usize) -> JoinHandle<Result<bool, StoreError>> {
    let (store, key) = (Arc::clone(store), key(&number.to_string()));
    tokio::spawn(async move {
        let claim = claim(&store, 1);
        Ok(store.claim(&key, &claim).await?.holds())
    })
}

/// One is sent alone, and four tasks send what comes next, and wait for answers. What queues up
/// then is sent all the same, as soon as it is a part: the server has something to do when it has
/// done the rest.
#[tokio::test]
async fn a_full_part_waits_for_no_answer() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let options = RedisOptions::from_url(&proxy.through(&server.url())).unwrap();
    let store = Arc::new(RedisStore::connect(options).await.unwrap());
    // The server knows the script from then on.
    assert!(claims(&store, 0).await.unwrap().unwrap());
    let before = proxy.counts().requests;
    let sent = |calls| proxy.wait_for(move |counts| counts.requests == before + calls);

    proxy.hold(Direction::ToServer);
    let mut all = Vec::new();
    for number in 1..=5 {
        all.push(claims(&store, number));
        timeout(SOON, sent(all.len() as u64)).await.unwrap();
    }
    all.extend((6..14).map(|number| claims(&store, number)));
    timeout(SOON, sent(6)).await.expect("a sixth call");
    proxy.resume(Direction::ToServer);
    for claimed in all {
        assert!(timeout(SOON, claimed).await.unwrap().unwrap().unwrap());
    }
    assert_eq!(proxy.counts().requests, before + 6);
}
