//! Contract cases of claims: who is granted, and in which order.

use crate::Verbs as _;
use leasehold_core::{Capacity, Claim, ClaimReply, Release, ReleaseReply, RenewReply, Token};

use super::actor::{Actor, keeps_a_queue, key, knows_all_kinds, scene};
use super::{Fixture, LONG};

/// A free key is granted at once, with a token above zero where there are tokens.
pub async fn claim_free_key_is_granted(fixture: &dyn Fixture) {
    let a = Actor::new(fixture).await;
    for name in [
        "k",
        "with space",
        "{tag}x",
        "}odd{",
        "emoji 🔒",
        "a:b/c*?[d]",
        &"x".repeat(512),
    ] {
        let key = key(name);
        let (_, token) = a.granted(&key, &a.want(1)).await;
        assert_eq!(token.is_none(), !a.has_tokens(), "{name}");
        assert_eq!(
            a.release(&key, &a.want(1)).await,
            ReleaseReply::Released { held: true },
            "{name}"
        );
    }
}

/// On a held key a claim waits, or is answered `Busy` and leaves nothing behind.
pub async fn claim_held_key_waits_or_is_busy(fixture: &dyn Fixture) {
    let ([a, b], key) = scene(fixture).await;
    a.granted(&key, &a.want(1)).await;
    let trying = Claim {
        wait: false,
        ..b.want(2)
    };
    let busy = b.ask(&key, &trying).await;
    assert!(matches!(busy.reply, ClaimReply::Busy { blocked_until } if blocked_until >= busy.at));
    assert_eq!(b.renew(&key, &trying, LONG).await, RenewReply::Gone);
    if !b.queues() {
        let busy = b.ask(&key, &b.want(3)).await;
        assert!(matches!(busy.reply, ClaimReply::Busy { .. }));
        return;
    }
    let waiting = b.waiting(&key, &b.want(3)).await;
    assert_eq!(waiting.position, 1);
    assert_eq!(b.waiting(&key, &b.want(4)).await.position, 2);
}

/// A repeated claim finds itself: same arrival number, same token, only one claim.
pub async fn claim_again_finds_itself(fixture: &dyn Fixture) {
    let ([a, b], key) = scene(fixture).await;
    let first = a.granted(&key, &a.want(1)).await;
    assert_eq!(a.granted(&key, &a.want(1)).await, first);
    if !a.queues() {
        return;
    }
    let waiting = b.waiting(&key, &b.want(2)).await;
    assert_eq!(b.waiting(&key, &b.want(2)).await.arrival, waiting.arrival);
    a.release(&key, &a.want(1)).await;
    let (arrival, _) = b.granted(&key, &b.want(2)).await;
    assert_eq!(arrival, waiting.arrival);
    b.release(&key, &b.want(2)).await;
    let look = b.look(&key).await;
    assert!(look.holders.is_empty() && look.waiters.is_empty());
}

/// A released id stays released, also if its claim never existed.
pub async fn claim_after_release_is_gone(fixture: &dyn Fixture) {
    let ([a], key) = scene(fixture).await;
    a.granted(&key, &a.want(1)).await;
    a.release(&key, &a.want(1)).await;
    assert_eq!(a.ask(&key, &a.want(1)).await.reply, ClaimReply::Gone);
    assert_eq!(a.release(&key, &a.want(2)).await, ReleaseReply::Absent);
    assert_eq!(a.ask(&key, &a.want(2)).await.reply, ClaimReply::Gone);
    a.granted(&key, &a.want(3)).await;
}

/// First come, first served.
pub async fn claims_are_granted_in_order(fixture: &dyn Fixture) {
    if !keeps_a_queue(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    a.granted(&key, &a.want(0)).await;
    let mut arrivals = Vec::new();
    for id in 1..=6 {
        let actor = if id % 2 == 0 { &a } else { &b };
        arrivals.push(actor.waiting(&key, &actor.want(id)).await.arrival);
    }
    assert!(arrivals.is_sorted_by(|x, y| x < y), "{arrivals:?}");
    for id in 0..6 {
        let (actor, next) = if id % 2 == 0 { (&a, &b) } else { (&b, &a) };
        actor.release(&key, &actor.want(id)).await;
        let (arrival, _) = next.granted(&key, &next.want(id + 1)).await;
        assert_eq!(
            Some(&arrival),
            arrivals.get(usize::try_from(id).expect("small"))
        );
    }
}

/// A key in use has one capacity. When it is idle, it can get another.
pub async fn claim_of_other_capacity_is_mismatch(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a], key) = scene(fixture).await;
    a.granted(&key, &a.want(1)).await;
    let reply = a.ask(&key, &a.want_permits(2, 1, 3)).await.reply;
    assert_eq!(
        reply,
        ClaimReply::Mismatch {
            in_use: Capacity::Lock
        }
    );
    a.release(&key, &a.want(1)).await;
    for id in 3..6 {
        a.granted(&key, &a.want_permits(id, 1, 3)).await;
    }
    a.waiting(&key, &a.want_permits(6, 1, 3)).await;
    let reply = a.ask(&key, &a.want(7)).await.reply;
    assert_eq!(
        reply,
        ClaimReply::Mismatch {
            in_use: Capacity::Permits(3)
        }
    );
}

