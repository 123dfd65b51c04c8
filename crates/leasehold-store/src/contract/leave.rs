//! Contract cases of releases, withdrawals, minimum holds and breaks.

use crate::{ErrorKind, Push, Verbs as _};
use leasehold_core::{
    BreakReply, Claim, ClaimReply, ClientInfo, Mode, Release, ReleaseReply, RenewReply, Token,
};

use super::actor::{id, keeps_a_queue, key as named, knows_all_kinds, scene};
use super::{Fixture, LONG};

/// The step that releases also grants the next claim, and its inbox is notified.
pub async fn release_hands_on_to_next(fixture: &dyn Fixture) {
    if !keeps_a_queue(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    let (_, first) = a.granted(&key, &a.want(1)).await;
    let waiting = b.waiting(&key, &b.want(2)).await;
    assert_eq!(
        a.release(&key, &a.want(1)).await,
        ReleaseReply::Released { held: true }
    );
    let look = a.look(&key).await;
    assert_eq!(look.holders.len(), 1);
    assert!(look.holders[0].token > first);
    if b.is_pushed_to() {
        assert_eq!(
            b.hears_grant().await,
            (waiting.arrival, look.holders[0].token)
        );
    }
}

/// A second release finds no claim and has no effect.
pub async fn release_twice_is_absent(fixture: &dyn Fixture) {
    let ([a, b], key) = scene(fixture).await;
    a.granted(&key, &a.want(1)).await;
    if b.queues() {
        b.waiting(&key, &b.want(2)).await;
    }
    assert_eq!(
        a.release(&key, &a.want(1)).await,
        ReleaseReply::Released { held: true }
    );
    assert_eq!(a.release(&key, &a.want(1)).await, ReleaseReply::Absent);
    b.granted(&key, &b.want(2)).await;
}

/// A release of an unknown claim does not affect other claims.
pub async fn release_unknown_is_absent(fixture: &dyn Fixture) {
    let ([a], key) = scene(fixture).await;
    assert_eq!(a.release(&key, &a.want(9)).await, ReleaseReply::Absent);
    a.granted(&key, &a.want(1)).await;
    assert_eq!(a.release(&key, &a.want(8)).await, ReleaseReply::Absent);
    assert!(matches!(
        a.renew(&key, &a.want(1), LONG).await,
        RenewReply::Standing(_)
    ));
}

/// A waiter that leaves does not block others, whatever its position.
pub async fn withdrawn_waiter_is_passed(fixture: &dyn Fixture) {
    if !keeps_a_queue(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    a.granted(&key, &a.want(1)).await;
    for id in 2..=6 {
        b.waiting(&key, &b.want(id)).await;
    }
    for id in [2, 4, 6] {
        assert_eq!(
            b.release(&key, &b.want(id)).await,
            ReleaseReply::Released { held: false }
        );
    }
    for (leaver, next) in [(1, 3), (3, 5)] {
        a.release(&key, &a.want(leaver)).await;
        b.granted(&key, &b.want(next)).await;
    }
    b.release(&key, &b.want(5)).await;
    b.granted(&key, &b.want(7)).await;
}

/// Breaking a key fences its holders and grants the next claim. A protected system that is given
/// the token of the answer refuses the holders' lower tokens, and admits the next one.
pub async fn break_fences_holders(fixture: &dyn Fixture) {
    let ([a, b], key) = scene(fixture).await;
    let (_, first) = a.granted(&key, &a.want(1)).await;
    if b.queues() {
        b.waiting(&key, &b.want(2)).await;
    }
    let broken = b
        .store
        .break_key(&key, &ClientInfo::unknown())
        .await
        .expect("an answer")
        .reply;
    let BreakReply::Broken { holders: 1, token } = broken else {
        panic!("{broken:?}");
    };
    assert!(a.rises(first, token), "{first} is not below {token}");
    assert_eq!(a.renew(&key, &a.want(1), LONG).await, RenewReply::Gone);
    assert_eq!(a.ask(&key, &a.want(1)).await.reply, ClaimReply::Gone);
    let (_, second) = b.granted(&key, &b.want(2)).await;
    assert!(a.rises(token, second), "{second} is not above {token}");
}

/// A break that names a token takes the key from the holder with that token, and from no other.
pub async fn break_of_one_grant_takes_no_other(fixture: &dyn Fixture) {
    let ([a, b], key) = scene(fixture).await;
    let by = ClientInfo::unknown();
    let (_, first) = a.granted(&key, &a.want(1)).await;
    if !a.store.capabilities().tokens {
        let refused = b.store.break_grant(&key, first, &by).await;
        let refused = refused.map(|answer| answer.reply).expect_err("no tokens");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        return;
    }
    a.release(&key, &a.want(1)).await;
    let (_, second) = b.granted(&key, &b.want(2)).await;
    for other in [first, Token(second.0 + 1), Token::NONE] {
        let answer = a.store.break_grant(&key, other, &by).await;
        let BreakReply::Broken { holders, .. } = answer.expect("an answer").reply;
        assert_eq!(holders, 0, "{other} is not {second}");
    }
    assert!(matches!(
        b.renew(&key, &b.want(2), LONG).await,
        RenewReply::Standing(_)
    ));
    let answer = a.store.break_grant(&key, second, &by).await;
    let BreakReply::Broken { holders, token } = answer.expect("an answer").reply;
    assert!(holders == 1 && token >= second, "{token} voids {second}");
    assert_eq!(b.renew(&key, &b.want(2), LONG).await, RenewReply::Gone);
    assert!(a.granted(&key, &a.want(3)).await.1 > token);

    // Of several that hold at once, one.
    if !knows_all_kinds(fixture).await {
        return;
    }
    let key = named("pool");
    let two = |number| Claim {
        mode: Mode::permits(2, 1),
        ..a.want(number)
    };
    let (_, first) = a.granted(&key, &two(4)).await;
    let (_, second) = a.granted(&key, &two(5)).await;
    let answer = b.store.break_grant(&key, first, &by).await;
    let BreakReply::Broken { holders, .. } = answer.expect("an answer").reply;
    let left: Vec<_> = b
        .look(&key)
        .await
        .holders
        .iter()
        .map(|it| it.token)
        .collect();
    assert_eq!((holders, left), (1, vec![second]));
}

/// A snapshot shows whether a client has stopped renewing, if a minimum hold keeps the key for
/// longer.
pub async fn silent_holder_is_told_from_its_minimum_hold(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    let job = Claim {
        lease_ttl: fixture.short(),
        min_hold: LONG,
        ..a.want(1)
    };
    a.granted(&key, &job).await;
    assert!(matches!(
        a.renew(&key, &job, fixture.short() * 2).await,
        RenewReply::Standing(_)
    ));
    let look = b.look(&key).await;
    let runs = look.holders[0].claim.renewed;
    assert!(runs.is_some_and(|until| until > look.at && until <= look.at + fixture.short() * 2));
    fixture.pass(fixture.short() * 3).await;
    let look = b.look(&key).await;
    let silent = &look.holders[0].claim;
    assert!(silent.deadline.since(look.at) > LONG / 2);
    assert!(silent.renewed.is_some_and(|until| until <= look.at));
    // It may have been cut off only.
    a.renew(&key, &job, LONG).await;
    let look = b.look(&key).await;
    let found = look.holders[0].claim.renewed;
    assert!(found.is_some_and(|until| until > look.at));
}

/// Holders are notified that their key was broken.
pub async fn break_tells_holders(fixture: &dyn Fixture) {
    let ([a, b], key) = scene(fixture).await;
    let (arrival, _) = a.granted(&key, &a.want(1)).await;
    b.store
        .break_key(&key, &ClientInfo::unknown())
        .await
        .expect("an answer");
    if a.is_pushed_to() {
        let push = a.hears().await;
        let told = matches!(&push, Push::Revoked { key: pushed, arrival: of, .. }
            if (pushed, *of) == (&key, arrival));
        assert!(told && push.is_proved_by(&id(1)), "{push:?}");
    }
}

/// A key stays taken for the minimum hold after its claim was released. A snapshot shows that,
/// and the claim cannot be renewed.
pub async fn minimum_hold_outlives_its_release(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    let kept = Claim {
        min_hold: LONG / 2,
        ..a.want(1)
    };
    let (arrival, token) = a.granted(&key, &kept).await;
    let waiting = b.waiting(&key, &b.want(2)).await;
    assert_eq!(
        a.release(&key, &kept).await,
        ReleaseReply::Released { held: true }
    );
    let look = b.look(&key).await;
    let shown: Vec<_> = look
        .holders
        .iter()
        .map(|holder| (holder.claim.arrival, holder.token, holder.claim.kept))
        .collect();
    assert_eq!(shown, [(arrival, token, true)]);
    assert!(look.holders[0].claim.deadline.since(look.at) <= kept.min_hold);
    assert_eq!(a.renew(&key, &kept, LONG).await, RenewReply::Gone);
    assert_eq!(a.ask(&key, &kept).await.reply, ClaimReply::Gone);
    assert_eq!(a.release(&key, &kept).await, ReleaseReply::Absent);
    if b.is_pushed_to() {
        // It was told of the lease, which would have lasted longer.
        match b.hears().await {
            Push::Next { arrival, left, .. } => {
                assert_eq!(arrival, waiting.arrival);
                assert!(left <= kept.min_hold);
            }
            other => panic!("{other:?} where a hint was due"),
        }
    }
    b.waiting(&key, &b.want(2)).await;

    // On another key it is over soon, and the next has it.
    let key = named("brief");
    let kept = Claim {
        min_hold: fixture.short(),
        ..a.want(1)
    };
    let (_, token) = a.granted(&key, &kept).await;
    a.release(&key, &kept).await;
    b.ask(&key, &b.want(2)).await;
    fixture.pass(fixture.short() + fixture.short()).await;
    assert!(b.granted(&key, &b.want(2)).await.1 > token);
}

/// A grant that was never used has no minimum hold.
pub async fn unused_grant_keeps_nothing(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    let kept = Claim {
        min_hold: LONG,
        ..a.want(1)
    };
    let (_, token) = a.granted(&key, &kept).await;
    b.waiting(&key, &b.want(2)).await;
    let release = Release {
        unused: true,
        ..a.leaving(&kept)
    };
    let answer = a.store.release(&key, &release).await;
    let reply = answer.expect("an answer").reply;
    assert_eq!(reply, ReleaseReply::Released { held: true });
    assert!(b.granted(&key, &b.want(2)).await.1 > token);
}
