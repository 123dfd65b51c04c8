//! The guard: a lease, and how it holds.

mod kinds;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use leasehold_core::{Change, Key, Loss, Mode, Standpoint, Token};

pub use self::kinds::{Any, Exclusive, GrantNumber, LeaseKind, Permits, Shared};
use crate::clock;
use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::hold::{Hold, Released};
use crate::loss::LossSignal;
use crate::session::acquire::Grant;
use crate::session::wish::Wish;
use crate::store::Acknowledged;

/// A hold on a key, limited in time and renewed by the watchdog.
///
/// The value *is* the owner: send it to any task or thread. While
/// [`Lease::is_valid`] no other client of leasehold holds a valid lease that
/// this one excludes, under the assumptions of the store (see `SAFETY.md`);
/// beyond that only a resource that compares [`Lease::token`] is protected.
///
/// `K` says how it holds: alone ([`Exclusive`], the default: mutex, writer,
/// leader, re-entrant owner), together with other readers ([`Shared`]), or with
/// other permits ([`Permits`]). Only exclusive leases have a fencing token. A
/// `Lease<`[`Any`]`>` knows its mode at run time only.
///
/// Dropping a lease releases it in the background: it never blocks, and the TTL
/// bounds it if the store cannot be reached. [`Lease::release`] says whether the
/// lease was still ours.
#[must_use = "a lease that is dropped is released"]
pub struct Lease<K: LeaseKind = Exclusive> {
    hold: Hold,
    kind: PhantomData<fn() -> K>,
}

impl Lease {
    /// The fencing token: higher than that of every lease on this key before.
    /// Hand it to the protected system with each write (see [`crate::fence`]).
    ///
    /// It rises if another claim of the same [`crate::Owner`] is taken over by
    /// another process.
    ///
    /// [`Token::NONE`] where the store has no tokens, as with `layout=classic`
    /// ([`Capabilities::tokens`](crate::store::Capabilities::tokens)): every fence of
    /// leasehold refuses that one.
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.token()
    }

    /// Turns a writer into a reader, in one step: no other writer comes between,
    /// and readers that wait next in line come in. There is no way back: see
    /// [`RwLock`](crate::RwLock).
    ///
    /// # Cancel safety
    /// Dropping the future releases the lease.
    ///
    /// # Errors
    /// `Lost`: stop. `Unavailable`: no answer. `Invalid` for the lease of a
    /// re-entrant lock, whose other claims rely on it. The lease is released
    /// then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let config = client.rwlock("config")?;
    /// let writer = config.write().await?;
    /// let reader = writer.downgrade().await?;
    /// assert!(config.try_read().await?.is_some());
    /// assert!(config.try_write().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn downgrade(self) -> Result<Lease<Shared>, Error> {
        let mut hold = self.hold;
        if hold.is_reentrant() {
            let error = StoreError::new(
                ErrorKind::Invalid,
                "the lease of a re-entrant lock cannot become a reader",
            )
            .with_hint("use a read-write lock");
            return Err(hold.error(Operation::Downgrade, error));
        }
        hold.change(Operation::Downgrade, Change::Downgrade).await?;
        hold.set_mode(Mode::SHARED);
        Ok(Lease::of(hold))
    }
}

impl<K: LeaseKind> Lease<K> {
    /// A lease that its caller does not have in hand yet.
    pub(crate) fn new(grant: Grant, wish: &Wish, waited: Duration) -> Self {
        Self::of(Hold::new(grant, wish, waited))
    }

    /// Gives it to its caller.
    pub(crate) fn hand_out(self) -> Self {
        self.hold.hand_out();
        self
    }

    pub(crate) fn of(hold: Hold) -> Self {
        Self {
            hold,
            kind: PhantomData,
        }
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }

    pub(crate) fn into_hold(self) -> Hold {
        self.hold
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.hold.key()
    }

    /// The number of the grant: higher than that of every grant of this key
    /// before. It orders, and does not fence.
    #[must_use]
    pub fn number(&self) -> GrantNumber {
        GrantNumber(self.hold.token().get())
    }

