//! Futures that are polled outside of a Tokio runtime: each of the API's, by a table.
#![cfg(all(feature = "local", feature = "redis"))]

use std::cell::RefCell;
use std::fs;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{LazyLock, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::SystemTime;

use futures_util::FutureExt as _;
use leasehold::doctor::examine;
use leasehold::observe::{Fact, ObservedClaim};
use leasehold::store::local::{LocalOptions, LocalStore};
use leasehold::store::redis::{
    ClassicStore, RedisClusterOptions, RedisOptions, RedisStore, RedlockOptions, RedlockStore,
};
use leasehold::testing::TestStore;
use leasehold::{
    Access, Leadership, LeaseParts, LockOptions, Mode, MultiLease, Shared, Token, blocking,
};
use tokio::runtime::Builder;

use crate::log::Log;
use crate::sources::{at, files_in};
use crate::steps::*;

const SOON: Duration = Duration::from_secs(1);

/// What came of polling a future once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// It refused, with the hint of `connect`.
    Invalid,
    /// It is done, or waits for what comes without a runtime.
    Works,
    Other(String),
}

fn polled<T>(future: impl Future<Output = T>, of: impl Fn(T) -> Came) -> Came {
    let poll = || {
        let future = pin!(future);
        future.poll(&mut Context::from_waker(Waker::noop()))
    };
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(Poll::Ready(done)) => of(done),
        Ok(Poll::Pending) => Came::Works,
        Err(_) => Came::Other("it panicked".to_owned()),
    }
}

/// One that says what is wrong.
fn refused<T, E: Failure>(future: impl Future<Output = Result<T, E>>) -> Came {
    polled(future, |result| {
        let Err(error) = result else {
            return Came::Other("it went on".to_owned());
        };
        let said = error.to_string();
        let hints = error.kind() == ErrorKind::Invalid && error.hint().is_some();
        match hints && said.contains("Tokio runtime") {
            true => Came::Invalid,
            false => Came::Other(said),
        }
    })
}

fn works<T>(future: impl Future<Output = T>) -> Came {
    polled(future, |_| Came::Works)
}

/// What there is to call.
pub(crate) struct Made {
    pub(crate) client: Client,
    pub(crate) lease: Lease,
    parts: LeaseParts,
    office: LeaseParts,
    shared: Lease<Shared>,
    both: MultiLease,
    leadership: Leadership,
}

impl Made {
    pub(crate) async fn new(url: &str) -> Self {
        let client = leasehold::connect(url).await.unwrap();
        let lease = client.mutex("k").unwrap().lock().await.unwrap();
        let leadership = client.election("e").unwrap().campaign("").await.unwrap();
        Self {
            parts: lease.parts().unwrap(),
            office: leadership.lease().parts().unwrap(),
            lease,
            leadership,
            shared: client.rwlock("r").unwrap().read().await.unwrap(),
            both: client.multi(["x", "y"]).unwrap().lock().await.unwrap(),
            client,
        }
    }
}

