//! Batching: which requests of a client are sent together.
#![cfg(feature = "redis")]

use crate::redis_support::*;

/// Claims that key, in a task.
fn claims(store: &Arc<RedisStore>, number: usize) -> JoinHandle<Result<bool, StoreError>> {
    let (store, key) = (Arc::clone(store), key(&number.to_string()));
    tokio::spawn(async move {
        let claim = claim(&store, 1);
        Ok(store.claim(&key, &claim).await?.holds())
    })
}

/// One is sent alone. After that a call takes as many as calls are under way: the busier the server
/// is, the more go together. What is a part of all is sent without waiting for an answer: the server
/// has something to do when it has done the rest.
#[tokio::test]
async fn a_full_part_waits_for_no_answer() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let store = connect(&proxy.through(&server.url())).await;
    let store = Arc::new(store.unwrap());
    // The server knows the script from then on.
    assert!(claims(&store, 0).await.unwrap().unwrap());
    let before = proxy.counts().requests;
    let sent = |calls| proxy.wait_for(move |counts| counts.requests == before + calls);

    proxy.hold(Direction::ToServer);
    let mut all = Vec::new();
    for (calls, numbers) in (1..).zip([1..=1, 2..=2, 3..=3, 4..=5, 6..=8, 9..=12, 13..=16]) {
        for number in numbers {
            all.push(claims(&store, number));
            // What would be sent without the next one is sent.
            for _ in 0..32 {
                yield_now().await;
            }
        }
        soon("all calls", sent(calls)).await;
    }
    proxy.resume(Direction::ToServer);
    for claimed in all {
        assert!(soon("an answer", claimed).await.unwrap().unwrap());
    }
    assert_eq!(proxy.counts().requests, before + 7);
}
