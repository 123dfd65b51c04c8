//! Contract cases of rotation and adoption.

use crate::Push;
use leasehold_core::{
    Adopt, ClaimReply, ClientInfo, ReleaseReply, Renew, RenewReply, Rotate, Token,
};

use super::actor::{Actor, id, key, knows_all_kinds, scene, stands};
use super::{Fixture, LONG};

/// Replaces the id `from`, which was replaced `version` times, by `to`.
fn rotation(from: u128, version: u64, to: u128) -> Renew {
    let rotate = Rotate {
        to: id(to),
        version,
        adopt: None,
    };
    Renew {
        rotate: Some(rotate),
        ..Renew::new(id(from), LONG)
    }
}

/// The same, and hands the claim to `by`.
fn adoption(by: &Actor, from: u128, to: u128) -> Renew {
    let adopt = Adopt {
        inbox: Some(by.store.inbox().clone()),
        owner: ClientInfo::new("elsewhere", 8, None),
    };
    let mut renew = rotation(from, 0, to);
    if let Some(rotate) = &mut renew.rotate {
        rotate.adopt = Some(adopt);
    }
    renew
}

/// The claim keeps its place under a new id, and the old id is useless.
pub async fn rotation_replaces_the_id(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    let (arrival, token) = a.granted(&key, &a.want(1)).await;
    let place = b.waiting(&key, &b.want(2)).await.arrival;
    let held = stands(a.change(&key, &rotation(1, 0, 11)).await);
    assert_eq!((held.arrival, held.token), (arrival, Some(token)));
    let waiting = stands(b.change(&key, &rotation(2, 0, 12)).await);
    assert_eq!((waiting.arrival, waiting.token), (place, None));
    for (actor, old) in [(&a, 1), (&b, 2)] {
        let claim = actor.want(old);
        assert_eq!(
            actor.renew(&key, &claim, LONG).await,
            RenewReply::Superseded
        );
        assert_eq!(actor.ask(&key, &claim).await.reply, ClaimReply::Gone);
        assert_eq!(actor.release(&key, &claim).await, ReleaseReply::Absent);
    }
    // Neither one that is in the queue, nor one that was.
    for used in [12, 2] {
        assert_eq!(
            a.change(&key, &rotation(11, 1, used)).await,
            RenewReply::Taken
        );
    }
    assert_eq!(
        a.change(&key, &rotation(11, 0, 21)).await,
        RenewReply::Superseded,
        "of a version that is gone"
    );
    assert_eq!(
        a.release(&key, &a.want(11)).await,
        ReleaseReply::Released { held: true }
    );
    assert_eq!(b.granted(&key, &b.want(12)).await.0, place);
}

/// A rotation whose answer was lost can be repeated.
pub async fn rotation_again_finds_itself(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a], key) = scene(fixture).await;
    let held = a.granted(&key, &a.want(1)).await;
    for _ in 0..3 {
        let found = stands(a.change(&key, &rotation(1, 0, 2)).await);
        assert_eq!((found.arrival, found.token), (held.0, Some(held.1)));
    }
    let next = stands(a.change(&key, &rotation(2, 1, 3)).await);
    assert_eq!((next.arrival, next.token), (held.0, Some(held.1)));
    let late = a.change(&key, &rotation(1, 0, 2)).await;
    assert_eq!(late, RenewReply::Superseded, "rotated again since");
}

/// If two clients rotate the same id, one of them has the claim, and both know which.
pub async fn concurrent_rotations_have_one_winner(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let [a, b] = scene(fixture).await.0;
    for round in 0..10 {
        let key = key(&format!("k{round}"));
        a.granted(&key, &a.want(1)).await;
        let (first, second) = (rotation(1, 0, 2), rotation(1, 0, 3));
        let (one, other) = tokio::join!(a.change(&key, &first), b.change(&key, &second));
        let winner = match (one, other) {
            (RenewReply::Standing(_), RenewReply::Superseded) => 2,
            (RenewReply::Superseded, RenewReply::Standing(_)) => 3,
            both => panic!("{both:?}"),
        };
        assert_eq!(
            a.release(&key, &a.want(winner)).await,
            ReleaseReply::Released { held: true }
        );
    }
}

/// The claim goes to another client with a higher token, and the former client is notified.
pub async fn adoption_raises_the_token_and_tells_the_former(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    let (arrival, former) = a.granted(&key, &a.want(1)).await;
    let waiting = a.waiting(&key, &a.want(2)).await.arrival;
    let adopted = stands(b.change(&key, &adoption(&b, 1, 11)).await);
    assert_eq!(adopted.arrival, arrival);
    assert!(adopted.token > Some(former));
    let again = stands(b.change(&key, &adoption(&b, 1, 11)).await);
    assert_eq!(again.token, adopted.token, "asked again it finds itself");
    // Who waits has no token yet, and hears where it is now.
    let moved = stands(b.change(&key, &adoption(&b, 2, 12)).await);
    assert_eq!((moved.arrival, moved.token), (waiting, None));
    if a.is_pushed_to() {
        // By the ids that the former client knows.
        for (arrival, former) in [(arrival, id(1)), (waiting, id(2))] {
            a.hears_this(|push| match push {
                Push::Adopted {
                    key: pushed,
                    arrival: of,
                    ..
                } => (pushed, *of) == (&key, arrival) && push.is_proved_by(&former),
                _ => false,
            })
            .await;
        }
    }
    for old in [1, 2] {
        let renewed = a.renew(&key, &a.want(old), LONG).await;
        assert_eq!(renewed, RenewReply::Superseded);
    }
    let look = a.look(&key).await;
    assert_eq!(look.holders[0].claim.owner.host, "elsewhere");
    assert_eq!(Some(look.last_token), adopted.token);
    b.release(&key, &b.want(11)).await;
    if b.is_pushed_to() {
        assert_eq!(b.hears_grant().await.0, waiting);
    }
    let (_, next) = b.granted(&key, &b.want(12)).await;
    assert!(Some(next) > adopted.token);
}

/// Adoption raises the token of all claims of the owner. Otherwise the former client could
/// continue to write with another of its claims.
pub async fn adoption_raises_the_token_of_all_claims_of_the_owner(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    let (_, former) = a.granted(&key, &a.want_as(1, 7)).await;
    a.granted(&key, &a.want_as(2, 7)).await;
    let adopted = stands(b.change(&key, &adoption(&b, 1, 11)).await);
    let token = adopted.token.unwrap_or(Token(0));
    assert!(token > former);
    let other = stands(a.renew(&key, &a.want(2), LONG).await);
    assert_eq!(other.token, Some(token));
    // It is one hold still.
    a.waiting(&key, &a.want(3)).await;
    b.release(&key, &b.want(11)).await;
    a.waiting(&key, &a.want(3)).await;
    a.release(&key, &a.want(2)).await;
    a.granted(&key, &a.want(3)).await;
}
