//! The guard of a held key: a lease.

mod kinds;

use std::future::Future;
use std::marker::PhantomData;
use std::slice;
use std::time::Duration;

use futures_util::future::select_all;
use leasehold_core::{Change, Changed, ClaimId, Invalid, Key, LeaseState, Loss, Mode, Note, Token};
use leasehold_store::debug;

pub use self::kinds::{Any, Exclusive, GrantNumber, LeaseKind, Permits, Shared};
use crate::clock;
use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::loss::LossSignal;
use crate::session::claim_handle::ClaimHandle;
use crate::session::request::{check_rotation, id_taken};
use crate::session::unanswered;
use crate::settings::check_ttl;
use crate::store::Acknowledged;

/// A lease: a hold on a key that is limited in time and renewed automatically by the watchdog.
///
/// The value owns the lease: it can be sent to any task or thread. While [`Lease::is_valid`] is
/// true, no other client of leasehold holds a valid lease that conflicts with it, under the
/// assumptions of the store ([when not to use it](crate#when-not-to-use-it)). If the assumptions fail, only a resource that
/// compares [`Lease::token`] is protected.
///
/// `K` is the kind of the lease: exclusive ([`Exclusive`], the default: mutex, writer, leader,
/// re-entrant owner), shared with other readers ([`Shared`]), or some permits of a semaphore
/// ([`Permits`]). Only exclusive leases have a fencing token. The mode of a `Lease<`[`Any`]`>` is
/// known only at run time.
///
/// Dropping a lease releases it in the background and never blocks. If the store cannot be
/// reached, the lease expires after its TTL. The same happens if the program or the runtime ends
/// before the release is sent: call [`Client::shutdown`](crate::Client::shutdown) before.
/// [`Lease::release`] says whether the lease was still held.
#[must_use = "a lease that is dropped is released"]
pub struct Lease<K: LeaseKind = Exclusive> {
    pub(crate) claim: ClaimHandle,
    waited: Duration,
    kind: PhantomData<fn() -> K>,
}

/// The result of a release.
///
/// It cannot be overlooked: work that was committed after the lease was lost may have to be undone.
/// ```compile_fail
/// #![deny(unused_must_use)]
/// async fn done(lease: leasehold::Lease) -> Result<(), leasehold::Error> {
///     lease.release().await?;
///     Ok(())
/// }
/// ```
#[must_use = "it says whether the lease was held to its end"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The lease was held until the release.
    Held,
    /// The lease had expired or was taken before: another client may have held the key in
    /// between.
    AlreadyGone,
}

impl Lease {
    /// Returns the fencing token, which is higher than that of every earlier lease on this key.
    /// Pass it to the protected system with each write (see [`crate::fence`]).
    ///
    /// It never changes: if another process takes over another claim of the same [`crate::Owner`],
    /// that one has a higher token, and this lease is lost.
    ///
    /// [`Token::NONE`] if the store has no tokens, as with `layout=classic`
    /// ([`Capabilities::tokens`](crate::store::Capabilities::tokens)). All fences of leasehold
    /// refuse it.
    #[must_use]
    pub fn token(&self) -> Token {
        self.claim.slot.token()
    }

    /// Downgrades a writer to a reader in one atomic step. No other writer can hold the key in
    /// between, and readers that are next in the queue are granted. A reader cannot be upgraded:
    /// see [`RwLock`](crate::RwLock).
    ///
    /// It first replaces the claim id: with earlier [`parts`](Lease::parts) nobody can take the
    /// reader over as a writer.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lease.
    ///
    /// # Errors
    /// Same as [`Lease::rotate`]; `Invalid` also for the lease of a re-entrant lock, since the
    /// owner's other claims rely on it. After an error the lease is released.
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
        if self.claim.reentrant {
            let why = "the lease of a re-entrant lock cannot become a reader";
            let invalid = Invalid::new(why, "use a read-write lock");
            return Err(self.error(Operation::Downgrade, invalid.into()));
        }
        // With the parts of the writer another would take over the reader as a writer.
        if !self.claim.session.store.capabilities().exclusive_only {
            self.replace_id(Operation::Downgrade).await?;
        }
        self.change(Operation::Downgrade, Change::Downgrade).await?;
        self.claim.slot.downgrade();
        Ok(self.cast())
    }
}

