//! Contract cases of re-entrance: several claims of one owner.

use leasehold_core::ReleaseReply;

use super::Fixture;
use super::actor::{knows_all_kinds, scene};

/// The owner acquires the key again, ahead of waiters and from any client, with the same token.
pub async fn owner_enters_again_with_the_same_token(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    let (first, token) = a.granted(&key, &a.want_as(1, 7)).await;
    a.waiting(&key, &a.want(2)).await;
    b.waiting(&key, &b.want_as(3, 8)).await;
    let (again, same) = b.granted(&key, &b.want_as(4, 7)).await;
    assert_eq!(same, token);
    assert!(again > first);
    assert_eq!(b.granted(&key, &b.want_as(4, 7)).await, (again, same));
    let held: Vec<_> = a.look(&key).await.holders.iter().map(|h| h.token).collect();
    assert_eq!(held, [token, token]);
}

/// The key is free when the last of the owner's claims was released, in any order.
pub async fn owner_leaves_with_its_last_claim(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    // Claims 1 to 3, then 11 to 13, …: a released id is not used again.
    for (round, order) in [[1, 2, 3], [3, 2, 1], [2, 1, 3]].into_iter().enumerate() {
        let ids = order.map(|number| number + 10 * round as u128);
        for number in 1..=3 {
            a.granted(&key, &a.want_as(number + 10 * round as u128, 7))
                .await;
        }
        let waiter = b.want(100 + round as u128);
        for number in ids {
            b.waiting(&key, &waiter).await;
            let left = a.release(&key, &a.want_as(number, 7)).await;
            assert_eq!(left, ReleaseReply::Released { held: true });
        }
        b.granted(&key, &waiter).await;
        b.release(&key, &waiter).await;
    }
}

/// When the first of an owner's waiting claims is granted, so are the others, whatever their
/// position: the first may depend on one of them.
pub async fn waiting_claims_of_an_owner_are_granted_together(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b, c], key) = scene(fixture).await;
    c.granted(&key, &c.want(1)).await;
    let first = a.waiting(&key, &a.want_as(2, 7)).await.arrival;
    c.waiting(&key, &c.want(3)).await;
    let last = b.waiting(&key, &b.want_as(4, 7)).await.arrival;
    c.release(&key, &c.want(1)).await;
    if a.is_pushed_to() {
        let (arrival, token) = a.hears_grant().await;
        assert_eq!(arrival, first);
        assert_eq!(b.hears_grant().await, (last, token));
    }
    let (_, token) = a.granted(&key, &a.want_as(2, 7)).await;
    assert_eq!(b.granted(&key, &b.want_as(4, 7)).await, (last, token));
    assert_eq!(c.waiting(&key, &c.want(3)).await.position, 1);
    a.release(&key, &a.want_as(2, 7)).await;
    c.waiting(&key, &c.want(3)).await;
    b.release(&key, &b.want_as(4, 7)).await;
    c.granted(&key, &c.want(3)).await;
}
