//! The forms of acquiring: each of every kind, on both faces, and what they say of bad options.

use std::cell::Cell;

use leasehold::{Error, Lock, LockOptions, Mode, Owner, RenewalPolicy, blocking};

use crate::steps::*;

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(60);

/// What work returns that fails.
#[derive(Debug, PartialEq, Eq)]
enum Failed {
    Work,
    Lock(ErrorKind),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Lock(error.kind())
    }
}

/// The four forms that run work: `$lock` of one client, while `$other` of another is free or holds.
/// With `await` they are those of the async face, where work is an async closure.
macro_rules! check {
    (
        $client:expr, $lock:expr, $other:expr,
        [$with:ident $within:ident $try:ident $fallible:ident] $(, $async:ident $await:ident)?
    ) => {{
        let is_held = async || !$client.inspect("k").await.unwrap().holders.is_empty();
        let (lock, runs) = ($lock, Cell::new(0));
        let run = || runs.set(runs.get() + 1);
        let free = "free again";
        assert_eq!(lock.$with($($async)? |_| { run(); 1 })$(.$await)?.unwrap(), 1);
        assert!(!is_held().await, "{free}");
        assert_eq!(lock.$within(LONG, $($async)? |_| { run(); 2 })$(.$await)?.unwrap(), 2);
        assert!(!is_held().await, "{free}");
        assert_eq!(lock.$try($($async)? |_| { run(); 3 })$(.$await)?.unwrap(), Some(3));
        assert!(!is_held().await, "{free}");
        let done: Result<u32, Failed> = lock.$fallible($($async)? |_| { run(); Ok(4) })$(.$await)?;
        assert_eq!(done, Ok(4));
        let failed: Result<(), Failed> =
            lock.$fallible($($async)? |_| { run(); Err(Failed::Work) })$(.$await)?;
        assert_eq!(failed, Err(Failed::Work), "the error of the work");
        assert!(!is_held().await, "{free}");
        assert_eq!(runs.get(), 5);

        let busy = $other;
        fails(lock.$within(SHORT, $($async)? |_| run())$(.$await)?, ErrorKind::Timeout, &[]);
        assert_eq!(lock.$try($($async)? |_| run())$(.$await)?.unwrap(), None);
        assert_eq!(runs.get(), 5, "no work without a lease");
        $client.break_key("k").await.unwrap();
        drop(busy);
    }};
}

async fn clients() -> (Client, Client) {
    let store = MemoryStore::new();
    let (one, other) = (Arc::new(store.client()), Arc::new(store));
    (client_of(one).await, client_of(other).await)
}

