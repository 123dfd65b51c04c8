//! The blocking client.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::Mode;

use super::election::Election;
use super::face::face;
use super::locks::{Lock, MultiLock, Mutex, Reentrant, RwLock, Semaphore};
use crate::background::{block_on, enter};
use crate::observe::Observer;
use crate::store::{AuditRecord, Capabilities, LockStore, StoreOptions};
use crate::{
    Access, Broken, ClaimContext, ClaimIds, CredentialsProvider, Deadlock, Error, Initialised,
    Inspection, LeaseKind, LeaseParts, Listed, Owner, Released, Settings, Shutdown, TlsOptions,
    Token,
};

face! {
    /// A connection to a store: the blocking version of [`crate::Client`]. Cheap to clone.
    ///
    /// A blocking client can be made [`From`] an async client. Then the runtime in which the
    /// async client was connected renews the leases. On the only thread of that runtime a
    /// blocking call would deadlock, so calls that ask the store are refused there with
    /// `Invalid`. Call it from other threads, or use `spawn_blocking`.
    #[derive(Clone)]
    struct Client;
}

face! { impl Client {
    /// Makes a lock on `key` in a mode that is known only at run time.
    now fn lock_of(&self, key: impl AsRef<str>, mode: Mode) -> Result<Lock, Error>;
    /// Makes a mutex on `key`.
    now fn mutex(&self, key: impl AsRef<str>) -> Result<Mutex, Error>;
    /// Makes a read-write lock on `key`.
    now fn rwlock(&self, key: impl AsRef<str>) -> Result<RwLock, Error>;
    /// Makes a semaphore on `key`.
    now fn semaphore(&self, key: impl AsRef<str>, permits: u32) -> Result<Semaphore, Error>;
    /// Makes a re-entrant mutex on `key` for `owner`.
    now fn reentrant(&self, key: impl AsRef<str>, owner: &Owner) -> Result<Reentrant, Error>;
    /// Makes one lock on several keys.
    now fn multi(&self, keys: impl IntoIterator<Item: AsRef<str>>) -> Result<MultiLock, Error>;
    /// Makes an election on `key`.
    now fn election(&self, key: impl AsRef<str>) -> Result<Election, Error>;
    /// Reads who holds a key and who waits for it.
    wait fn inspect(&self, key: impl AsRef<str>) -> Result<Inspection, Error>;
    /// Waits until nobody holds the key, without claiming it.
    wait fn wait_until_free(&self, key: impl AsRef<str>) -> Result<(), Error>;
    /// Renews the lease that these parts describe.
    wait fn renew_by_parts<K: LeaseKind>(&self, parts: &LeaseParts<K>, ttl: Duration) -> Result<(), Error>;
    /// Releases the lease that these parts describe.
    wait fn release_by_parts<K: LeaseKind>(&self, parts: &LeaseParts<K>) -> Result<Released, Error>;
    /// Lists the keys that are held or waited for.
    wait fn list(&self, pattern: impl AsRef<str>) -> Result<Vec<Inspection>, Error>;
    /// Lists them page by page.
    now fn listing(&self, pattern: impl AsRef<str>) -> Listing<'_>;
    /// Makes a context for a piece of work that holds several locks at once.
    now fn context(&self) -> ClaimContext;
    /// Makes a context for a part of a piece of work that runs beside other parts.
    now fn context_within(&self, outer: &ClaimContext) -> ClaimContext;
    /// Finds deadlocks.
    wait fn deadlocks(&self) -> Result<Vec<Deadlock>, Error>;
    /// Finds deadlocks among keys that were already inspected.
    wait fn deadlocks_among(&self, seen: &[Inspection]) -> Result<Vec<Deadlock>, Error>;
    /// Reads the audit log.
    now fn audit_log(&self, key: Option<&str>, since: SystemTime) -> Result<AuditLog<'_>, Error>;
    /// Takes the key from all its holders.
    wait fn break_key(&self, key: impl AsRef<str>) -> Result<Broken, Error>;
    /// Takes the key from the holder with this token only.
    wait fn break_grant(&self, key: impl AsRef<str>, token: Token) -> Result<Broken, Error>;
    /// Returns the store's URL, without a password.
    now fn store_url(&self) -> &str;
    /// Returns what the store can do.
    now fn capabilities(&self) -> Capabilities;
    /// Returns the file descriptors that a guarded child process should inherit.
    #[cfg(unix)]
    now fn child_fds(&self) -> Vec<std::os::fd::BorrowedFd<'_>>;
    /// Releases all that this client holds or waits for. In a callback of a blocking call, and on the
    /// only thread of the client's runtime, it does not wait.
    wait fn shutdown(&self, within: Duration) -> Shutdown;
}}

