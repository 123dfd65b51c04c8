//! Contract cases of releases, withdrawals, minimum holds and breaks.

use leasehold_core::{ClaimReply, ClientInfo, ReleaseReply, RenewReply, Token};

use super::actor::{RELEASED, Wanted, brief, id, kept, leaving, permits, scene, stands};
use super::{Fixture, LONG};
use crate::{ErrorKind, Push, Verbs as _};

/// The step that releases also grants the next claim, and its inbox is notified.
pub async fn release_hands_on_to_next(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let (_, first) = a.granted(1).await;
    let waiting = b.waiting(2).await.arrival;
    assert_eq!(a.release(1).await, RELEASED);
    let held = a.held().await;
    assert_eq!(held.len(), 1);
    assert!(held[0] > first);
    let told = b.hears_grant(waiting).await;
    assert_eq!(told.unwrap_or(held[0]), held[0]);
}

/// A second release finds no claim and has no effect.
pub async fn release_twice_is_absent(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    a.granted(1).await;
    b.waits_in_queue(2).await;
    assert_eq!(a.release(1).await, RELEASED);
    assert_eq!(a.release(1).await, ReleaseReply::Absent);
    b.granted(2).await;
}

/// A release of an unknown claim does not affect other claims.
pub async fn release_unknown_is_absent(fixture: &dyn Fixture) {
    let [a] = scene(fixture).await;
    assert_eq!(a.release(9).await, ReleaseReply::Absent);
    a.granted(1).await;
    assert_eq!(a.release(8).await, ReleaseReply::Absent);
    stands(a.renew(1, LONG).await);
}

/// A waiter that leaves does not block others, whatever its position.
pub async fn withdrawn_waiter_is_passed(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    a.granted(1).await;
    for number in 2..=6 {
        b.waiting(number).await;
    }
    for number in [2, 4, 6] {
        let left = b.release(number).await;
        assert_eq!(left, ReleaseReply::Released { held: false });
    }
    for (leaver, next) in [(1, 3), (3, 5)] {
        a.release(leaver).await;
        b.granted(next).await;
    }
    b.release(5).await;
    b.granted(7).await;
}

/// Breaking a key fences its holders and grants the next claim. A protected system that is given
/// the token of the answer refuses the holders' lower tokens, and admits the next one.
pub async fn break_fences_holders(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let (_, first) = a.granted(1).await;
    b.waits_in_queue(2).await;
    let (holders, token) = b.breaks(None).await;
    assert_eq!(holders, 1);
    assert!(a.rises(first, token), "{first} is not below {token}");
    assert_eq!(a.renew(1, LONG).await, RenewReply::Gone);
    assert_eq!(a.ask(1).await.reply, ClaimReply::Gone);
    let (_, second) = b.granted(2).await;
    assert!(a.rises(token, second), "{second} is not above {token}");
}

/// A break that names a token takes the key from the holder with that token, and from no other.
pub async fn break_of_one_grant_takes_no_other(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let (_, first) = a.granted(1).await;
    if !a.can().tokens {
        let by = ClientInfo::unknown();
        let refused = b.store.break_grant(&b.key, first, &by).await;
        let refused = refused.map(|answer| answer.reply).expect_err("no tokens");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        return;
    }
    a.release(1).await;
    let (_, second) = b.granted(2).await;
    for other in [first, Token::from(second.get() + 1), Token::NONE] {
        let (holders, _) = a.breaks(Some(other)).await;
        assert_eq!(holders, 0, "{other} is not {second}");
    }
    stands(b.renew(2, LONG).await);
    let (holders, token) = a.breaks(Some(second)).await;
    assert!(holders == 1 && token >= second, "{token} voids {second}");
    assert_eq!(b.renew(2, LONG).await, RenewReply::Gone);
    assert!(a.granted(3).await.1 > token);

    // Of several that hold at once, one.
    if !a.can().exclusive_only {
        let (a, b) = (a.at("pool"), b.at("pool"));
        let (_, first) = a.granted(permits(4, 1, 2)).await;
        let (_, second) = a.granted(permits(5, 1, 2)).await;
        assert_eq!(b.breaks(Some(first)).await.0, 1);
        assert_eq!(b.held().await, [second]);
    }
}

/// Holders are notified that their key was broken.
pub async fn break_tells_holders(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let (held, _) = a.granted(1).await;
    b.breaks(None).await;
    if a.can().push {
        let push = a.hears().await;
        let told = matches!(push, Push::Revoked { .. }) && push.claim() == Some((&a.key, held));
        assert!(told && push.is_proved_by(&id(1)), "{push:?}");
    }
}

/// A snapshot shows whether a client has stopped renewing, if a minimum hold keeps the key for
/// longer.
pub async fn silent_holder_is_told_from_its_minimum_hold(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let job = brief(1, fixture).with(|it| it.min_hold = LONG);
    let holder = async || {
        let look = b.look().await;
        let claim = look.holders[0].claim.clone();
        let renewed = claim.renewed.expect("until when it is renewed");
        (look.at, renewed, claim.deadline)
    };
    a.granted(job).await;
    stands(a.renew(1, fixture.short() * 2).await);
    let (at, renewed, _) = holder().await;
    assert!(renewed > at && renewed <= at + fixture.short() * 2);
    fixture.pass(fixture.short() * 3).await;
    let (at, renewed, deadline) = holder().await;
    assert!(deadline.since(at) > LONG / 2 && renewed <= at);
    // It may have been cut off only.
    a.renew(1, LONG).await;
    let (at, renewed, _) = holder().await;
    assert!(renewed > at);
}

/// A key stays taken for the minimum hold after its claim was released. A snapshot shows that,
/// and the claim cannot be renewed.
pub async fn minimum_hold_outlives_its_release(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let hold = LONG / 4;
    let (arrival, token) = a.granted(kept(1, hold)).await;
    let waiting = b.waiting(2).await.arrival;
    assert_eq!(a.release(1).await, RELEASED);
    let look = b.look().await;
    let [holder] = &look.holders[..] else {
        panic!("{look:?}");
    };
    let held = &holder.claim;
    assert_eq!((held.arrival, holder.token), (arrival, token));
    assert!(held.kept && held.deadline.since(look.at) <= hold);
    assert_eq!(a.renew(1, LONG).await, RenewReply::Gone);
    assert_eq!(a.ask(kept(1, hold)).await.reply, ClaimReply::Gone);
    assert_eq!(a.release(1).await, ReleaseReply::Absent);
    if b.can().push {
        // It was told of the lease, which would have lasted longer, and renews its place later.
        match b.hears().await {
            Push::Next { arrival, left, .. } => assert!(arrival == waiting && left <= hold),
            other => panic!("{other:?} where a hint was due"),
        }
    }
    b.waiting(2).await;

    // On another key it is over soon, and the next has it.
    let (a, b) = (a.at("brief"), b.at("brief"));
    let (_, token) = a.granted(kept(1, fixture.short())).await;
    a.release(1).await;
    b.ask(2).await;
    fixture.pass(2 * fixture.short()).await;
    assert!(b.granted(2).await.1 > token);
}

/// A grant that was never used has no minimum hold.
pub async fn unused_grant_keeps_nothing(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let (_, token) = a.granted(kept(1, LONG)).await;
    b.waiting(2).await;
    let mut unused = leaving(1);
    unused.unused = true;
    assert_eq!(a.leave(&unused).await, RELEASED);
    assert!(b.granted(2).await.1 > token);
}
