//! For tests of code that takes locks: a store in memory that fails on demand, and time that a test
//! sets.
//!
//! A test that pauses Tokio's clock has paused the client's, too, and that of `memory:`: leases end,
//! waits time out and renewals are due when Tokio's clock is there, which takes no real time. This
//! holds in debug builds, and with the feature `testing` in release builds.
//!
//! ```
//! use leasehold::Loss;
//! use leasehold::testing::TestStore;
//!
//! // As #[tokio::test(start_paused = true)] makes it.
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() -> Result<(), leasehold::Error> {
//!     let store = TestStore::new();
//!     let lease = store.connect().await?.mutex("report")?.lock().await?;
//!     store.make_unavailable();
//!     // Half a minute of Tokio's time: the TTL.
//!     assert_eq!(lease.lost().await, Loss::Unanswered);
//!     Ok(())
//! }
//! ```
//!
//! Servers keep their own time: with a real Redis, PostgreSQL or ZooKeeper do not pause the clock.

use std::future::{Future, ready};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Claim, Command, Inbox, Key, Push, Snapshot, StoreTime};
use leasehold_store::memory::MemoryStore;
use leasehold_store::sync::{Mutex, lock, sleep};
use leasehold_store::{
    AllAnswer, Answer, AuditLog, Capabilities, ErrorKind, ListPage, Listening, Listing, LockStore,
    PushSink, StoreError, debug,
};

use crate::{Client, ClientBuilder, Error, Lease};

/// A store in memory that fails on demand. Each value has its own locks, so that tests beside each
/// other do not meet; clones share them.
///
/// A client costs some allocations, and no thread, socket or file: make one for each test, and one
/// for each process that a test plays.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// use leasehold::testing::TestStore;
/// let store = TestStore::new();
/// let client = store.connect().await?;
/// let nightly = client.mutex("nightly")?;
///
/// let other = store.busy("nightly").await?; // somebody else
/// assert!(nightly.try_lock().await?.is_none());
/// drop(other);
///
/// let lease = nightly.lock().await?;
/// store.lose("nightly").await?;
/// println!("{}", lease.lost().await);
///
/// store.make_unavailable();
/// assert!(nightly.try_lock().await.unwrap_err().is_unavailable());
/// store.restore();
/// assert!(nightly.try_lock().await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct TestStore {
    memory: Arc<MemoryStore>,
    state: Arc<State>,
}

/// What is wrong with it, and who is to learn when it is over.
#[derive(Debug, Default)]
struct State {
    fault: Mutex<Fault>,
    open: Mutex<Vec<Weak<Hears>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Fault {
    #[default]
    Nothing,
    Slow(Duration),
    Unavailable,
    Refuses,
}

impl Default for TestStore {
    fn default() -> Self {
        Self::new()
    }
}

impl TestStore {
    /// Makes an empty store that works.
    #[must_use]
    pub fn new() -> Self {
        let (memory, state) = (Arc::new(MemoryStore::new()), Arc::default());
        Self { memory, state }
    }

    /// Connects a client with default settings.
    ///
    /// # Errors
    /// `Invalid` outside of a Tokio runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is left.
    pub async fn connect(&self) -> Result<Client, Error> {
        self.builder().connect().await
    }

    /// Configures a client of this store: TTL, label, observers.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// let store = leasehold::testing::TestStore::new();
    /// let client = store.builder().ttl(Duration::from_secs(5)).label("billing").connect().await?;
    /// # drop(client);
    /// # Ok(()) }
    /// ```
    pub fn builder(&self) -> ClientBuilder {
        let (memory, state) = (self.memory.client(), self.state.clone());
        Client::builder().with_store(Arc::new(TestClient { memory, state }))
    }

    /// Lets no request get an answer, and nobody learn what happens, until [`restore`](Self::restore):
    /// as a server or a network that is down. Requests fail at once with `Unavailable`.
    pub fn make_unavailable(&self) {
        self.set(Fault::Unavailable);
    }

    /// Answers each request so much later. The step itself is taken at once.
    pub fn make_slow(&self, by: Duration) {
        self.set(Fault::Slow(by));
    }

    /// Refuses each request, as a server does to a client without rights.
    pub fn make_refusing(&self) {
        self.set(Fault::Refuses);
    }

    /// Works again.
    pub fn restore(&self) {
        self.set(Fault::Nothing);
    }

