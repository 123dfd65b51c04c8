//! The client: what opens a store and hands out locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Key, Mode, Owner as OwnerInfo, Reply};

use crate::driver::{Driver, unanswered};
use crate::election::Election;
use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::ids::ClaimIds;
use crate::inspection::{Broken, Inspection, Shutdown};
use crate::multi::MultiLock;
use crate::mutex::Mutex;
use crate::open::{self, Credentials, TlsFiles};
use crate::reentrant::{Owner, Reentrant};
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::settings::Settings;
use crate::store::{Capabilities, LockStore};
use crate::sync::{Runtime, timeout};

/// Opens the store at `url`, with default settings.
///
/// | URL | store |
/// |---|---|
/// | `memory:` | this process; `memory:name` is shared by name |
/// | `local:`, `local:/some/dir` | this machine: files of the user, or in that directory |
/// | `redis://[user:password@]host[:port][/db]`, `valkey://` | a server |
/// | `rediss://…` | a server, with TLS |
/// | `redis+unix:///path/to/socket` | a server, by its Unix socket |
/// | `redis-sentinel://[user:password@]h1,h2,h3/name[/db]`, `rediss-sentinel://` | the primary that Sentinels watch |
/// | `redlock://[user:password@]host[:port],…[/db]` | three or more independent servers, by majority |
/// | `redis-cluster://[user:password@]host[:port],host…`, `rediss-cluster://…` | a cluster |
///
/// # Errors
/// `Invalid` for a URL that makes no sense, `Unavailable` when there is nobody,
/// `Refused` when the store does not want us (a wrong password, a server too old).
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::connect("memory:").await?;
/// let lease = client.mutex("orders/42")?.lock().await?;
/// lease.release().await?;
/// # Ok(()) }
/// ```
pub async fn connect(url: impl AsRef<str>) -> Result<Client, Error> {
    Client::builder().store(url).connect().await
}

/// A connection to a store, shared by all locks made from it. Cheap to clone.
///
/// One task keeps all of a client's claims, however many; it ends when none is
/// left. Leases outlive the client value they came from.
#[derive(Clone)]
pub struct Client {
    driver: Arc<Driver>,
    owner: OwnerInfo,
    url: Arc<str>,
}

impl Client {
    /// A client with more than a URL to it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::{Client, Settings};
    /// let settings = Settings { ttl: Duration::from_secs(60), ..Settings::default() };
    /// let client = Client::builder().store("memory:").settings(settings).label("billing").connect().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A mutex on `key`. No I/O: a bad key fails here.
    ///
    /// # Errors
    /// `Invalid`: a key is 1 to 512 bytes without control characters.
    pub fn mutex(&self, key: impl AsRef<str>) -> Result<Mutex, Error> {
        let key = check_key(Operation::Acquire, key)?;
        Ok(Mutex::new(self.driver.clone(), key, self.owner.clone()))
    }

    /// A read-write lock on `key`. No I/O: a bad key fails here.
    ///
    /// # Errors
    /// As [`Client::mutex`].
    pub fn rwlock(&self, key: impl AsRef<str>) -> Result<RwLock, Error> {
        let key = check_key(Operation::Acquire, key)?;
        Ok(RwLock::new(self.driver.clone(), key, self.owner.clone()))
    }

    /// A semaphore of so many permits on `key`. No I/O: a bad key fails here.
    ///
    /// # Errors
    /// As [`Client::mutex`]; `Invalid` for no permits.
    pub fn semaphore(&self, key: impl AsRef<str>, permits: u32) -> Result<Semaphore, Error> {
        let key = check_key(Operation::Acquire, key)?;
        let mode = Mode::Permits {
            of: permits,
            take: 1,
        };
        let invalid = |invalid: leasehold_core::Invalid| {
            Error::new(Operation::Acquire, Some(key.clone()), invalid.into())
        };
        mode.check().map_err(invalid)?;
        let (driver, owner) = (self.driver.clone(), self.owner.clone());
        Ok(Semaphore::new(driver, key, owner, permits))
    }

    /// A mutex on `key` that `owner` may enter again. No I/O: a bad key fails here.
    ///
    /// # Errors
    /// As [`Client::mutex`].
    pub fn reentrant(&self, key: impl AsRef<str>, owner: &Owner) -> Result<Reentrant, Error> {
        let key = check_key(Operation::Acquire, key)?;
        let (driver, who) = (self.driver.clone(), self.owner.clone());
        Ok(Reentrant::new(driver, key, who, *owner))
    }