/// A method that can be called in another way too, by the file in which it is.
pub(crate) type Case = (&'static str, fn(Made) -> Came, Came);

macro_rules! cases {
    ($($name:literal: $how:ident($made:ident => $future:expr) -> $came:ident,)*) => {
        &[$(($name, |$made: Made| $how($future), Came::$came),)*]
    };
}

static NOBODY: LazyLock<Access> = LazyLock::new(Access::default);

pub(crate) const CASES: &[Case] = cases! {
    "leasehold/audit::next": refused(it => async { it.client.audit_log(None, SystemTime::now())?.next().await }) -> Invalid,
    "leasehold/client/builder::connect": refused(_it => Client::builder().store("memory:").connect()) -> Invalid,
    "leasehold/client/builder::initialise": refused(_it => Client::builder().store("redlock://a,b,c").initialise()) -> Invalid,
    "leasehold/client/by_parts::release_by_parts": refused(it => it.client.release_by_parts(&it.parts)) -> Invalid,
    "leasehold/client/by_parts::renew_by_parts": refused(it => it.client.renew_by_parts(&it.parts, SOON)) -> Invalid,
    "leasehold/client::break_key": refused(it => it.client.break_key("k")) -> Invalid,
    "leasehold/client::break_grant": refused(it => it.client.break_grant("k", Token::from(1))) -> Invalid,
    "leasehold/client::connect": refused(_it => leasehold::connect("memory:")) -> Invalid,
    "leasehold/client::deadlocks": refused(it => it.client.deadlocks()) -> Invalid,
    "leasehold/client::deadlocks_among": works(it => it.client.deadlocks_among(&[])) -> Works,
    "leasehold/client::inspect": refused(it => it.client.inspect("k")) -> Invalid,
    "leasehold/client::list": refused(it => it.client.list("*")) -> Invalid,
    "leasehold/client::shutdown": works(it => it.client.shutdown(SOON)) -> Works,
    "leasehold/client::wait_until_free": refused(it => it.client.wait_until_free("k")) -> Invalid,
    "leasehold/doctor::examine": refused(_it => examine("memory:", &Access::default())) -> Invalid,
    "leasehold/election::campaign": refused(it => it.client.election("f").unwrap().campaign("")) -> Invalid,
    "leasehold/election::campaign_opts": refused(it => it.client.election("f").unwrap().campaign_opts("", LockOptions::new())) -> Invalid,
    "leasehold/election::recover": refused(it => it.client.election("e").unwrap().recover(&it.office, "", LockOptions::new())) -> Invalid,
    "leasehold/election::campaign_within": refused(it => it.client.election("f").unwrap().campaign_within("", SOON)) -> Invalid,
    "leasehold/election::leader": refused(it => it.client.election("f").unwrap().leader()) -> Invalid,
    "leasehold/election::lost": works(it => it.leadership.lost()) -> Works,
    "leasehold/election::proclaim": refused(it => it.leadership.proclaim("me")) -> Invalid,
    "leasehold/election::resign": refused(it => it.leadership.resign()) -> Invalid,
    "leasehold/election::run": works(it => it.leadership.run(async {})) -> Works,
    "leasehold/election::try_run": works(it => it.leadership.try_run(async { Ok::<_, Error>(()) })) -> Works,
    "leasehold/election::try_campaign": refused(it => it.client.election("f").unwrap().try_campaign("")) -> Invalid,
    "leasehold/lease::downgrade": refused(it => it.lease.downgrade()) -> Invalid,
    "leasehold/lease::lost": works(it => it.lease.lost()) -> Works,
    "leasehold/lease::release": refused(it => it.shared.release()) -> Invalid,
    "leasehold/lease::renew": refused(it => it.lease.renew()) -> Invalid,
    "leasehold/lease::renew_for": refused(it => it.lease.renew_for(SOON)) -> Invalid,
    "leasehold/lease::rotate": refused(it => it.lease.rotate()) -> Invalid,
    "leasehold/lease::set_note": refused(it => it.lease.set_note("n")) -> Invalid,
    "leasehold/lease::run": works(it => it.lease.run(async {})) -> Works,
    "leasehold/lease::try_run": works(it => it.lease.try_run(async { Ok::<_, Error>(()) })) -> Works,
    "leasehold/listing::next": refused(it => it.client.listing("*").next()) -> Invalid,
    "leasehold/lock::inspect": refused(it => it.client.lock_of("k", Mode::EXCLUSIVE).unwrap().inspect()) -> Invalid,
    "leasehold/loss::lost": works(it => it.lease.loss_signal().lost()) -> Works,
    "leasehold/multi::is_locked": refused(it => it.client.multi(["o", "p"]).unwrap().is_locked()) -> Invalid,
    "leasehold/multi/lease::lost": works(it => it.both.lost()) -> Works,
    "leasehold/multi/lease::release": refused(it => it.both.release()) -> Invalid,
    "leasehold/multi/lease::renew": refused(it => it.both.renew()) -> Invalid,
    "leasehold/multi/lease::renew_for": refused(it => it.both.renew_for(SOON)) -> Invalid,
    "leasehold/multi/lease::run": works(it => it.both.run(async {})) -> Works,
    "leasehold/multi/lease::try_run": works(it => it.both.try_run(async { Ok::<_, Error>(()) })) -> Works,
    "leasehold/election/observe::next": refused(it => it.client.election("f").unwrap().observe().next()) -> Invalid,
    "leasehold/parts::into_parts": refused(it => it.lease.into_parts()) -> Invalid,
    "leasehold/semaphore::available_permits": refused(it => it.client.semaphore("m", 3).unwrap().available_permits()) -> Invalid,
    "leasehold/semaphore::acquire_opts": refused(it => it.client.semaphore("m", 3).unwrap().acquire_opts(1, LockOptions::new())) -> Invalid,
    "leasehold/semaphore::resize": refused(it => it.client.semaphore("m", 3).unwrap().resize(4)) -> Invalid,
    "leasehold/store::bare": refused(_it => leasehold::store::bare("postgres://h/d", &NOBODY)) -> Invalid,
    "leasehold/verbs::is_locked": refused(it => it.client.mutex("q").unwrap().is_locked()) -> Invalid,
    "leasehold/verbs::holders": refused(it => it.client.mutex("q").unwrap().holders()) -> Invalid,
    "leasehold/verbs::$wait": refused(it => it.client.mutex("q").unwrap().lock()) -> Invalid,
    "leasehold/verbs::$wait": refused(it => it.client.semaphore("m", 3).unwrap().acquire()) -> Invalid,
    "leasehold/verbs::$wait": refused(it => it.client.semaphore("m", 3).unwrap().acquire_many(2)) -> Invalid,
    "leasehold/verbs::$attempt": refused(it => it.client.multi(["o", "p"]).unwrap().try_lock()) -> Invalid,
    "leasehold/verbs::$attempt": refused(it => it.client.semaphore("m", 3).unwrap().try_acquire()) -> Invalid,
    "leasehold/verbs::$attempt": refused(it => it.client.semaphore("m", 3).unwrap().try_acquire_many(2)) -> Invalid,
    "leasehold/verbs::$wait_within": refused(it => it.client.rwlock("w").unwrap().read_within(SOON)) -> Invalid,
    "leasehold/verbs::$wait_within": refused(it => it.client.semaphore("m", 3).unwrap().acquire_within(SOON)) -> Invalid,
    "leasehold/verbs::$wait_within": refused(it => it.client.semaphore("m", 3).unwrap().acquire_many_within(2, SOON)) -> Invalid,
    "leasehold/verbs::$with": refused(it => it.client.mutex("q").unwrap().with_lock(async |_| ())) -> Invalid,
    "leasehold/verbs::$with": refused(it => it.client.semaphore("m", 3).unwrap().with_permits(2, async |_| ())) -> Invalid,
    "leasehold/verbs::$within": refused(it => it.client.mutex("q").unwrap().with_lock_within(SOON, async |_| ())) -> Invalid,
    "leasehold/verbs::$try": refused(it => it.client.mutex("q").unwrap().with_try_lock(async |_| ())) -> Invalid,
    "leasehold/verbs::$fallible": refused(it => it.client.multi(["q"]).unwrap().try_with_lock(async |_| Ok::<_, Error>(()))) -> Invalid,
    "leasehold/verbs::$wait_opts": refused(it => it.client.multi(["o", "p"]).unwrap().lock_opts(LockOptions::new())) -> Invalid,
    "leasehold/verbs::adopt_by_force": refused(it => it.client.rwlock("k").unwrap().adopt_by_force(&it.parts)) -> Invalid,
    "leasehold/verbs::recover": refused(it => it.client.mutex("k").unwrap().recover(&it.parts, LockOptions::new())) -> Invalid,
    "leasehold/verbs::try_recover": refused(it => it.client.rwlock("k").unwrap().try_recover(&it.parts)) -> Invalid,
    "leasehold-local/lib::open": refused(_it => LocalStore::open(LocalOptions::from_url("local:").unwrap())) -> Invalid,
    "leasehold-redis/classic/mod::connect": refused(_it => ClassicStore::connect(RedisOptions::from_url("redis://h?layout=classic").unwrap())) -> Invalid,
    "leasehold-redis/classic/mod::connect_cluster": refused(_it => ClassicStore::connect_cluster(RedisClusterOptions::from_url("redis-cluster://h?layout=classic").unwrap())) -> Invalid,
    "leasehold-redis/queue/mod::connect": refused(_it => RedisStore::connect(RedisOptions::from_url("redis://h").unwrap())) -> Invalid,
    "leasehold-redis/queue/mod::connect_cluster": refused(_it => RedisStore::connect_cluster(RedisClusterOptions::from_url("redis-cluster://h").unwrap())) -> Invalid,
    "leasehold-redis/queue/mod::initialise": refused(_it => RedisStore::initialise(RedisOptions::from_url("redis://h").unwrap())) -> Invalid,
    "leasehold-redis/quorum/init::initialise": refused(_it => RedlockStore::initialise(RedlockOptions::from_url("redlock://a,b,c").unwrap())) -> Invalid,
    "leasehold-redis/quorum/mod::connect": refused(_it => RedlockStore::connect(RedlockOptions::from_url("redlock://a,b,c").unwrap())) -> Invalid,
};

/// What is not in the table, and why.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "leasehold/fence/redis::",
        "waits for nothing but its caller's connection",
    ),
    (
        "leasehold/testing::",
        "connects and locks as every client does",
    ),
    (
        "leasehold/verbs::adopt",
        "as adopt_by_force, after a look at the parts",
    ),
    (
        "leasehold-redis/bare::bare",
        "only leasehold/store::bare calls it, after a look for the runtime",
    ),
];

