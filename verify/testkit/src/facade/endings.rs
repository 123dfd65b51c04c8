//! What ends: a client's runtime, a client that is shut down, a wait whose time is
//! over, a lease whose guard is dropped. Nobody hangs, and nothing is left in the way.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::{ErrorKind, Loss, RenewalPolicy, Retry, Settings, StoreError};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, block_in_place, spawn_blocking};

use super::gated::{Gate, Gated};
use super::{
    Fixture, LIMIT, Outcome, client, client_on, client_with, clients, idle, in_line,
    knows_all_kinds, queued, soon, ttl,
};
use crate::expect::fails;

/// What `work` makes in a runtime of its own, which nobody drives any more.
fn elsewhere<T: Send>(work: impl Future<Output = T> + Send) -> (Runtime, T) {
    let run = || {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let made = runtime.block_on(work);
        (runtime, made)
    };
    block_in_place(|| std::thread::scope(|scope| scope.spawn(run).join().expect("no panic")))
}

async fn end(runtime: Runtime) {
    let ended = spawn_blocking(move || drop(runtime)).await;
    ended.expect("no panic");
}

/// `lost()` and `run()` end with the lease's validity, though the runtime in which the
/// client was made is gone, or does not run any more: nobody renews there.
pub async fn leases_end_without_their_runtime(fixture: &dyn Fixture) -> Outcome {
    for gone in [true, false] {
        let settings = ttl(Duration::from_secs(1));
        let (runtime, leases) = elsewhere(async {
            let client = client_with(fixture, settings).await;
            let mut leases = Vec::new();
            for key in ["lost", "run"] {
                let lock = client.mutex(key).expect("a lock");
                leases.push(lock.lock().await.expect("a lease"));
            }
            leases
        });
        let kept = if gone {
            end(runtime).await;
            None
        } else {
            Some(runtime)
        };
        assert_eq!(soon("the loss", leases[0].lost()).await, Loss::Unanswered);
        assert!(!leases[0].is_valid());
        let work = leases[1].run(std::future::pending::<()>());
        fails(soon("the end of the work", work).await, ErrorKind::Lost);
        // Nobody was granted it while it was believed in, and now somebody is.
        let other = client(fixture).await;
        let lock = other.mutex("lost")?;
        drop(soon("the next", lock.lock()).await?);
        drop(leases);
        if let Some(runtime) = kept {
            end(runtime).await;
        }
    }
    Ok(())
}

