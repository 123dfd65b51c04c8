//! The read-write lock: many readers, or one writer.

use std::time::Duration;

use leasehold_core::Mode;

use crate::error::Error;
use crate::lease::{Exclusive, Lease, LeaseKind, Shared};
use crate::lock::Lock;
use crate::parts::{LeaseParts, Recovered};
use crate::verbs::{debug, fairness, looking, options};
use crate::waiting::{Acquire, Wait};

/// A fair read-write lock: many readers together, or one writer alone.
///
/// First come, first served, so neither readers nor writers starve. Readers that are next to each
/// other in the queue hold together. A reader that arrives after a waiting writer waits behind
/// it. Only writers have a fencing token.
///
/// A writer and a [`crate::Mutex`] on the same key exclude each other: both are the same kind of
/// claim.
///
/// A writer can be downgraded to a reader ([`Lease::downgrade`]). A reader cannot be upgraded to
/// a writer: two readers that both try would deadlock. Instead release the reader, call
/// [`write`](Self::write), and read the data again, since another writer may have changed it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::connect("memory:").await?;
/// let config = client.rwlock("config")?;
/// let (one, two) = (config.read().await?, config.read().await?);
/// assert!(config.try_write().await?.is_none());
/// drop((one, two));
/// let writer = config.write().await?;
/// println!("write with token {}", writer.token());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RwLock {
    /// As a writer.
    lock: Lock,
}

options!(RwLock: lock);
looking!(RwLock: lock);
fairness!(RwLock: lock);
debug!(RwLock);

