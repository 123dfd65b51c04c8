//! Leases whose claim ids change hands, over any store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::core::ClaimId;
use leasehold::{
    ClaimIds, Client, ErrorKind, LeaseParts, Loss, Owner, RenewalPolicy, Shared, Standpoint, Wait,
};

use super::{Fixture, client, client_with, idle, knows_all_kinds, queued, soon, ttl};

/// A rotated id is stale; the lease stays what it was.
pub async fn a_rotation_makes_a_leaked_id_stale(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let (a, b) = (client(fixture).await, client(fixture).await);
    let (ours, theirs) = (a.mutex("k").expect("a lock"), b.mutex("k").expect("a lock"));
    let lease = ours.lock().await.expect("a lease");
    let leaked = lease.parts();
    let token = lease.token();
    lease.rotate().await.expect("rotated");
    lease.rotate().await.expect("and again");
    assert_eq!(lease.parts().version(), 2);
    assert_eq!(lease.token(), token, "the same hold");
    let refused = theirs.adopt_by_force(&leaked).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Lost);
    lease.renew().await.expect("still ours");
    let _ = lease.release().await.expect("an answer");
    idle(&b, "k").await;
}

/// Of two who rotate one id exactly one goes on, and the other is told.
pub async fn of_two_rotations_one_wins(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let (a, b, c) = (
        client(fixture).await,
        client(fixture).await,
        client(fixture).await,
    );
    let lease = a.mutex("k").expect("a lock").lock().await.expect("a lease");
    let parts = lease.into_parts().await.expect("parts");
    let (one, two) = (b.mutex("k").expect("a lock"), c.mutex("k").expect("a lock"));
    let (one, two) = tokio::join!(one.adopt(&parts), two.adopt(&parts));
    let (won, lost) = match (one, two) {
        (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
        both => panic!("one of two: {both:?}"),
    };
    assert_eq!(lost.kind(), ErrorKind::Lost);
    assert!(lost.to_string().contains("taken over"), "{lost}");
    assert!(won.token() > parts.token());
    won.renew().await.expect("it holds");
}

/// The watchdog rotates by itself, and the lease never notices.
pub async fn the_watchdog_rotates(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let settings = ttl(Duration::from_secs(2)).with_rotate_every(Some(Duration::from_millis(1)));
    let client = client_with(fixture, settings).await;
    let lease = client
        .mutex("k")
        .expect("a lock")
        .lock()
        .await
        .expect("a lease");
    let first = lease.parts();
    soon("three rotations", async {
        while lease.parts().version() < 3 {
            assert_eq!(lease.standpoint(), Standpoint::Held);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_ne!(lease.parts().claim(), first.claim());
    let _ = lease.release().await.expect("an answer");
    idle(&client, "k").await;
}

/// The lease ahead was dropped just now, and the store may not know it yet.
pub async fn a_lease_right_behind_another_is_handed_over(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let (a, b) = (client(fixture).await, client(fixture).await);
    let ours = a.mutex("k").expect("a lock");
    for taker in [&a, &b] {
        for _ in 0..10 {
            drop(ours.lock().await.expect("a lease"));
            let lease = ours.lock().await.expect("a lease");
            let parts = lease.into_parts().await.expect("parts");
            let taken = taker.mutex("k").expect("a lock").adopt(&parts).await;
            let _ = taken
                .expect("the lease")
                .release()
                .await
                .expect("an answer");
        }
    }
}

/// A lease travels as data: the giver's validity ends first, the taker's token
/// is higher, and nobody comes between.
pub async fn a_lease_is_handed_over(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let (a, b, c) = (
        client(fixture).await,
        client(fixture).await,
        client(fixture).await,
    );
    let ours = a.mutex("k").expect("a lock");
    let lease = ours.lock().await.expect("a lease");
    let token = lease.token();
    let waiter = c.mutex("k").expect("a lock");
    let waiting = tokio::spawn(async move { waiter.lock().await });
    queued(&a, "k", 1).await;
    let parts = lease.into_parts().await.expect("parts");
    assert!(parts.is_handed_over());
    assert!(
        !format!("{parts:?}").contains(parts.claim().expose()),
        "no secret is shown"
    );
    let written = serde_json::to_string(&parts).expect("written");
    let read: LeaseParts = serde_json::from_str(&written).expect("read");
    assert!(
        serde_json::from_str::<LeaseParts<Shared>>(&written).is_err(),
        "as what it is"
    );
    let taken = b
        .mutex("k")
        .expect("a lock")
        .adopt(&read)
        .await
        .expect("a lease");
    assert!(taken.token() > token);
    assert!(!waiting.is_finished());
    taken.renew().await.expect("it holds");
    let _ = taken.release().await.expect("an answer");
    let lease = soon("the waiter", waiting).await.expect("no panic");
    assert!(lease.is_ok());
}

/// A re-entrant lease is handed over as one: taken as another kind, it would
/// offer what its record does not do, and its owner would wait for itself.
pub async fn a_reentrant_lease_stays_one(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let (a, b) = (client(fixture).await, client(fixture).await);
    let owner = Owner::new();
    let lock = a.reentrant("k", &owner).expect("a lock");
    let parts = lock
        .lock()
        .await
        .expect("a lease")
        .into_parts()
        .await
        .expect("parts");
    let mutex = b.mutex("k").expect("a lock");
    let refused = mutex.adopt(&parts).await.expect_err("another kind");
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    let lock = b.reentrant("k", &owner).expect("a lock");
    let outer = lock.adopt(&parts).await.expect("a lease");
    let inner = soon("re-entry", lock.lock()).await.expect("a lease");
    assert_eq!(inner.token(), outer.token());
    let _ = inner.release().await.expect("an answer");
    let _ = outer.release().await.expect("an answer");

    // One of two is handed over: the other has the old token, and leaves when it hears so.
    let former = a.reentrant("k", &owner).expect("a lock");
    let stays = former.lock().await.expect("a lease");
    let goes = former.lock().await.expect("a lease");
    let token = stays.token();
    let parts = goes.into_parts().await.expect("parts");
    let taken = lock.adopt(&parts).await.expect("a lease");
    assert!(taken.token() > token);
    stays.renew().await.expect_err("another token");
    assert_eq!(soon("the loss", stays.lost()).await, Loss::Forgotten);
    assert_eq!(
        stays.token(),
        token,
        "what is lost does not pass for its heir"
    );
    drop(stays);
    let _ = taken.release().await.expect("an answer");
    let next = soon("the key", mutex.lock()).await.expect("a lease");
    let _ = next.release().await.expect("an answer");

    let plain = mutex.lock().await.expect("a lease");
    let parts = plain.into_parts().await.expect("parts");
    let refused = lock.adopt(&parts).await.expect_err("another kind");
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(mutex.adopt(&parts).await.is_ok());
}

/// A forced adoption tells the former holder, which had not handed over.
pub async fn a_forced_adoption_tells_the_former(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    // By push if it listens already, else by its next renewal.
    let a = client_with(fixture, ttl(Duration::from_millis(900))).await;
    let b = client(fixture).await;
    let (ours, theirs) = (a.mutex("k").expect("a lock"), b.mutex("k").expect("a lock"));
    let lease = ours.lock().await.expect("a lease");
    let parts = lease.parts();
    let refused = theirs.adopt(&parts).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "not handed over");
    let taken = theirs.adopt_by_force(&parts).await.expect("a lease");
    assert!(taken.token() > parts.token());
    assert_eq!(soon("the loss", lease.lost()).await, Loss::Superseded);
    drop(lease);
    taken
        .renew()
        .await
        .expect("the former releases nothing of ours");
    let elsewhere = b.mutex("x").expect("a lock").adopt_by_force(&parts).await;
    assert_eq!(
        elsewhere.unwrap_err().kind(),
        ErrorKind::Invalid,
        "another key"
    );
}

/// Recovery takes the old claim if it is there, and else claims anew.
pub async fn recovery_goes_on_or_begins_anew(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let (a, b) = (client(fixture).await, client(fixture).await);
    let (ours, theirs) = (a.mutex("k").expect("a lock"), b.mutex("k").expect("a lock"));
    let lease = ours.lock().await.expect("a lease");
    let parts = lease.parts();
    let recovered = theirs
        .recover(&parts, Wait::No)
        .await
        .expect("an answer")
        .expect("a lease");
    assert!(!recovered.anew && recovered.lease.token() > parts.token());
    let _ = recovered.lease.release().await.expect("an answer");
    let recovered = theirs
        .recover(&parts, Wait::No)
        .await
        .expect("an answer")
        .expect("a lease");
    assert!(recovered.anew);
    let busy = ours.recover(&parts, Wait::No).await.expect("an answer");
    assert!(busy.is_none(), "claims anew, and it is busy");
    drop(lease);
    assert!(recovered.lease.is_valid(), "the stale one releases nothing");
}

/// Clients whose ids come from these, one after the other, the last for ever.
async fn client_of_ids(fixture: &dyn Fixture, ids: &'static [&'static str]) -> Client {
    let next = AtomicUsize::new(0);
    let make = move || {
        let at = next.fetch_add(1, Ordering::SeqCst).min(ids.len() - 1);
        ClaimId::new(ids[at])
    };
    Client::builder()
        .with_store(fixture.client().await)
        .claim_ids(ClaimIds::custom(Arc::new(make)))
        .connect()
        .await
        .expect("a client")
}

/// A claim id that is another's is answered by a new one, three times at most.
pub async fn a_claim_id_is_never_shared(fixture: &dyn Fixture) {
    let a = client_of_ids(fixture, &["same"]).await;
    let b = client_of_ids(fixture, &["same", "same", "other"]).await;
    let c = client_of_ids(fixture, &["same"]).await;
    let lease = a.mutex("k").expect("a lock").lock().await.expect("a lease");
    let second = a.mutex("k").expect("a lock").try_lock().await.unwrap_err();
    assert_eq!(
        second.kind(),
        ErrorKind::Invalid,
        "twice in one client: {second}"
    );
    let other = b
        .mutex("k")
        .expect("a lock")
        .try_lock()
        .await
        .expect("an answer");
    assert!(
        other.is_none(),
        "it is busy, and not found in another's claim"
    );
    let never = c.mutex("k").expect("a lock").lock().await.unwrap_err();
    assert_eq!(never.kind(), ErrorKind::Invalid, "{never}");
    assert!(
        a.mutex("elsewhere")
            .expect("a lock")
            .try_lock()
            .await
            .expect("an answer")
            .is_some()
    );
    let _ = lease.release().await.expect("an answer");
    assert!(
        a.mutex("x")
            .expect("a lock")
            .try_lock()
            .await
            .expect("an answer")
            .is_some()
    );
}

/// An id that a rotation or an adoption brought is the claim's own too: another
/// claim of the client that is given it would find itself in that lease.
pub async fn a_replaced_id_is_never_shared(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let a = client_of_ids(fixture, &["first", "second", "second"]).await;
    let lock = a.mutex("k").expect("a lock");
    let lease = lock.lock().await.expect("a lease");
    lease.rotate().await.expect("rotated");
    let second = lock.try_lock().await.expect_err("no id for it");
    assert_eq!(second.kind(), ErrorKind::Invalid, "{second}");
    let parts = lease.into_parts().await.expect("parts");

    let b = client_of_ids(fixture, &["third", "third"]).await;
    let lock = b.mutex("k").expect("a lock");
    let lease = lock.adopt(&parts).await.expect("a lease");
    let second = lock.try_lock().await.expect_err("no id for it");
    assert_eq!(second.kind(), ErrorKind::Invalid, "{second}");
    // What no claim stands under any more is free for another.
    let _ = lease.release().await.expect("an answer");
    let next = lock.try_lock().await.expect("an answer");
    assert!(next.is_some());
}

/// A lease that nobody renews is not prolonged by a change either.
pub async fn a_change_does_not_prolong_a_fixed_lease(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let client = client_with(fixture, ttl(Duration::from_millis(700))).await;
    let lock = client.mutex("k").expect("a lock");
    let lock = lock.with_renewal(RenewalPolicy::Fixed).expect("a policy");
    let lease = lock.lock().await.expect("a lease");
    let left = lease.remaining();
    let end = tokio::time::Instant::now() + left;
    tokio::time::sleep(left / 2).await;
    lease.rotate().await.expect("rotated");
    // The margin for a drifting clock is counted anew, from what is left.
    assert!(lease.remaining() < left * 3 / 4, "{:?}", lease.remaining());
    assert_eq!(soon("its end", lease.lost()).await, Loss::Expired);
    assert!(
        end.elapsed() < Duration::from_millis(500),
        "{:?} late",
        end.elapsed()
    );
}
