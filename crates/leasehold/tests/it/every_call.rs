//! Each method of the API is called, on both faces, and what it does is checked where others can see it.
//! The module `linked` finds what is left out.
#![cfg(feature = "local")]

use std::time::SystemTime;

use futures_util::FutureExt as _;
use leasehold::fence::{Gate, Guarded};
use leasehold::observe::{Fact, ObservedClaim};
use leasehold::store::local::LocalOptions;
use leasehold::{
    Access, ClaimIds, Credentials, CredentialsProvider, Exclusive, LeaseState, LockOptions, Loss,
    Mode, Owner, RenewalPolicy, Retry, Shared, SnowflakeConfig, TlsOptions, Token, blocking,
};

use crate::steps::*;

const BRIEF: Duration = Duration::from_millis(100);
/// Enough for a renewal on a busy machine.
const HOLD: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(600);

/// The options of every kind: `$end` gives back what `$verb` has taken. With `await`, as in all that
/// follows, they are those of the async face.
macro_rules! options {
    (
        $client:ident, $key:literal, $lock:expr, $verb:ident($($arg:expr),*), $end:ident
        $(, $await:ident)?
    ) => {{
        let work = $client.context();
        let lock = $lock.with_label("who").with_context(&work).with_ttl(LONG);
        assert_eq!(lock.key().as_str(), $key);
        let taken = lock.clone().with_min_hold(LONG).$verb($($arg),*)$(.$await)?.unwrap();
        let seen = $client.inspect($key)$(.$await)?.unwrap();
        let [holder] = &seen.holders[..] else {
            panic!("one holds it: {seen:?}")
        };
        assert_eq!(holder.owner.label.as_deref(), Some("who"));
        assert_eq!(holder.owner.context.as_ref(), Some(&work));
        assert!(holder.expires_in > LONG / 2, "{holder:?}");
        assert_eq!(taken.$end()$(.$await)?.unwrap(), Released::Held);
        let seen = $client.inspect($key)$(.$await)?.unwrap();
        assert!(seen.holders[0].kept, "for its minimum hold: {seen:?}");
        $client.break_key($key)$(.$await)?.unwrap();

        let brief = lock.clone().with_max_hold(HOLD).$verb($($arg),*)$(.$await)?.unwrap();
        let signal = brief.loss_signal();
        assert_eq!(brief.lost()$(.$await)?, Loss::MaxHold);
        assert_eq!(signal.lost()$(.$await)?, Some(Loss::MaxHold));
        assert!(signal.is_lost() && signal.reason() == Some(Loss::MaxHold));
        $client.wait_until_free($key)$(.$await)?.unwrap();
        let renewed_late = RenewalPolicy::Automatic(0.9);
        fails(lock.with_renewal(renewed_late).$verb($($arg),*)$(.$await)?, ErrorKind::Invalid, &[]);
    }};
}

/// A claim of all of a key by somebody who is not a client: it holds, or waits.
fn stranger(store: &MemoryStore, name: &str, number: u128, mode: Mode) -> Standing {
    let claim = Claim::new(id(number), mode, LONG);
    let asked = store.claim(&key(name), &claim).now_or_never();
    let Reply::Standing(standing) = asked.expect("at once").unwrap().reply.into() else {
        panic!("it holds or waits")
    };
    standing
}

fn gone(store: &MemoryStore, name: &str, number: u128) {
    let left = store.release(&key(name), &release(number)).now_or_never();
    left.expect("at once").unwrap();
}

/// One that retries has no place in line, and so no number in the order of arrival.
macro_rules! retrying {
    (
        $store:ident, $key:literal, $mode:expr, $lock:expr, $within:ident($($arg:expr),*)
        $(, $await:ident)?
    ) => {{
        let (_, before) = [1, 2].map(|number| stranger(&$store, $key, number, $mode)).into();
        let lock = $lock.retrying(Retry::Fixed(BRIEF / 10));
        fails(lock.$within($($arg),*)$(.$await)?, ErrorKind::Timeout, &[]);
        assert_eq!(stranger(&$store, $key, 3, $mode).arrival.0, before.arrival.0 + 1);
        for number in [3, 2, 1] {
            gone(&$store, $key, number);
        }
    }};
}

/// One that is unfair passes somebody who waits.
macro_rules! unfair {
    ($store:ident, $key:literal, $mode:expr, $lock:expr, $try:ident() $(, $await:ident)?) => {{
        let lock = $lock;
        let first = lock.$try()$(.$await)?.unwrap().expect("it is free");
        assert_eq!(stranger(&$store, $key, 4, $mode).token, None, "it waits");
        assert!(lock.$try()$(.$await)?.unwrap().is_none());
        let ahead = lock.clone().unfair().$try()$(.$await)?.unwrap().expect("there is room");
        gone(&$store, $key, 4);
        assert_eq!(ahead.release()$(.$await)?.unwrap(), Released::Held);
        assert_eq!(first.release()$(.$await)?.unwrap(), Released::Held);
    }};
}

