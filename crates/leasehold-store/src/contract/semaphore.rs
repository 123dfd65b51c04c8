//! Contract cases of permits and resizing.

use leasehold_core::{Capacity, ClaimReply, RenewReply, ResizeReply};

use super::actor::{permits, scene, stands};
use super::{Fixture, LONG};
use crate::Push;

/// As many claims hold as their weights fit, and a light claim does not overtake a heavy one.
pub async fn permits_are_counted_by_weight(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    a.granted(permits(1, 2, 4)).await;
    a.granted(permits(2, 1, 4)).await;
    b.waiting(permits(3, 2, 4)).await;
    b.waiting(permits(4, 1, 4)).await;
    a.release(2).await;
    b.granted(permits(3, 2, 4)).await;
    b.waiting(permits(4, 1, 4)).await;
    b.waiting(permits(5, 1, 4)).await;
    a.release(1).await;
    b.granted(permits(4, 1, 4)).await;
    b.granted(permits(5, 1, 4)).await;
    a.waiting(permits(6, 1, 4)).await;
}

/// The number changes only if it is what the caller expects. A repeated request finds it changed.
pub async fn resize_compares_and_sets(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    a.granted(permits(1, 1, 3)).await;
    let in_use = Capacity::Permits(3);
    assert_eq!(b.resize(2, 5).await, ResizeReply::Mismatch { in_use });
    assert_eq!(a.look().await.capacity, Some(in_use));
    assert_eq!(b.resize(3, 5).await, ResizeReply::Resized);
    assert_eq!(b.resize(3, 5).await, ResizeReply::Resized);
    assert_eq!(a.look().await.capacity, Some(Capacity::Permits(5)));
    b.granted(permits(2, 4, 5)).await;
    // A lock is no semaphore with one permit.
    let b = b.at("lock");
    a.at("lock").granted(1).await;
    let in_use = Capacity::Lock;
    assert_eq!(b.resize(1, 2).await, ResizeReply::Mismatch { in_use });
}

/// The step that grows the semaphore also grants, and notifies.
pub async fn growing_promotes_at_once(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    a.granted(permits(1, 2, 2)).await;
    let mut waiting = Vec::new();
    for number in 2..=4 {
        waiting.push(b.waiting(permits(number, 1, 2)).await.arrival);
    }
    assert_eq!(a.resize(2, 4).await, ResizeReply::Resized);
    assert_eq!(a.held().await.len(), 3);
    for arrival in &waiting[..2] {
        b.hears_grant(*arrival).await;
    }
    // They asked when there were two permits, and find themselves all the same.
    b.granted(permits(3, 1, 2)).await;
    b.waiting(permits(4, 1, 2)).await;
}

/// Holders keep their permits, and nothing is granted until enough were released.
pub async fn shrinking_revokes_nothing(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    for number in 1..=3 {
        a.granted(permits(number, 1, 3)).await;
    }
    assert_eq!(b.resize(3, 1).await, ResizeReply::Resized);
    for number in 1..=3 {
        assert!(stands(a.renew(number, LONG).await).token.is_some());
    }
    for number in 1..=3 {
        b.waiting(permits(4, 1, 1)).await;
        a.release(number).await;
    }
    b.granted(permits(4, 1, 1)).await;
}

/// A waiting claim that can no longer fit is removed and does not block the claims behind it. It
/// is notified by a push if it is first in the queue, otherwise when it asks again.
pub async fn waiter_too_heavy_is_told(fixture: &dyn Fixture) {
    let [a, b, c] = scene(fixture).await;
    a.granted(permits(1, 2, 3)).await;
    let heavy = b.waiting(permits(2, 3, 3)).await.arrival;
    c.waiting(permits(3, 2, 3)).await;
    b.waiting(permits(4, 3, 3)).await;
    assert_eq!(c.resize(3, 2).await, ResizeReply::Resized);
    let two = Capacity::Permits(2);
    let unfit = |push: &Push| matches!(push, Push::Unfit { in_use, .. } if *in_use == two);
    b.hears_of(heavy, 2, unfit).await;
    assert_eq!(b.renew(2, LONG).await, RenewReply::Gone);
    let told = b.ask(permits(4, 3, 3)).await.reply;
    assert_eq!(told, ClaimReply::Mismatch { in_use: two });
    assert_eq!(b.renew(4, LONG).await, RenewReply::Gone);
    a.release(1).await;
    c.granted(permits(3, 2, 3)).await;
}

/// An idle key has no number of permits.
pub async fn resize_idle_key_is_absent(fixture: &dyn Fixture) {
    let [a] = scene(fixture).await;
    assert_eq!(a.resize(1, 2).await, ResizeReply::Absent);
    a.granted(permits(1, 1, 3)).await;
    a.release(1).await;
    assert_eq!(a.resize(3, 2).await, ResizeReply::Absent);
}
