//! Leader election on a key. Its options are in `verbs`.

mod observe;

use std::future::Future;
use std::time::{Duration, SystemTime};

use leasehold_core::{Arrival, ClientInfo, Loss, Token};
use leasehold_store::debug;

pub use self::observe::Leaders;
use self::observe::leader;
use crate::error::{Error, Operation, unless_busy};
use crate::lease::{Lease, Released};
use crate::lock::Lock;
use crate::parts::{LeaseParts, Recovered};
use crate::waiting::LockOptions;

/// A fair leader election: the candidate that asked first leads first.
///
/// The term is the fencing token: it rises with every leader. A leader that loses its lease is
/// notified ([`Leadership::lost`]) before another can lead, under the assumptions of the store
/// ([when not to use it](crate#when-not-to-use-it)).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::connect("memory:").await?;
/// let election = client.election("scheduler")?;
/// let leadership = election.campaign("10.0.0.7:80").await?;
/// let leader = election.leader().await?.expect("somebody leads");
/// assert_eq!(leader.term, leadership.term());
/// assert_eq!(leader.note.as_deref(), Some("10.0.0.7:80"));
/// assert_eq!(leadership.resign().await?, leasehold::Released::Held);
/// assert!(election.leader().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "nobody is a candidate until `campaign` is called"]
pub struct Election {
    pub(crate) lock: Lock,
}

debug!(Election; |it| key: it.key());

/// The current leader of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The term, which is the fencing token of the leader's lease. [`Token::NONE`] if the store
    /// has no tokens.
    pub term: Token,
    /// The note of the leader, such as its address.
    pub note: Option<String>,
    /// The client that leads.
    pub owner: ClientInfo,
    /// When it became the leader, by the store's clock.
    pub since: SystemTime,
    /// How long its lease lives without another renewal, counted from when the store was read.
    pub expires_in: Duration,
    /// The arrival number of the leader's claim, which distinguishes leaders without terms.
    pub(crate) arrival: Arrival,
}

impl Election {
    /// Joins the election, and waits to become the leader. Observers see `note`; an empty note is
    /// none.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the candidate in the background.
    ///
    /// # Errors
    /// Same as [`crate::Mutex::lock`]; `Invalid` for a note above 1024 bytes.
    ///
    /// # Examples
    /// See [`Election`].
    pub async fn campaign(&self, note: impl AsRef<str>) -> Result<Leadership, Error> {
        self.campaign_opts(note, LockOptions::new()).await
    }

    /// Becomes the leader if there is no leader and no candidate; `None` otherwise.
    ///
    /// # Cancel safety
    /// Same as [`Election::campaign`].
    ///
    /// # Errors
    /// Same as [`Election::campaign`].
    ///
    /// # Examples
    /// See [`Election`].
    pub async fn try_campaign(&self, note: impl AsRef<str>) -> Result<Option<Leadership>, Error> {
        unless_busy(self.campaign_opts(note, LockOptions::at_once()).await)
    }

    /// Joins the election, and waits at most `limit` to become the leader.
    ///
    /// # Cancel safety
    /// Same as [`Election::campaign`].
    ///
    /// # Errors
    /// `Timeout` if it did not become the leader in time; otherwise the same as
    /// [`Election::campaign`].
    ///
    /// # Examples
    /// See [`Election`].
    pub async fn campaign_within(
        &self,
        note: impl AsRef<str>,
        limit: Duration,
    ) -> Result<Leadership, Error> {
        let how = LockOptions::new().within(limit);
        self.campaign_opts(note, how).await
    }

    /// Joins the election, and waits with these options to become the leader.
    ///
    /// # Cancel safety
    /// Same as [`Election::campaign`].
    ///
    /// # Errors
    /// Same as [`Election::campaign_within`]; `Deadlock` with
    /// [`deadlock_timeout`](LockOptions::deadlock_timeout).
    ///
    /// # Examples
    /// See [`crate::Mutex::lock_opts`].
    pub async fn campaign_opts(
        &self,
        note: impl AsRef<str>,
        how: LockOptions,
    ) -> Result<Leadership, Error> {
        let lease = self.candidate(note)?.acquire_as(how).await?;
        Ok(Leadership { lease })
    }

    /// Recovers a leadership after a crash: goes on with the lease of these parts, or joins the
    /// election anew if that is `Lost`. A leadership that goes on has a higher term, and gets the
    /// `note`; if the store does not answer to that, it is resigned.
    ///
    /// Make the parts of [`Leadership::lease`]. Make sure that the former leader is dead, as for
    /// [`crate::Mutex::adopt_by_force`].
    ///
    /// # Cancel safety
    /// Same as [`Election::campaign`].
    ///
    /// # Errors
    /// Same as [`Election::campaign_opts`]; `Invalid` for parts of another key or kind.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::LockOptions;
    /// let client = leasehold::connect("memory:").await?;
    /// let election = client.election("scheduler")?;
    /// let before = election.campaign("here").await?;
    /// let saved = before.lease().parts()?; // in a file that only this service can read
    /// # let first = before.term();
    /// // The process crashes, and is started anew:
    /// let recovered = election.recover(&saved, "here", LockOptions::new()).await?;
    /// assert!(!recovered.is_new);
    /// # assert!(recovered.leadership.term() > first);
    /// # drop(before);
    /// # Ok(()) }
    /// ```
    pub async fn recover(
        &self,
        parts: &LeaseParts,
        note: impl AsRef<str>,
        how: LockOptions,
    ) -> Result<RecoveredLeadership, Error> {
        let Recovered { lease, is_new } = self.candidate(note)?.recover_as(parts, how).await?;
        let leadership = Leadership { lease };
        Ok(RecoveredLeadership { leadership, is_new })
    }