impl RwLock {
    /// Of a lock that is held alone.
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock }
    }

    fn reader(&self) -> Lock {
        self.lock.with_mode(Mode::SHARED)
    }

    /// Waits for a read lease without a time limit.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue in the background; the place in the queue is lost.
    ///
    /// # Errors
    /// Same as [`crate::Mutex::lock`].
    ///
    /// # Examples
    /// See [`RwLock`].
    pub async fn read(&self) -> Result<Lease<Shared>, Error> {
        self.reader().obtain(Wait::Forever).await
    }

    /// Acquires a read lease if no writer holds or waits; `None` if the key is busy.
    ///
    /// # Cancel safety
    /// Dropping the future releases the key in the background, if it was granted.
    ///
    /// # Errors
    /// Same as [`crate::Mutex::try_lock`].
    ///
    /// # Examples
    /// See [`Lease::downgrade`].
    pub async fn try_read(&self) -> Result<Option<Lease<Shared>>, Error> {
        self.reader().attempt().await
    }

    /// Waits for a read lease for at most `limit`.
    ///
    /// # Cancel safety
    /// Same as [`RwLock::read`].
    ///
    /// # Errors
    /// Same as [`crate::Mutex::lock_within`].
    ///
    /// # Examples
    /// See [`RwLock::write_within`].
    pub async fn read_within(&self, limit: Duration) -> Result<Lease<Shared>, Error> {
        self.reader().obtain(Wait::For(limit)).await
    }

    /// Waits for the write lease without a time limit.
    ///
    /// # Cancel safety
    /// Same as [`RwLock::read`].
    ///
    /// # Errors
    /// Same as [`crate::Mutex::lock`].
    ///
    /// # Examples
    /// See [`RwLock`].
    pub async fn write(&self) -> Result<Lease, Error> {
        self.lock.obtain(Wait::Forever).await
    }

    /// Acquires the write lease if nobody holds or waits; `None` if the key is busy.
    ///
    /// # Cancel safety
    /// Same as [`RwLock::try_read`].
    ///
    /// # Errors
    /// Same as [`crate::Mutex::try_lock`].
    ///
    /// # Examples
    /// See [`RwLock`].
    pub async fn try_write(&self) -> Result<Option<Lease>, Error> {
        self.lock.attempt().await
    }

    /// Waits for the write lease for at most `limit`.
    ///
    /// # Cancel safety
    /// Same as [`RwLock::read`].
    ///
    /// # Errors
    /// Same as [`crate::Mutex::lock_within`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::ErrorKind;
    /// let client = leasehold::connect("memory:").await?;
    /// let config = client.rwlock("config")?;
    /// let reader = config.read_within(Duration::from_secs(1)).await?;
    /// let late = config.write_within(Duration::from_millis(20)).await;
    /// assert_eq!(late.unwrap_err().kind(), ErrorKind::Timeout);
    /// # Ok(()) }
    /// ```
    pub async fn write_within(&self, limit: Duration) -> Result<Lease, Error> {
        self.lock.obtain(Wait::For(limit)).await
    }

    /// Waits for a read lease, runs `work`, and releases the key.
    ///
    /// The work is dropped as soon as the lease is lost, as in [`crate::Lease::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lease in the background.
    ///
    /// # Errors
    /// Same as [`RwLock::read`]; `Lost` if the lease was lost before the work finished: another client
    /// may hold the key, and the last actions of the work may have overlapped with its own.
    ///
    /// # Examples
    /// See [`RwLock::with_write`].
    pub async fn with_read<T>(
        &self,
        work: impl AsyncFnOnce(&Lease<Shared>) -> T,
    ) -> Result<T, Error> {
        self.reader().with(work).await
    }

    /// Waits for the write lease, runs `work`, and releases the key.
    ///
    /// The work is dropped as soon as the lease is lost, as in [`crate::Lease::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lease in the background.
    ///
    /// # Errors
    /// Same as [`RwLock::write`]; `Lost` if the lease was lost before the work finished: another
    /// client may hold the key, and the last actions of the work may have overlapped with its
    /// own.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let config = client.rwlock("config")?;
    /// config.with_write(async |lease| println!("{}", lease.token())).await?;
    /// let readers = config.with_read(async |_| config.holders().await).await??;
    /// assert_eq!(readers.len(), 1);
    /// # Ok(()) }
    /// ```
    pub async fn with_write<T>(&self, work: impl AsyncFnOnce(&Lease) -> T) -> Result<T, Error> {
        self.lock.with(work).await
    }

    /// Acquires a read lease with every option; the other methods for reading call this one.
    /// Returns `None` if the key is busy and the caller does not wait ([`Wait::No`]).
    ///
    /// # Cancel safety
    /// Same as [`RwLock::read`].
    ///
    /// # Errors
    /// Same as [`crate::Mutex::acquire`].
    ///
    /// # Examples
    /// See [`crate::Mutex::acquire`].
    pub async fn acquire_read(&self, how: Acquire) -> Result<Option<Lease<Shared>>, Error> {
        self.reader().acquire_as(how).await
    }

    /// Acquires the write lease with every option; the other methods for writing call this one.
    /// Returns `None` if the key is busy and the caller does not wait ([`Wait::No`]).
    ///
    /// # Cancel safety
    /// Same as [`RwLock::read`].
    ///
    /// # Errors
    /// Same as [`crate::Mutex::acquire`].
    ///
    /// # Examples
    /// See [`crate::Mutex::acquire`].
    pub async fn acquire_write(&self, how: Acquire) -> Result<Option<Lease>, Error> {
        self.lock.acquire_as(how).await
    }

    /// Takes over a read or write lease that was handed over.
    ///
    /// # Cancel safety
    /// Same as [`crate::Mutex::adopt`].
    ///
    /// # Errors
    /// Same as [`crate::Mutex::adopt`].
    ///
    /// # Examples
    /// See [`Lease::into_parts`].
    pub async fn adopt<K: LeaseKind>(&self, parts: &LeaseParts<K>) -> Result<Lease<K>, Error> {
        self.lock.adopt_as(parts).await
    }

    /// Takes over a lease whose holder may still use it: the same as
    /// [`crate::Mutex::adopt_by_force`].
    ///
    /// # Cancel safety
    /// Same as [`crate::Mutex::adopt`].
    ///
    /// # Errors
    /// Same as [`crate::Mutex::adopt`].
    pub async fn adopt_by_force<K: LeaseKind>(
        &self,
        parts: &LeaseParts<K>,
    ) -> Result<Lease<K>, Error> {
        self.lock.force_as(parts).await
    }

    /// Recovers a write lease after a crash: the same as [`crate::Mutex::recover`]. A reader just
    /// acquires the key again.
    ///
    /// # Cancel safety
    /// Same as [`crate::Mutex::adopt`].
    ///
    /// # Errors
    /// Same as [`crate::Mutex::recover`].
    pub async fn recover_write(
        &self,
        parts: &LeaseParts<Exclusive>,
        how: impl Into<Acquire>,
    ) -> Result<Option<Recovered>, Error> {
        self.lock.recover_as(parts, how.into()).await
    }
}
