//! Many readers, or one writer.

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
/// First come, first served, so neither side starves: readers that stand next
/// to each other in line run together, a reader that comes after a waiting
/// writer waits behind it. Only writers have a fencing token.
///
/// A writer is the same claim as a [`crate::Mutex`] on the same key: they
/// exclude each other.
///
/// A writer can become a reader ([`Lease::downgrade`]), and a reader cannot become a
/// writer: two readers that both wanted to would wait for each other for ever, since each
/// keeps reading until it may write. Release, [`write`](Self::write), and look again at
/// what you read, since another writer may have come between.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::connect("memory:").await?;
/// let config = client.rwlock("config")?;
/// let (one, two) = (config.read().await?, config.read().await?);
/// assert!(config.try_write().await?.is_none());
/// one.release().await?;
/// two.release().await?;
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

    /// Waits to read, as long as it takes.
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

    /// Reads if no writer holds or waits; `None` when it is busy.
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

    /// Waits to read for so long at most.
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

    /// Waits to write, as long as it takes.
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

    /// Writes if nobody holds or waits; `None` when it is busy.
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

    /// Waits to write for so long at most.
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

    /// Waits to read, runs `work` as a reader, and releases the key.
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

    /// Waits to write, runs `work` as the writer, and releases the key.
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

    /// The verb behind those that read, with every option. `None`: busy, with
    /// [`Wait::No`].
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

    /// The verb behind those that write, with every option. `None`: busy, with
    /// [`Wait::No`].
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

    /// Takes over a reader's or a writer's lease that was handed over.
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

    /// Takes over a lease whose holder may still rely on it: as
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

    /// Goes on writing after a crash: as [`crate::Mutex::recover`]. A reader
    /// simply reads again.
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