    fn set(&self, fault: Fault) {
        let before = std::mem::replace(&mut *lock(&self.state.fault), fault);
        if before == Fault::Unavailable && fault != Fault::Unavailable {
            // What was not told meanwhile is looked for.
            let open = lock(&self.state.open).clone();
            for inbox in open.iter().filter_map(Weak::upgrade) {
                inbox.push(Push::Reset);
            }
        }
    }

    /// Lets somebody else have the key: waits for it, and holds it until the lease is dropped. A fault
    /// of the store does not concern that one.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue.
    ///
    /// # Errors
    /// Same as [`Mutex::lock`](crate::Mutex::lock).
    pub async fn busy(&self, key: impl AsRef<str>) -> Result<Lease, Error> {
        self.other().await?.mutex(key)?.lock().await
    }

    /// Takes the key from its holders: their leases are lost at once, and the next waiter is granted.
    /// The reason is [`Loss::Revoked`](crate::Loss::Revoked), or [`Loss::Gone`](crate::Loss::Gone) of a
    /// lease that was granted a moment ago: its client did not listen yet, and found out itself.
    ///
    /// # Cancel safety
    /// If the future is dropped, the key may be taken or not.
    ///
    /// # Errors
    /// Same as [`Client::break_key`].
    pub async fn lose(&self, key: impl AsRef<str>) -> Result<(), Error> {
        self.other().await?.break_key(key).await.map(drop)
    }

    async fn other(&self) -> Result<Client, Error> {
        let store = Arc::new(self.memory.client());
        Client::builder().with_store(store).connect().await
    }
}

debug!(TestStore);

impl State {
    /// What a request is answered.
    async fn answer<T>(
        &self,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let fault = || *lock(&self.fault);
        let by = match fault() {
            Fault::Nothing => return request.await,
            Fault::Slow(by) => by,
            Fault::Unavailable => return Err(unavailable()),
            Fault::Refuses => {
                let why = "the test lets the store refuse everything";
                return Err(StoreError::new(ErrorKind::Refused, why));
            }
        };
        let answer = request.await;
        sleep(by).await;
        match fault() {
            // Nothing arrives that was on its way.
            Fault::Unavailable => Err(unavailable()),
            _ => answer,
        }
    }
}

fn unavailable() -> StoreError {
    let why = "the test has made the store unavailable";
    StoreError::new(ErrorKind::Unavailable, why)
}

/// One client of it.
#[derive(Debug)]
struct TestClient {
    memory: MemoryStore,
    state: Arc<State>,
}

#[async_trait]
impl LockStore for TestClient {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    async fn step(&self, key: &Key, command: &Command) -> Result<Answer, StoreError> {
        let step = LockStore::step(&self.memory, key, command);
        self.state.answer(step).await
    }

    async fn claim_all(&self, parts: &[(Key, Claim)]) -> Result<Option<AllAnswer>, StoreError> {
        self.state.answer(self.memory.claim_all(parts)).await
    }

    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        self.state.answer(self.memory.inspect(key)).await
    }

    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        let (pages, state) = (LockStore::listing(&self.memory, pattern), &self.state);
        Box::new(Pages { pages, state })
    }

    fn audit_log<'a>(
        &'a self,
        key: Option<&Key>,
        since: StoreTime,
    ) -> Option<Box<dyn AuditLog + 'a>> {
        LockStore::audit_log(&self.memory, key, since)
    }

    fn inbox(&self) -> &Inbox {
        LockStore::inbox(&self.memory)
    }

    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        let state = self.state.clone();
        let hears = Arc::new(Hears { sink, state });
        lock(&self.state.open).retain(|inbox| inbox.strong_count() > 0);
        lock(&self.state.open).push(Arc::downgrade(&hears));
        let listening = LockStore::listen(&self.memory, hears);
        self.state.answer(listening).await
    }
}

struct Hears {
    sink: Arc<dyn PushSink>,
    state: Arc<State>,
}

impl PushSink for Hears {
    fn push(&self, push: Push) {
        if *lock(&self.state.fault) != Fault::Unavailable {
            self.sink.push(push);
        }
    }
}

struct Pages<'a> {
    pages: Box<dyn Listing + 'a>,
    state: &'a State,
}

#[async_trait]
impl Listing for Pages<'_> {
    async fn next_page(&mut self) -> Result<Option<ListPage>, StoreError> {
        // All was read already; what does not arrive comes again.
        self.state.answer(ready(Ok(()))).await?;
        self.pages.next_page().await
    }
}
