//! Contract cases of permits and resizing.

use crate::Push;
use leasehold_core::{Capacity, ClaimReply, RenewReply, ResizeReply};

use super::actor::{id, key as named, knows_all_kinds, scene, stands};
use super::{Fixture, LONG};

/// As many claims hold as their weights fit, and a light claim does not overtake a heavy one.
pub async fn permits_are_counted_by_weight(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    a.granted(&key, &a.want_permits(1, 2, 4)).await;
    a.granted(&key, &a.want_permits(2, 1, 4)).await;
    b.waiting(&key, &b.want_permits(3, 2, 4)).await;
    b.waiting(&key, &b.want_permits(4, 1, 4)).await;
    a.release(&key, &a.want_permits(2, 1, 4)).await;
    b.granted(&key, &b.want_permits(3, 2, 4)).await;
    b.waiting(&key, &b.want_permits(4, 1, 4)).await;
    b.waiting(&key, &b.want_permits(5, 1, 4)).await;
    a.release(&key, &a.want_permits(1, 2, 4)).await;
    for number in [4, 5] {
        b.granted(&key, &b.want_permits(number, 1, 4)).await;
    }
    a.waiting(&key, &a.want_permits(6, 1, 4)).await;
}

/// The number changes only if it is what the caller expects. A repeated request finds it changed.
pub async fn resize_compares_and_sets(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    a.granted(&key, &a.want_permits(1, 1, 3)).await;
    let in_use = Capacity::Permits(3);
    assert_eq!(b.resize(&key, 2, 5).await, ResizeReply::Mismatch { in_use });
    assert_eq!(a.look(&key).await.capacity, Some(in_use));
    assert_eq!(b.resize(&key, 3, 5).await, ResizeReply::Resized);
    assert_eq!(b.resize(&key, 3, 5).await, ResizeReply::Resized);
    assert_eq!(a.look(&key).await.capacity, Some(Capacity::Permits(5)));
    b.granted(&key, &b.want_permits(2, 4, 5)).await;
    // A lock is no semaphore with one permit.
    let lock = named("lock");
    a.granted(&lock, &a.want(1)).await;
    let in_use = Capacity::Lock;
    assert_eq!(
        b.resize(&lock, 1, 2).await,
        ResizeReply::Mismatch { in_use }
    );
}

/// The step that grows the semaphore also grants, and notifies.
pub async fn growing_promotes_at_once(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    a.granted(&key, &a.want_permits(1, 2, 2)).await;
    let mut waiting = Vec::new();
    for number in 2..=4 {
        let claim = b.want_permits(number, 1, 2);
        waiting.push(b.waiting(&key, &claim).await.arrival);
    }
    assert_eq!(a.resize(&key, 2, 4).await, ResizeReply::Resized);
    assert_eq!(a.look(&key).await.holders.len(), 3);
    if b.is_pushed_to() {
        for arrival in &waiting[..2] {
            assert_eq!(b.hears_grant().await.0, *arrival);
        }
    }
    // They asked when there were two permits, and find themselves all the same.
    b.granted(&key, &b.want_permits(3, 1, 2)).await;
    b.waiting(&key, &b.want_permits(4, 1, 2)).await;
}

/// Holders keep their permits, and nothing is granted until enough were released.
pub async fn shrinking_revokes_nothing(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    for number in 1..=3 {
        a.granted(&key, &a.want_permits(number, 1, 3)).await;
    }
    assert_eq!(b.resize(&key, 3, 1).await, ResizeReply::Resized);
    for number in 1..=3 {
        let held = a.renew(&key, &a.want(number), LONG).await;
        assert!(stands(held).token.is_some());
    }
    for number in 1..=3 {
        b.waiting(&key, &b.want_permits(4, 1, 1)).await;
        a.release(&key, &a.want(number)).await;
    }
    b.granted(&key, &b.want_permits(4, 1, 1)).await;
}

/// A waiting claim that can no longer fit is removed and does not block the claims behind it. It
/// is notified by a push if it is first in the queue, otherwise when it asks again.
pub async fn waiter_too_heavy_is_told(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b, c], key) = scene(fixture).await;
    a.granted(&key, &a.want_permits(1, 2, 3)).await;
    let heavy = b.waiting(&key, &b.want_permits(2, 3, 3)).await.arrival;
    c.waiting(&key, &c.want_permits(3, 2, 3)).await;
    b.waiting(&key, &b.want_permits(4, 3, 3)).await;
    let in_use = Capacity::Permits(2);
    assert_eq!(c.resize(&key, 3, 2).await, ResizeReply::Resized);
    if b.is_pushed_to() {
        b.hears_this(|push| match push {
            Push::Unfit {
                key: pushed,
                arrival,
                in_use: permits,
                ..
            } => (pushed, *arrival, *permits) == (&key, heavy, in_use) && push.is_proved_by(&id(2)),
            _ => false,
        })
        .await;
    }
    assert_eq!(b.renew(&key, &b.want(2), LONG).await, RenewReply::Gone);
    let told = b.ask(&key, &b.want_permits(4, 3, 3)).await.reply;
    assert_eq!(told, ClaimReply::Mismatch { in_use });
    assert_eq!(b.renew(&key, &b.want(4), LONG).await, RenewReply::Gone);
    a.release(&key, &a.want(1)).await;
    c.granted(&key, &c.want_permits(3, 2, 3)).await;
}

/// An idle key has no number of permits.
pub async fn resize_idle_key_is_absent(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a], key) = scene(fixture).await;
    assert_eq!(a.resize(&key, 1, 2).await, ResizeReply::Absent);
    a.granted(&key, &a.want_permits(1, 1, 3)).await;
    a.release(&key, &a.want(1)).await;
    assert_eq!(a.resize(&key, 3, 2).await, ResizeReply::Absent);
}