impl<K: LeaseKind> Lease<K> {
    /// A lease that its caller does not have in hand yet.
    pub(crate) fn new(claim: ClaimHandle, waited: Duration) -> Self {
        Self {
            claim,
            waited,
            kind: PhantomData,
        }
    }

    /// The same lease, as one of another kind.
    fn cast<J: LeaseKind>(self) -> Lease<J> {
        Lease::new(self.claim, self.waited)
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.claim.key()
    }

    /// Returns the number of the grant, which is higher than that of every earlier grant of this
    /// key. It orders grants and does not fence.
    #[must_use]
    pub fn number(&self) -> GrantNumber {
        GrantNumber(self.claim.slot.token().get())
    }

    /// Returns the mode of the lease; for permits, how many of how many.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.claim.slot.mode()
    }

    /// Returns whether the lease is valid now. No round trip.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns how long the lease is valid without another renewal; zero if it is lost. No round
    /// trip.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.claim.slot.valid_until().since(clock::now())
    }

    /// Returns the state of the lease: held, unknown or lost. No round trip.
    #[must_use]
    pub fn state(&self) -> LeaseState {
        self.claim.slot.state()
    }

    /// Returns why the last renewal failed: the error of the store, or why the store was not
    /// reached. `None` if the renewal was answered. No round trip.
    #[must_use]
    pub fn last_error(&self) -> Option<Error> {
        let error = self.claim.slot.last_error()?;
        Some(self.error(Operation::Renew, error))
    }

    /// Returns how many replicas have the lease, by the last acknowledged grant or renewal.
    /// `None` without an acknowledgement policy (`acknowledge` in the URL of a Redis store).
    #[must_use]
    pub fn acknowledged(&self) -> Option<Acknowledged> {
        self.claim.slot.acknowledged()
    }

    /// Returns how long the acquisition took.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns how often the place in the queue was lost while waiting (the store lost its data,
    /// or this client was paused for longer than the waiter TTL).
    #[must_use]
    pub fn rejoined(&self) -> u32 {
        self.claim.rejoined
    }

    /// Returns a signal by which other tasks notice a loss, also while the lease is being
    /// released.
    ///
    /// # Examples
    /// See [`LossSignal`].
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal::of([self.claim.slot.clone()])
    }

    /// Completes with the reason when the lease is lost: stop working then.
    ///
    /// Other tasks can use [`Lease::loss_signal`].
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
        self.claim.slot.lost().await
    }

    /// Runs `work`, and drops it as soon as the lease is lost. It looks at the lease when `work` is
    /// done, too.
    ///
    /// It can drop `work` only while that waits. Work that blocks its thread also blocks the
    /// renewals on a runtime of one thread: put it into `spawn_blocking`, or use
    /// [`crate::blocking`], whose renewals have a thread of their own.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` and keeps the lease.
    ///
    /// # Errors
    /// `Lost`: another client may hold the key, and the last actions of `work` may have
    /// overlapped with its own. `work` may be done all the same.
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
        run_under(slice::from_ref(self), work).await
    }

    /// The same as [`Lease::run`] for work that may fail: its error and the loss are one.
    ///
    /// # Cancel safety
    /// Same as [`Lease::run`].
    ///
    /// # Errors
    /// That of the work, or one made of `Lost`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("orders/42")?.lock().await?;
    /// let work = async { Ok::<_, Box<dyn std::error::Error>>("42".parse::<u32>()?) };
    /// assert_eq!(lease.try_run(work).await?, 42);
    /// # Ok(()) }
    /// ```
    pub async fn try_run<T, E: From<Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.run(work).await?
    }

    /// Renews the lease now, for its whole TTL. Use it for leases with
    /// [`crate::RenewalPolicy::Manual`], or before a long step.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is unknown whether the lease was renewed. A renewal never
    /// shortens a lease.
    ///
    /// # Errors
    /// `Lost`: stop. `Unavailable`: no answer; `Refused`, `Unsupported`, `Corrupt`: the store will
    /// not do it, as for a user without rights. After these the lease stays valid until
    /// [`Lease::remaining`] is over, and another renewal is safe. `Closed` in a forked process,
    /// `Invalid` outside of a Tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::RenewalPolicy;
    /// let client = leasehold::connect("memory:").await?;
    /// let lock = client.mutex("orders/42")?.with_renewal(RenewalPolicy::Manual);
    /// let lease = lock.lock().await?;
    /// lease.renew().await?;
    /// # Ok(()) }
    /// ```
    pub async fn renew(&self) -> Result<(), Error> {
        self.change(Operation::Renew, Change::Renew(None)).await
    }

    /// Renews the lease now; it then lives `ttl` from now. A renewal never shortens a lease, and
    /// [`crate::Mutex::with_max_hold`] limits it.
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
        check_ttl(ttl).map_err(|invalid| self.error(Operation::Renew, invalid.into()))?;
        self.change(Operation::Renew, Change::Renew(Some(ttl)))
            .await
    }

    /// Publishes a note with the lease: those who inspect the key see it, also while a minimum hold
    /// keeps the key after the release. It replaces the note before; an empty note is none.
    ///
    /// # Cancel safety
    /// If the future is dropped, the note may be published or not.
    ///
    /// # Errors
    /// Same as [`Lease::renew`]; `Invalid` for a note above 1024 bytes.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("report")?.lock().await?;
    /// lease.set_note("page 7 of 12").await?;
    /// let seen = client.inspect("report").await?;
    /// assert_eq!(seen.holders[0].note.as_deref(), Some("page 7 of 12"));
    /// # Ok(()) }
    /// ```
    pub async fn set_note(&self, note: impl AsRef<str>) -> Result<(), Error> {
        let note = Note::new(note);
        let note = note.map_err(|invalid| self.error(Operation::Proclaim, invalid.into()))?;
        self.change(Operation::Proclaim, Change::Note(note)).await
    }

    /// Replaces the claim id, so that a leaked id becomes useless. Nothing else about the lease
    /// changes.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is unknown whether the id was replaced; the next renewal
    /// finds out.
    ///
    /// # Errors
    /// Same as [`Lease::renew`]. `Lost`: another client has replaced the id or taken over the
    /// claim; of concurrent rotations exactly one succeeds. `Invalid` if [`crate::ClaimIds`] makes
    /// an id that another claim has, or cannot make one. `Unsupported` where the store has no
    /// rotations: `redlock://`, `layout=classic`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("orders/42")?.lock().await?;
    /// let leaked = lease.parts()?;
    /// lease.rotate().await?;
    /// assert!(client.mutex("orders/42")?.adopt_by_force(&leaked).await.is_err());
    /// assert!(lease.is_valid());
    /// # Ok(()) }
    /// ```
    pub async fn rotate(&self) -> Result<(), Error> {
        self.replace_id(Operation::Rotate).await
    }

    /// Releases the key. The same atomic step grants it to the next waiter.
    ///
    /// If a minimum hold ([`crate::Mutex::with_min_hold`]) is not over, the key stays taken until
    /// then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background.
    ///
    /// # Errors
    /// `Unavailable`: no answer yet; `Refused`: the store will not do it now. The release is repeated
    /// in the background until the claim has expired. Work that is done stays done: do not report it
    /// as failed. `Closed` in a forked process, `Invalid` outside of a Tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Released;
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("orders/42")?.lock().await?;
    /// assert_eq!(lease.release().await?, Released::Held);
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<Released, Error> {
        match self.claim.release().await {
            Ok(true) => Ok(Released::Held),
            Ok(false) => Ok(Released::AlreadyGone),
            Err(error) => Err(self.error(Operation::Release, error)),
        }
    }
}

