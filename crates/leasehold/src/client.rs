//! The client: opens a store and makes locks.

mod builder;
mod by_parts;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::{BreakReply, ClaimContext, ClientInfo, Key, Mode, StoreTime, Token};
use leasehold_store::debug;

pub use self::builder::ClientBuilder;
use crate::audit::AuditLog;
use crate::deadlock::{self, Deadlock};
use crate::election::Election;
use crate::error::{Error, Operation, StoreError, check_key};
use crate::inspection::{Broken, Inspection, Shutdown};
use crate::listing::{Listing, Skipped};
use crate::lock::Lock;
use crate::multi::MultiLock;
use crate::mutex::Mutex;
use crate::reentrant::{Owner, Reentrant};
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::session::watch_key::KeyWatcher;
use crate::session::{Session, random_u64};
use crate::store::{Answer, Capabilities, Verbs as _};
use crate::sync::with_timers;

/// Opens the store at `url`, with default settings.
///
/// | URL | store |
/// |---|---|
/// | `memory:` | this process; clients with the same `memory:name` share it |
/// | `local:`, `local:/some/dir` | this machine: files in the user's directory, or in that directory |
/// | `redis://[user:password@]host[:port][/db]`, `valkey://` | a server |
/// | `rediss://…` | a server, with TLS |
/// | `redis+unix:///path/to/socket` | a server, through its Unix socket |
/// | `redis-sentinel://[user:password@]h1,h2,h3/name[/db]`, `rediss-sentinel://` | the primary that Sentinels watch |
/// | `redlock://[user:password@]host[:port],…[/db]` | three or more independent servers, by majority |
/// | `redis-cluster://[user:password@]host[:port],host…`, `rediss-cluster://…` | a cluster |
/// | `postgres://[user:password@]host[:port]/database` | PostgreSQL (feature `postgres`) |
/// | `zookeeper://[user:password@]host[:port],host…[/path]`, `zookeeper+tls://…` | ZooKeeper (feature `zookeeper`) |
///
/// # Errors
/// `Invalid` if the URL is malformed, or outside of a Tokio runtime. `Unsupported` if this build has
/// no such store or no TLS (see the features), or the server lacks what an option needs.
/// `Unavailable` if no server answers. `Refused` if the store refuses the client (a wrong password, a
/// server that is too old). `Corrupt` if what the store has written about itself is damaged.
///
/// # Cancel safety
/// If the future is dropped, nothing is left at the store.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::connect("memory:").await?;
/// client.mutex("orders/42")?.with_lock(async |_| { /* the work */ }).await?;
/// # Ok(()) }
/// ```
pub async fn connect(url: impl AsRef<str>) -> Result<Client, Error> {
    Client::builder().store(url).connect().await
}

/// A connection to a store, shared by all locks that it makes. Cheap to clone.
///
/// One task renews all claims of a client. It ends when no claim is left. Leases outlive the
/// client value that they came from.
#[derive(Clone)]
pub struct Client {
    session: Arc<Session>,
    owner: ClientInfo,
    url: Arc<str>,
}

impl Client {
    /// Configures a client by more than a URL.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::{Client, Settings};
    /// let settings = Settings::default().with_ttl(Duration::from_secs(60));
    /// let client = Client::builder().store("memory:").settings(settings).label("billing").connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Makes a lock on `key` in a mode that is known only at run time. No I/O: an invalid key
    /// fails here.
    ///
    /// # Errors
    /// Same as [`Client::mutex`]; `Invalid` for a mode that could never be granted, such as more
    /// permits than the semaphore has.
    ///
    /// # Examples
    /// See [`Lock`].
    pub fn lock_of(&self, key: impl AsRef<str>, mode: Mode) -> Result<Lock, Error> {
        let key = check_key(Operation::Acquire, key)?;
        let lock = self.lock_on(&key, mode);
        let checked = mode.check().map_err(|invalid| lock.error(invalid.into()));
        checked.map(|()| lock)
    }

    fn lock_on(&self, key: &Key, mode: Mode) -> Lock {
        Lock::new(self.session.clone(), key.clone(), self.owner.clone(), mode)
    }