/// Whether somebody holds it, and who.
macro_rules! looking {
    ($lock:expr, $verb:ident($($arg:expr),*) $(, $await:ident)?) => {{
        let lock = $lock;
        assert!(!lock.is_locked()$(.$await)?.unwrap());
        let lease = lock.$verb($($arg),*)$(.$await)?.unwrap();
        assert!(lock.is_locked()$(.$await)?.unwrap());
        assert_eq!(lock.holders()$(.$await)?.unwrap().len(), 1);
        assert_eq!(lease.release()$(.$await)?.unwrap(), Released::Held);
    }};
}

/// From one client to the other and back, by all ways.
macro_rules! adopting {
    ($from:expr, $to:expr, $verb:ident($($arg:expr),*) $(, $await:ident)?) => {{
        let (from, to) = ($from, $to);
        let first = from.$verb($($arg),*)$(.$await)?.unwrap();
        let mode = first.mode();
        let handed = first.into_parts()$(.$await)?.unwrap();
        let adopted = to.adopt(&handed)$(.$await)?.unwrap();
        let forced = from.adopt_by_force(&adopted.parts().unwrap())$(.$await)?.unwrap();
        assert_eq!(adopted.lost()$(.$await)?, Loss::Superseded);
        let how = LockOptions::new();
        let on = to.recover(&forced.parts().unwrap(), how.clone())$(.$await)?.unwrap();
        let parts = on.lease.parts().unwrap();
        let back = from.try_recover(&parts)$(.$await)?.unwrap().expect("it is still held");
        assert!(!on.is_new && !back.is_new);
        let parts = back.lease.parts().unwrap();
        assert_eq!(back.lease.release()$(.$await)?.unwrap(), Released::Held);
        let anew = to.recover(&parts, how)$(.$await)?.unwrap();
        assert!(anew.is_new, "it was released");
        assert_eq!(anew.lease.mode(), mode);
        assert_eq!(anew.lease.release()$(.$await)?.unwrap(), Released::Held);
    }};
}

