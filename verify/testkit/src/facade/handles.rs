//! What handles and leases tell and do beside the verbs, over any store.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{ErrorKind, Exclusive, Mode, Owner, Permits, Released, Retry, Shared};
use tokio::sync::Notify;

use super::{Fixture, Outcome, clients, idle, knows_all_kinds, one_that_hears, soon};
use crate::expect::{fails, times_out};

/// A handle tells whether and by whom its key is held, and how many permits are left.
pub async fn handles_tell_who_holds(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let (ours, theirs) = (a.mutex("k")?, b.mutex("k")?);
    assert!(!theirs.is_locked().await?);
    let lease = ours.lock().await?;
    assert!(theirs.is_locked().await?);
    let holders = theirs.holders().await?;
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].token, lease.token());
    let _ = lease.release().await?;
    assert!(!theirs.is_locked().await?);

    if !knows_all_kinds(fixture).await {
        return Ok(());
    }
    let config = a.rwlock("config")?;
    let readers = (config.read().await?, config.read().await?);
    assert_eq!(config.holders().await?.len(), 2);
    drop(readers);
    let mailers = a.semaphore("mailers", 3)?;
    assert_eq!(mailers.available_permits().await?, 3);
    let two = mailers.acquire_many(2).await?;
    assert_eq!(mailers.available_permits().await?, 1);
    let wider = b.semaphore("mailers", 5)?;
    let left = wider.available_permits().await?;
    assert_eq!(left, 1, "of as many as there are in use");
    let _ = two.release().await?;
    assert_eq!(wider.available_permits().await?, 5);
    let lock = ours.lock().await?;
    let permits = a.semaphore("k", 1)?;
    fails(permits.available_permits().await, ErrorKind::Invalid);
    drop(lock);
    Ok(())
}

/// A lock whose mode is a value makes the same claims as the typed kind of that mode.
pub async fn an_untyped_lock_is_any_kind(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let ours = a.lock_of("k", Mode::EXCLUSIVE)?;
    let lease = ours.lock().await?;
    assert_eq!(lease.token().is_some(), a.capabilities().tokens);
    let mutex = b.mutex("k")?;
    assert!(mutex.try_lock().await?.is_none());
    let lease = lease.downcast::<Shared>().expect_err("held alone");
    let lease = lease.downcast::<Exclusive>().expect("it is exclusive");
    let lease = lease.into_any();
    assert!(lease.is_valid());
    let _ = lease.release().await?;
    if !knows_all_kinds(fixture).await {
        return Ok(());
    }

    let reads = a.lock_of("k", Mode::SHARED)?;
    let (one, two) = (reads.lock().await, reads.lock().await);
    let (one, two) = (one?, two?);
    assert!(one.token().is_none() && two.number() > one.number());
    let of_a_reader = one.parts().unwrap();
    fails(ours.try_recover(&of_a_reader).await, ErrorKind::Invalid);
    let parts = one.into_parts().await?;
    assert!(parts.clone().downcast::<Exclusive>().is_err());
    fails(ours.adopt(&parts).await, ErrorKind::Invalid);
    let adopter = b.lock_of("k", Mode::SHARED)?;
    let adopted = adopter.adopt(&parts).await?;
    assert_eq!(adopted.mode(), Mode::SHARED);
    drop((two, adopted));

    let owner = Owner::new();
    let nested = ours.clone().with_owner(&owner)?;
    let nested = nested.unfair().with_note("here")?;
    let (outer, inner) = (nested.lock().await, nested.lock().await);
    let (outer, inner) = (outer?, inner?);
    assert_eq!(outer.token(), inner.token());
    let seen = nested.inspect().await?;
    assert_eq!(seen.holders[0].note.as_deref(), Some("here"));
    assert!(reads.with_owner(&owner).is_err(), "readers do not nest");
    drop((outer, inner));

    let permits = Mode::permits(3, 2);
    let several = a.lock_of("x", permits)?.on_all(["x", "y"]);
    let several = several?.lock().await?;
    let typed = several.downcast::<Permits>().expect("they are permits");
    let single = b.semaphore("y", 3)?;
    assert_eq!(single.available_permits().await?, 1);
    assert!(a.lock_of("y", Mode::permits(1, 2)).is_err());
    let _ = typed.release().await?;
    assert_eq!(single.available_permits().await?, 3);
    let parts = single.acquire().await?.into_parts().await?;
    fails(b.rwlock("y")?.adopt(&parts).await, ErrorKind::Invalid);
    drop(single.adopt(&parts).await?);
    Ok(())
}

