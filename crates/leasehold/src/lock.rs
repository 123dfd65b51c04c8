//! The untyped lock: any key, any mode, all options and all methods.
//!
//! A typed kind of lock is a thin wrapper of it. It chooses a mode and a type of lease, and documents
//! its guarantees. `verbs` has the methods of all kinds.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ClientInfo, Invalid, Key, Mode, Note, Terms};
use leasehold_store::debug;

use crate::clock;
use crate::error::{Error, Operation, StoreError};
use crate::inspection::Inspection;
use crate::lease::{Exclusive, Lease, LeaseKind};
use crate::session::Session;
use crate::session::acquire::OnProgress;
use crate::session::request::AcquireRequest;
use crate::waiting::LockOptions;

/// A lock whose mode is a run-time value. The typed kinds of lock wrap it.
///
/// Use it if the mode is known only at run time, as in a command-line program or a binding for
/// another language. If the mode is known, a typed kind is better: a [`Mutex`](crate::Mutex)
/// returns a [`Lease`] that always has a token, and a [`Semaphore`](crate::Semaphore) can be
/// resized.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// use leasehold::Mode;
/// let client = leasehold::connect("memory:").await?;
/// let reader = client.lock_of("config", Mode::SHARED)?.lock().await?;
/// assert_eq!(reader.token(), None, "readers overlap, so nothing is fenced");
/// assert_eq!(reader.release().await?, leasehold::Released::Held);
/// let writer = client.lock_of("config", Mode::EXCLUSIVE)?.lock().await?;
/// println!("write with token {}", writer.token().expect("a writer is alone"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a lock holds nothing until one of its methods has taken a lease"]
pub struct Lock {
    pub(crate) session: Arc<Session>,
    pub(crate) request: AcquireRequest,
    /// As it was set: the longest hold may be shorter.
    pub(crate) ttl: Duration,
}

debug!(Lock; |it| key: it.key());

impl Lock {
    /// Returns the mode in which the key is claimed.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.request.mode
    }

    /// Makes the lock re-entrant for this owner, as
    /// [`Client::reentrant`](crate::Client::reentrant) does. The claims of an owner are fair.
    ///
    /// # Errors
    /// `Invalid` unless the mode is exclusive: readers and permits are not re-entrant.
    pub fn with_owner(mut self, owner: &crate::Owner) -> Result<Self, Error> {
        if !Exclusive::is(self.request.mode) {
            let why = "a lock with an owner is exclusive: readers and permits are not re-entrant";
            let invalid = Invalid::new(why, "leave the owner out, or use Mode::EXCLUSIVE");
            return Err(self.error(invalid.into()));
        }
        self.request.secret = Some(owner.0);
        self.terms().hand_off = true;
        Ok(self)
    }

    /// Sets a note that is shown to those who inspect the key, such as a leader's address. An
    /// empty note is none. A lease that is taken over gets this note, too; if the store does not
    /// answer to that, the lease is released.
    ///
    /// # Errors
    /// `Invalid` for a note above 1024 bytes.
    pub fn with_note(mut self, note: impl AsRef<str>) -> Result<Self, Error> {
        let note = Note::new(note).map_err(|invalid| self.error(invalid.into()))?;
        self.request.note = Some(note);
        Ok(self)
    }

    /// Reads who holds the key and who waits for it.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Errors
    /// Same as [`Self::is_locked`].
    ///
    /// # Examples
    /// See [`Client::inspect`](crate::Client::inspect).
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        Inspection::of(&self.session, &self.request.key).await
    }
}

/// What the typed kinds are made of.
impl Lock {
    pub(crate) fn new(session: Arc<Session>, key: Key, owner: ClientInfo, mode: Mode) -> Self {
        let ttl = session.terms.ttl;
        let request = AcquireRequest {
            key,
            mode,
            terms: session.terms.clone(),
            retry: None,
            owner,
            secret: None,
            min_hold: Duration::ZERO,
            note: None,
            invalid: None,
        };
        Self {
            session,
            request,
            ttl,
        }
    }

    /// The same lock, claimed in another mode.
    pub(crate) fn with_mode(&self, mode: Mode) -> Self {
        let mut lock = self.clone();
        lock.request.mode = mode;
        lock
    }

    pub(crate) fn terms(&mut self) -> &mut Terms {
        Arc::make_mut(&mut self.request.terms)
    }

    /// The first option that is out of bounds is the error of who acquires with it.
    pub(crate) fn check(&mut self, checked: Result<(), Invalid>) {
        if let (Err(invalid), None) = (checked, &self.request.invalid) {
            self.request.invalid = Some(Box::new(invalid));
        }
    }

    /// Whichever was set first, and however often.
    pub(crate) fn limit_ttl(&mut self) {
        let max_hold = self.request.terms.max_hold;
        let ttl = max_hold.map_or(self.ttl, |max_hold| self.ttl.min(max_hold));
        let waiter_ttl = self.session.settings.waiter_ttl.min(ttl);
        let terms = self.terms();
        (terms.ttl, terms.waiter_ttl) = (ttl, waiter_ttl);
    }

    /// Acquires the key, or fails: busy is a time-out.
    pub(crate) async fn acquire_as<K: LeaseKind>(
        &self,
        how: LockOptions,
    ) -> Result<Lease<K>, Error> {
        let (session, request) = (&self.session, &self.request);
        let deadlines = how.wait.deadlines(session);
        how.check(request).map_err(|error| self.error(error))?;
        let waited = || clock::now().since(deadlines.began);
        let tell = |position, rejoined| how.tell(position, waited(), rejoined);
        let progress: OnProgress<'_> = how.progress.as_ref().map(|_| &tell as _);
        let deadlocked = how.deadlocked(session, request);
        let acquired = session.acquire(request, deadlines, progress, deadlocked);
        let claim = acquired.await.map_err(|error| self.error(error))?;
        claim.deliver();
        Ok(Lease::new(claim, waited()))
    }

    pub(crate) fn error(&self, error: StoreError) -> Error {
        Error::new(Operation::Acquire, Some(self.request.key.clone()), error)
    }
}
