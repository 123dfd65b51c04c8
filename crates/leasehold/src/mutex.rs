//! One at a time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Key, Mode, Owner, RenewalPolicy};

use crate::clock;
use crate::driver::Driver;
use crate::driver::acquire::{Patience, Wish, acquire};
use crate::driver::registry::Terms;
use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::lease::Lease;
use crate::settings::check_ttl;

/// A fair, fenced mutex: one holder at a time, first come, first served.
///
/// A cheap handle without I/O; clone it, keep it, or make it anew each time.
/// Not re-entrant: whoever locks it twice waits for himself.
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
    driver: Arc<Driver>,
    wish: Wish,
}

/// How to acquire: one struct for every option of the verb.
#[derive(Clone, Default)]
pub struct Acquire {
    /// How long to wait.
    pub wait: Wait,
    /// Called when the claim begins to wait and whenever its place changes.
    pub progress: Option<OnProgress>,
}

/// Hears of a waiting claim's progress, on the task that waits.
pub type OnProgress = Arc<dyn Fn(&Progress) + Send + Sync>;

/// How long to wait for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// Not at all: busy is an answer.
    No,
    /// So long, then fail with `Timeout`.
    For(Duration),
    /// As long as it takes.
    #[default]
    Forever,
}

/// Where a waiting claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// 1 is next in line; an upper bound.
    pub position: u64,
    /// For how long it has been waiting.
    pub waited: Duration,
    /// How often it lost its place and joined again at the tail.
    pub rejoined: u32,
}

impl Mutex {
    pub(crate) fn new(driver: Arc<Driver>, key: Key, owner: Owner) -> Self {
        let settings = &driver.settings;
        let wish = Wish {
            key,
            mode: Mode::Exclusive,
            terms: Terms {
                ttl: settings.ttl,
                policy: RenewalPolicy::Automatic(settings.renew_at),
                hand_off: true,
            },
            waiter_ttl: settings.waiter_ttl.min(settings.ttl),
            ahead: false,
            owner,
            tells_position: false,
        };
        Self { driver, wish }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.wish.key
    }

    /// Another TTL than the client's.
    ///
    /// # Errors
    /// `Invalid` below 50 ms or above 24 h.
    pub fn with_ttl(mut self, ttl: Duration) -> Result<Self, Error> {
        check_ttl(ttl).map_err(|invalid| self.error(invalid.into()))?;
        self.wish.terms.ttl = ttl;
        self.wish.waiter_ttl = self.driver.settings.waiter_ttl.min(ttl);
        Ok(self)
    }

    /// Who renews the lease: the watchdog (the default), the caller, or nobody.
    ///
    /// # Errors
    /// `Invalid` for a share of the TTL outside 0.05 to 0.8.
    pub fn with_renewal(mut self, policy: RenewalPolicy) -> Result<Self, Error> {
        if let RenewalPolicy::Automatic(share) = policy
            && !(0.05..=0.8).contains(&share)
        {
            let message = format!("renewal at a share of {share} of the TTL is out of bounds");
            return Err(self.error(
                StoreError::new(ErrorKind::Invalid, message)
                    .with_hint("choose between 0.05 and 0.8"),
            ));
        }
        self.wish.terms.policy = policy;
        Ok(self)
    }

    /// How others see who holds or waits.
    #[must_use]
    pub fn with_label(mut self, label: impl AsRef<str>) -> Self {
        let owner = &self.wish.owner;
        self.wish.owner = Owner::new(&owner.host, owner.pid, Some(label.as_ref()));
        self
    }

    /// Gives up fairness for throughput: the key may be taken ahead of those who
    /// wait, and a release leaves it free for whoever comes first. Waiters can
    /// starve. Those who lock the same key fairly keep their order among
    /// themselves.
    #[must_use]
    pub fn unfair(mut self) -> Self {
        self.wish.ahead = true;
        self.wish.terms.hand_off = false;
        self
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
    /// `Corrupt`: see [`ErrorKind`].
    ///
    /// # Examples
    /// See [`Mutex`].
    pub async fn lock(&self) -> Result<Lease, Error> {
        let lease = self
            .acquire(Acquire {
                wait: Wait::Forever,
                progress: None,
            })
            .await?;
        lease.ok_or_else(|| self.timed_out())
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
        self.acquire(Acquire {
            wait: Wait::No,
            progress: None,
        })
        .await
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
        let lease = self
            .acquire(Acquire {
                wait: Wait::For(limit),
                progress: None,
            })
            .await?;
        lease.ok_or_else(|| self.timed_out())
    }

    /// The verb behind the others, with every option. `None`: busy, with
    /// [`Wait::No`].
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
        let started = clock::now();
        let patience = match how.wait {
            Wait::No => Patience::No,
            Wait::For(limit) => Patience::Until(started + limit),
            Wait::Forever => Patience::Forever,
        };
        let waited = || clock::now().since(started);
        let tell = |position, rejoined| {
            if let Some(progress) = &how.progress {
                progress(&Progress {
                    position,
                    waited: waited(),
                    rejoined,
                });
            }
        };
        let wish = Wish {
            tells_position: how.progress.is_some(),
            ..self.wish.clone()
        };
        let grant = acquire(&self.driver, &wish, patience, tell)
            .await
            .map_err(|error| self.error(error))?;
        Ok(grant.map(|grant| Lease::new(self.driver.clone(), grant, waited())))
    }

    fn error(&self, error: StoreError) -> Error {
        Error::new(Operation::Acquire, Some(self.wish.key.clone()), error)
    }

    fn timed_out(&self) -> Error {
        self.error(StoreError::new(
            ErrorKind::Timeout,
            "it was not free in the time allowed",
        ))
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("key", self.key())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
