//! The client, for threads.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::Mode;

use super::election::Election;
use super::face::face;
use super::locks::{Lock, MultiLock, Mutex, Reentrant, RwLock, Semaphore};
use crate::background::{block_on, enter};
use crate::store::{AuditRecord, Capabilities, LockStore};
use crate::{
    Access, Broken, ClaimContext, ClaimIds, Deadlock, Error, Initialised, Inspection, LeaseKind,
    LeaseParts, Listed, Owner, Released, Settings, Shutdown, TlsFiles,
};

face! {
    /// A connection to a store: as [`crate::Client`]. Cheap to clone.
    ///
    /// Made [`From`] a client that exists already its leases are kept by the runtime in which
    /// that was connected. On the only thread of that runtime a call would wait for ever:
    /// there, claims are refused with `Invalid`. Call it from other threads, or use
    /// `spawn_blocking`.
    #[derive(Clone)]
    struct Client;
}

face! { impl Client {
    /// A lock on `key` in a mode that is known at run time only.
    now fn lock(&self, key: impl AsRef<str>, mode: Mode) -> Result<Lock, Error>;
    /// A mutex on `key`.
    now fn mutex(&self, key: impl AsRef<str>) -> Result<Mutex, Error>;
    /// A read-write lock on `key`.
    now fn rwlock(&self, key: impl AsRef<str>) -> Result<RwLock, Error>;
    /// A semaphore on `key`.
    now fn semaphore(&self, key: impl AsRef<str>, permits: u32) -> Result<Semaphore, Error>;
    /// A mutex that `owner` may enter again.
    now fn reentrant(&self, key: impl AsRef<str>, owner: &Owner) -> Result<Reentrant, Error>;
    /// Several keys as one lock.
    now fn multi(&self, keys: impl IntoIterator<Item: AsRef<str>>) -> Result<MultiLock, Error>;
    /// An election on `key`.
    now fn election(&self, key: impl AsRef<str>) -> Result<Election, Error>;
    /// Looks at a key.
    wait fn inspect(&self, key: impl AsRef<str>) -> Result<Inspection, Error>;
    /// Waits until nobody holds the key, without claiming it.
    wait fn wait_until_free(&self, key: impl AsRef<str>) -> Result<(), Error>;
    /// Renews the lease that these parts describe.
    wait fn renew_by_parts<K: LeaseKind>(&self, parts: &LeaseParts<K>, ttl: Duration) -> Result<(), Error>;
    /// Releases the lease that these parts describe.
    wait fn release_by_parts<K: LeaseKind>(&self, parts: &LeaseParts<K>) -> Result<Released, Error>;
    /// The keys that somebody holds or waits for.
    wait fn list(&self, pattern: impl AsRef<str>) -> Result<Vec<Inspection>, Error>;
    /// The same part by part.
    now fn listing(&self, pattern: impl AsRef<str>) -> Listing<'_>;
    /// A context for a piece of work that holds several locks at once.
    now fn context(&self) -> ClaimContext;
    /// A context for a part of a piece of work that goes on beside other parts.
    now fn context_within(&self, outer: &ClaimContext) -> ClaimContext;
    /// Finds deadlocks.
    wait fn deadlocks(&self) -> Result<Vec<Deadlock>, Error>;
    /// The same among keys that were looked at already.
    wait fn deadlocks_among(&self, seen: &[Inspection]) -> Result<Vec<Deadlock>, Error>;
    /// The audit log.
    now fn audit_log(&self, key: Option<&str>, since: SystemTime) -> Result<AuditLog<'_>, Error>;
    /// Takes the key from all who hold it.
    wait fn break_key(&self, key: impl AsRef<str>) -> Result<Broken, Error>;
    /// The store's URL, without a password.
    now fn store_url(&self) -> &str;
    /// What the store can do.
    now fn capabilities(&self) -> Capabilities;
}}

impl Client {
    /// A client with more than a URL to it.
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Gives back all that this client holds or waits for. See [`crate::Client::shutdown`].
    pub fn shutdown(&self, within: Duration) -> Shutdown {
        block_on(self.0.shutdown(within))
    }
}

face! {
    /// Everything a client can be given: as [`crate::ClientBuilder`].
    #[derive(Clone, Default)]
    struct ClientBuilder;
}

face! { impl ClientBuilder {
    /// The store's URL. `local:` unless given.
    now fn store(self, url: impl AsRef<str>) -> Self;
    /// A store that is open already.
    now fn with_store(self, store: Arc<dyn LockStore>) -> Self;
    /// How the client's locks behave unless told otherwise.
    now fn settings(self, settings: Settings) -> Self;
    /// How others see this client, beside host and process id.
    now fn label(self, label: impl Into<String>) -> Self;
    /// Where the ids of claims come from: random, unless given.
    now fn claim_ids(self, ids: ClaimIds) -> Self;
    /// The user to log in as; wins over the URL.
    now fn user(self, user: impl Into<String>) -> Self;
    /// The password to log in with; wins over the URL, and is shown nowhere.
    now fn password(self, password: impl Into<String>) -> Self;
    /// A file whose first line is the password.
    now fn password_file(self, file: impl Into<PathBuf>) -> Self;
    /// All of that at once.
    now fn access(self, access: Access) -> Self;
    /// Certificates for TLS.
    now fn tls(self, files: TlsFiles) -> Self;
}}

impl ClientBuilder {
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
    pub fn initialise(self) -> Result<Vec<Initialised>, Error> {
        enter()?;
        block_on(self.0.initialise())
    }
}

/// An audit log that is being read: as [`crate::audit::AuditLog`].
#[derive(Debug)]
pub struct AuditLog<'a>(crate::audit::AuditLog<'a>);

impl<'a> From<crate::audit::AuditLog<'a>> for AuditLog<'a> {
    fn from(log: crate::audit::AuditLog<'a>) -> Self {
        Self(log)
    }
}

impl AuditLog<'_> {
    /// The entries that follow: as [`crate::audit::AuditLog::next`].
    ///
    /// # Errors
    /// As there.
    #[allow(clippy::should_implement_trait, reason = "as the async one is called")]
    pub fn next(&mut self) -> Result<Vec<AuditRecord>, Error> {
        block_on(self.0.next())
    }
}

/// A listing under way: as [`crate::Listing`].
#[derive(Debug)]
pub struct Listing<'a>(crate::Listing<'a>);

impl<'a> From<crate::Listing<'a>> for Listing<'a> {
    fn from(listing: crate::Listing<'a>) -> Self {
        Self(listing)
    }
}

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