/// A client whose runtime is gone says so: it hands out no lease that nobody would keep,
/// and its waits end.
pub async fn a_client_without_its_runtime_is_closed(fixture: &dyn Fixture) -> Outcome {
    let other = client(fixture).await;
    let busy = other.mutex("busy")?;
    let held = busy.lock().await?;
    let (runtime, client) = elsewhere(async {
        // What it leaves in line is waited for.
        let client = client_with(fixture, ttl(Duration::from_secs(3))).await;
        // It has work to do, and its inbox is open.
        let lock = client.mutex("own").expect("a lock");
        let lease = lock.lock().await.expect("a lease");
        drop(lease);
        client
    });
    let (spin, driven) = std::sync::mpsc::channel::<()>();
    let running = spawn_blocking(move || {
        runtime.block_on(async {
            while driven.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        drop(runtime);
    });
    let lock = client.mutex("busy")?;
    let waits = in_line(&other, "busy", 1, async move { lock.lock().await }).await;
    drop(spin);
    running.await?;
    fails(soon("the wait", waits).await?, ErrorKind::Closed);
    let free = client.mutex("free")?;
    let refused = fails(soon("an answer", free.lock()).await, ErrorKind::Closed);
    assert!(refused.to_string().contains("runtime"), "{refused}");
    fails(soon("an answer", free.try_lock()).await, ErrorKind::Closed);
    let both = client.multi(["free", "more"])?;
    fails(soon("an answer", both.try_lock()).await, ErrorKind::Closed);
    idle(&other, "free").await;
    let _ = held.release().await?;
    // What it left in line lapses by itself.
    drop(soon("the key", busy.lock()).await?);
    let left = soon("the shutdown", client.shutdown(LIMIT / 2)).await;
    assert_eq!(left.released, 0);
    Ok(())
}

/// A claim whose answer is under way when its client is shut down: its caller hears
/// that, gets no lease, and nothing of it is left when the shutdown has ended.
pub async fn a_shutdown_ends_claims_under_way(fixture: &dyn Fixture) -> Outcome {
    for busy in [false, true] {
        let other = client(fixture).await;
        let lock = other.mutex("k")?;
        let held = match busy {
            true => Some(lock.lock().await?),
            false => None,
        };
        let store = Gated::new(fixture.client().await);
        let closing = client_on(store.clone(), Settings::default()).await;
        store.set(Gate::Closed);
        let lock = closing.mutex("k")?;
        let waits = tokio::spawn(async move { lock.lock().await });
        soon("the claim", store.answered(1)).await;
        let done = soon("the shutdown", closing.shutdown(LIMIT)).await;
        fails(soon("the wait", waits).await?, ErrorKind::Closed);
        let stood = !busy || closing.capabilities().queueing;
        assert_eq!((done.released, done.unconfirmed), (u64::from(stood), 0));
        let look = other.inspect("k").await?;
        let seen = (look.holders.len(), look.waiters.len());
        assert_eq!(seen, (usize::from(busy), 0));
        drop(held);
        idle(&other, "k").await;
    }
    Ok(())
}

/// Waits of all kinds end when their client is shut down, with an error that says so.
pub async fn a_shutdown_ends_waits_of_all_kinds(fixture: &dyn Fixture) -> Outcome {
    let [other, closing] = clients(fixture).await;
    let held = other.mutex("k")?;
    let held = held.lock().await?;
    let election = other.election("e")?;
    let _leads = election.campaign("").await?;
    let mut waits: JoinSet<(&str, Result<(), leasehold::Error>)> = JoinSet::new();
    let lock = closing.mutex("k")?;
    waits.spawn(async move { ("a mutex", lock.lock().await.map(drop)) });
    let lock = closing.mutex("k")?;
    let lock = lock.retrying(Retry::Fixed(Duration::from_secs(60)));
    waits.spawn(async move { ("one that retries", lock.lock().await.map(drop)) });
    let election = closing.election("e")?;
    let mut leaders = election.observe();
    assert!(soon("who leads", leaders.next()).await?.is_some());
    let mut left = election.observe();
    assert!(soon("who leads", left.next()).await?.is_some());
    // What its stream keeps of a call that was dropped holds nothing up.
    assert!(left.next().now_or_never().is_none());
    waits.spawn(async move { ("an observer", leaders.next().await.map(drop)) });
    waits.spawn(async move { ("a candidate", election.campaign("").await.map(drop)) });
    if knows_all_kinds(fixture).await {
        let lock = closing.multi(["k", "l"])?;
        waits.spawn(async move { ("several keys", lock.lock().await.map(drop)) });
        let lock = closing.rwlock("k")?;
        waits.spawn(async move { ("a reader", lock.read().await.map(drop)) });
        queued(&other, "k", 3).await;
    } else {
        queued(&other, "k", 1).await;
    }
    let done = soon("the shutdown", closing.shutdown(LIMIT)).await;
    assert_eq!(done.unconfirmed, 0);
    for (kind, ended) in soon("every wait", waits.join_all()).await {
        let error = ended.expect_err(kind);
        assert_eq!(error.kind(), ErrorKind::Closed, "{kind}: {error}");
    }
    let look = other.inspect("k").await?;
    assert_eq!((look.holders.len(), look.waiters.len()), (1, 0));
    let _ = held.release().await?;
    Ok(())
}

/// What a shutdown says has been confirmed when it returns before its time is over:
/// also what was dropped or given back while it began.
pub async fn a_shutdown_ends_when_all_have_left(fixture: &dyn Fixture) -> Outcome {
    let other = client(fixture).await;
    for round in 0..12 {
        let closing = client(fixture).await;
        let mut tasks = JoinSet::new();
        for task in 0..6 {
            let lock = closing.mutex(format!("k{}", task % 2))?;
            tasks.spawn(async move {
                while let Ok(lease) = lock.lock().await {
                    // Others drop it.
                    if task % 3 == 0 {
                        lease.release().await.ok();
                    }
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(round % 4)).await;
        let done = soon("the shutdown", closing.shutdown(LIMIT)).await;
        assert_eq!(done.unconfirmed, 0, "before its time");
        let left = other.list("*").await?;
        assert!(left.is_empty(), "{left:?}");
        soon("every task", tasks.join_all()).await;
    }
    Ok(())
}

/// A wait that has timed out is out of line: nobody is kept from the key by it.
pub async fn a_wait_that_timed_out_is_out_of_line(fixture: &dyn Fixture) -> Outcome {
    let [holds, waits] = clients(fixture).await;
    let (held, wanted) = (holds.mutex("k")?, waits.mutex("k")?);
    let all = knows_all_kinds(fixture).await;
    for round in 0..15 {
        let lease = held.lock().await?;
        let limit = Duration::from_millis(round);
        let late = if all && round % 3 == 1 {
            let several = waits.multi(["k", "l"])?;
            several.lock_within(limit).await.map(drop)
        } else if round % 3 == 2 {
            let retrying = wanted.clone().retrying(Retry::default());
            retrying.lock_within(limit).await.map(drop)
        } else {
            wanted.lock_within(limit).await.map(drop)
        };
        fails(late, ErrorKind::Timeout);
        let look = holds.inspect("k").await?;
        assert!(look.waiters.is_empty(), "{look:?}");
        let _ = lease.release().await?;
        let next = wanted.try_lock().await?;
        let _ = next.ok_or("a lease")?.release().await?;
    }
    Ok(())
}

/// A client knows its own claims that are leaving: what it has just dropped is no
/// reason for `None`, or for a time-out.
pub async fn a_dropped_lease_is_not_in_the_way(fixture: &dyn Fixture) -> Outcome {
    let client = client(fixture).await;
    let lock = client.mutex("k")?;
    let retrying = lock.clone().retrying(Retry::Fixed(Duration::from_secs(60)));
    for _ in 0..10 {
        drop(lock.try_lock().await?.ok_or("a lease")?);
        drop(lock.try_lock().await?.ok_or("a lease")?);
        drop(lock.lock_within(Duration::ZERO).await?);
        drop(soon("the key", retrying.lock()).await?);
    }
    idle(&client, "k").await;
    if !knows_all_kinds(fixture).await {
        return Ok(());
    }
    let workers = client.semaphore("s", 2)?;
    let (config, both) = (client.rwlock("rw")?, client.multi(["m", "n"])?);
    for _ in 0..10 {
        let two = workers.try_acquire_many(2).await?;
        drop(two.ok_or("a lease")?);
        drop(workers.try_acquire().await?.ok_or("a lease")?);
        drop(config.try_read().await?.ok_or("a lease")?);
        drop(config.try_write().await?.ok_or("a lease")?);
        drop(both.try_lock().await?.ok_or("a lease")?);
    }
    Ok(())
}

/// The time to wait is for the key: it is asked for once, however short that is.
pub async fn a_wait_of_no_time_asks_once(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    for lock in [b.mutex("k")?, b.mutex("k")?.retrying(Retry::default())] {
        let lease = lock.lock_within(Duration::ZERO).await?;
        let _ = lease.release().await?;
        let held = a.mutex("k")?.lock().await?;
        fails(lock.lock_within(Duration::ZERO).await, ErrorKind::Timeout);
        let _ = held.release().await?;
    }
    Ok(())
}

/// A store out of reach is told as such, with the cause, however short the time to wait:
/// `Timeout` is for a key that somebody else has.
pub async fn a_store_out_of_reach_is_not_a_time_out(fixture: &dyn Fixture) -> Outcome {
    let store = Gated::new(fixture.client().await);
    let client = client_on(store.clone(), Settings::default()).await;
    let lock = client.mutex("k")?;
    let limit = Duration::from_secs(1);
    let down = StoreError::new(ErrorKind::Unavailable, "the cable was cut");
    for lock in [lock.clone(), lock.retrying(Retry::default())] {
        store.set(Gate::Failing(down.clone()));
        let late = soon("an answer", lock.lock_within(limit)).await;
        let error = fails(late, ErrorKind::Unavailable);
        assert!(error.to_string().contains("the cable was cut"), "{error}");
        store.set(Gate::Closed);
        let late = soon("an answer", lock.lock_within(limit)).await;
        fails(late, ErrorKind::Unavailable);
        store.set(Gate::Open);
    }
    Ok(())
}

/// A `Fixed` lease that was granted from the queue holds for its TTL from the grant: by
/// its holder's clock, and by the store's.
pub async fn a_fixed_lease_from_the_queue_holds_its_ttl(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    for ttl in [Duration::from_secs(2), Duration::from_secs(40)] {
        let held = a.mutex("k")?.lock().await?;
        let fixed = b.mutex("k")?.with_ttl(ttl);
        let fixed = fixed.with_renewal(RenewalPolicy::Fixed);
        let waits = in_line(&a, "k", 1, async move { fixed.lock().await }).await;
        // Its place is as old as it gets without being renewed.
        tokio::time::sleep(Duration::from_millis(250)).await;
        let _ = held.release().await?;
        let lease = soon("the hand-off", waits).await??;
        let left = lease.remaining();
        assert!(left > ttl / 2, "{left:?} of {ttl:?}");
        let _ = lease.release().await?;
    }
    Ok(())
}

/// A `Fixed` lease ends at its time at the store too, whether it was granted at once or
/// from the queue, and though its guard is still in hand.
pub async fn fixed_leases_follow_each_other(fixture: &dyn Fixture) -> Outcome {
    let client = client(fixture).await;
    let fixed = client.mutex("k")?;
    let fixed = fixed.with_ttl(Duration::from_millis(500));
    let fixed = fixed.with_renewal(RenewalPolicy::Fixed);
    let mut waits = JoinSet::new();
    for _ in 0..5 {
        let fixed = fixed.clone();
        // The guard is kept: nobody releases.
        waits.spawn(async move { fixed.lock().await.map(std::mem::ManuallyDrop::new) });
    }
    // At three seconds each it would be twelve until the last.
    let all = tokio::time::timeout(LIMIT / 2, waits.join_all()).await?;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    Ok(())
}

/// Wakes a thread that polls by itself.
struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future on a thread that is in no runtime.
fn without_runtime<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        match work.as_mut().poll(&mut context) {
            std::task::Poll::Ready(done) => return done,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// Whoever waits for a loss needs no runtime, and no runtime of the client's.
pub async fn a_loss_is_told_without_any_runtime(fixture: &dyn Fixture) -> Outcome {
    let settings = ttl(Duration::from_secs(1));
    let (runtime, lease) = elsewhere(async {
        let client = client_with(fixture, settings).await;
        let lock = client.mutex("k").expect("a lock");
        lock.lock().await.expect("a lease")
    });
    end(runtime).await;
    let (told, loss) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn(move || {
        told.send(without_runtime(lease.lost())).ok();
        // In no runtime either.
        drop(lease);
    });
    assert_eq!(soon("the loss", loss).await, Ok(Loss::Unanswered));
    spawn_blocking(move || thread.join().expect("no panic")).await?;
    Ok(())
}

/// A blocking call that nobody could answer, on the only thread of its client's runtime,
/// is refused; elsewhere it is not.
pub async fn a_blocking_call_is_refused_where_it_would_hang(fixture: &dyn Fixture) -> Outcome {
    let (runtime, refused) = elsewhere(async {
        let client = leasehold::blocking::Client::from(client(fixture).await);
        let lock = client.mutex("k").expect("a lock");
        let (locked, seen) = (lock.lock().map(drop), lock.is_locked().map(drop));
        let lease = spawn_blocking(move || lock.lock()).await.expect("no panic");
        let released = lease.expect("a lease").release().map(drop);
        [locked, seen, released]
    });
    for refused in refused {
        fails(refused, ErrorKind::Invalid);
    }
    end(runtime).await;
    Ok(())
}
