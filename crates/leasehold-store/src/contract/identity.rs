//! Contract cases of rotation and adoption.

use leasehold_core::{
    Adopt, ClaimReply, ClientInfo, ReleaseReply, Renew, RenewReply, Rotate, Token,
};

use super::actor::{Actor, RELEASED, id, owned, renewing, scene, stands};
use super::{Fixture, LONG};
use crate::Push;

/// Replaces the id `from`, which was replaced `version` times, by `to`.
fn rotation(from: u128, version: u64, to: u128) -> Renew {
    let (to, adopt) = (id(to), None);
    renewing(from, |it| it.rotate = Some(Rotate { to, version, adopt }))
}

/// The same, and hands the claim to `by`.
fn adoption(by: &Actor, from: u128, to: u128) -> Renew {
    let adopt = Some(Adopt {
        inbox: Some(by.store.inbox().clone()),
        owner: ClientInfo::new("elsewhere", 8, None),
    });
    let (to, version) = (id(to), 0);
    renewing(from, |it| it.rotate = Some(Rotate { to, version, adopt }))
}

/// The claim keeps its place under a new id, and the old id is useless.
pub async fn rotation_replaces_the_id(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let (arrival, token) = a.granted(1).await;
    let place = b.waiting(2).await.arrival;
    let held = stands(a.change(&rotation(1, 0, 11)).await);
    assert_eq!((held.arrival, held.token), (arrival, Some(token)));
    let waiting = stands(b.change(&rotation(2, 0, 12)).await);
    assert_eq!((waiting.arrival, waiting.token), (place, None));
    for (actor, old) in [(&a, 1), (&b, 2)] {
        assert_eq!(actor.renew(old, LONG).await, RenewReply::Superseded);
        assert_eq!(actor.ask(old).await.reply, ClaimReply::Gone);
        assert_eq!(actor.release(old).await, ReleaseReply::Absent);
    }
    // Neither one that is in the queue, nor one that was.
    for used in [12, 2] {
        let again = a.change(&rotation(11, 1, used)).await;
        assert_eq!(again, RenewReply::Taken);
    }
    let late = a.change(&rotation(11, 0, 21)).await;
    assert_eq!(late, RenewReply::Superseded, "of a version that is gone");
    assert_eq!(a.release(11).await, RELEASED);
    assert_eq!(b.granted(12).await.0, place);
}

/// A rotation whose answer was lost can be repeated.
pub async fn rotation_again_finds_itself(fixture: &dyn Fixture) {
    let [a] = scene(fixture).await;
    let held = a.granted(1).await;
    for (from, version, to) in [(1, 0, 2), (1, 0, 2), (1, 0, 2), (2, 1, 3)] {
        let found = stands(a.change(&rotation(from, version, to)).await);
        assert_eq!((found.arrival, found.token), (held.0, Some(held.1)));
    }
    let late = a.change(&rotation(1, 0, 2)).await;
    assert_eq!(late, RenewReply::Superseded, "rotated again since");
}

/// If two clients rotate the same id, one of them has the claim, and both know which.
pub async fn concurrent_rotations_have_one_winner(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    for round in 0..10 {
        let name = format!("k{round}");
        let (a, b) = (a.at(&name), b.at(&name));
        a.granted(1).await;
        let (first, second) = (rotation(1, 0, 2), rotation(1, 0, 3));
        let winner = match tokio::join!(a.change(&first), b.change(&second)) {
            (RenewReply::Standing(_), RenewReply::Superseded) => 2,
            (RenewReply::Superseded, RenewReply::Standing(_)) => 3,
            both => panic!("{both:?}"),
        };
        assert_eq!(a.release(winner).await, RELEASED);
    }
}

/// The claim goes to another client with a higher token, and the former client is notified.
pub async fn adoption_raises_the_token_and_tells_the_former(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let (arrival, former) = a.granted(1).await;
    let waiting = a.waiting(2).await.arrival;
    let adopted = stands(b.change(&adoption(&b, 1, 11)).await);
    assert_eq!(adopted.arrival, arrival);
    assert!(adopted.token > Some(former));
    let again = stands(b.change(&adoption(&b, 1, 11)).await);
    assert_eq!(again.token, adopted.token, "asked again it finds itself");
    // Who waits has no token yet, and hears where it is now.
    let moved = stands(b.change(&adoption(&b, 2, 12)).await);
    assert_eq!((moved.arrival, moved.token), (waiting, None));
    // By the ids that the former client knows.
    for (of, former) in [(arrival, 1), (waiting, 2)] {
        a.hears_of(of, former, |push| matches!(push, Push::Adopted { .. }))
            .await;
    }
    for old in [1, 2] {
        assert_eq!(a.renew(old, LONG).await, RenewReply::Superseded);
    }
    let look = a.look().await;
    assert_eq!(look.holders[0].claim.owner.host, "elsewhere");
    assert_eq!(Some(look.last_token), adopted.token);
    b.release(11).await;
    b.hears_grant(waiting).await;
    assert!(Some(b.granted(12).await.1) > adopted.token);
}

/// Adoption raises the token of all claims of the owner. Otherwise the former client could
/// continue to write with another of its claims.
pub async fn adoption_raises_the_token_of_all_claims_of_the_owner(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let (_, former) = a.granted(owned(1, 7)).await;
    a.granted(owned(2, 7)).await;
    let adopted = stands(b.change(&adoption(&b, 1, 11)).await);
    let token = adopted.token.unwrap_or(Token::NONE);
    assert!(token > former);
    let other = stands(a.renew(2, LONG).await);
    assert_eq!(other.token, Some(token));
    // It is one hold still.
    a.waiting(3).await;
    b.release(11).await;
    a.waiting(3).await;
    a.release(2).await;
    a.granted(3).await;
}
