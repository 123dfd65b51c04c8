//! Contract cases of re-entrance: several claims of one owner.

use super::Fixture;
use super::actor::{RELEASED, owned, scene};

/// The owner acquires the key again, ahead of waiters and from any client, with the same token.
pub async fn owner_enters_again_with_the_same_token(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let (first, token) = a.granted(owned(1, 7)).await;
    a.waiting(2).await;
    b.waiting(owned(3, 8)).await;
    let (again, same) = b.granted(owned(4, 7)).await;
    assert_eq!(same, token);
    assert!(again > first);
    assert_eq!(b.granted(owned(4, 7)).await, (again, same));
    assert_eq!(a.held().await, [token, token]);
}

/// The key is free when the last of the owner's claims was released, in any order.
pub async fn owner_leaves_with_its_last_claim(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    // Claims 1 to 3, then 11 to 13, …: a released id is not used again.
    for (base, order) in [(0, [1, 2, 3]), (10, [3, 2, 1]), (20, [2, 1, 3])] {
        for number in 1..=3 {
            a.granted(owned(base + number, 7)).await;
        }
        for number in order {
            b.waiting(100 + base).await;
            assert_eq!(a.release(base + number).await, RELEASED);
        }
        b.granted(100 + base).await;
        b.release(100 + base).await;
    }
}

/// When the first of an owner's waiting claims is granted, so are the others, whatever their
/// position: the first may depend on one of them.
pub async fn waiting_claims_of_an_owner_are_granted_together(fixture: &dyn Fixture) {
    let [a, b, c] = scene(fixture).await;
    c.granted(1).await;
    let first = a.waiting(owned(2, 7)).await.arrival;
    c.waiting(3).await;
    let last = b.waiting(owned(4, 7)).await.arrival;
    c.release(1).await;
    let told = a.hears_grant(first).await;
    assert_eq!(b.hears_grant(last).await, told);
    let (_, token) = a.granted(owned(2, 7)).await;
    assert_eq!(b.granted(owned(4, 7)).await, (last, token));
    assert_eq!(c.waiting(3).await.position, 1);
    a.release(2).await;
    c.waiting(3).await;
    b.release(4).await;
    c.granted(3).await;
}
