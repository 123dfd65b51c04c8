//! So many at a time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Capacity, Key, Mode, Owner, Reply};

use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::face::{Face, looking, options, unfair_options};
use crate::inspection::Kind;
use crate::lease::{Lease, Permits};
use crate::parts::adopting;
use crate::session::wish::mismatch;
use crate::session::{Session, unanswered};
use crate::store::Verbs as _;
use crate::sync::timeout;
use crate::waiting::{Acquire, Wait};

/// A fair semaphore: so many permits, first come, first served.
///
/// Each lease holds one or more permits, and is renewed by itself: the permits
/// of a holder that crashed come back when its lease has lapsed. A claim for
/// many permits is not overtaken by later ones for fewer.
///
/// All who use a key must name the same number of permits, while anybody uses
/// it; [`Semaphore::resize`] changes it. Holders overlap, so nothing is fenced.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::connect("memory:").await?;
/// let workers = client.semaphore("mailers", 3)?;
/// let one = workers.acquire().await?;
/// let two = workers.acquire_many(2).await?;
/// assert!(workers.try_acquire().await?.is_none());
/// two.release().await?;
/// assert!(workers.try_acquire().await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    face: Face,
    permits: u32,
}

options!(Semaphore);
looking!(Semaphore);
unfair_options!(Semaphore);
adopting!(Semaphore, Permits);

impl Semaphore {
    pub(crate) fn new(session: Arc<Session>, key: Key, owner: Owner, permits: u32) -> Self {
        let mode = Mode::Permits {
            of: permits,
            take: 1,
        };
        let face = Face::new(session, key, owner, mode);
        Self { face, permits }
    }

    /// How many permits there are, says this handle.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }

    fn many(&self, take: u32) -> Face {
        self.face.with_mode(Mode::Permits {
            of: self.permits,
            take,
        })
    }

    /// Waits for a permit, as long as it takes.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue, in the background; the place in
    /// line is lost.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`]; `Invalid` if the key is in use with another
    /// number of permits, naming both.
    ///
    /// # Examples
    /// See [`Semaphore`].
    pub async fn acquire(&self) -> Result<Lease<Permits>, Error> {
        self.face.obtain(Wait::Forever).await
    }

    /// Waits for `take` permits, all in one lease.
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::acquire`]; `Invalid` for none, or more than there are.
    ///
    /// # Examples
    /// See [`Semaphore`].
    pub async fn acquire_many(&self, take: u32) -> Result<Lease<Permits>, Error> {
        self.many(take).obtain(Wait::Forever).await
    }

    /// Takes a permit if one is free and nobody waits; `None` when busy.
    ///
    /// # Cancel safety
    /// Dropping the future releases what it may have got, in the background.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    ///
    /// # Examples
    /// See [`Semaphore`].
    pub async fn try_acquire(&self) -> Result<Option<Lease<Permits>>, Error> {
        self.face.attempt().await
    }

    /// Takes `take` permits if they are free and nobody waits; `None` when busy.
    ///
    /// # Cancel safety
    /// As [`Semaphore::try_acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::acquire_many`].
    ///
    /// # Examples
    /// See [`Semaphore`].
    pub async fn try_acquire_many(&self, take: u32) -> Result<Option<Lease<Permits>>, Error> {
        self.many(take).attempt().await
    }

    /// Waits for a permit for so long at most.
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    ///
    /// # Errors
    /// `Timeout` when none was free in time; else as [`Semaphore::acquire`].
    ///
    /// # Examples
    /// See [`crate::Mutex::lock_within`].
    pub async fn acquire_within(&self, limit: Duration) -> Result<Lease<Permits>, Error> {
        self.face.obtain(Wait::For(limit)).await
    }

    /// Waits for `take` permits for so long at most.
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    ///
    /// # Errors
    /// `Timeout` when they were not free in time; else as
    /// [`Semaphore::acquire_many`].
    ///
    /// # Examples
    /// See [`crate::Mutex::lock_within`].
    pub async fn acquire_many_within(
        &self,
        take: u32,
        limit: Duration,
    ) -> Result<Lease<Permits>, Error> {
        self.many(take).obtain(Wait::For(limit)).await
    }

    /// How many permits nobody holds now, of as many as those who use the key have named; all
    /// of this handle's while nobody does. [`Semaphore::try_acquire`] can find none all the
    /// same: those who wait come first.
    ///
    /// A look, and no promise: it may be otherwise by the time of the answer.
    ///
    /// # Cancel safety
    /// Dropping the future costs nothing.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`, `Corrupt`: see [`crate::ErrorKind`]; `Invalid` if the key is
    /// in use as a lock.
    ///
    /// # Examples
    /// See [`Semaphore::with_permit`].
    pub async fn available_permits(&self) -> Result<u32, Error> {
        let seen = self.face.inspect().await?;
        let all = match seen.kind {
            Kind::Semaphore { permits } => permits,
            Kind::Lock if seen.holders.is_empty() && seen.waiters.is_empty() => self.permits,
            Kind::Lock => {
                let error = mismatch(self.face.wish.mode, Capacity::Lock);
                return Err(Error::new(Operation::Inspect, Some(seen.key), error));
            }
        };
        let taken = seen.holders.iter().map(|holder| match holder.mode {
            Mode::Permits { take, .. } => take,
            Mode::EXCLUSIVE | Mode::SHARED => 0,
        });
        Ok(taken.fold(all, u32::saturating_sub))
    }