impl<K: LeaseKind> Lease<K> {
    async fn replace_id(&self, operation: Operation) -> Result<(), Error> {
        let session = &self.claim.session;
        let fresh = check_rotation(session.store.capabilities());
        let fresh = fresh.and_then(|()| session.claim_id());
        let fresh = fresh.map_err(|error| self.error(operation, error))?;
        self.change(operation, Change::Rotate(fresh)).await
    }

    /// Changes the claim with a renewal, which prolongs it as its policy allows.
    async fn change(&self, operation: Operation, change: Change) -> Result<(), Error> {
        self.check_use(operation)?;
        let changed = self.claim.change(change).await;
        self.check_held(operation)?;
        self.outcome(operation, changed)
    }

    fn check_use(&self, operation: Operation) -> Result<(), Error> {
        let caller = self.claim.session.check_caller();
        caller.map_err(|error| self.error(operation, error))?;
        self.check_held(operation)
    }

    fn outcome(&self, operation: Operation, changed: Changed) -> Result<(), Error> {
        let limit = self.claim.session.settings.operation_timeout;
        match changed {
            Changed::Done => Ok(()),
            Changed::Lost => Err(self.lost_error(operation, Loss::Gone)),
            Changed::Taken => Err(self.error(operation, id_taken())),
            Changed::Refused | Changed::Unanswered | Changed::Unacknowledged => {
                Err(self.error(operation, self.claim.last_error(|| unanswered(limit))))
            }
        }
    }