/// A signal tells any task of a loss, and that there will be none, without the lease.
pub async fn a_loss_is_told_to_those_who_watch(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = one_that_hears(fixture).await;
    let lock = a.mutex("k")?;
    let watch = |signal: leasehold::LossSignal| tokio::spawn(async move { signal.lost().await });

    let lease = lock.lock().await?;
    let signal = lease.loss_signal();
    let watchers = [watch(signal.clone()), watch(signal.clone())];
    assert!(!signal.is_lost());
    let released = lease.release().await?;
    assert_eq!(released, Released::Held);
    for watcher in watchers {
        assert_eq!(soon("the end", watcher).await?, None);
    }
    assert_eq!(signal.reason(), None, "given back");

    let lease = lock.lock().await?;
    let watcher = watch(lease.loss_signal());
    drop(lease);
    assert_eq!(soon("the end", watcher).await?, None);

    idle(&b, "k").await;
    let lease = lock.lock().await?;
    let signal = lease.loss_signal();
    let watcher = watch(signal.clone());
    b.break_key("k").await?;
    let loss = soon("the loss", watcher).await?;
    assert!(loss.is_some() && signal.is_lost());
    let released = lease.release().await?;
    assert_eq!(released, Released::AlreadyGone);
    assert_eq!(signal.reason(), loss, "what was lost stays so");
    assert_eq!(signal.lost().await, loss);

    let both = a.multi(["x", "y"])?;
    let lease = both.lock().await?;
    let signal = lease.loss_signal();
    b.break_key("y").await?;
    let loss = soon("the loss", signal.lost()).await;
    assert!(loss.is_some() && signal.is_lost());
    drop(lease);
    assert_eq!(signal.lost().await, loss, "what was lost stays so");
    Ok(())
}

/// Work under a lock is alone, gives back what it was given, and ends with a loss.
pub async fn work_under_a_lock_ends_with_it(fixture: &dyn Fixture) -> Outcome {
    let inside = Arc::new(AtomicU64::new(0));
    let [a, b] = one_that_hears(fixture).await;
    let work = |client: &leasehold::Client| {
        let (lock, inside) = (client.mutex("k").expect("a lock"), inside.clone());
        // A task may move to another thread while it works.
        tokio::spawn(async move {
            lock.with_lock(async |lease| {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone inside");
                tokio::task::yield_now().await;
                assert!(lease.is_valid());
                inside.fetch_sub(1, Ordering::SeqCst);
                7
            })
            .await
        })
    };
    for task in [work(&a), work(&b), work(&a)] {
        let done = soon("the work", task).await?;
        assert_eq!(done?, 7);
    }
    idle(&b, "k").await;

    let lock = a.mutex("k")?;
    let begun = Notify::new();
    let endless = lock.with_lock(async |_| {
        begun.notify_one();
        pending::<()>().await;
    });
    let broken = async {
        begun.notified().await;
        b.break_key("k").await.expect("an answer")
    };
    let (lost, _) = tokio::join!(soon("the loss", endless), broken);
    fails(lost, ErrorKind::Lost);

    let client = leasehold::blocking::Client::from(a);
    tokio::task::spawn_blocking(move || {
        let lock = client.mutex("k").expect("a lock");
        let held = lock.with_lock(|_| lock.is_locked().expect("a look"));
        assert!(held.expect("not lost"));
        assert!(!lock.is_locked().expect("a look"));
    })
    .await?;
    Ok(())
}

/// A re-entrant lock that retries stands in no line, and its owner enters again at once.
pub async fn an_owner_may_retry(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let held = a.mutex("k")?.lock().await?;
    let retry = Retry::Fixed(Duration::from_millis(5));
    let lock = b.reentrant("k", &Owner::new())?;
    let lock = lock.retrying(retry);
    times_out(async |limit| lock.lock_within(limit).await).await;
    let again = lock.clone();
    let waiting = tokio::spawn(async move { again.lock().await });
    let seen = a.inspect("k").await?;
    assert!(seen.waiters.is_empty(), "nobody in line: {seen:?}");
    let _ = held.release().await?;
    let outer = soon("the key", waiting).await?;
    let outer = outer?;
    let inner = soon("the owner", lock.lock()).await?;
    assert_eq!(outer.token(), inner.token());
    Ok(())
}
