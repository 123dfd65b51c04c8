//! Steps that the tests of all stores take, and what they expect of errors. One that fails says where
//! it was called. Who imports the steps has what they are about, too: clients, leases, tasks.

pub(crate) use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::panic::Location;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::Duration;

pub(crate) use async_trait::async_trait;
pub(crate) use leasehold::core::{
    Arrival, Claim, ClaimId, ClaimReply, ClientInfo, Key, Mode, Note, Release, ReleaseReply, Renew,
    RenewReply, Reply, Snapshot, Standing, StoreTime, Token,
};
use leasehold::core::{Command, Inbox};
pub(crate) use leasehold::store::memory::MemoryStore;
use leasehold::store::{AllAnswer, Answer, Capabilities, Listening, Listing, Push, PushSink};
pub(crate) use leasehold::store::{LockStore, Verbs as _};
pub(crate) use leasehold::{
    Client, Error, ErrorKind, Lease, LeaseState, Loss, Released, Settings, StoreError,
};
pub(crate) use leasehold_store::contract::Fixture;
pub(crate) use leasehold_testkit::dice::Dice;
pub(crate) use leasehold_testkit::expect::says;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
pub(crate) use tokio::task::{JoinHandle, JoinSet, yield_now};
pub(crate) use tokio::time::{Instant, sleep, timeout};

pub(crate) use crate::support::*;

// ---- clients ----

pub(crate) async fn client_with(url: &str, settings: Settings) -> Client {
    let builder = Client::builder().store(url).settings(settings);
    builder.connect().await.unwrap()
}

pub(crate) async fn connect(url: &str) -> Client {
    client_with(url, Settings::default()).await
}

/// A client of a store that is open.
pub(crate) async fn client_of(store: Arc<dyn LockStore>) -> Client {
    Client::builder().with_store(store).connect().await.unwrap()
}

// ---- locks ----

/// A claim that waits in a task.
pub(crate) type Waiting = JoinHandle<Result<Lease, Error>>;

#[track_caller]
pub(crate) fn lock(client: &Client, key: &str) -> impl Future<Output = Lease> {
    let (at, mutex) = (Location::caller(), client.mutex(key).unwrap());
    async move {
        let lease = mutex.lock().await;
        lease.unwrap_or_else(|error| panic!("at {at}: {error}"))
    }
}

/// Releases what is still held.
#[track_caller]
pub(crate) fn give_back(lease: Lease) -> impl Future<Output = ()> {
    let at = Location::caller();
    async move {
        let released = lease.release().await;
        let released = released.unwrap_or_else(|error| panic!("at {at}: {error}"));
        assert_eq!(released, Released::Held, "at {at}");
    }
}

/// Locks the key and gives it back.
#[track_caller]
pub(crate) fn use_once(client: &Client, key: &str) -> impl Future<Output = ()> {
    let (at, locked) = (Location::caller(), lock(client, key));
    async move {
        let released = locked.await.release().await;
        let released = released.unwrap_or_else(|error| panic!("at {at}: {error}"));
        assert_eq!(released, Released::Held, "at {at}");
    }
}

/// What a waiter gets, soon.
#[track_caller]
pub(crate) fn granted(waiting: Waiting) -> impl Future<Output = Lease> {
    let at = Location::caller();
    async move {
        let done = soon(&format!("the grant at {at}"), waiting).await.unwrap();
        done.unwrap_or_else(|error| panic!("at {at}: {error}"))
    }
}

/// The key, held by one client and waited for by another.
#[track_caller]
pub(crate) fn contended(
    holder: &Client,
    waiter: &Client,
    key: &str,
) -> impl Future<Output = (Lease, Waiting)> {
    let locked = lock(holder, key);
    async move {
        let held = soon("the key", locked).await;
        let waits = waiting(waiter, key);
        in_line(holder, key, 1).await;
        (held, waits)
    }
}

/// Gives the key back: the waiter gets it.
#[track_caller]
pub(crate) fn hand_over(held: Lease, waits: Waiting) -> impl Future<Output = Lease> {
    let (released, granted) = (give_back(held), granted(waits));
    async move {
        released.await;
        granted.await
    }
}