/// All kinds, of two clients of one store.
macro_rules! kinds {
    ($store:ident, $one:ident, $two:ident $(, $await:ident)?) => {{
        let owner = Owner::new();
        let first = LockOptions::new();
        let mutex = $one.mutex("mutex").unwrap();
        let all = Mode::EXCLUSIVE;
        options!($one, "mutex", mutex.clone().unfair(), lock(), release $(, $await)?);
        retrying!($store, "mutex", all, mutex.clone(), lock_within(BRIEF) $(, $await)?);
        looking!(mutex.clone(), lock_opts(first.clone()) $(, $await)?);
        adopting!(mutex, $two.mutex("mutex").unwrap(), lock() $(, $await)?);

        let lock = $one.lock_of("lock", Mode::SHARED).unwrap();
        assert_eq!(lock.mode(), Mode::SHARED);
        assert!(lock.inspect()$(.$await)?.unwrap().holders.is_empty());
        options!($one, "lock", lock.clone().unfair(), lock(), release $(, $await)?);
        retrying!($store, "lock", all, lock.clone(), lock_within(BRIEF) $(, $await)?);
        unfair!($store, "lock", all, lock.clone(), try_lock() $(, $await)?);
        looking!(lock.clone(), lock_opts(first.clone()) $(, $await)?);
        adopting!(lock, $two.lock_of("lock", Mode::SHARED).unwrap(), lock() $(, $await)?);
        let lock = $one.lock_of("lock", Mode::EXCLUSIVE).unwrap();
        let lock = lock.with_owner(&owner).unwrap().with_note("note").unwrap();
        let outer = lock.lock_within(LONG)$(.$await)?.unwrap();
        let inner = lock.try_lock()$(.$await)?.unwrap().expect("of its owner");
        assert_eq!(outer.token(), inner.token());
        let notes = lock.holders()$(.$await)?.unwrap().into_iter().map(|holder| holder.note);
        assert_eq!(notes.collect::<Vec<_>>(), [Some("note".to_owned()), Some("note".to_owned())]);
        let other = $one.lock_of("lock", Mode::EXCLUSIVE).unwrap().on_all(["lock", "x"]).unwrap();
        assert!(other.try_lock()$(.$await)?.unwrap().is_none());
        drop((outer, inner));

        let reentrant = $one.reentrant("reentrant", &owner).unwrap();
        assert_eq!(reentrant.owner(), &owner);
        options!($one, "reentrant", reentrant.clone(), lock(), release $(, $await)?);
        retrying!($store, "reentrant", all, reentrant.clone(), lock_within(BRIEF) $(, $await)?);
        looking!(reentrant.clone(), lock_opts(first.clone()) $(, $await)?);
        let elsewhere = $two.reentrant("reentrant", &owner).unwrap();
        adopting!(reentrant.clone(), elsewhere, lock() $(, $await)?);
        let outer = reentrant.lock_within(LONG)$(.$await)?.unwrap();
        let inner = reentrant.try_lock()$(.$await)?.unwrap().expect("of its owner");
        assert_eq!(outer.token(), inner.token());

        let pair = $one.rwlock("rwlock").unwrap();
        options!($one, "rwlock", pair.clone().unfair(), read(), release $(, $await)?);
        retrying!($store, "rwlock", all, pair.clone(), write_within(BRIEF) $(, $await)?);
        unfair!($store, "rwlock", all, pair.clone(), try_read() $(, $await)?);
        looking!(pair.clone(), write_opts(first.clone()) $(, $await)?);
        adopting!(pair.clone(), $two.rwlock("rwlock").unwrap(), read() $(, $await)?);
        let reader = pair.read_opts(first.clone())$(.$await)?.unwrap();
        assert_eq!(reader.mode(), Mode::SHARED);
        drop(reader);

        let permits = $one.semaphore("permits", 5).unwrap();
        let all = Mode::permits(5, 5);
        options!($one, "permits", permits.clone().unfair(), acquire(), release $(, $await)?);
        retrying!($store, "permits", all, permits.clone(), acquire_within(BRIEF) $(, $await)?);
        unfair!($store, "permits", all, permits.clone(), try_acquire() $(, $await)?);
        looking!(permits.clone(), acquire_opts(2, first.clone()) $(, $await)?);
        let elsewhere = $two.semaphore("permits", 5).unwrap();
        adopting!(permits.clone(), elsewhere, acquire_many(2) $(, $await)?);
        let three = permits.acquire_many_within(3, LONG)$(.$await)?.unwrap();
        assert_eq!((three.permits(), permits.permits()), (3, 5));
        assert!(permits.try_acquire_many(3)$(.$await)?.unwrap().is_none());
        assert_eq!(permits.resize(6)$(.$await)?.unwrap().permits(), 6);
        drop(three);
    }};
}

/// What a lease says of itself, and what can be done with it.
macro_rules! leases {
    ($client:ident $(, $await:ident)?) => {{
        let lease = $client.mutex("k").unwrap().lock()$(.$await)?.unwrap();
        assert_eq!((lease.key().as_str(), lease.mode()), ("k", Mode::EXCLUSIVE));
        assert_eq!((lease.state(), lease.rejoined()), (LeaseState::Held, 0));
        assert!(lease.last_error().is_none() && lease.acknowledged().is_none());
        assert!(lease.is_valid() && lease.waited() < LIMIT);
        lease.renew_for(LONG)$(.$await)?.unwrap();
        assert!(lease.remaining() > LONG / 2);
        lease.set_note("note")$(.$await)?.unwrap();
        let seen = $client.inspect("k")$(.$await)?.unwrap();
        assert_eq!(seen.holders[0].note.as_deref(), Some("note"));
        let parts = lease.parts().unwrap();
        $client.renew_by_parts(&parts, LONG)$(.$await)?.unwrap();
        let (token, number) = (lease.token(), lease.number());
        let any = lease.into_any();
        assert_eq!((any.token(), any.number()), (Some(token), number));
        let any = any.downcast::<Shared>().expect_err("it excludes");
        let lease = any.downcast::<Exclusive>().expect("it excludes");
        let shared = lease.downgrade()$(.$await)?.unwrap();
        assert_eq!(shared.mode(), Mode::SHARED);
        let parts = shared.parts().unwrap();
        assert_eq!($client.release_by_parts(&parts)$(.$await)?.unwrap(), Released::Held);
        drop(shared);

        let both = $client.multi(["j", "k"]).unwrap();
        assert_eq!(both.keys().len(), 2);
        options!($client, "m", $client.multi(["m"]).unwrap(), lock(), release $(, $await)?);
        let lease = both.lock_opts(LockOptions::new())$(.$await)?.unwrap();
        assert!(both.is_locked()$(.$await)?.unwrap());
        lease.renew_for(LONG)$(.$await)?.unwrap();
        assert!(lease.is_valid() && lease.remaining() > LONG / 2 && lease.waited() < LIMIT);
        assert!(lease.tokens().map(|(key, _)| key).eq(lease.keys()));
        let any = lease.into_any().downcast::<Shared>().expect_err("it excludes");
        let leases = any.downcast::<Exclusive>().expect("it excludes").into_leases();
        assert_eq!(leases.len(), 2);
        assert!(both.clone().into_any().try_lock()$(.$await)?.unwrap().is_none());
        for lease in leases {
            assert_eq!(lease.release()$(.$await)?.unwrap(), Released::Held);
        }
        let readers = both.shared();
        let [one, two] = [readers.lock()$(.$await)?.unwrap(), readers.lock()$(.$await)?.unwrap()];
        assert_eq!(one.release()$(.$await)?.unwrap(), Released::Held);
        assert_eq!(two.release()$(.$await)?.unwrap(), Released::Held);
    }};
}