    /// Several keys as one lock: all or nothing. No I/O: bad keys fail here.
    ///
    /// # Errors
    /// As [`Client::mutex`]; `Invalid` for no key, or one that is named twice.
    pub fn multi<I>(&self, keys: I) -> Result<MultiLock, Error>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let keys: Result<Vec<_>, _> = keys
            .into_iter()
            .map(|key| check_key(Operation::Acquire, key))
            .collect();
        MultiLock::new(&self.driver, keys?, &self.owner)
    }

    /// An election on `key`. No I/O: a bad key fails here.
    ///
    /// # Errors
    /// As [`Client::mutex`].
    pub fn election(&self, key: impl AsRef<str>) -> Result<Election, Error> {
        let key = check_key(Operation::Acquire, key)?;
        Ok(Election::new(self.driver.clone(), key, self.owner.clone()))
    }

    /// Looks at a key; changes nothing.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`, `Corrupt`: see [`ErrorKind`].
    ///
    /// # Cancel safety
    /// Dropping the future costs nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("orders/42")?.with_label("billing").lock().await?;
    /// let seen = client.inspect("orders/42").await?;
    /// assert_eq!(seen.holders[0].token, lease.token());
    /// assert_eq!(seen.holders[0].owner.label.as_deref(), Some("billing"));
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self, key: impl AsRef<str>) -> Result<Inspection, Error> {
        let key = check_key(Operation::Inspect, key)?;
        let look = self.within(self.driver.store.inspect(&key)).await;
        let look =
            look.map_err(|error| Error::new(Operation::Inspect, Some(key.clone()), error))?;
        Ok(Inspection::new(key, look))
    }

    /// The keys that somebody holds or waits for, by name; `pattern` is a glob
    /// (`*`, `?`, `[abc]`).
    ///
    /// # Errors
    /// `Unavailable`, `Refused`: see [`ErrorKind`].
    ///
    /// # Cancel safety
    /// Dropping the future costs nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("orders/42")?.lock().await?;
    /// assert_eq!(client.list("orders/*").await?.len(), 1);
    /// assert!(client.list("invoices/*").await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn list(&self, pattern: impl AsRef<str>) -> Result<Vec<Inspection>, Error> {
        let found = self.within(self.driver.store.list(pattern.as_ref())).await;
        let found = found.map_err(|error| Error::new(Operation::Inspect, None, error))?;
        Ok(found
            .into_iter()
            .map(|(key, look)| Inspection::new(key, look))
            .collect())
    }

    /// Takes the key from all who hold it: for administrators. The token is
    /// raised first, so that the old holders are fenced; they are told.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`, `Corrupt`: see [`ErrorKind`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves it unknown whether it was done.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("orders/42")?.lock().await?;
    /// assert_eq!(client.break_key("orders/42").await?.holders, 1);
    /// lease.lost().await;
    /// # Ok(()) }
    /// ```
    pub async fn break_key(&self, key: impl AsRef<str>) -> Result<Broken, Error> {
        let key = check_key(Operation::Break, key)?;
        let answer = self.within(self.driver.store.break_key(&key)).await;
        let answer = answer.map_err(|error| Error::new(Operation::Break, Some(key), error))?;
        Ok(match answer.reply {
            Reply::Broken { holders, token } => Broken { holders, token },
            _ => Broken {
                holders: 0,
                token: leasehold_core::Token(0),
            },
        })
    }

    /// Gives back all that this client holds or waits for, and waits until that
    /// is confirmed, for `within` at most. Leases are lost, waiting futures
    /// fail, and the client takes no new claims.
    ///
    /// # Cancel safety
    /// Dropping the future goes on releasing in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("orders/42")?.lock().await?;
    /// let done = client.shutdown(Duration::from_secs(5)).await;
    /// assert_eq!((done.released, done.unconfirmed), (1, 0));
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(&self, within: Duration) -> Shutdown {
        let (released, unconfirmed) = self.driver.shut_down(within).await;
        Shutdown {
            released,
            unconfirmed,
        }
    }

    /// The store's URL, complete enough to be handed to another process, but
    /// without a password.
    #[must_use]
    pub fn store_url(&self) -> &str {
        &self.url
    }

    /// What the store can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.driver.store.capabilities()
    }

    /// The file descriptors that a guarded child process should inherit, so that
    /// its life counts as this client's. Empty for stores that see no lives.
    #[cfg(unix)]
    #[must_use]
    pub fn lifelines(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        self.driver.store.lifelines()
    }

    async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let limit = self.driver.settings.operation_timeout;
        timeout(limit, work)
            .await
            .unwrap_or_else(|_| Err(unanswered(limit)))
    }
}