/// The public futures of a crate, by their files.
fn futures_of(name: &str) -> Vec<String> {
    let source = at("crates").join(name).join("src");
    let mut found = Vec::new();
    for path in files_in(&source, "rs") {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(str::trim_start);
        let futures = lines.filter_map(|line| line.strip_prefix("pub async fn "));
        let file = path.strip_prefix(&source).unwrap().with_extension("");
        found.extend(futures.map(|rest| {
            let end = rest.find(['(', '<']).unwrap();
            format!("{name}/{}::{}", file.display(), &rest[..end])
        }));
    }
    found
}

#[test]
fn no_future_is_left_out() {
    let crates = ["leasehold", "leasehold-local", "leasehold-redis"];
    let mut found: BTreeSet<_> = crates.into_iter().flat_map(futures_of).collect();
    let elsewhere = |name: &str| {
        let mut files = ELSEWHERE.iter();
        files.any(|(of, _)| name == *of || (of.ends_with("::") && name.starts_with(of)))
    };
    for (of, _) in ELSEWHERE {
        let is_there = found.iter().any(|name| name.starts_with(of));
        assert!(is_there, "{of} does not exist");
    }
    found.retain(|name| !elsewhere(name));
    let known: BTreeSet<_> = CASES.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let missing: Vec<_> = found.difference(&known).collect();
    assert!(
        missing.is_empty(),
        "poll these outside of a runtime, too: {missing:?}"
    );
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "these do not exist: {gone:?}");
}