macro_rules! elections {
    ($client:ident $(, $await:ident)?) => {{
        let office = $client.election("office").unwrap();
        options!($client, "office", office.clone(), campaign(""), resign $(, $await)?);
        let none = office.leader()$(.$await)?.unwrap();
        assert!(none.is_none(), "{none:?}");
        let leading = office.campaign_opts("one", LockOptions::new())$(.$await)?.unwrap();
        let leader = office.leader()$(.$await)?.unwrap().expect("one leads");
        assert_eq!((leader.term, leader.note.as_deref()), (leading.term(), Some("one")));
        assert!(leading.is_leader());
        assert!(office.try_campaign("two")$(.$await)?.unwrap().is_none());
        fails(office.campaign_within("two", BRIEF)$(.$await)?, ErrorKind::Timeout, &[]);
        leading.proclaim("still one")$(.$await)?.unwrap();
        let saved = leading.into_lease().into_parts()$(.$await)?.unwrap();
        let on = office.recover(&saved, "two", LockOptions::new())$(.$await)?.unwrap();
        assert!(!on.is_new && on.leadership.term() > saved.token());
        assert_eq!(on.leadership.resign()$(.$await)?.unwrap(), Released::Held);
    }};
}

/// What a client says and lists.
macro_rules! clients {
    ($client:ident $(, $await:ident)?) => {{
        assert_eq!($client.store_url(), "memory:?audit=100");
        assert_eq!($client.capabilities().name, "memory");
        assert!($client.child_fds().is_empty());
        let outer = $client.context();
        assert_ne!($client.context_within(&outer), outer);
        let lease = $client.mutex("k").unwrap().lock()$(.$await)?.unwrap();
        let seen = $client.list("*")$(.$await)?.unwrap();
        assert!($client.deadlocks_among(&seen)$(.$await)?.unwrap().is_empty());
        let page = $client.listing("*").next()$(.$await)?.unwrap().expect("a page");
        assert_eq!(page.keys.len(), seen.len());
        let broken = $client.break_grant("k", lease.token())$(.$await)?.unwrap();
        assert_eq!(broken.holders, 1);
        let mut log = $client.audit_log(None, SystemTime::UNIX_EPOCH).unwrap();
        assert!(!log.next()$(.$await)?.unwrap().is_empty());
    }};
}

/// The options of a client, and what a builder does beside connecting.
macro_rules! builders {
    ($builder:expr $(, $await:ident)?) => {{
        let facts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&facts);
        let count = move |_: &ObservedClaim, _: Fact| _ = counted.fetch_add(1, Ordering::SeqCst);
        let built = $builder.with_store(Arc::new(MemoryStore::new())).label("who").ttl(LONG);
        let built = built.claim_ids(ClaimIds::random()).observer(count);
        let client = built.connect()$(.$await)?.unwrap();
        let lease = client.mutex("k").unwrap().lock()$(.$await)?.unwrap();
        assert!(lease.remaining() > LONG / 2);
        let seen = client.inspect("k")$(.$await)?.unwrap();
        assert_eq!(seen.holders[0].owner.label.as_deref(), Some("who"));
        assert!(facts.load(Ordering::SeqCst) > 0);

        let place = tempfile::tempdir().unwrap();
        let options = LocalOptions::default().directory(place.path().join("locks"));
        let local = $builder.with_options(options).connect()$(.$await)?.unwrap();
        assert_eq!(local.capabilities().name, "local");

        let file = place.path().join("missing");
        let of = || $builder.store("memory:");
        assert_eq!(of().initialisation().unwrap(), None);
        assert_eq!(of().initialise()$(.$await)?.unwrap_err().kind(), ErrorKind::Invalid);
        let secret = || async { Ok::<_, std::io::Error>(Credentials::new("user", "secret")) };
        of().user("user").password("secret").connect()$(.$await)?.unwrap();
        of().credentials(CredentialsProvider::new(secret)).connect()$(.$await)?.unwrap();
        of().access(Access::default()).tls(TlsOptions::default()).connect()$(.$await)?.unwrap();
        fails(of().password_file(file).connect()$(.$await)?, ErrorKind::Invalid, &[]);
    }};
}