    /// Ends the validity, makes sure that the claim has one id for a whole TTL from now, and
    /// leaves it at the store for another client. Returns that id, and how often it was replaced.
    pub(crate) async fn hand_over(&self) -> Result<(ClaimId, u64), Error> {
        self.check_use(Operation::HandOver)?;
        self.outcome(Operation::HandOver, self.claim.hand_over().await)?;
        Ok(self.claim.identity())
    }

    /// An error if it is lost.
    pub(crate) fn check_held(&self, operation: Operation) -> Result<(), Error> {
        match self.state() {
            LeaseState::Lost(loss) => Err(self.lost_error(operation, loss)),
            LeaseState::Held | LeaseState::Unknown => Ok(()),
        }
    }

    /// Runs `work` until it is done or the lease is lost, and releases it.
    pub(crate) async fn work<T>(self, work: impl AsyncFnOnce(&Self) -> T) -> Result<T, Error> {
        let done = self.run(work(&self)).await?;
        self.give_back(done).await
    }

    /// Releases it after the work; an error if it was lost before.
    ///
    /// No answer to the release changes nothing about the work: the lease was valid to its end.
    pub(crate) async fn give_back<T>(self, done: T) -> Result<T, Error> {
        self.check_held(Operation::Hold)?;
        let lost = self.lost_error(Operation::Release, Loss::Gone);
        match self.release().await {
            Ok(Released::AlreadyGone) => Err(lost),
            Ok(Released::Held) | Err(_) => Ok(done),
        }
    }

    pub(crate) fn lost_error(&self, operation: Operation, loss: Loss) -> Error {
        let cause = self.claim.slot.last_error();
        let cause = cause.filter(|_| loss == Loss::Unanswered);
        let why = cause.as_ref().map(|cause| format!(" ({cause})"));
        let why = why.unwrap_or_default();
        let error = StoreError::new(ErrorKind::Lost, format!("the lease was lost: {loss}{why}"))
            .with_hint("stop the work: another may hold the key");
        let error = match cause {
            None => error,
            Some(cause) => error.with_source(cause),
        };
        self.error(operation, error)
    }

    pub(crate) fn error(&self, operation: Operation, error: StoreError) -> Error {
        Error::new(operation, Some(self.key().clone()), error)
    }
}

/// Runs `work` until it is done or one of the leases is lost: of one key, or of several.
pub(crate) async fn run_under<K: LeaseKind, T>(
    leases: &[Lease<K>],
    work: impl Future<Output = T>,
) -> Result<T, Error> {
    let done = tokio::select! {
        biased;
        (lease, loss) = first_lost(leases) => Err(lease.lost_error(Operation::Hold, loss)),
        done = work => Ok(done),
    }?;
    // Work that blocks its thread ends before anybody can notice a loss.
    let mut leases = leases.iter();
    leases.try_for_each(|lease| lease.check_held(Operation::Hold))?;
    Ok(done)
}

/// The first of them that is lost, and why; never for none.
pub(crate) async fn first_lost<K: LeaseKind>(leases: &[Lease<K>]) -> (&Lease<K>, Loss) {
    match leases {
        [] => std::future::pending().await,
        // The usual number: nothing is boxed for it.
        [lease] => (lease, lease.lost().await),
        _ => {
            let lost = leases.iter().map(|lease| Box::pin(lease.lost()));
            let (loss, at, _) = select_all(lost).await;
            (&leases[at], loss)
        }
    }
}

debug!(
    Lease<K: LeaseKind>; |it| key: it.key(), mode: it.mode(), token: it.claim.slot.token(),
    state: it.state(), remaining: it.remaining()
);