    /// Makes a mutex on `key`. No I/O: an invalid key fails here.
    ///
    /// # Errors
    /// `Invalid` unless the key is 1 to 512 bytes without control characters.
    pub fn mutex(&self, key: impl AsRef<str>) -> Result<Mutex, Error> {
        let lock = self.lock_of(key, Mode::EXCLUSIVE)?;
        Ok(Mutex { lock })
    }

    /// Makes a read-write lock on `key`. No I/O: an invalid key fails here.
    ///
    /// # Errors
    /// Same as [`Client::mutex`].
    pub fn rwlock(&self, key: impl AsRef<str>) -> Result<RwLock, Error> {
        let lock = self.lock_of(key, Mode::EXCLUSIVE)?;
        Ok(RwLock { lock })
    }

    /// Makes a semaphore of `permits` permits on `key`. No I/O: an invalid key fails here.
    ///
    /// # Errors
    /// Same as [`Client::mutex`]; `Invalid` for zero permits.
    pub fn semaphore(&self, key: impl AsRef<str>, permits: u32) -> Result<Semaphore, Error> {
        let lock = self.lock_of(key, Mode::permits(permits, 1))?;
        Ok(Semaphore { lock, permits })
    }

    /// Makes a re-entrant mutex on `key` for `owner`. No I/O: an invalid key fails here.
    ///
    /// # Errors
    /// Same as [`Client::mutex`].
    pub fn reentrant(&self, key: impl AsRef<str>, owner: &Owner) -> Result<Reentrant, Error> {
        let lock = self.lock_of(key, Mode::EXCLUSIVE)?.with_owner(owner)?;
        let owner = *owner;
        Ok(Reentrant { lock, owner })
    }

    /// Makes one lock on several keys: all or nothing. No I/O: invalid keys fail here.
    ///
    /// # Errors
    /// Same as [`Client::mutex`]; `Invalid` if there is no key, or a key is given twice.
    pub fn multi(&self, keys: impl IntoIterator<Item: AsRef<str>>) -> Result<MultiLock, Error> {
        MultiLock::new(keys, |first| self.lock_on(first, Mode::EXCLUSIVE))
    }

    /// Makes an election on `key`. No I/O: an invalid key fails here.
    ///
    /// # Errors
    /// Same as [`Client::mutex`].
    pub fn election(&self, key: impl AsRef<str>) -> Result<Election, Error> {
        let lock = self.lock_of(key, Mode::EXCLUSIVE)?;
        Ok(Election { lock })
    }

    /// Reads who holds a key and who waits for it. Changes nothing.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`, `Unsupported`, `Corrupt`: see [`crate::ErrorKind`]. `Invalid` for an
    /// invalid key, or outside of a Tokio runtime; `Closed` in a forked process.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
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

    /// Waits until nobody holds the key, without claiming it. The result is a snapshot: another
    /// client may acquire the key before this returns. To get the key, acquire it.
    ///
    /// # Errors
    /// Same as [`Self::inspect`]; `Closed` if the client is shut down in the meantime. After an
    /// error, call it again to continue waiting.
    ///
    /// # Cancel safety
    /// Dropping the future ends the waiting.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("orders/42")?.lock().await?;
    /// let (freed, _) = tokio::join!(client.wait_until_free("orders/42"), lease.release());
    /// freed?;
    /// # Ok(()) }
    /// ```
    pub async fn wait_until_free(&self, key: impl AsRef<str>) -> Result<(), Error> {
        let key = check_key(Operation::Inspect, key)?;
        let failed = |error| Error::new(Operation::Inspect, Some(key.clone()), error);
        self.session.check_caller().map_err(failed)?;
        let mut watcher = KeyWatcher::start(&self.session, &key);
        let free = watcher.until(|seen| {
            let holders = Inspection::new(key.clone(), seen).holders;
            // Whichever ends last: before that it cannot be free unless a push says so.
            match holders.iter().map(|holder| holder.expires_in).max() {
                None => ControlFlow::Break(()),
                last => ControlFlow::Continue(last),
            }
        });
        self.session.while_open(free).await.map_err(failed)
    }

