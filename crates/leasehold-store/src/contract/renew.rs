//! Contract cases of renewals and downgrades.

use std::time::Duration;

use leasehold_core::{Mode, RenewReply};

use super::actor::{Actor, brief, renewing, scene, shared, stands};
use super::{Fixture, LONG};

/// A renewal raises the deadline and never lowers it.
pub async fn renew_raises_never_lowers(fixture: &dyn Fixture) {
    let [a] = scene(fixture).await;
    let granted = stands(a.ask(brief(1, fixture)).await.reply);
    let raised = stands(a.renew(1, LONG).await);
    assert!(raised.deadline > granted.deadline);
    let kept = stands(a.renew(1, fixture.short()).await);
    // Where nothing is kept but what is left of it, the deadline is a sum of two readings.
    let exact = a.can().owners;
    let slack = if exact { Duration::ZERO } else { LONG / 60 };
    assert!(kept.deadline + slack >= raised.deadline);
    assert!(kept.deadline <= raised.deadline + slack);
    fixture.pass(2 * fixture.short()).await;
    stands(a.renew(1, fixture.short()).await);
}

/// A claim that is not in the queue cannot be renewed.
pub async fn renew_unknown_is_gone(fixture: &dyn Fixture) {
    let [a] = scene(fixture).await;
    assert_eq!(a.renew(1, LONG).await, RenewReply::Gone);
    a.granted(2).await;
    assert_eq!(a.renew(1, LONG).await, RenewReply::Gone);
}

/// A renewal changes neither place nor token.
pub async fn renew_keeps_place_and_token(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let (arrival, token) = a.granted(1).await;
    let waiting = b.waits_in_queue(2).await;
    let held = stands(a.renew(1, LONG).await);
    assert_eq!((held.arrival, held.token), (arrival, Some(token)));
    if let Some(arrival) = waiting {
        let still = stands(b.renew(2, LONG).await);
        assert_eq!((still.arrival, still.token), (arrival, None));
        assert_eq!((held.position, still.position), (0, 1));
    }
}

/// A downgraded writer keeps its token. The readers next to it are granted, and no writer can
/// hold in between.
pub async fn downgrade_lets_readers_in_and_no_writer_between(fixture: &dyn Fixture) {
    async fn modes(actor: &Actor) -> Vec<Mode> {
        let holders = actor.look().await.holders;
        holders.iter().map(|holder| holder.claim.mode).collect()
    }
    let [a, b] = scene(fixture).await;
    let (arrival, token) = a.granted(1).await;
    let reader = b.waiting(shared(2)).await.arrival;
    b.waiting(3).await;
    b.waiting(shared(4)).await;
    let downgrade = renewing(1, |it| it.downgrade = true);
    // A second one finds it done.
    for _ in 0..2 {
        let held = stands(a.change(&downgrade).await);
        assert_eq!((held.arrival, held.token), (arrival, Some(token)));
    }
    b.hears_grant(reader).await;
    assert_eq!(modes(&a).await, [Mode::SHARED, Mode::SHARED]);
    b.waiting(3).await;
    a.release(1).await;
    b.waiting(3).await;
    b.release(2).await;
    b.granted(3).await;
    assert_eq!(modes(&a).await, [Mode::EXCLUSIVE]);
    b.waiting(shared(4)).await;
}