#[tokio::test]
async fn every_call_of_the_async_face() {
    let store = MemoryStore::new();
    let (own, other) = (Arc::new(store.client()), Arc::new(store.client()));
    let one = Client::builder().with_store(own).connect();
    let two = Client::builder().with_store(other).connect();
    let (one, two) = (one.await.unwrap(), two.await.unwrap());
    kinds!(store, one, two, await);
    leases!(one, await);
    elections!(one, await);
    let audited = leasehold::connect("memory:?audit=100").await.unwrap();
    clients!(audited, await);
    builders!(Client::builder(), await);
}

#[test]
fn every_call_of_the_blocking_face() {
    let store = MemoryStore::new();
    let (own, other) = (Arc::new(store.client()), Arc::new(store.client()));
    let one = blocking::Client::builder().with_store(own);
    let two = blocking::Client::builder().with_store(other);
    let (one, two) = (one.connect().unwrap(), two.connect().unwrap());
    kinds!(store, one, two);
    leases!(one);
    elections!(one);
    let audited = blocking::connect("memory:?audit=100").unwrap();
    clients!(audited);
    builders!(blocking::Client::builder());
}

/// What only threads have: waiting for so long, and the async ones behind what they use.
#[test]
fn threads_wait_for_so_long_and_reach_the_async_face() {
    let client = blocking::connect("memory:").unwrap();
    let mutex = client.mutex("k").unwrap();
    let lease = mutex.lock().unwrap();
    assert_eq!(lease.lost_within(BRIEF), None);
    client.break_key("k").unwrap();
    // Its inbox opens about now: it may have missed the push, and learns it by asking.
    let lost = lease.lost_within(LIMIT);
    assert!(matches!(lost, Some(Loss::Revoked | Loss::Gone)), "{lost:?}");
    let lost = lease.as_async().loss_signal();
    assert!(blocking::LossSignal::from(lost).as_async().is_lost());
    let both = client.multi(["j", "k"]).unwrap();
    let lease = both.lock().unwrap();
    assert_eq!(lease.lost_within(BRIEF), None);
    let keys = both.as_async().keys();
    assert_eq!(lease.as_async().keys().count(), keys.len());
    drop(lease);
    let office = client.election("office").unwrap();
    let leading = office.campaign("").unwrap();
    assert_eq!(leading.lost_within(BRIEF), None);
    assert!(leading.as_async().is_leader());
    let leaders = office.observe();
    let _: &leasehold::Leaders = leaders.as_async();
    assert_eq!(office.as_async().key(), office.key());
    let pair = client.rwlock("k").unwrap();
    let permits = client.semaphore("k", 2).unwrap();
    let untyped = client.lock_of("k", Mode::EXCLUSIVE).unwrap();
    let reentrant = client.reentrant("k", &Owner::new()).unwrap();
    let keys = [
        mutex.as_async().key(),
        pair.as_async().key(),
        permits.as_async().key(),
        untyped.as_async().key(),
        reentrant.as_async().key(),
    ];
    assert!(keys.iter().all(|key| key.as_str() == "k"));
    let settings = Settings::default().with_label("who").with_ttl(LONG);
    let builder = blocking::Client::builder().store("memory:");
    let builder = builder.settings(settings);
    let _: &leasehold::ClientBuilder = builder.as_async();
    let client = builder.connect().unwrap();
    let lease = client.mutex("k").unwrap().lock().unwrap();
    assert!(lease.remaining() > LONG / 2);
    let seen = client.inspect("k").unwrap();
    assert_eq!(seen.holders[0].owner.label.as_deref(), Some("who"));
}

#[test]
fn fences_say_what_they_have_seen_and_ids_differ() {
    let seen = Token::from(7);
    assert_eq!(Gate::at(seen).seen(), seen);
    let value = Guarded::at("kept", seen);
    assert_eq!(value.seen(), seen);
    assert_eq!(value.into_inner(), ("kept", seen));
    let ids = ClaimIds::snowflake(SnowflakeConfig::new(1, 2)).unwrap();
    assert_ne!(ids.next().unwrap(), ids.next().unwrap());
}