/// The answer to a call that is made again and again until there is one.
pub(crate) async fn answered<T, E>(what: &str, call: impl AsyncFn() -> Result<T, E>) -> T {
    let asked = async {
        loop {
            if let Ok(answer) = call().await {
                return answer;
            }
            sleep(Duration::from_millis(2)).await;
        }
    };
    soon(what, asked).await
}

// ---- errors ----

/// An error of a client or of a store.
pub(crate) trait Failure: Debug + Display {
    fn kind(&self) -> ErrorKind;
    fn hint(&self) -> Option<&str>;
}

impl Failure for Error {
    fn kind(&self) -> ErrorKind {
        self.kind()
    }

    fn hint(&self) -> Option<&str> {
        self.hint()
    }
}

impl Failure for StoreError {
    fn kind(&self) -> ErrorKind {
        self.kind()
    }

    fn hint(&self) -> Option<&str> {
        self.hint()
    }
}

/// Expects an error of this kind, whose text has all of these parts.
#[track_caller]
pub(crate) fn is_error(error: &impl Failure, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error:?}");
    says(error, parts);
}

/// Expects a failure as [`is_error`] does, and returns it.
#[track_caller]
pub(crate) fn fails<T, E: Failure>(result: Result<T, E>, kind: ErrorKind, parts: &[&str]) -> E {
    let Err(error) = result else {
        panic!("no error where {kind:?} was due: {parts:?}")
    };
    is_error(&error, kind, parts);
    error
}

/// Expects that the hint of an error has this part.
#[track_caller]
pub(crate) fn hints(error: &impl Failure, part: &str) {
    let Some(hint) = error.hint() else {
        panic!("no hint: {error}")
    };
    assert!(hint.contains(part), "{error}: {hint}");
}

// ---- the port of a store ----

/// A claim of all of a key, by a client that can be rung.
pub(crate) fn claim(store: &dyn LockStore, number: u128) -> Claim {
    Claim {
        waiter_ttl: LIMIT,
        inbox: Some(store.inbox().clone()),
        ..Claim::new(id(number), Mode::EXCLUSIVE, LIMIT)
    }
}

pub(crate) async fn claimed(store: &dyn LockStore, key: &Key, number: u128) -> Standing {
    match store.claim(key, &claim(store, number)).await.unwrap().reply {
        ClaimReply::Standing(standing) => standing,
        other => panic!("claim {number}: {other:?}"),
    }
}

/// The release of a claim of which no request can arrive late.
pub(crate) fn settled(id: ClaimId) -> Release {
    but(release_of(id), |it| it.settled = true)
}

struct Sink(UnboundedSender<Push>);

impl PushSink for Sink {
    fn push(&self, push: Push) {
        self.0.send(push).ok();
    }
}

/// A sink, and what it took.
pub(crate) fn sink() -> (Arc<dyn PushSink>, UnboundedReceiver<Push>) {
    let (sender, receiver) = unbounded_channel();
    (Arc::new(Sink(sender)), receiver)
}

// ---- a store that answers otherwise ----

/// A store whose answers to steps and inspections are altered.
#[derive(Debug)]
pub(crate) struct Altered {
    pub(crate) store: MemoryStore,
    pub(crate) step: fn(Answer) -> Result<Answer, StoreError>,
    pub(crate) inspect: fn(Snapshot) -> Result<Snapshot, StoreError>,
}

#[async_trait]
impl LockStore for Altered {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn step(&self, key: &Key, command: &Command) -> Result<Answer, StoreError> {
        self.store.step(key, command).await.and_then(self.step)
    }

    async fn claim_all(&self, parts: &[(Key, Claim)]) -> Result<Option<AllAnswer>, StoreError> {
        Ok(match self.store.claim_all(parts).await? {
            Some(AllAnswer::All(all)) => {
                let all = all.into_iter().map(self.step).collect::<Result<_, _>>()?;
                Some(AllAnswer::All(all))
            }
            Some(AllAnswer::NotAll { part, answer }) => {
                let answer = (self.step)(answer)?;
                Some(AllAnswer::NotAll { part, answer })
            }
            None => None,
        })
    }

    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        self.store.inspect(key).await.and_then(self.inspect)
    }

    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        self.store.listing(pattern)
    }

    fn inbox(&self) -> &Inbox {
        self.store.inbox()
    }

    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        self.store.listen(sink).await
    }
}
