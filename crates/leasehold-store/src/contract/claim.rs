//! Contract cases of claims: who is granted, and in which order.

use leasehold_core::{Capacity, ClaimReply, ReleaseReply, RenewReply, Token};

use super::actor::{Actor, RELEASED, Wanted, brief, leaving, permits, scene, shared, trying};
use super::{Fixture, LONG};

/// A free key is granted at once, with a token above zero where there are tokens.
pub async fn claim_free_key_is_granted(fixture: &dyn Fixture) {
    let [a] = scene(fixture).await;
    for name in [
        "k",
        "with space",
        "{tag}x",
        "}odd{",
        "emoji 🔒",
        "a:b/c*?[d]",
        &"x".repeat(512),
    ] {
        let a = a.at(name);
        let (_, token) = a.granted(1).await;
        assert_eq!(token.is_none(), !a.can().tokens, "{name}");
        assert_eq!(a.release(1).await, RELEASED, "{name}");
    }
}

/// On a held key a claim waits, or is answered `Busy` and leaves nothing behind.
pub async fn claim_held_key_waits_or_is_busy(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    a.granted(1).await;
    let busy = b.ask(trying(2)).await;
    assert!(matches!(busy.reply, ClaimReply::Busy { blocked_until } if blocked_until >= busy.at));
    assert_eq!(b.renew(2, LONG).await, RenewReply::Gone);
    if !b.can().queueing {
        assert!(matches!(b.ask(3).await.reply, ClaimReply::Busy { .. }));
        return;
    }
    assert_eq!(b.waiting(3).await.position, 1);
    assert_eq!(b.waiting(4).await.position, 2);
}

/// A repeated claim finds itself: same arrival number, same token, only one claim.
pub async fn claim_again_finds_itself(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let first = a.granted(1).await;
    assert_eq!(a.granted(1).await, first);
    if !a.can().queueing {
        return;
    }
    let arrival = b.waiting(2).await.arrival;
    assert_eq!(b.waiting(2).await.arrival, arrival);
    a.release(1).await;
    assert_eq!(b.granted(2).await.0, arrival);
    b.release(2).await;
    let look = b.look().await;
    assert!(look.holders.is_empty() && look.waiters.is_empty());
}

/// A released id stays released, also if its claim never existed.
pub async fn claim_after_release_is_gone(fixture: &dyn Fixture) {
    let [a] = scene(fixture).await;
    a.granted(1).await;
    a.release(1).await;
    assert_eq!(a.ask(1).await.reply, ClaimReply::Gone);
    assert_eq!(a.release(2).await, ReleaseReply::Absent);
    assert_eq!(a.ask(2).await.reply, ClaimReply::Gone);
    a.granted(3).await;
}

/// First come, first served.
pub async fn claims_are_granted_in_order(fixture: &dyn Fixture) {
    let both: [Actor; 2] = scene(fixture).await;
    let turns = || (0..=6).zip(both.iter().cycle());
    both[0].granted(0).await;
    let mut arrivals = Vec::new();
    for (id, actor) in turns().skip(1) {
        arrivals.push(actor.waiting(id).await.arrival);
    }
    assert!(arrivals.is_sorted_by(|x, y| x < y), "{arrivals:?}");
    for (((id, actor), (next_id, next)), arrival) in turns().zip(turns().skip(1)).zip(arrivals) {
        actor.release(id).await;
        assert_eq!(next.granted(next_id).await.0, arrival);
    }
}

/// A key in use has one capacity. When it is idle, it can get another.
pub async fn claim_of_other_capacity_is_mismatch(fixture: &dyn Fixture) {
    let [a] = scene(fixture).await;
    a.granted(1).await;
    let in_use = Capacity::Lock;
    let reply = a.ask(permits(2, 1, 3)).await.reply;
    assert_eq!(reply, ClaimReply::Mismatch { in_use });
    a.release(1).await;
    for number in 3..6 {
        a.granted(permits(number, 1, 3)).await;
    }
    a.waiting(permits(6, 1, 3)).await;
    let in_use = Capacity::Permits(3);
    assert_eq!(a.ask(7).await.reply, ClaimReply::Mismatch { in_use });
}

/// An unfair claim takes a free key ahead of waiters.
pub async fn claim_ahead_passes_waiters(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    a.granted(1).await;
    b.waiting(2).await;
    let mut vacate = leaving(1);
    vacate.hand_off = false;
    assert_eq!(a.leave(&vacate).await, RELEASED);
    a.granted(3.with(|it| it.ahead = true)).await;
    b.waiting(2).await;
    a.release(3).await;
    b.granted(2).await;
}

/// An expired holder does not block waiters.
pub async fn lapsed_holder_is_passed(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let (_, first) = a.granted(brief(1, fixture)).await;
    b.waits_in_queue(2).await;
    fixture.pass(2 * fixture.short()).await;
    let (_, second) = b.granted(2).await;
    assert!(a.rises(first, second));
    assert_eq!(a.renew(1, LONG).await, RenewReply::Gone);
    assert_eq!(a.release(1).await, ReleaseReply::Absent);
}

/// Tokens strictly increase in the order of grants.
pub async fn tokens_strictly_increase(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let mut last = Token::NONE;
    for id in 0..20 {
        let actor = if id % 3 == 0 { &a } else { &b };
        let (_, token) = actor.granted(id).await;
        assert!(a.rises(last, token));
        last = token;
        actor.release(id).await;
    }
}

/// A client cannot claim with the id of another client.
pub async fn claim_id_of_another_client_is_taken(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let held = a.granted(1).await;
    assert_eq!(b.ask(1).await.reply, ClaimReply::Taken);
    assert_eq!(a.granted(1).await, held);
    if !a.can().queueing {
        return;
    }
    let waiting = a.waiting(2).await.arrival;
    assert_eq!(b.ask(2).await.reply, ClaimReply::Taken);
    assert_eq!(a.waiting(2).await.arrival, waiting);
}

/// Readers share the key. A writer excludes all others, and readers queue behind a waiting
/// writer.
pub async fn readers_share_and_writers_exclude(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let (_, first) = a.granted(shared(1)).await;
    let (_, second) = b.granted(shared(2)).await;
    assert!(second > first, "each reader has a token of its own");
    b.waiting(3).await;
    a.waiting(shared(4)).await;
    a.waiting(shared(5)).await;
    a.release(1).await;
    b.waiting(3).await;
    b.release(2).await;
    b.granted(3).await;
    a.waiting(shared(4)).await;
    b.release(3).await;
    a.granted(shared(4)).await;
    a.granted(shared(5)).await;
}