#[test]
fn no_future_panics_outside_of_a_runtime() {
    let place = tempfile::tempdir().unwrap();
    let local = format!("local:{}", place.path().join("locks").display());
    for url in ["memory:", &local] {
        let runtime = Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        let wrong: Vec<_> = CASES
            .iter()
            .filter_map(|(name, call, expected)| {
                let made = runtime.block_on(Made::new(url));
                let client = made.client.clone();
                let came = call(made);
                // The next has its keys.
                let done = runtime.block_on(client.shutdown(Duration::from_secs(30)));
                assert_eq!(done.unconfirmed, 0, "{name} on {url}");
                (came != *expected).then_some((name, came))
            })
            .collect();
        assert!(wrong.is_empty(), "on {url}: {wrong:#?}");
    }
}

thread_local! {
    static KEPT: RefCell<Option<blocking::Lease>> = const { RefCell::new(None) };
}

/// When it is dropped, what Tokio and the log keep of the thread is gone.
#[test]
fn a_lease_that_ends_with_its_thread_is_released() {
    let _log = Log::start();
    // From now on Tokio's clock has to be asked.
    let mut paused = Builder::new_current_thread();
    let _paused = paused.enable_time().start_paused(true).build().unwrap();
    let (told, tells) = mpsc::channel();
    let tell = move |_: &ObservedClaim, fact: Fact| {
        if matches!(fact, Fact::Released { .. }) {
            told.send(thread::current().id()).unwrap();
        }
    };
    let client = blocking::Client::builder().store("memory:").observer(tell);
    let client = client.connect().unwrap();
    let lock = client.mutex("k").unwrap();
    let theirs = lock.clone();
    let ends = thread::spawn(move || {
        // What a thread has first ends last.
        KEPT.set(None);
        KEPT.set(Some(theirs.lock().unwrap()));
    });
    let ended = ends.thread().id();
    ends.join().unwrap();
    let _next = lock.lock_within(Duration::from_secs(20)).unwrap();
    let by = tells.recv_timeout(Duration::from_secs(20));
    assert_ne!(by.expect("who observes is told"), ended, "by another");
}

