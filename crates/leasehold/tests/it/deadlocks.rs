//! Deadlocks on stores without a server: found, reported and ended.

use leasehold::{ClaimContext, Deadlock, Error, LockOptions, Owner};
use tokio::sync::mpsc;

use crate::log::Log;
use crate::steps::*;

const AFTER: Duration = Duration::from_millis(100);

async fn clients() -> (Client, Client) {
    let client = leasehold::connect("memory:").await;
    let client = client.expect("a store in memory");
    (client.clone(), client)
}

/// Waits for the key, and gives up in a deadlock.
async fn wait_for(client: Client, key: &str, context: ClaimContext) -> Result<(), Error> {
    let how = LockOptions::new().deadlock_timeout(AFTER);
    let lock = client.mutex(key)?.with_context(&context);
    let _ = lock.lock_opts(how).await?.release().await?;
    Ok(())
}

#[tokio::test]
async fn of_two_that_wait_for_each_other_the_younger_gives_up() {
    let (client, other) = clients().await;
    let (first, second) = (client.context(), other.context());
    let x = client.mutex("x").expect("a key").with_context(&first);
    let y = other.mutex("y").expect("a key").with_context(&second);
    let x = x.lock().await.expect("x is free");
    let y = y.lock().await.expect("y is free");

    let (tell, mut told) = mpsc::unbounded_channel();
    let how = LockOptions::new().on_deadlock(AFTER, move |deadlock| {
        assert!(deadlock.since() <= deadlock.at, "{deadlock}");
        let _ = tell.send(deadlock.to_string());
    });
    let waiting = client.mutex("y").expect("a key").with_context(&first);
    let older = tokio::spawn(async move { waiting.lock_opts(how).await });
    in_line(&client, "y", 1).await;
    let circles = client.deadlocks().await.expect("memory answers");
    assert!(circles.is_empty(), "x is not waited for");

    let younger = wait_for(other.clone(), "x", second).await;
    fails(younger, ErrorKind::Deadlock, &["holds y and waits for x"]);

    let _ = y.release().await.expect("y was held");
    let older = older.await.expect("no panic").expect("y is free");
    let _ = older.release().await.expect("y is held");
    let _ = x.release().await.expect("x is held");
    if let Ok(sentence) = told.try_recv() {
        assert!(sentence.contains("holds x and waits for y"), "{sentence}");
    }
}

/// Each after a time of its own, whichever is said first.
#[tokio::test(start_paused = true)]
async fn who_hears_of_a_deadlock_gives_up_later() {
    let (client, _) = clients().await;
    let lock = client.mutex("x").expect("a key");
    let lock = lock.with_context(&client.context());
    let _held = lock.lock().await.expect("x is free");
    let (soon, late) = (Duration::from_secs(1), Duration::from_secs(5));
    for is_first in [true, false] {
        let (tell, mut told) = mpsc::unbounded_channel();
        let hear = move |_: &Deadlock| _ = tell.send(Instant::now());
        let how = LockOptions::new();
        let how = match is_first {
            true => how.on_deadlock(soon, hear).deadlock_timeout(late),
            false => how.deadlock_timeout(late).on_deadlock(soon, hear),
        };
        let begun = Instant::now();
        fails(lock.lock_opts(how).await, ErrorKind::Deadlock, &[]);
        let heard = told.recv().await.expect("it was told");
        let after = (heard - begun, begun.elapsed());
        assert_eq!((after.0.as_secs(), after.1.as_secs()), (1, 5));
    }
}

#[tokio::test]
async fn readers_and_permits_wait_for_each_other_too() {
    let (client, other) = clients().await;
    let contexts = [client.context(), client.context(), client.context()];
    let [a, b, c] = &contexts;
    let doc = client.rwlock("doc").expect("a key").with_context(a);
    let doc = doc.read().await.expect("doc is free");
    let pool = other.semaphore("pool", 1).expect("a key").with_context(b);
    let pool = pool.acquire().await.expect("a permit is free");
    let job = other.mutex("job").expect("a key").with_context(c);
    let job = job.lock().await.expect("job is free");

    let write = other.rwlock("doc").expect("a key").with_context(b);
    let write = tokio::spawn(async move { write.write().await.map(drop) });
    let permit = client.semaphore("pool", 1).expect("a key").with_context(c);
    let permit = tokio::spawn(async move { permit.acquire().await.map(drop) });
    let gives_up = wait_for(client.clone(), "job", a.clone()).await;
    fails(gives_up, ErrorKind::Deadlock, &[]);

    let _ = doc.release().await.expect("doc is held");
    write.await.expect("no panic").expect("doc is free");
    let _ = pool.release().await.expect("the permit is held");
    permit.await.expect("no panic").expect("a permit is free");
    let _ = job.release().await.expect("job is held");
    assert!(client.deadlocks().await.expect("memory answers").is_empty());
}

#[tokio::test]
async fn a_check_needs_a_context() {
    let (client, _) = clients().await;
    let how = LockOptions::new().deadlock_timeout(AFTER);
    let lock = client.mutex("x").expect("a key");
    let refused = lock.lock_opts(how.clone()).await;
    assert_eq!(refused.expect_err("no context").kind(), ErrorKind::Invalid);
    // Also where all keys are free at once.
    let both = client.multi(["x", "y"]).expect("good keys");
    fails(both.lock_opts(how).await, ErrorKind::Invalid, &[]);
}

/// Once, however often and to whichever of its checks it is refused.
#[tokio::test(start_paused = true)]
async fn who_may_not_look_for_deadlocks_is_told() {
    let (log, store) = (Log::start(), MemoryStore::new());
    let other = client_of(Arc::new(store.client())).await;
    // It may lock, and not look.
    let blind = Altered {
        store,
        step: Ok,
        inspect: |_| Err(StoreError::new(ErrorKind::Refused, "you may not look")),
    };
    let client = client_of(Arc::new(blind)).await;
    let _held = lock(&other, "x").await;
    let how = LockOptions::new().within(20 * AFTER);
    let how = how.on_deadlock(AFTER, |_| ());
    let mutex = client.mutex("x").expect("a key");
    let mutex = mutex.with_context(&client.context());
    let late = mutex.lock_opts(how.deadlock_timeout(AFTER)).await;
    fails(late, ErrorKind::Timeout, &[]);
    let told = log.lines("cannot check for deadlocks");
    assert!(
        told.len() == 1 && told[0].contains("you may not look"),
        "{told:?}"
    );
}

/// An owner gets all of its claims at once: none of them waits for another.
#[tokio::test]
async fn claims_of_one_owner_in_line_are_no_deadlock() {
    let (client, _) = clients().await;
    let (theirs, ours, owner) = (client.context(), client.context(), Owner::new());
    let held = client.mutex("k").expect("a key").with_context(&theirs);
    let held = held.lock().await.expect("k is free");
    let mut waiting = Vec::new();
    for waiters in 1..=2 {
        let lock = client.reentrant("k", &owner).expect("a key");
        let lock = lock.with_context(&ours);
        waiting.push(tokio::spawn(async move { lock.lock().await.map(drop) }));
        in_line(&client, "k", waiters).await;
    }
    let found = client.deadlocks().await.expect("memory answers");
    assert!(found.is_empty(), "{found:?}");
    let _ = held.release().await.expect("k is held");
    for waits in waiting {
        waits.await.expect("no panic").expect("k is free");
    }
}