#[tokio::test]
async fn work_runs_in_every_form() {
    let (a, b) = clients().await;
    let held = async || b.mutex("k").unwrap().lock().await.unwrap();
    let [mutex, lock] = [a.mutex("k"), a.mutex("k").map(|it| it.unfair())].map(Result::unwrap);
    for lock in [mutex, lock] {
        check!(a, &lock, held().await, [with_lock with_lock_within with_try_lock try_with_lock], async await);
    }
    let untyped = a.lock_of("k", Mode::EXCLUSIVE).unwrap();
    check!(a, &untyped, held().await, [with_lock with_lock_within with_try_lock try_with_lock], async await);
    let nested = a.reentrant("k", &Owner::new()).unwrap();
    check!(a, &nested, held().await, [with_lock with_lock_within with_try_lock try_with_lock], async await);
    let both = a.multi(["j", "k"]).unwrap();
    check!(a, &both, held().await, [with_lock with_lock_within with_try_lock try_with_lock], async await);
    let pair = a.rwlock("k").unwrap();
    check!(a, &pair, held().await, [with_write with_write_within with_try_write try_with_write], async await);
    check!(a, &pair, held().await, [with_read with_read_within with_try_read try_with_read], async await);
    let permit = a.semaphore("k", 1).unwrap();
    let taken = async || b.semaphore("k", 1).unwrap().acquire().await.unwrap();
    check!(
        a, &permit, taken().await,
        [with_permit with_permit_within with_try_permit try_with_permit], async await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn work_runs_in_every_form_for_threads() {
    let (a, b) = clients().await;
    let client = blocking::Client::from(a.clone());
    let held = async || b.mutex("k").unwrap().lock().await.unwrap();
    let mutex = client.mutex("k").unwrap();
    check!(a, &mutex, held().await, [with_lock with_lock_within with_try_lock try_with_lock]);
    let untyped = client.lock_of("k", Mode::EXCLUSIVE).unwrap();
    check!(a, &untyped, held().await, [with_lock with_lock_within with_try_lock try_with_lock]);
    let nested = client.reentrant("k", &Owner::new()).unwrap();
    check!(a, &nested, held().await, [with_lock with_lock_within with_try_lock try_with_lock]);
    let both = client.multi(["j", "k"]).unwrap();
    check!(a, &both, held().await, [with_lock with_lock_within with_try_lock try_with_lock]);
    let pair = client.rwlock("k").unwrap();
    check!(a, &pair, held().await, [with_write with_write_within with_try_write try_with_write]);
    check!(a, &pair, held().await, [with_read with_read_within with_try_read try_with_read]);
    let permit = client.semaphore("k", 1).unwrap();
    let taken = async || b.semaphore("k", 1).unwrap().acquire().await.unwrap();
    check!(
        a, &permit, taken().await,
        [with_permit with_permit_within with_try_permit try_with_permit]
    );
    let three = client.semaphore("k", 3).unwrap();
    let free = three.with_permits(2, |lease| {
        (lease.permits(), three.available_permits().unwrap())
    });
    assert_eq!(free.unwrap(), (2, 1));
}

/// Options cannot fail; the first that is out of bounds is the error of every call that acquires, and
/// nothing is asked of the store.
#[tokio::test]
async fn bad_options_are_told_by_whoever_acquires() {
    let (client, _) = clients().await;
    let untyped = client.lock_of("k", Mode::EXCLUSIVE).unwrap();
    let lease = lock(&client, "k").await;
    let parts = lease.parts().unwrap();
    let days = |days: u64| Duration::from_secs(days * 24 * 3600);
    let (tiny, how) = (Duration::from_millis(1), LockOptions::new);
    type Option = fn(Lock, Duration) -> Lock;
    let late: Option = |lock, _| lock.with_renewal(RenewalPolicy::Automatic(0.9));
    let bad: [(&str, Option, Duration); 5] = [
        ("a TTL of 1ms", Lock::with_ttl, tiny),
        ("a TTL of", Lock::with_ttl, days(2)),
        ("a maximum hold of 1ms", Lock::with_max_hold, tiny),
        ("a minimum hold of", Lock::with_min_hold, days(367)),
        ("renewal at 0.9", late, LONG),
    ];
    for (said, option, value) in bad {
        let lock = option(untyped.clone(), value).with_min_hold(days(1000));
        let both = lock.on_all(["k", "l"]).unwrap();
        let parts = parts.clone().into_any();
        for error in [
            lock.lock().await.unwrap_err(),
            lock.try_lock().await.unwrap_err(),
            lock.lock_within(SHORT).await.unwrap_err(),
            lock.lock_opts(how()).await.unwrap_err(),
            lock.with_lock(async |_| ()).await.unwrap_err(),
            lock.adopt_by_force(&parts).await.unwrap_err(),
            lock.recover(&parts, how()).await.unwrap_err(),
            lock.try_recover(&parts).await.unwrap_err(),
            both.lock().await.unwrap_err(),
            both.try_lock().await.unwrap_err(),
        ] {
            is_error(&error, ErrorKind::Invalid, &[said]);
            assert!(error.hint().is_some(), "{error}");
        }
    }
    let pair = client.rwlock("k").unwrap().with_ttl(days(2));
    let leader = client.election("k").unwrap().with_ttl(days(2));
    let permits = client.semaphore("s", 2).unwrap().with_ttl(days(2));
    for error in [
        pair.read().await.unwrap_err(),
        pair.write_opts(how()).await.unwrap_err(),
        leader.campaign("me").await.unwrap_err(),
        permits.acquire_opts(2, how()).await.unwrap_err(),
    ] {
        is_error(&error, ErrorKind::Invalid, &[]);
    }
    assert!(lease.is_valid(), "nobody has taken it over");
    let seen = client.list("*").await.unwrap();
    assert!(seen.iter().all(|seen| seen.waiters.is_empty()));
}

#[tokio::test]
async fn leaders_and_readers_go_on_after_a_crash() {
    let (a, b) = clients().await;
    let how = LockOptions::new;
    let (crashed, again) = (a.election("e").unwrap(), b.election("e").unwrap());
    let before = crashed.campaign("at the first").await.unwrap();
    let saved = before.lease().parts().unwrap();
    let on = again.recover(&saved, "at the second", how()).await;
    let on = on.unwrap();
    assert!(!on.is_new && on.leadership.term() > saved.token());
    let leader = again.leader().await.unwrap().expect("one leads");
    assert_eq!(leader.note.as_deref(), Some("at the second"));
    let saved = on.leadership.lease().parts().unwrap();
    let _ = on.leadership.resign().await.unwrap();
    let anew = again.recover(&saved, "", how()).await.unwrap();
    assert!(anew.is_new);
    let saved = anew.leadership.lease().parts().unwrap();
    let on = again.recover(&saved, "", how().within(LONG)).await;
    let on = on.unwrap();
    assert!(!on.is_new);
    let leader = again.leader().await.unwrap().expect("one leads");
    assert_eq!(leader.note, None, "an empty note is none");
    let refused = again.recover(&saved, "x".repeat(2000), how()).await;
    fails(refused, ErrorKind::Invalid, &[]);
    assert!(on.leadership.is_leader(), "nothing was taken over");

    let pair = b.rwlock("r").unwrap();
    let reader = a.rwlock("r").unwrap().read().await.unwrap();
    let saved = reader.parts().unwrap();
    let on = pair.recover(&saved, how()).await.unwrap();
    assert!(!on.is_new && on.lease.mode() == Mode::SHARED);
    let _ = on.lease.release().await.unwrap();
    let writer = pair.write().await.unwrap();
    let late = pair.try_recover(&saved).await.unwrap();
    assert!(late.is_none(), "a writer is there");
    drop(writer);
    assert!(pair.recover(&saved, how()).await.unwrap().is_new);
}

/// As by a binding, whose elections are such locks.
#[tokio::test]
async fn a_lease_that_is_taken_over_has_the_note_of_its_lock() {
    let (a, b) = clients().await;
    let of = |client: &Client, note: &str| {
        let lock = client.lock_of("k", Mode::EXCLUSIVE).unwrap();
        lock.with_note(note).unwrap()
    };
    let note = async || {
        let seen = a.inspect("k").await.unwrap();
        seen.holders[0].note.clone()
    };
    let first = of(&a, "first").lock().await.unwrap();
    let saved = first.parts().unwrap();
    let second = of(&b, "second").try_recover(&saved).await.unwrap();
    assert_eq!(note().await.as_deref(), Some("second"));
    let given = second.unwrap().lease.into_parts().await.unwrap();
    let third = of(&a, "third").adopt(&given).await.unwrap();
    assert_eq!(note().await.as_deref(), Some("third"));
    let saved = third.parts().unwrap();
    let plain = b.lock_of("k", Mode::EXCLUSIVE).unwrap();
    let _kept = plain.adopt_by_force(&saved).await.unwrap();
    assert_eq!(note().await.as_deref(), Some("third"), "it has none");
}

#[tokio::test]
async fn a_lease_on_several_keys_is_renewed_for_as_long_as_is_said() {
    let (client, _) = clients().await;
    let both = client.multi(["b", "a"]).unwrap();
    let lease = both.lock().await.unwrap();
    let keys: Vec<_> = lease.keys().map(|key| key.as_str()).collect();
    assert_eq!(keys, ["b", "a"], "as they were given");
    lease.renew_for(Duration::from_secs(600)).await.unwrap();
    assert!(lease.remaining() > Duration::from_secs(500));
    let short = lease.renew_for(Duration::from_millis(1)).await;
    fails(short, ErrorKind::Invalid, &[]);
    let mut modes = lease.leases().iter().map(|lease| lease.mode());
    assert!(modes.all(|mode| mode.is_exclusive()));
    assert_eq!(lease.try_run(async { Ok::<_, Failed>(7) }).await, Ok(7));
    client.break_key("a").await.unwrap();
    let never = std::future::pending::<Result<(), Failed>>();
    let lost = lease.try_run(never).await;
    assert_eq!(lost, Err(Failed::Lock(ErrorKind::Lost)));
    assert!(both.is_locked().await.unwrap(), "b is held");
}

/// The last one counts, and leaves the TTL as it was set.
#[tokio::test]
async fn a_longer_maximum_hold_gives_the_ttl_back() {
    let (client, _) = clients().await;
    let brief = Duration::from_secs(5);
    let lock = client.mutex("k").unwrap().with_max_hold(brief);
    let lock = lock.with_ttl(LONG).with_max_hold(2 * LONG);
    let lease = lock.lock().await.unwrap();
    assert!(lease.remaining() > brief, "{lease:?}");
}
