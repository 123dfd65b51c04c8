//! Leases whose claim ids change hands, over any store.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{
    ClaimIds, Client, ErrorKind, LeaseParts, LeaseState, Loss, Owner, RenewalPolicy, Shared,
};

use super::{
    Fixture, Outcome, client, client_with, clients, idle, in_line, knows_all_kinds, soon, ttl,
    until,
};
use crate::expect::fails;

/// A rotated id is stale; the lease stays what it was.
pub async fn a_rotation_makes_a_leaked_id_stale(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let (ours, theirs) = (a.mutex("k")?, b.mutex("k")?);
    let lease = ours.lock().await?;
    let leaked = lease.parts().unwrap();
    let token = lease.token();
    lease.rotate().await?;
    lease.rotate().await?;
    assert_eq!(lease.parts().unwrap().version(), 2);
    assert_eq!(lease.token(), token, "the same hold");
    fails(theirs.adopt_by_force(&leaked).await, ErrorKind::Lost);
    lease.renew().await?;
    let _ = lease.release().await?;
    idle(&b, "k").await;
    Ok(())
}

/// Of two who rotate one id exactly one goes on, and the other is told.
pub async fn of_two_rotations_one_wins(fixture: &dyn Fixture) -> Outcome {
    let [a, b, c] = clients(fixture).await;
    let lease = a.mutex("k")?.lock().await?;
    let parts = lease.into_parts().await?;
    let (one, two) = (b.mutex("k")?, c.mutex("k")?);
    let (one, two) = tokio::join!(one.adopt(&parts), two.adopt(&parts));
    let (won, lost) = match (one, two) {
        (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
        both => panic!("one of two: {both:?}"),
    };
    assert_eq!(lost.kind(), ErrorKind::Lost);
    assert!(lost.to_string().contains("taken over"), "{lost}");
    assert!(won.token() > parts.token());
    won.renew().await?;
    Ok(())
}

/// The watchdog rotates by itself, and the lease never notices.
pub async fn the_watchdog_rotates(fixture: &dyn Fixture) -> Outcome {
    let settings = ttl(Duration::from_secs(2)).with_rotate_every(Some(Duration::from_millis(1)));
    let client = client_with(fixture, settings).await;
    let lease = client.mutex("k")?.lock().await?;
    let first = lease.parts().unwrap();
    until("three rotations", 20, async || {
        assert_eq!(lease.state(), LeaseState::Held);
        lease.parts().unwrap().version() >= 3
    })
    .await;
    assert_ne!(lease.parts().unwrap().claim(), first.claim());
    let _ = lease.release().await?;
    idle(&client, "k").await;
    Ok(())
}

/// The lease ahead was dropped just now, and the store may not know it yet.
pub async fn a_lease_right_behind_another_is_handed_over(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let ours = a.mutex("k")?;
    for taker in [&a, &b] {
        for _ in 0..10 {
            drop(ours.lock().await?);
            let lease = ours.lock().await?;
            let parts = lease.into_parts().await?;
            let taken = taker.mutex("k")?.adopt(&parts).await;
            let _ = taken?.release().await?;
        }
    }
    Ok(())
}

/// A lease travels as data: the giver's validity ends first, the taker's token
/// is higher, and nobody comes between.
pub async fn a_lease_is_handed_over(fixture: &dyn Fixture) -> Outcome {
    let [a, b, c] = clients(fixture).await;
    let ours = a.mutex("k")?;
    let lease = ours.lock().await?;
    let token = lease.token();
    let waiter = c.mutex("k")?;
    let waiting = in_line(&a, "k", 1, async move { waiter.lock().await }).await;
    let parts = lease.into_parts().await?;
    assert!(parts.is_handed_over());
    let shown = format!("{parts:?}").contains(parts.claim().expose());
    assert!(!shown, "no secret is shown");
    let written = serde_json::to_string(&parts)?;
    let read: LeaseParts = serde_json::from_str(&written)?;
    let as_another = serde_json::from_str::<LeaseParts<Shared>>(&written);
    assert!(as_another.is_err(), "as what it is");
    let taken = b.mutex("k")?.adopt(&read).await?;
    assert!(taken.token() > token);
    assert!(!waiting.is_finished());
    taken.renew().await?;
    let _ = taken.release().await?;
    let lease = soon("the waiter", waiting).await?;
    assert!(lease.is_ok());
    Ok(())
}

/// A re-entrant lease is handed over as one: taken as another kind, it would
/// offer what its record does not do, and its owner would wait for itself.
pub async fn a_reentrant_lease_stays_one(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let owner = Owner::new();
    let lock = a.reentrant("k", &owner)?;
    let parts = lock.lock().await?.into_parts().await?;
    let mutex = b.mutex("k")?;
    fails(mutex.adopt(&parts).await, ErrorKind::Invalid);
    let lock = b.reentrant("k", &owner)?;
    let outer = lock.adopt(&parts).await?;
    let inner = soon("re-entry", lock.lock()).await?;
    assert_eq!(inner.token(), outer.token());
    let _ = inner.release().await?;
    let _ = outer.release().await?;

    // One of two is handed over: the other has the old token, and leaves when it hears so.
    let former = a.reentrant("k", &owner)?;
    let stays = former.lock().await?;
    let goes = former.lock().await?;
    let token = stays.token();
    let parts = goes.into_parts().await?;
    let taken = lock.adopt(&parts).await?;
    assert!(taken.token() > token);
    stays.renew().await.expect_err("another token");
    assert_eq!(soon("the loss", stays.lost()).await, Loss::Forgotten);
    // What is lost does not pass for its heir.
    assert_eq!(stays.token(), token);
    drop(stays);
    let _ = taken.release().await?;
    let next = soon("the key", mutex.lock()).await?;
    let _ = next.release().await?;

    let plain = mutex.lock().await?;
    let parts = plain.into_parts().await?;
    fails(lock.adopt(&parts).await, ErrorKind::Invalid);
    assert!(mutex.adopt(&parts).await.is_ok());
    Ok(())
}

/// A forced adoption tells the former holder, which had not handed over.
pub async fn a_forced_adoption_tells_the_former(fixture: &dyn Fixture) -> Outcome {
    // By push if it listens already, else by its next renewal.
    let a = client_with(fixture, ttl(Duration::from_millis(900))).await;
    let b = client(fixture).await;
    let (ours, theirs) = (a.mutex("k")?, b.mutex("k")?);
    let lease = ours.lock().await?;
    let parts = lease.parts().unwrap();
    // It is not handed over.
    fails(theirs.adopt(&parts).await, ErrorKind::Invalid);
    let taken = theirs.adopt_by_force(&parts).await?;
    assert!(taken.token() > parts.token());
    assert_eq!(soon("the loss", lease.lost()).await, Loss::Superseded);
    drop(lease);
    taken.renew().await?;
    let elsewhere = b.mutex("x")?.adopt_by_force(&parts).await;
    fails(elsewhere, ErrorKind::Invalid);
    Ok(())
}

/// Recovery takes the old claim if it is there, and else claims anew.
pub async fn recovery_goes_on_or_begins_anew(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let (ours, theirs) = (a.mutex("k")?, b.mutex("k")?);
    let lease = ours.lock().await?;
    let parts = lease.parts().unwrap();
    let recovered = theirs.try_recover(&parts).await?.ok_or("a lease")?;
    assert!(!recovered.is_new && recovered.lease.token() > parts.token());
    let _ = recovered.lease.release().await?;
    let recovered = theirs.try_recover(&parts).await?.ok_or("a lease")?;
    assert!(recovered.is_new);
    let busy = ours.try_recover(&parts).await?;
    assert!(busy.is_none(), "claims anew, and it is busy");
    drop(lease);
    assert!(recovered.lease.is_valid(), "the stale one releases nothing");
    Ok(())
}

/// Custom ids repeat in their readable part only: no claim is taken for another one, and a
/// rotation finds a new id.
pub async fn a_claim_id_is_never_shared(fixture: &dyn Fixture) -> Outcome {
    let ids = ClaimIds::custom(Arc::new(|| "same".to_owned()));
    let client = Client::builder().with_store(fixture.client().await);
    let client = client.claim_ids(ids).connect().await?;
    let lock = client.mutex("k")?;
    let lease = lock.lock().await?;
    assert!(lock.try_lock().await?.is_none());
    if knows_all_kinds(fixture).await {
        let before = lease.parts().unwrap();
        lease.rotate().await?;
        let after = lease.parts().unwrap();
        assert_ne!(before.claim(), after.claim());
        assert!(after.claim().expose().starts_with("same-"));
    }
    let _ = lease.release().await?;
    assert!(lock.try_lock().await?.is_some());
    Ok(())
}

/// A lease that nobody renews is not prolonged by a change either.
pub async fn a_change_does_not_prolong_a_fixed_lease(fixture: &dyn Fixture) -> Outcome {
    let client = client_with(fixture, ttl(Duration::from_millis(700))).await;
    let lock = client.mutex("k")?;
    let lock = lock.with_renewal(RenewalPolicy::Fixed);
    let lease = lock.lock().await?;
    let left = lease.remaining();
    let end = tokio::time::Instant::now() + left;
    tokio::time::sleep(left / 2).await;
    lease.rotate().await?;
    // The margin for a drifting clock is counted anew, from what is left.
    assert!(lease.remaining() < left * 3 / 4, "{:?}", lease.remaining());
    assert_eq!(soon("its end", lease.lost()).await, Loss::Expired);
    let late = end.elapsed();
    assert!(late < Duration::from_millis(500), "{late:?} late");
    Ok(())
}