impl Client {
    /// Configures a client by more than a URL.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }
}

face! {
    /// Options of a client: the blocking version of [`crate::ClientBuilder`].
    #[derive(Clone, Default)]
    #[must_use = "no client exists until `connect` is called"]
    struct ClientBuilder;
}

face! { impl ClientBuilder {
    /// Sets the store's URL. The default is `local:`.
    now fn store(self, url: impl AsRef<str>) -> Self;
    /// Opens a store by options in place of a URL.
    now fn with_options(self, options: impl StoreOptions + 'static) -> Self;
    /// Uses a store that is already open.
    now fn with_store(self, store: Arc<dyn LockStore>) -> Self;
    /// Sets the defaults of the client's locks.
    now fn settings(self, settings: Settings) -> Self;
    /// Sets the TTL of the client's locks.
    now fn ttl(self, ttl: Duration) -> Self;
    /// Adds an observer of the client's claims.
    now fn observer(self, observer: impl Observer) -> Self;
    /// Returns what `initialise` would do, as text for an administrator.
    now fn initialisation(&self) -> Result<Option<String>, Error>;
    /// Sets the label that others see beside the host and process id.
    now fn label(self, label: impl AsRef<str>) -> Self;
    /// Sets how claim ids are made. The default is random.
    now fn claim_ids(self, ids: ClaimIds) -> Self;
    /// Sets the user to log in as; overrides the URL.
    now fn user(self, user: impl Into<String>) -> Self;
    /// Sets the password to log in with; overrides the URL. It is never shown.
    now fn password(self, password: impl Into<String>) -> Self;
    /// Reads the password from the first line of a file.
    now fn password_file(self, file: impl Into<PathBuf>) -> Self;
    /// Asks for user and password whenever a connection is opened.
    now fn credentials(self, provider: CredentialsProvider) -> Self;
    /// Sets all credentials and certificates at once.
    now fn access(self, access: Access) -> Self;
    /// Sets certificates, or settings of TLS that you have made.
    now fn tls(self, tls: TlsOptions) -> Self;
}}

impl ClientBuilder {
    /// Opens the store. The background thread keeps the connection.
    ///
    /// # Errors
    /// Same as [`crate::ClientBuilder::connect`]; `Unavailable` if no thread can be
    /// started.
    pub fn connect(self) -> Result<Client, Error> {
        enter()?;
        block_on(self.0.connect()).map(Client)
    }

    /// Marks the servers of the URL as new: the blocking version of
    /// [`crate::ClientBuilder::initialise`].
    ///
    /// # Errors
    /// The same as there; `Unavailable` if no thread can be started.
    pub fn initialise(self) -> Result<Vec<Initialised>, Error> {
        enter()?;
        block_on(self.0.initialise())
    }
}

/// Reads an audit log: the blocking version of [`crate::audit::AuditLog`].
#[derive(Debug)]
pub struct AuditLog<'a>(crate::audit::AuditLog<'a>);

impl<'a> From<crate::audit::AuditLog<'a>> for AuditLog<'a> {
    fn from(log: crate::audit::AuditLog<'a>) -> Self {
        Self(log)
    }
}

impl AuditLog<'_> {
    /// Returns the next entries: the blocking version of [`crate::audit::AuditLog::next`].
    ///
    /// # Errors
    /// The same as the async method.
    #[allow(clippy::should_implement_trait, reason = "as the async one is called")]
    pub fn next(&mut self) -> Result<Vec<AuditRecord>, Error> {
        block_on(self.0.next())
    }
}

/// A listing in progress: the blocking version of [`crate::Listing`].
#[derive(Debug)]
pub struct Listing<'a>(crate::Listing<'a>);

impl<'a> From<crate::Listing<'a>> for Listing<'a> {
    fn from(listing: crate::Listing<'a>) -> Self {
        Self(listing)
    }
}

impl Listing<'_> {
    /// Returns the next page: the blocking version of [`crate::Listing::next`].
    ///
    /// # Errors
    /// The same as the async method.
    #[allow(clippy::should_implement_trait, reason = "as the async one is called")]
    pub fn next(&mut self) -> Result<Option<Listed>, Error> {
        block_on(self.0.next())
    }
}
