//! The same locks for threads: every verb of the async API, which waits.
//!
//! A face and no second implementation: each call runs the async one on the
//! thread that calls, while one background thread of the process keeps the
//! connections and renews the leases. It may be used anywhere, inside a runtime
//! too, where it holds up the thread that calls and nothing else.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::blocking;
//!
//! let client = blocking::connect("memory:")?;
//! let orders = client.mutex("orders/42")?;
//! let lease = orders.lock()?;
//! assert!(orders.lock_within(Duration::from_millis(20)).is_err());
//! println!("write with token {}", lease.token());
//! lease.release()?;
//! # Ok::<(), leasehold::Error>(())
//! ```

mod election;
mod face;
mod lease;
mod multi;
mod mutex;
mod runtime;
mod rwlock;
mod semaphore;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::election::{Election, Leaders, Leadership};
pub use self::lease::{Lease, LossSignal, Recovered};
pub use self::multi::{MultiLease, MultiLock};
pub use self::mutex::{Mutex, Reentrant};
#[cfg(not(shuttle))]
pub(crate) use self::runtime::enter as background;
pub(crate) use self::runtime::held_up;
use self::runtime::{block_on, enter};
pub use self::rwlock::RwLock;
pub use self::semaphore::Semaphore;
use crate::store::{Capabilities, LockStore};
use crate::{
    Access, Broken, ClaimIds, Error, Inspection, Listed, Owner, Settings, Shutdown, TlsFiles,
};

/// Opens the store at `url`, with default settings: as [`crate::connect`].
///
/// # Errors
/// As [`crate::connect`]; `Unavailable` if no thread can be started.
pub fn connect(url: impl AsRef<str>) -> Result<Client, Error> {
    Client::builder().store(url).connect()
}

/// A listing under way: as [`crate::Listing`].
#[derive(Debug)]
pub struct Listing<'a>(crate::Listing<'a>);

impl Listing<'_> {
    /// The next part: as [`crate::Listing::next`].
    ///
    /// # Errors
    /// As there.
    #[allow(clippy::should_implement_trait, reason = "as the async one is called")]
    pub fn next(&mut self) -> Result<Option<Listed>, Error> {
        block_on(self.0.next())
    }
}

/// A connection to a store: as [`crate::Client`]. Cheap to clone.
#[derive(Clone)]
pub struct Client(crate::Client);

impl Client {
    /// A client with more than a URL to it.
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder(crate::Client::builder())
    }

    /// The client behind it, for async code.
    pub fn as_async(&self) -> &crate::Client {
        &self.0
    }

    /// A mutex on `key`: as [`crate::Client::mutex`].
    ///
    /// # Errors
    /// As there.
    pub fn mutex(&self, key: impl AsRef<str>) -> Result<Mutex, Error> {
        self.0.mutex(key).map(Mutex)
    }

    /// A read-write lock on `key`: as [`crate::Client::rwlock`].
    ///
    /// # Errors
    /// As there.
    pub fn rwlock(&self, key: impl AsRef<str>) -> Result<RwLock, Error> {
        self.0.rwlock(key).map(RwLock)
    }

    /// A semaphore on `key`: as [`crate::Client::semaphore`].
    ///
    /// # Errors
    /// As there.
    pub fn semaphore(&self, key: impl AsRef<str>, permits: u32) -> Result<Semaphore, Error> {
        self.0.semaphore(key, permits).map(Semaphore)
    }

    /// A mutex that `owner` may enter again: as [`crate::Client::reentrant`].
    ///
    /// # Errors
    /// As there.
    pub fn reentrant(&self, key: impl AsRef<str>, owner: &Owner) -> Result<Reentrant, Error> {
        self.0.reentrant(key, owner).map(Reentrant)
    }

    /// Several keys as one lock: as [`crate::Client::multi`].
    ///
    /// # Errors
    /// As there.
    pub fn multi<I>(&self, keys: I) -> Result<MultiLock, Error>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        self.0.multi(keys).map(MultiLock)
    }

    /// An election on `key`: as [`crate::Client::election`].
    ///
    /// # Errors
    /// As there.
    pub fn election(&self, key: impl AsRef<str>) -> Result<Election, Error> {
        self.0.election(key).map(Election)
    }

    /// Looks at a key: as [`crate::Client::inspect`].
    ///
    /// # Errors
    /// As there.
    pub fn inspect(&self, key: impl AsRef<str>) -> Result<Inspection, Error> {
        block_on(self.0.inspect(key))
    }

    /// The keys that somebody holds or waits for: as [`crate::Client::list`].
    ///
    /// # Errors
    /// As there.
    pub fn list(&self, pattern: impl AsRef<str>) -> Result<Vec<Inspection>, Error> {
        block_on(self.0.list(pattern))
    }

    /// The same part by part: as [`crate::Client::listing`].
    #[must_use]
    pub fn listing(&self, pattern: impl AsRef<str>) -> Listing<'_> {
        Listing(self.0.listing(pattern))
    }

    /// Takes the key from all who hold it: as [`crate::Client::break_key`].
    ///
    /// # Errors
    /// As there.
    pub fn break_key(&self, key: impl AsRef<str>) -> Result<Broken, Error> {
        block_on(self.0.break_key(key))
    }

    /// Gives back all that this client holds or waits for: as
    /// [`crate::Client::shutdown`].
    pub fn shutdown(&self, within: Duration) -> Shutdown {
        block_on(self.0.shutdown(within))
    }

    /// The store's URL, without a password.
    #[must_use]
    pub fn store_url(&self) -> &str {
        self.0.store_url()
    }

    /// What the store can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
}