/// A shutdown does not wait for releases that nobody sends any more.
#[test]
fn a_shutdown_ends_with_the_runtime_of_its_client() {
    let (theirs, here) = (runtime(), runtime());
    let store = TestStore::new();
    let client = theirs.block_on(store.connect()).unwrap();
    let _lease = theirs.block_on(client.mutex("k").unwrap().lock()).unwrap();
    store.make_unavailable();
    let mut shutdown = pin!(client.shutdown(Duration::MAX));
    let polled = here.block_on(async { shutdown.as_mut().now_or_never() });
    assert!(polled.is_none());
    drop(theirs);
    let done = here.block_on(soon("the shutdown", shutdown));
    assert_eq!((done.released, done.unconfirmed), (0, 1));
}

/// Nor for the end of a watch, which nobody tells the store any more.
#[test]
fn a_shutdown_does_not_wait_for_a_watch_that_ended_with_its_runtime() {
    let (theirs, here) = (runtime(), runtime());
    let client = theirs.block_on(leasehold::connect("memory:")).unwrap();
    let mut leaders = theirs.block_on(async { client.election("e").unwrap().observe() });
    theirs.block_on(leaders.next()).unwrap();
    // Its driver ends before the runtime does.
    let _ = theirs.block_on(async {
        let done = client.shutdown(Duration::MAX).await;
        for _ in 0..100 {
            yield_now().await;
        }
        done
    });
    drop(theirs);
    drop(leaders);
    let shutdown = client.shutdown(Duration::MAX);
    let done = here.block_on(soon("the shutdown", shutdown));
    assert_eq!((done.released, done.unconfirmed), (0, 0));
}

/// Its driver may have sent the request that nobody answers.
#[test]
fn a_hand_over_ends_where_the_runtime_of_its_client_has_ended() {
    let (theirs, here) = (runtime(), runtime());
    let store = TestStore::new();
    let settings = Settings::default().with_operation_timeout(Duration::from_millis(500));
    let connected = theirs.block_on(store.builder().settings(settings).connect());
    let lock = connected.unwrap().mutex("k").unwrap();
    let lease = theirs.block_on(lock.lock()).unwrap();
    store.make_unavailable();
    let mut parts = pin!(lease.into_parts());
    let polled = here.block_on(async { parts.as_mut().now_or_never() });
    assert!(polled.is_none());
    // Now it is repeated, by the driver alone.
    store.make_slow(Duration::from_secs(3600));
    theirs.block_on(async { sleep(Duration::from_millis(100)).await });
    drop(theirs);
    let parts = here.block_on(soon("the end", parts));
    fails(parts, ErrorKind::Unavailable, &[]);
}

/// Also whoever has heard it as the item of a stream.
#[test]
fn who_observes_again_is_told_again_that_the_runtime_has_ended() {
    for as_stream in [false, true] {
        let (theirs, here) = (runtime(), runtime());
        let client = theirs.block_on(leasehold::connect("memory:")).unwrap();
        let mut leaders = theirs.block_on(async { client.election("e").unwrap().observe() });
        theirs.block_on(leaders.next()).unwrap();
        drop(theirs);
        let first = match as_stream {
            true => here
                .block_on(futures_util::StreamExt::next(&mut leaders))
                .unwrap(),
            false => here.block_on(leaders.next()),
        };
        for closed in [first, here.block_on(leaders.next())] {
            let said = ["the Tokio runtime", "has ended"];
            fails(closed, ErrorKind::Closed, &said);
        }
    }
}
