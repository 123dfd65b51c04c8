//! The guard.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Key, Loss, Standpoint, Token};

use crate::clock;
use crate::driver::Driver;
use crate::driver::acquire::Grant;
use crate::driver::registry::{EntryId, Subject};
use crate::driver::signal::Signal;
use crate::error::{Error, ErrorKind, Operation, StoreError};

/// A hold on a key, limited in time and renewed by the watchdog.
///
/// The value *is* the owner: send it to any task or thread. While
/// [`Lease::is_valid`] no other client of leasehold holds a valid lease on the
/// key, under the assumptions of the store (see `SAFETY.md`); beyond that only a
/// resource that compares [`Lease::token`] is protected.
///
/// Dropping a lease releases it in the background: it never blocks, and the TTL
/// bounds it if the store cannot be reached. [`Lease::release`] says whether the
/// lease was still ours.
#[must_use = "a lease that is dropped is released"]
pub struct Lease {
    driver: Arc<Driver>,
    entry: EntryId,
    subject: Subject,
    token: Token,
    signal: Arc<Signal>,
    waited: Duration,
    rejoined: u32,
    over: bool,
}

/// What a release found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The lease was ours up to now.
    StillOurs,
    /// It had lapsed or was taken before: another may have held the key meanwhile.
    AlreadyGone,
}

impl Lease {
    pub(crate) fn new(driver: Arc<Driver>, grant: Grant, waited: Duration) -> Self {
        let Grant {
            entry,
            subject,
            token,
            signal,
            rejoined,
        } = grant;
        Self {
            driver,
            entry,
            subject,
            token,
            signal,
            waited,
            rejoined,
            over: false,
        }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.subject.key
    }

    /// The fencing token: higher than that of every lease on this key before.
    /// Hand it to the protected system with each write.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether the lease may be relied on now. Costs no round trip.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the lease may be relied on without another renewal; zero when
    /// lost. Costs no round trip.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.signal.valid_until().since(clock::now())
    }

    /// What is known about the lease. Costs no round trip.
    #[must_use]
    pub fn standpoint(&self) -> Standpoint {
        self.signal.standpoint()
    }

    /// How long it took to get it.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How often the place in the queue was lost while waiting (the store lost
    /// its data, or this client stood still for longer than the waiter TTL).
    #[must_use]
    pub fn rejoined(&self) -> u32 {
        self.rejoined
    }

    /// Completes when the lease is lost, with the reason: stop working then.
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
    /// tokio::select! {
    ///     loss = lease.lost() => eprintln!("stop: {loss}"),
    ///     () = async { /* the work */ } => {}
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> Loss {
        self.signal.lost().await
    }

    /// Runs `work`, and drops it the moment the lease is lost.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`; the lease stays.
    ///
    /// # Errors
    /// `Lost`: another may hold the key; what `work` did last may have
    /// overlapped with it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("orders/42")?.lock().await?;
    /// let sum = lease.run(async { 1 + 1 }).await?;
    /// assert_eq!(sum, 2);
    /// # Ok(()) }
    /// ```
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        tokio::select! {
            biased;
            loss = self.lost() => Err(self.error(Operation::Hold, lost(loss))),
            done = work => Ok(done),
        }
    }

    /// Renews the lease now, by its whole TTL: for leases with
    /// [`crate::RenewalPolicy::Manual`], or ahead of a long step.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it unknown whether the renewal was carried
    /// out; a lease is never shortened by it.
    ///
    /// # Errors
    /// `Lost`: stop. `Unavailable`: no answer; the lease stands until
    /// [`Lease::remaining`] is over, and renewing again is safe.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::RenewalPolicy;
    /// let client = leasehold::connect("memory:").await?;
    /// let lock = client.mutex("orders/42")?.with_renewal(RenewalPolicy::Manual)?;
    /// let lease = lock.lock().await?;
    /// lease.renew().await?;
    /// # Ok(()) }
    /// ```
    pub async fn renew(&self) -> Result<(), Error> {
        if let Standpoint::Lost(loss) = self.standpoint() {
            return Err(self.error(Operation::Renew, lost(loss)));
        }
        let renewed = self.driver.renew(self.entry, &self.subject).await;
        renewed.map_err(|error| self.error(Operation::Renew, error))?;
        match self.standpoint() {
            Standpoint::Lost(loss) => Err(self.error(Operation::Renew, lost(loss))),
            Standpoint::Held | Standpoint::Unknown => Ok(()),
        }
    }

    /// Gives the key back, and hands it to the next in line in the same step.
    ///
    /// # Cancel safety
    /// Dropping the future goes on releasing in the background.
    ///
    /// # Errors
    /// `Unavailable`: no answer yet; the background goes on until the claim has
    /// lapsed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Released;
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("orders/42")?.lock().await?;
    /// assert_eq!(lease.release().await?, Released::StillOurs);
    /// # Ok(()) }
    /// ```
    pub async fn release(mut self) -> Result<Released, Error> {
        self.over = true;
        let known = self.standpoint();
        // Nothing is to be relied on once a release was sent.
        self.signal.end();
        if is_settled(known) {
            return Ok(Released::AlreadyGone);
        }
        let released = self
            .driver
            .release(Some(self.entry), self.subject.clone())
            .await;
        match released {
            Ok(true) => Ok(Released::StillOurs),
            Ok(false) => Ok(Released::AlreadyGone),
            Err(error) => Err(self.error(Operation::Release, error)),
        }
    }

    fn error(&self, operation: Operation, error: StoreError) -> Error {
        Error::new(operation, Some(self.subject.key.clone()), error)
    }
}

/// Whether nothing of the claim can be left at the store.
fn is_settled(standpoint: Standpoint) -> bool {
    matches!(
        standpoint,
        Standpoint::Lost(Loss::Gone | Loss::Revoked | Loss::Superseded | Loss::Shutdown)
    )
}

fn lost(loss: Loss) -> StoreError {
    StoreError::new(ErrorKind::Lost, format!("the lease was lost: {loss}"))
        .with_hint("stop the work: another may hold the key")
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.over && !is_settled(self.standpoint()) {
            self.driver.leave(Some(self.entry), self.subject.clone());
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", self.key())
            .field("token", &self.token)
            .field("standpoint", &self.standpoint())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