/// An unfair claim takes a free key ahead of waiters.
pub async fn claim_ahead_passes_waiters(fixture: &dyn Fixture) {
    if !keeps_a_queue(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    a.granted(&key, &a.want(1)).await;
    b.waiting(&key, &b.want(2)).await;
    let vacate = Release {
        id: a.want(1).id,
        hand_off: false,
        settled: false,
        unused: false,
    };
    let reply = a
        .store
        .release(&key, &vacate)
        .await
        .expect("an answer")
        .reply;
    assert_eq!(reply, ReleaseReply::Released { held: true });
    a.granted(
        &key,
        &Claim {
            ahead: true,
            ..a.want(3)
        },
    )
    .await;
    b.waiting(&key, &b.want(2)).await;
    a.release(&key, &a.want(3)).await;
    b.granted(&key, &b.want(2)).await;
}

/// An expired holder does not block waiters.
pub async fn lapsed_holder_is_passed(fixture: &dyn Fixture) {
    let ([a, b], key) = scene(fixture).await;
    let brief = Claim {
        lease_ttl: fixture.short(),
        ..a.want(1)
    };
    let (_, first) = a.granted(&key, &brief).await;
    if b.queues() {
        b.waiting(&key, &b.want(2)).await;
    }
    fixture.pass(fixture.short() + fixture.short()).await;
    let (_, second) = b.granted(&key, &b.want(2)).await;
    assert!(a.rises(first, second));
    assert_eq!(a.renew(&key, &brief, LONG).await, RenewReply::Gone);
    assert_eq!(a.release(&key, &brief).await, ReleaseReply::Absent);
}

/// Tokens strictly increase in the order of grants.
pub async fn tokens_strictly_increase(fixture: &dyn Fixture) {
    let ([a, b], key) = scene(fixture).await;
    let mut last = Token(0);
    for id in 0..20 {
        let actor = if id % 3 == 0 { &a } else { &b };
        let (_, token) = actor.granted(&key, &actor.want(id)).await;
        assert!(a.rises(last, token));
        last = token;
        actor.release(&key, &actor.want(id)).await;
    }
}

/// A client cannot claim with the id of another client.
pub async fn claim_id_of_another_client_is_taken(fixture: &dyn Fixture) {
    let ([a, b], key) = scene(fixture).await;
    let (held, token) = a.granted(&key, &a.want(1)).await;
    assert_eq!(b.ask(&key, &b.want(1)).await.reply, ClaimReply::Taken);
    assert_eq!(a.granted(&key, &a.want(1)).await, (held, token));
    if !a.queues() {
        return;
    }
    let waiting = a.waiting(&key, &a.want(2)).await.arrival;
    assert_eq!(b.ask(&key, &b.want(2)).await.reply, ClaimReply::Taken);
    assert_eq!(a.waiting(&key, &a.want(2)).await.arrival, waiting);
}

/// Readers share the key. A writer excludes all others, and readers queue behind a waiting
/// writer.
pub async fn readers_share_and_writers_exclude(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    let (_, first) = a.granted(&key, &a.want_shared(1)).await;
    let (_, second) = b.granted(&key, &b.want_shared(2)).await;
    assert!(second > first, "each reader has a token of its own");
    b.waiting(&key, &b.want(3)).await;
    a.waiting(&key, &a.want_shared(4)).await;
    a.waiting(&key, &a.want_shared(5)).await;
    a.release(&key, &a.want_shared(1)).await;
    b.waiting(&key, &b.want(3)).await;
    b.release(&key, &b.want_shared(2)).await;
    b.granted(&key, &b.want(3)).await;
    a.waiting(&key, &a.want_shared(4)).await;
    b.release(&key, &b.want(3)).await;
    for number in [4, 5] {
        a.granted(&key, &a.want_shared(number)).await;
    }
}
