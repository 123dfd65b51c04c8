//! Contract cases of renewals and downgrades.

use std::time::Duration;

use leasehold_core::{Claim, Mode, Renew, RenewReply};

use super::actor::{knows_all_kinds, scene, stands};
use super::{Fixture, LONG};

/// A renewal raises the deadline and never lowers it.
pub async fn renew_raises_never_lowers(fixture: &dyn Fixture) {
    let ([a], key) = scene(fixture).await;
    let brief = Claim {
        lease_ttl: fixture.short(),
        ..a.want(1)
    };
    let granted = a.standing(&key, &brief).await;
    let RenewReply::Standing(raised) = a.renew(&key, &brief, LONG).await else {
        panic!("renewed")
    };
    assert!(raised.deadline > granted.deadline);
    let RenewReply::Standing(kept) = a.renew(&key, &brief, fixture.short()).await else {
        panic!("renewed")
    };
    // Where nothing is kept but what is left of it, the deadline is a sum of two readings.
    let exact = a.store.capabilities().owners;
    let slack = Duration::from_millis(if exact { 0 } else { 50 });
    assert!(kept.deadline + slack >= raised.deadline);
    assert!(kept.deadline <= raised.deadline + slack);
    fixture.pass(fixture.short() + fixture.short()).await;
    assert!(matches!(
        a.renew(&key, &brief, fixture.short()).await,
        RenewReply::Standing(_)
    ));
}

/// A claim that is not in the queue cannot be renewed.
pub async fn renew_unknown_is_gone(fixture: &dyn Fixture) {
    let ([a], key) = scene(fixture).await;
    assert_eq!(a.renew(&key, &a.want(1), LONG).await, RenewReply::Gone);
    a.granted(&key, &a.want(2)).await;
    assert_eq!(a.renew(&key, &a.want(1), LONG).await, RenewReply::Gone);
}

/// A renewal changes neither place nor token.
pub async fn renew_keeps_place_and_token(fixture: &dyn Fixture) {
    let ([a, b], key) = scene(fixture).await;
    let (arrival, token) = a.granted(&key, &a.want(1)).await;
    if !b.queues() {
        let held = stands(a.renew(&key, &a.want(1), LONG).await);
        assert_eq!((held.arrival, held.token), (arrival, Some(token)));
        return;
    }
    let waiting = b.waiting(&key, &b.want(2)).await;
    let RenewReply::Standing(held) = a.renew(&key, &a.want(1), LONG).await else {
        panic!("renewed")
    };
    assert_eq!(
        (held.arrival, held.token, held.position),
        (arrival, Some(token), 0)
    );
    let RenewReply::Standing(still) = b.renew(&key, &b.want(2), LONG).await else {
        panic!("renewed")
    };
    assert_eq!(
        (still.arrival, still.token, still.position),
        (waiting.arrival, None, 1)
    );
}

/// A downgraded writer keeps its token. The readers next to it are granted, and no writer can
/// hold in between.
pub async fn downgrade_lets_readers_in_and_no_writer_between(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    let (arrival, token) = a.granted(&key, &a.want(1)).await;
    let reader = b.waiting(&key, &b.want_shared(2)).await.arrival;
    b.waiting(&key, &b.want(3)).await;
    b.waiting(&key, &b.want_shared(4)).await;
    let downgrade = Renew {
        downgrade: true,
        ..Renew::new(a.want(1).id, LONG)
    };
    // A second one finds it done.
    for _ in 0..2 {
        let held = stands(a.change(&key, &downgrade).await);
        assert_eq!((held.arrival, held.token), (arrival, Some(token)));
    }
    if b.is_pushed_to() {
        assert_eq!(b.hears_grant().await.0, reader);
    }
    let modes = |look: leasehold_core::Snapshot| -> Vec<_> {
        look.holders.iter().map(|h| h.claim.mode).collect()
    };
    assert_eq!(modes(a.look(&key).await), [Mode::SHARED, Mode::SHARED]);
    b.waiting(&key, &b.want(3)).await;
    a.release(&key, &a.want(1)).await;
    b.waiting(&key, &b.want(3)).await;
    b.release(&key, &b.want_shared(2)).await;
    b.granted(&key, &b.want(3)).await;
    assert_eq!(modes(a.look(&key).await), [Mode::EXCLUSIVE]);
    b.waiting(&key, &b.want_shared(4)).await;
}
