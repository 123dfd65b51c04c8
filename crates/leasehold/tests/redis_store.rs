//! The store on a real server, one verb at a time.
#![cfg(feature = "redis")]

mod redis_support;

use leasehold::core::{Reply, Token};
use leasehold::store::{LockStore, Push};
use redis_support::*;

#[tokio::test]
async fn claim_renew_release_and_push() {
    let server = RedisServer::start();
    let (alice, bob) = (store(&server).await, store(&server).await);
    let (heard, mut pushes) = sink();
    let _ear = bob.listen(heard).await.unwrap();
    let key = key("orders/42 é {x}");

    let first = alice.claim(&key, &claim(&alice, 1)).await.unwrap();
    let Reply::Standing(holds) = first.reply else {
        panic!("{first:?}")
    };
    assert!(holds.token.unwrap() > Token(0));
    assert_eq!(first.epoch, 0, "its inbox is not open");
    let waits = bob.claim(&key, &claim(&bob, 2)).await.unwrap();
    let Reply::Standing(waiting) = waits.reply else {
        panic!("{waits:?}")
    };
    assert_eq!((waiting.token, waiting.position), (None, 1));
    assert_eq!(waiting.blocked_until, Some(holds.deadline));
    assert_eq!(waits.epoch, 1);

    let snapshot = alice.inspect(&key).await.unwrap();
    assert_eq!((snapshot.holders.len(), snapshot.waiters.len()), (1, 1));
    assert_eq!(alice.list("orders/*").await.unwrap().len(), 1);
    assert_eq!(alice.list("other/*").await.unwrap().len(), 0);

    let released = alice.release(&key, &release(1)).await.unwrap();
    assert_eq!(released.reply, Reply::Released { held: true });
    let Some(Push::Granted {
        arrival,
        token,
        epoch: 1,
        ..
    }) = pushes.recv().await
    else {
        panic!("no grant was pushed")
    };
    assert_eq!(arrival, waiting.arrival);
    assert!(token > holds.token.unwrap());
    let renewed = bob.renew(&key, &renew(2)).await.unwrap();
    assert!(matches!(renewed.reply, Reply::Standing(s) if s.token == Some(token)));
    let broken = alice.break_key(&key).await.unwrap();
    assert_eq!(broken.reply, Reply::Broken { holders: 1, token });
    assert!(matches!(pushes.recv().await, Some(Push::Revoked { .. })));
    assert!(alice.list("*").await.unwrap().is_empty());
}