    /// Lists the keys that are held or waited for, sorted by name. `pattern` is a glob (`*`, `?`,
    /// `[abc]`). It may take longer than one operation time-out: for very many keys use
    /// [`Client::listing`].
    ///
    /// # Errors
    /// Same as [`Client::inspect`]; a key that cannot be read is skipped.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
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
                tracing::warn!(name, %error, "skipped a key that cannot be read");
            }
        }
        keys.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(keys)
    }

    /// Lists the keys that are held or waited for page by page, for stores with very many keys.
    /// No page is kept in memory, and each page has its own operation time-out. The store also
    /// reads idle keys, which it keeps for the retention time, and leaves them out.
    ///
    /// A key that is in use the whole time is listed once. A key whose use begins or ends during
    /// the listing may be listed or not.
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
        Listing::new(&self.session, pattern.as_ref())
    }

    /// Makes a context for a piece of work that holds several locks at once: see
    /// [`Client::deadlocks`].
    #[must_use]
    pub fn context(&self) -> ClaimContext {
        ClaimContext::from_random(random_u64())
    }

    /// Makes a context for a part of a piece of work that runs beside other parts. Holders in the
    /// `outer` context also wait for this part; the other parts do not.
    ///
    /// Contexts can be nested [seven deep](ClaimContext::MAX_DEPTH). Beyond that the new context
    /// is independent, and deadlocks through the outer one are not found.
    ///
    /// # Examples
    /// See [`Client::deadlocks`].
    #[must_use]
    pub fn context_within(&self, outer: &ClaimContext) -> ClaimContext {
        let inner = outer.child(random_u64());
        inner.unwrap_or_else(|| self.context())
    }

    /// Finds deadlocks: claims that wait for each other, so that none of them is ever granted.
    ///
    /// The store knows the holders and waiters of each key, but not that a holder of one key
    /// waits for another. So claims must name the piece of work that they belong to: claims
    /// [with the same context](Lock::with_context) depend on each other. A holder without a
    /// context counts as able to continue. So does a holder that waits elsewhere: in another
    /// store, in a database, or by polling ([`Retry`](crate::Retry)). Stores that do not know
    /// their waiters (`redlock:`, `layout=classic`) show no deadlocks.
    ///
    /// Reads all keys, and reads those that may be in a deadlock a second time: each deadlock
    /// found existed at one time between the two. A crashed process may be part of it until its
    /// leases expire.
    ///
    /// # Errors
    /// Same as [`Client::inspect`].
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::{ErrorKind, LockOptions};
    /// let client = leasehold::connect("memory:").await?;
    /// let transfer = client.context();
    /// let account = client.mutex("account/1")?.with_context(&transfer).lock().await?;
    ///
    /// // Deep inside, somebody takes the same lock again:
    /// let how = LockOptions::new().deadlock_timeout(Duration::from_millis(100));
    /// let again = client.mutex("account/1")?.with_context(&transfer).lock_opts(how).await;
    /// let error = again.expect_err("it waits for itself");
    /// assert_eq!(error.kind(), ErrorKind::Deadlock);
    ///
    /// assert_eq!(account.release().await?, leasehold::Released::Held);
    /// # Ok(()) }
    /// ```
    pub async fn deadlocks(&self) -> Result<Vec<Deadlock>, Error> {
        deadlock::find(&self.session).await
    }

    /// Finds deadlocks among keys that were already inspected; [`Client::list`] returns all keys.
    ///
    /// # Errors
    /// Same as [`Client::deadlocks`].
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let seen = client.list("orders/*").await?;
    /// assert!(client.deadlocks_among(&seen).await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn deadlocks_among(&self, seen: &[Inspection]) -> Result<Vec<Deadlock>, Error> {
        deadlock::confirm(&self.session, seen).await
    }

    /// Reads the audit log of one key or of all, from `since` on: which claims were granted, and
    /// how each hold ended. The store writes an entry in the same atomic step as the change. The
    /// log exists if the clients of the store open it with `audit`, as in
    /// `redis://host/?audit=10000`. Actions of clients without `audit` are not logged. The page
    /// of each store says what else may be missing.
    ///
    /// # Errors
    /// `Unsupported` if the store cannot keep an audit log; `Invalid` for an invalid key.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::SystemTime;
    /// use leasehold::audit::AuditEvent;
    /// let client = leasehold::connect("memory:?audit=1000").await?;
    /// let lease = client.mutex("orders/42")?.lock().await?;
    /// let mut log = client.audit_log(Some("orders/42"), SystemTime::UNIX_EPOCH)?;
    /// let entries = log.next().await?;
    /// assert!(matches!(entries[0].entry.event, AuditEvent::Granted { .. }));
    /// assert!(log.next().await?.is_empty());
    /// assert_eq!(lease.release().await?, leasehold::Released::Held);
    /// assert_eq!(log.next().await?.len(), 1);
    /// # Ok(()) }
    /// ```
    pub fn audit_log(&self, key: Option<&str>, since: SystemTime) -> Result<AuditLog<'_>, Error> {
        let key = key.map(|key| check_key(Operation::Audit, key));
        let key = key.transpose()?;
        let since = since.duration_since(SystemTime::UNIX_EPOCH);
        let since = StoreTime(0) + since.unwrap_or_default();
        let log = AuditLog::open(&self.session, key.clone(), since);
        log.map_err(|error| Error::new(Operation::Audit, key, error))
    }

    /// Takes the key from all its holders: for administrators. The token is raised first, so that
    /// the former holders are fenced. They are notified.
    ///
    /// # Errors
    /// Same as [`Client::inspect`].
    ///
    /// # Cancel safety
    /// If the future is dropped, it is unknown whether the change was made.
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
        let broken = self.session.store.break_key(&key, &self.owner);
        self.broken(&key, broken).await
    }

    /// Takes the key from the holder with this token only: for administrators who have seen that
    /// grant, and mean no later one. The comparison and the break are one atomic step.
    /// [`Broken::holders`] is 0 if nobody holds the key with that token: then nothing was changed.
    ///
    /// # Errors
    /// As for [`Client::break_key`]; `Unsupported` if the store has no tokens.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is unknown whether the change was made.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let orders = client.mutex("orders/42")?;
    /// let former = orders.lock().await?;
    /// let seen = former.token();
    /// let _ = former.release().await?;
    /// let lease = orders.lock().await?;
    /// assert_eq!(client.break_grant("orders/42", seen).await?.holders, 0);
    /// assert!(lease.is_valid());
    /// # Ok(()) }
    /// ```
    pub async fn break_grant(&self, key: impl AsRef<str>, token: Token) -> Result<Broken, Error> {
        let key = check_key(Operation::Break, key)?;
        let broken = self.session.store.break_grant(&key, token, &self.owner);
        self.broken(&key, broken).await
    }

    async fn broken(
        &self,
        key: &Key,
        broken: impl Future<Output = Result<Answer<BreakReply>, StoreError>>,
    ) -> Result<Broken, Error> {
        let answer = self.session.ask(broken).await;
        let failed = |error| Error::new(Operation::Break, Some(key.clone()), error);
        let BreakReply::Broken { holders, token } = answer.map_err(failed)?.reply;
        Ok(Broken { holders, token })
    }

    /// Releases all claims of this client, held or waiting, and waits at most `within` for the
    /// confirmations. All leases are lost, waiting futures fail with `Closed`, and the client
    /// makes no new claims.
    ///
    /// Call it before the program ends, or its runtime: it also waits for what was dropped before.
    /// A dropped lease or future is released in the background, and without this there may be no
    /// time left to send it. Then the key stays taken for its TTL.
    ///
    /// A forked process has nothing to release: there it does nothing.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background.
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
        let (released, unconfirmed) = match self.session.is_inherited() {
            // A forked process has nothing to release: its parent has.
            true => (0, 0),
            false => with_timers(self.session.shut_down(within)).await,
        };
        Shutdown {
            released,
            unconfirmed,
        }
    }

    /// Returns the store's URL without a password. Another process can open the same store with
    /// it.
    #[must_use]
    pub fn store_url(&self) -> &str {
        &self.url
    }

    /// Returns what the store can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.session.store.capabilities()
    }

    /// Returns the file descriptors that a guarded child process should inherit, so that the
    /// store treats the child as part of this client. Empty for stores that do not notice the
    /// death of clients.
    #[cfg(unix)]
    #[must_use]
    pub fn child_fds(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        self.session.store.child_fds()
    }
}

debug!(Client; |it| store: it.url);