    fn candidate(&self, note: impl AsRef<str>) -> Result<Lock, Error> {
        self.lock.clone().with_note(note)
    }

    /// Returns the current leader; `None` if there is none.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Errors
    /// Same as [`Client::inspect`](crate::Client::inspect).
    ///
    /// # Examples
    /// See [`Election`].
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let seen = self.lock.session.snapshot(self.key()).await;
        let seen = seen.map_err(Operation::Observe.failed_on(self.key()))?;
        Ok(leader(self.key(), seen))
    }

    /// Watches the leaders: first the current one, then each change (another leader, another
    /// note, or no leader). The store pushes changes. The client polls only when a leader's lease
    /// may have expired unnoticed, and every 20 s to extend the watch. A store without push
    /// ([`Capabilities::push`](crate::store::Capabilities::push)), or of which nothing is heard, is
    /// polled every second.
    ///
    /// A change that is followed by another at once may be skipped.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let election = client.election("scheduler")?;
    /// let mut leaders = election.observe();
    /// assert_eq!(leaders.next().await?, None, "nobody yet");
    /// let leadership = election.campaign("here").await?;
    /// let leader = leaders.next().await?.expect("somebody leads");
    /// assert_eq!(leader.term, leadership.term());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn observe(&self) -> Leaders {
        Leaders::of(&self.lock.session, self.key())
    }
}

/// A recovered leadership: the result of [`Election::recover`].
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "a leadership that is dropped is resigned"]
pub struct RecoveredLeadership {
    /// The leadership.
    pub leadership: Leadership,
    /// Whether the old claim was lost, so that this is a new one: another client may have led in
    /// between.
    pub is_new: bool,
}

/// The lease of a leader.
///
/// Dropping it resigns in the background, as for a [`Lease`].
#[derive(Debug)]
#[must_use = "a leadership that is dropped is resigned"]
pub struct Leadership {
    lease: Lease,
}

impl Leadership {
    /// Returns the term, which is the fencing token. Pass it to each system that the leader
    /// writes to. [`Token::NONE`] if the store has no tokens
    /// ([`Capabilities::tokens`](crate::store::Capabilities::tokens)): then no write can be
    /// fenced.
    #[must_use]
    pub fn term(&self) -> Token {
        self.lease.token()
    }

    /// Returns whether this client is the leader and its lease is valid. No round trip.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.lease.is_valid()
    }

    /// Returns the lease.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Converts to the lease.
    pub fn into_lease(self) -> Lease {
        self.lease
    }

    /// Replaces the note that observers see.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is unknown whether the note was replaced.
    ///
    /// # Errors
    /// Same as [`Lease::set_note`]; `Lost` if it is no longer the leader.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let election = client.election("scheduler")?;
    /// let leadership = election.campaign("starting").await?;
    /// leadership.proclaim("ready").await?;
    /// let leader = election.leader().await?.expect("somebody leads");
    /// assert_eq!(leader.note.as_deref(), Some("ready"));
    /// # Ok(()) }
    /// ```
    pub async fn proclaim(&self, note: impl AsRef<str>) -> Result<(), Error> {
        self.lease.set_note(note).await
    }

    /// Returns a signal by which other tasks notice the loss of the leadership.
    ///
    /// # Examples
    /// See [`crate::LossSignal`].
    pub fn loss_signal(&self) -> crate::LossSignal {
        self.lease.loss_signal()
    }

    /// Completes when the leadership is lost: stop leading then.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Examples
    /// See [`Lease::lost`].
    pub async fn lost(&self) -> Loss {
        self.lease.lost().await
    }

    /// Runs `work`, and drops it as soon as the leadership is lost.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` and keeps the leadership.
    ///
    /// # Errors
    /// `Lost`: as [`Lease::run`].
    ///
    /// # Examples
    /// See [`Lease::run`].
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        self.lease.run(work).await
    }

    /// The same as [`Leadership::run`] for work that may fail.
    ///
    /// # Cancel safety
    /// Same as [`Leadership::run`].
    ///
    /// # Errors
    /// That of the work, or one made of `Lost`.
    ///
    /// # Examples
    /// See [`Lease::try_run`].
    pub async fn try_run<T, E: From<Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.run(work).await?
    }

    /// Resigns: the same atomic step makes the next candidate the leader.
    ///
    /// # Cancel safety
    /// If the future is dropped, resigning continues in the background.
    ///
    /// # Errors
    /// Same as [`Lease::release`].
    ///
    /// # Examples
    /// See [`Election`].
    pub async fn resign(self) -> Result<Released, Error> {
        self.lease.release().await
    }
}
