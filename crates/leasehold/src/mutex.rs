//! One at a time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Key, Mode, Owner};

use crate::error::Error;
use crate::face::{Face, looking, options, unfair_options};
use crate::lease::Lease;
use crate::parts::adopting;
use crate::session::Session;
use crate::waiting::{Acquire, Wait};

/// A fair, fenced mutex: one holder at a time, first come, first served.
///
/// A cheap handle without I/O; clone it, keep it, or make it anew each time.
/// Not re-entrant: whoever locks it twice waits for himself (see
/// [`crate::Reentrant`]).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::connect("memory:").await?;
/// let orders = client.mutex("orders/42")?;
/// let lease = orders.lock().await?;
/// println!("write with token {}", lease.token());
/// lease.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Mutex {
    face: Face,
}

options!(Mutex);
looking!(Mutex);
unfair_options!(Mutex);
adopting!(Mutex, crate::Exclusive);

impl Mutex {
    pub(crate) fn new(session: Arc<Session>, key: Key, owner: Owner) -> Self {
        let face = Face::new(session, key, owner, Mode::EXCLUSIVE);
        Self { face }
    }

    /// Waits for the key, as long as it takes.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue, in the background; the place in
    /// line is lost.
    ///
    /// # Errors
    /// `Unavailable` when the store gives no answer for longer than the
    /// operation time-out (while waiting: the waiter TTL). `Refused`, `Invalid`,
    /// `Corrupt`: see [`crate::ErrorKind`].
    ///
    /// # Examples
    /// See [`Mutex`].
    pub async fn lock(&self) -> Result<Lease, Error> {
        self.face.obtain(Wait::Forever).await
    }

    /// Takes the key if it is free and nobody waits; `None` when it is busy.
    ///
    /// # Cancel safety
    /// Dropping the future releases what it may have got, in the background.
    ///
    /// # Errors
    /// As [`Mutex::lock`]: not being able to ask is an error, busy is not.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let lock = client.mutex("nightly")?;
    /// let lease = lock.try_lock().await?;
    /// assert!(lease.is_some());
    /// assert!(lock.try_lock().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_lock(&self) -> Result<Option<Lease>, Error> {
        self.face.attempt().await
    }

    /// Waits for the key for so long at most.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`].
    ///
    /// # Errors
    /// `Timeout` when it was not free in time; else as [`Mutex::lock`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::ErrorKind;
    /// let client = leasehold::connect("memory:").await?;
    /// let lock = client.mutex("nightly")?;
    /// let lease = lock.lock().await?;
    /// let late = lock.lock_within(Duration::from_millis(20)).await;
    /// assert_eq!(late.unwrap_err().kind(), ErrorKind::Timeout);
    /// # Ok(()) }
    /// ```
    pub async fn lock_within(&self, limit: Duration) -> Result<Lease, Error> {
        self.face.obtain(Wait::For(limit)).await
    }

    /// Waits for the key, runs `work` under it, and releases it.
    ///
    /// The work is dropped the moment the lease is lost, as by [`crate::Lease::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work, and releases in the background.
    ///
    /// # Errors
    /// As [`Mutex::lock`]; `Lost` when the lease was lost before the work was done:
    /// another may hold the key, and what the work did last may have overlapped with it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let orders = client.mutex("orders/42")?;
    /// let sum = orders.with_lock(async |lease| { println!("{}", lease.token()); 1 + 1 }).await?;
    /// assert_eq!(sum, 2);
    /// assert!(!orders.is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub async fn with_lock<T>(&self, work: impl AsyncFnOnce(&Lease) -> T) -> Result<T, Error> {
        self.face.with(work).await
    }

    /// The verb behind the others, with every option. `None`: busy, with
    /// [`Wait::No`]. On a [`crate::Semaphore`] this is `acquire_with`: `acquire` takes a
    /// permit there.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`].
    ///
    /// # Errors
    /// As [`Mutex::lock_within`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use std::sync::Arc;
    /// use leasehold::{Acquire, Wait};
    /// let client = leasehold::connect("memory:").await?;
    /// let progress = Some(Arc::new(|p: &leasehold::Progress| println!("place {}", p.position)) as _);
    /// let lease = client.mutex("k")?.acquire(Acquire { wait: Wait::Forever, progress }).await?;
    /// assert!(lease.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self, how: Acquire) -> Result<Option<Lease>, Error> {
        self.face.acquire(how).await
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("key", self.key())
            .finish_non_exhaustive()
    }
}