fn check_key(operation: Operation, key: impl AsRef<str>) -> Result<Key, Error> {
    Key::new(key).map_err(|invalid| Error::new(operation, None, invalid.into()))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("store", &self.url)
            .finish_non_exhaustive()
    }
}

/// Everything a client can be given. See [`Client::builder`].
#[derive(Clone, Default)]
pub struct ClientBuilder {
    url: Option<String>,
    store: Option<Arc<dyn LockStore>>,
    settings: Settings,
    credentials: Credentials,
    ids: ClaimIds,
}

impl ClientBuilder {
    /// The store's URL; see [`connect`]. `local:` unless given.
    #[must_use]
    pub fn store(mut self, url: impl AsRef<str>) -> Self {
        self.url = Some(url.as_ref().to_owned());
        self
    }

    /// A store that is open already: a connection brought along, or one of your own.
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn LockStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// How the client's locks behave unless told otherwise.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// How others see this client, beside host and process id.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.settings.label = Some(label.into());
        self
    }

    /// Where the ids of claims come from: random, unless given.
    #[must_use]
    pub fn claim_ids(mut self, ids: ClaimIds) -> Self {
        self.ids = ids;
        self
    }

    /// The user to log in as; wins over the URL.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.credentials.user = Some(user.into());
        self
    }

    /// The password to log in with; wins over the URL, and is shown nowhere.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.credentials.password = Some(password.into());
        self
    }

    /// Certificates for TLS.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.credentials.tls = files;
        self
    }

    /// Opens the store. Must be called inside a Tokio runtime, which the client
    /// uses from then on.
    ///
    /// # Errors
    /// As [`connect`]; `Invalid` for settings out of bounds.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// # Examples
    /// See [`Client::builder`].
    pub async fn connect(self) -> Result<Client, Error> {
        let error = |error| Error::new(Operation::Connect, None, error);
        let Ok(runtime) = Runtime::try_current() else {
            return Err(error(
                StoreError::new(ErrorKind::Invalid, "there is no Tokio runtime here")
                    .with_hint("call it inside #[tokio::main], or Runtime::block_on"),
            ));
        };
        self.settings
            .check()
            .map_err(|invalid| error(invalid.into()))?;
        let (store, url) = match self.store {
            Some(store) => {
                let url = format!("{}:", store.capabilities().name);
                (store, url)
            }
            None => {
                let url = self.url.as_deref().unwrap_or("local:");
                let limit = self.settings.operation_timeout;
                let opening = open::open(url, &self.credentials);
                let opened = timeout(limit, opening).await;
                opened
                    .unwrap_or_else(|_| Err(unanswered(limit)))
                    .map_err(error)?
            }
        };
        if self.settings.rotate_every.is_some() && store.capabilities().exclusive_only {
            let name = store.capabilities().name;
            let why = format!("{name} stores cannot replace claim ids");
            return Err(error(
                StoreError::new(ErrorKind::Unsupported, why).with_hint("leave rotate_every out"),
            ));
        }
        let (host, process) = whereabouts();
        let owner = OwnerInfo::new(&host, process, self.settings.label.as_deref());
        let driver = Driver::new(store, self.settings, self.ids, runtime);
        Ok(Client {
            driver,
            owner,
            url: url.into(),
        })
    }
}

/// The machine's name, and the number of the process on it.
fn whereabouts() -> (String, u32) {
    #[cfg(feature = "simulation")]
    if let Some(whereabouts) = crate::simulation::whereabouts() {
        return whereabouts;
    }
    let machine = rustix::system::uname();
    let name = machine.nodename().to_string_lossy().into_owned();
    (name, std::process::id())
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("ClientBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