    /// How it holds; for permits, how many of how many.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.hold.mode()
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
        self.hold.valid_until().since(clock::now())
    }

    /// What is known about the lease. Costs no round trip.
    #[must_use]
    pub fn standpoint(&self) -> Standpoint {
        self.hold.standpoint()
    }

    /// Why the last renewal failed: what the store said, or why it could not be asked.
    /// `None` if it was answered. Costs no round trip.
    #[must_use]
    pub fn last_error(&self) -> Option<Error> {
        self.hold.last_error()
    }

    /// Who has the lease besides the server that granted it, by the last grant
    /// or renewal that was acknowledged. `None` where no policy asks for it
    /// (`acknowledge` in the URL of a Redis store).
    #[must_use]
    pub fn acknowledged(&self) -> Option<Acknowledged> {
        self.hold.acknowledged()
    }

    /// How long it took to get it.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.hold.waited()
    }

    /// How often the place in the queue was lost while waiting (the store lost
    /// its data, or this client stood still for longer than the waiter TTL).
    #[must_use]
    pub fn rejoined(&self) -> u32 {
        self.hold.rejoined()
    }

    /// What other tasks watch the lease by, also while it is released.
    ///
    /// # Examples
    /// See [`LossSignal`].
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal::of([self.hold.claim().clone()])
    }

    /// Completes when the lease is lost, with the reason: stop working then.
    ///
    /// Another task watches it by [`Lease::loss_signal`].
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
    /// tokio::select! {
    ///     loss = lease.lost() => eprintln!("stop: {loss}"),
    ///     () = async { /* the work */ } => {}
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> Loss {
        self.hold.lost().await
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
            loss = self.lost() => Err(self.hold.lost_error(Operation::Hold, loss)),
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
        self.hold.renew(None).await
    }

    /// Renews the lease now, to live `ttl` from now: a renewal never shortens a
    /// lease, and [`crate::Mutex::with_max_hold`] bounds it.
    ///
    /// # Cancel safety
    /// Same as [`Lease::renew`].
    ///
    /// # Errors
    /// Same as [`Lease::renew`]; `Invalid` for a TTL below 50 ms or above 24 h.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("orders/42")?.lock().await?;
    /// lease.renew_for(Duration::from_secs(300)).await?; // ahead of a long pause
    /// assert!(lease.remaining() > Duration::from_secs(290));
    /// # Ok(()) }
    /// ```
    pub async fn renew_for(&self, ttl: Duration) -> Result<(), Error> {
        self.hold.renew(Some(ttl)).await
    }

    /// Replaces the claim id, so that one that leaked goes stale. The lease
    /// stays as it is.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it unknown whether the id was replaced; the
    /// next renewal finds out.
    ///
    /// # Errors
    /// `Lost`: somebody else has replaced the id or taken over the claim; of
    /// concurrent rotations exactly one wins. `Unavailable`: no answer yet.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("orders/42")?.lock().await?;
    /// let leaked = lease.parts();
    /// lease.rotate().await?;
    /// assert!(client.mutex("orders/42")?.adopt_by_force(&leaked).await.is_err());
    /// assert!(lease.is_valid());
    /// # Ok(()) }
    /// ```
    pub async fn rotate(&self) -> Result<(), Error> {
        self.hold.rotate().await
    }

    /// Gives the key back, and hands it to the next in line in the same step.
    ///
    /// With a minimum hold ([`crate::Mutex::with_min_hold`]) that is not over,
    /// the key stays taken until then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background.
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
    pub async fn release(self) -> Result<Released, Error> {
        self.hold.release().await
    }
}

impl<K: LeaseKind> Lease<K> {
    /// Releases it after the work that was done under it; an error if it was lost meanwhile.
    ///
    /// No answer to the release changes nothing about the work: the lease was valid to its end.
    pub(crate) async fn give_back<T>(self, done: T) -> Result<T, Error> {
        if let Standpoint::Lost(loss) = self.standpoint() {
            return Err(self.hold.lost_error(Operation::Hold, loss));
        }
        let lost = self.hold.lost_error(Operation::Release, Loss::Gone);
        match self.release().await {
            Ok(Released::AlreadyGone) => Err(lost),
            Ok(Released::StillOurs) | Err(_) => Ok(done),
        }
    }
}

impl<K: LeaseKind> fmt::Debug for Lease<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", self.key())
            .field("mode", &self.mode())
            .field("token", &self.hold.token())
            .field("standpoint", &self.standpoint())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
