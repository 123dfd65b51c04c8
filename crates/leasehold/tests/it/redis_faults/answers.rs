//! Lost answers.

use super::*;

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_the_same_claim() {
    let (_server, proxy, ours, other) = proxied(lasting(), lasting()).await;

    let ids = ids(&proxy, is_claim);
    let swallowed = proxy.swallow_reply_of(is_claim, 1);
    let lease = lock(&ours).await;
    assert!(swallowed.has_happened());
    asked_again(&ids);
    let seen = other.inspect(KEY).await.unwrap();
    assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 0));
    assert_eq!(seen.holders[0].token, lease.token());
    assert_eq!(lease.release().await.unwrap(), Released::Held);
    let lease = lock(&other).await;

    // The same, where the answer that was lost is a place in the queue.
    ids.lock().unwrap().clear();
    let swallowed = proxy.swallow_reply_of(is_claim, 1);
    let next = waiting(&ours);
    swallowed.wait().await;
    until("the claim again", async || ids.lock().unwrap().len() > 1).await;
    standing(&other, 1, 1).await;
    asked_again(&ids);
    let before = lease.token();
    let next = hand_over(lease, next).await;
    assert!(next.token() > before);
    assert_eq!(next.rejoined(), 0);
    standing(&other, 1, 0).await;
    leaves_nothing(next, &other).await;
}

#[tokio::test]
async fn a_try_whose_answer_was_lost_leaves_nothing_behind() {
    let (_server, proxy, ours, other) = proxied(lasting(), lasting()).await;
    let key = ours.mutex(KEY).unwrap();

    let swallowed = proxy.swallow_reply_of(is_claim, 1);
    let lease = soon("an answer", key.try_lock()).await.unwrap();
    assert!(swallowed.has_happened());
    match lease {
        Some(lease) => assert_eq!(lease.release().await.unwrap(), Released::Held),
        None => eprintln!("try_lock ended busy"),
    }
    // Long before its TTL.
    standing(&other, 0, 0).await;

    let lease = lock(&other).await;
    let swallowed = proxy.swallow_reply_of(is_claim, 1);
    assert!(soon("an answer", key.try_lock()).await.unwrap().is_none());
    assert!(swallowed.has_happened());
    standing(&other, 1, 0).await;
    leaves_nothing(lease, &other).await;
    assert!(try_lock(&other, KEY).await.is_some());
}

#[tokio::test]
async fn a_renewal_whose_answer_was_lost_costs_neither_place_nor_lease() {
    let settings = Settings::default().with_waiter_ttl(ms(3_000));
    let (_server, proxy, ours, other) = proxied(settings, lasting()).await;

    let (first, next) = contended(&other, &ours, KEY).await;
    proxy.swallow_reply_of(is_renewal, 1).wait().await;
    // It asks again at once; a whole waiter TTL later it still stands there.
    proxy.request(is_renewal, 1).wait().await;
    sleep(ms(3_500)).await;
    standing(&other, 1, 1).await;
    let lease = hand_over(first, next).await;
    assert_eq!(lease.rejoined(), 0);
    leaves_nothing(lease, &other).await;
}

#[tokio::test]
async fn a_release_that_got_lost_hands_on_all_the_same() {
    let (_server, proxy, ours, other) = proxied(lasting(), lasting()).await;

    // Executed or not, the client cannot know.
    for executed in [true, false] {
        let (lease, next) = contended(&ours, &other, KEY).await;
        let lost = if executed {
            proxy.swallow_reply_of(is_release, 1)
        } else {
            proxy.swallow_request(is_release, 1)
        };
        let released = soon("an answer", lease.release()).await;
        assert!(lost.has_happened());
        eprintln!("release, executed: {executed}, answers {released:?}");
        if released.is_err() {
            fails(released, ErrorKind::Unavailable, &[]);
        }
        // Long before the TTL of 30 s; and what is repeated does not hit the next holder.
        let next = granted(next).await;
        sleep(ms(300)).await;
        soon("a renewal", next.renew()).await.unwrap();
        standing(&other, 1, 0).await;
        leaves_nothing(next, &other).await;
    }
}
