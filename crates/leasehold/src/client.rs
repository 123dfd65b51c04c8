//! The client: what opens a store and hands out locks.

mod builder;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use leasehold_core::{ClientInfo, Key, Mode, Reply};

pub use self::builder::ClientBuilder;
use crate::election::Election;
use crate::error::{Error, Operation, StoreError};
use crate::inspection::{Broken, Inspection, Shutdown};
use crate::listing::{Listing, Skipped};
use crate::multi::MultiLock;
use crate::mutex::Mutex;
use crate::reentrant::{Owner, Reentrant};
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::session::{Session, unanswered};
use crate::store::{Capabilities, Verbs as _};
use crate::sync::timeout;

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
    session: Arc<Session>,
    owner: ClientInfo,
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
        Ok(Mutex::new(self.session.clone(), key, self.owner.clone()))
    }

    /// A read-write lock on `key`. No I/O: a bad key fails here.
    ///
    /// # Errors
    /// As [`Client::mutex`].
    pub fn rwlock(&self, key: impl AsRef<str>) -> Result<RwLock, Error> {
        let key = check_key(Operation::Acquire, key)?;
        Ok(RwLock::new(self.session.clone(), key, self.owner.clone()))
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
        let (session, owner) = (self.session.clone(), self.owner.clone());
        Ok(Semaphore::new(session, key, owner, permits))
    }

    /// A mutex on `key` that `owner` may enter again. No I/O: a bad key fails here.
    ///
    /// # Errors
    /// As [`Client::mutex`].
    pub fn reentrant(&self, key: impl AsRef<str>, owner: &Owner) -> Result<Reentrant, Error> {
        let key = check_key(Operation::Acquire, key)?;
        let (session, who) = (self.session.clone(), self.owner.clone());
        Ok(Reentrant::new(session, key, who, *owner))
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
        MultiLock::new(&self.session, keys?, &self.owner)
    }

    /// An election on `key`. No I/O: a bad key fails here.
    ///
    /// # Errors
    /// As [`Client::mutex`].
    pub fn election(&self, key: impl AsRef<str>) -> Result<Election, Error> {
        let key = check_key(Operation::Acquire, key)?;
        Ok(Election::new(self.session.clone(), key, self.owner.clone()))
    }

    /// Looks at a key; changes nothing.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`, `Corrupt`: see [`ErrorKind`](crate::ErrorKind).
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
        Inspection::of(&self.session, &key).await
    }

    /// The keys that somebody holds or waits for, by name; `pattern` is a glob
    /// (`*`, `?`, `[abc]`). Takes as many operation time-outs as it must: see
    /// [`Client::listing`] for very many keys.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`: see [`ErrorKind`](crate::ErrorKind).
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
        let mut listing = self.listing(pattern);
        let mut keys = Vec::new();
        while let Some(part) = listing.next().await? {
            keys.extend(part.keys);
            for Skipped { name, error } in part.skipped {
                tracing::warn!(name, %error, "passed over a key that cannot be read");
            }
        }
        keys.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(keys)
    }

    /// The same part by part, for stores with very many keys: nothing is kept of what was
    /// answered, and each part has an operation time-out of its own. Idle keys, which a store
    /// remembers for its retention, are looked at too, and not answered.
    ///
    /// A key that is live all the time is found once; one that comes or goes meanwhile may be
    /// found or not.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("orders/42")?.lock().await?;
    /// let mut listing = client.listing("orders/*");
    /// while let Some(part) = listing.next().await? {
    ///     for seen in part.keys {
    ///         println!("{}: {} hold it", seen.key, seen.holders.len());
    ///     }
    ///     for skipped in part.skipped {
    ///         eprintln!("passed over {}: {}", skipped.name, skipped.error);
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn listing(&self, pattern: impl AsRef<str>) -> Listing<'_> {
        Listing::new(self, self.session.store.listing(pattern.as_ref()))
    }

    /// Takes the key from all who hold it: for administrators. The token is
    /// raised first, so that the old holders are fenced; they are told.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`, `Corrupt`: see [`ErrorKind`](crate::ErrorKind).
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
        let answer = self.within(self.session.store.break_key(&key)).await;
        let answer = answer.map_err(|error| Error::new(Operation::Break, Some(key), error))?;
        Ok(match answer.reply {
            Reply::Broken { holders, token } => Broken { holders, token },
            _ => Broken {
                holders: 0,
                token: leasehold_core::Token(0),
            },
        })
    }

    /// Gives back all that this client holds, waits for or is asking for, and waits
    /// until that is confirmed, for `within` at most. Leases are lost, futures that
    /// wait fail with `Closed`, and the client takes no new claims.
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
        let watches = timeout(within, self.session.watches.ended());
        let ((released, unconfirmed), _) = join(self.session.shut_down(within), watches).await;
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
        self.session.store.capabilities()
    }

    /// The file descriptors that a guarded child process should inherit, so that
    /// its life counts as this client's. Empty for stores that see no lives.
    #[cfg(unix)]
    #[must_use]
    pub fn lifelines(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        self.session.store.lifelines()
    }

    pub(crate) async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let limit = self.session.settings.operation_timeout;
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
