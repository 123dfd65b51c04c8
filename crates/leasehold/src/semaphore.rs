//! The semaphore: a limited number of holders at a time. Most of its methods are in `verbs`.

use leasehold_core::{Capacity, Mode, ResizeReply};
use leasehold_store::debug;

use crate::error::{Error, Operation};
use crate::lease::{Lease, Permits};
use crate::lock::Lock;
use crate::session::request::mismatch;
use crate::store::Verbs as _;
use crate::waiting::LockOptions;

/// A fair semaphore: a fixed number of permits, first come, first served.
///
/// Each lease holds one or more permits and is renewed automatically. The permits of a crashed
/// holder are free when its lease has expired. Later claims for fewer permits do not overtake a
/// claim for many.
///
/// All clients that use the key at the same time must use the same number of permits;
/// [`Semaphore::resize`] changes it. Holders overlap, so leases have no fencing token.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::connect("memory:").await?;
/// let workers = client.semaphore("mailers", 3)?;
/// let one = workers.acquire().await?;
/// let two = workers.acquire_many(2).await?;
/// assert!(workers.try_acquire().await?.is_none());
/// assert_eq!(two.release().await?, leasehold::Released::Held);
/// assert!(workers.try_acquire().await?.is_some());
/// let sum = workers.with_permit(async |_| 1 + 1).await?;
/// # assert_eq!(sum, 2);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a semaphore holds nothing until one of its methods has taken a lease"]
pub struct Semaphore {
    pub(crate) lock: Lock,
    pub(crate) permits: u32,
}

impl Semaphore {
    /// Returns the number of permits, as this handle has it.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }

    pub(crate) fn many(&self, take: u32) -> Lock {
        self.lock.with_mode(Mode::permits(self.permits, take))
    }

    /// Returns how many permits are free, of the number that the current users of the key have
    /// set. While nobody uses the key, all permits of this handle are free.
    /// [`Semaphore::try_acquire`] can still fail: waiters come first.
    ///
    /// The answer is a snapshot: it may be out of date when it arrives.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Errors
    /// Same as [`Client::inspect`](crate::Client::inspect); `Invalid` if the key is in use as a
    /// lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let mailers = client.semaphore("mailers", 3)?;
    /// let free = mailers.with_permits(2, async |_| mailers.available_permits().await).await??;
    /// assert_eq!(free, 1);
    /// assert_eq!(mailers.available_permits().await?, 3);
    /// # Ok(()) }
    /// ```
    pub async fn available_permits(&self) -> Result<u32, Error> {
        let seen = self.lock.inspect().await?;
        let all = match seen.permits {
            Some(permits) => permits,
            None if seen.holders.is_empty() && seen.waiters.is_empty() => self.permits,
            None => {
                let error = mismatch(self.lock.request.mode, Capacity::Lock);
                return Err(Error::new(Operation::Inspect, Some(seen.key), error));
            }
        };
        let taken: u64 = seen.holders.iter().map(|holder| holder.mode.weight()).sum();
        Ok(all.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX)))
    }

    /// Waits for `take` permits with these options.
    ///
    /// # Cancel safety
    /// Same as [`Semaphore::acquire`].
    ///
    /// # Errors
    /// Same as [`Semaphore::acquire_many_within`]; `Deadlock` with
    /// [`deadlock_timeout`](LockOptions::deadlock_timeout).
    ///
    /// # Examples
    /// See [`crate::Mutex::lock_opts`].
    pub async fn acquire_opts(&self, take: u32, how: LockOptions) -> Result<Lease<Permits>, Error> {
        self.many(take).acquire_as(how).await
    }

    /// Changes the number of permits, if it is still the number of this handle, and returns a
    /// handle with the new number. Growing grants to waiters at once. Shrinking revokes no lease;
    /// a waiter that asks for more permits than the new number fails with `Invalid`.
    ///
    /// While nobody holds or waits, the key has no number of permits: the next claim sets it.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is unknown whether the number was changed; a retry is safe.
    ///
    /// # Errors
    /// Same as [`Client::inspect`](crate::Client::inspect); `Invalid` if the key is in use with
    /// another number (the message has both), or for zero permits.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let narrow = client.semaphore("mailers", 1)?;
    /// let one = narrow.acquire().await?;
    /// let wide = narrow.resize(2).await?;
    /// let two = wide.acquire().await?;
    /// assert!(narrow.resize(5).await.is_err(), "it is not 1 any more");
    /// # Ok(()) }
    /// ```
    pub async fn resize(&self, permits: u32) -> Result<Self, Error> {
        let key = self.key();
        let fail = |error| Error::new(Operation::Resize, Some(key.clone()), error);
        let lock = self.lock.with_mode(Mode::permits(permits, 1));
        let checked = lock.request.mode.check();
        checked.map_err(|invalid| fail(invalid.into()))?;
        let session = &self.lock.session;
        let answer = session.ask(session.store.resize(key, self.permits, permits));
        match answer.await.map_err(fail)?.reply {
            ResizeReply::Resized | ResizeReply::Absent => Ok(Self { lock, permits }),
            ResizeReply::Mismatch { in_use } => Err(fail(mismatch(self.lock.request.mode, in_use))),
        }
    }
}

debug!(Semaphore; |it| key: it.key(), permits: it.permits);