/// The blocking face of a client that exists already. Its leases are kept by
/// the runtime in which it was connected. On the only thread of that runtime a call
/// would wait for ever: there, claims are refused with `Invalid`. Call it from other
/// threads, or use `spawn_blocking`.
impl From<crate::Client> for Client {
    fn from(client: crate::Client) -> Self {
        Self(client)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Everything a client can be given: as [`crate::ClientBuilder`].
#[derive(Debug, Clone, Default)]
pub struct ClientBuilder(crate::ClientBuilder);

impl ClientBuilder {
    /// The store's URL; see [`crate::connect`]. `local:` unless given.
    #[must_use]
    pub fn store(self, url: impl AsRef<str>) -> Self {
        Self(self.0.store(url))
    }

    /// A store that is open already.
    #[must_use]
    pub fn with_store(self, store: Arc<dyn LockStore>) -> Self {
        Self(self.0.with_store(store))
    }

    /// How the client's locks behave unless told otherwise.
    #[must_use]
    pub fn settings(self, settings: Settings) -> Self {
        Self(self.0.settings(settings))
    }

    /// How others see this client, beside host and process id.
    #[must_use]
    pub fn label(self, label: impl Into<String>) -> Self {
        Self(self.0.label(label))
    }

    /// Where the ids of claims come from: random, unless given.
    #[must_use]
    pub fn claim_ids(self, ids: ClaimIds) -> Self {
        Self(self.0.claim_ids(ids))
    }

    /// The user to log in as; wins over the URL.
    #[must_use]
    pub fn user(self, user: impl Into<String>) -> Self {
        Self(self.0.user(user))
    }

    /// A file whose first line is the password: as
    /// [`crate::ClientBuilder::password_file`].
    #[must_use]
    pub fn password_file(self, file: impl Into<std::path::PathBuf>) -> Self {
        Self(self.0.password_file(file))
    }

    /// The password to log in with; wins over the URL, and is shown nowhere.
    #[must_use]
    pub fn password(self, password: impl Into<String>) -> Self {
        Self(self.0.password(password))
    }

    /// All of that at once: as [`crate::ClientBuilder::access`].
    #[must_use]
    pub fn access(self, access: Access) -> Self {
        Self(self.0.access(access))
    }

    /// Certificates for TLS.
    #[must_use]
    pub fn tls(self, files: TlsFiles) -> Self {
        Self(self.0.tls(files))
    }

    /// Opens the store; the background thread keeps it.
    ///
    /// # Errors
    /// As [`crate::ClientBuilder::connect`]; `Unavailable` if no thread can be
    /// started.
    pub fn connect(self) -> Result<Client, Error> {
        enter()?;
        block_on(self.0.connect()).map(Client)
    }

    /// Says that the servers behind the URL are new: as
    /// [`crate::ClientBuilder::initialise`].
    ///
    /// # Errors
    /// As there; `Unavailable` if no thread can be started.
    pub fn initialise(self) -> Result<Vec<crate::Initialised>, Error> {
        enter()?;
        block_on(self.0.initialise())
    }
}