    /// Waits for a permit, runs `work` with it, and gives it back.
    ///
    /// The work is dropped the moment the lease is lost, as by [`crate::Lease::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work, and releases in the background.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`]; `Lost` when the lease was lost before the work was done:
    /// another may hold the key, and what the work did last may have overlapped with it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let mailers = client.semaphore("mailers", 3)?;
    /// let free = mailers.with_permit(async |_| mailers.available_permits().await).await??;
    /// assert_eq!(free, 2);
    /// assert_eq!(mailers.available_permits().await?, 3);
    /// # Ok(()) }
    /// ```
    pub async fn with_permit<T>(
        &self,
        work: impl AsyncFnOnce(&Lease<Permits>) -> T,
    ) -> Result<T, Error> {
        self.face.with(work).await
    }

    /// The verb behind the others, with every option. `None`: busy, with
    /// [`Wait::No`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    ///
    /// # Errors
    /// As [`Semaphore::acquire_many_within`].
    ///
    /// # Examples
    /// See [`crate::Mutex::acquire`].
    pub async fn acquire_with(
        &self,
        take: u32,
        how: Acquire,
    ) -> Result<Option<Lease<Permits>>, Error> {
        self.many(take).acquire(how).await
    }

    /// Changes the number of permits, if it is still what this handle says, and
    /// gives the handle for the new number. Growing lets waiters in at once;
    /// shrinking takes nothing away from those who hold, and a waiter that asked
    /// for more than there are now fails with `Invalid`.
    ///
    /// While nobody holds or waits, the key has no number: the next claim brings
    /// its own.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it unknown whether it was done; doing it again
    /// is safe.
    ///
    /// # Errors
    /// `Invalid` if the key is in use with another number, naming both, or for
    /// zero permits. `Unavailable`: no answer.
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
        let resized = Self {
            face: self.face.with_mode(Mode::Permits {
                of: permits,
                take: 1,
            }),
            permits,
        };
        let mode = resized.face.wish.mode;
        mode.check().map_err(|invalid| fail(invalid.into()))?;
        let session = &self.face.session;
        let limit = session.settings.operation_timeout;
        let answer = timeout(limit, session.store.resize(key, self.permits, permits)).await;
        let answer = answer.unwrap_or_else(|_| Err(unanswered(limit)));
        match answer.map_err(fail)?.reply {
            Reply::Resized | Reply::Absent => Ok(resized),
            Reply::Mismatch { in_use } => Err(fail(mismatch(self.face.wish.mode, in_use))),
            other => Err(fail(StoreError::new(
                ErrorKind::Corrupt,
                format!("the store answered {other:?} to a resize"),
            ))),
        }
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("key", self.key())
            .field("permits", &self.permits)
            .finish_non_exhaustive()
    }
}
