//! One leader at a time, known to all.

mod observe;

use std::future::Future;
use std::time::{Duration, SystemTime};

use leasehold_core::{Arrival, Change, ClientInfo, Loss, Note, Token};

pub use self::observe::Leaders;
use self::observe::{look, observe_error};
use crate::error::{Error, Operation};
use crate::hold::Released;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::verbs::{debug, options};
use crate::waiting::{Acquire, Wait};

/// A fair leader election: the candidate that asked first leads first.
///
/// The term is the fencing token: it rises with every leader. A leader that
/// loses its lease is told ([`Leadership::lost`]) before another can lead, under
/// the assumptions of the store (see `SAFETY.md`).
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
/// leadership.resign().await?;
/// assert!(election.leader().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Election {
    lock: Lock,
}

options!(Election: lock);
debug!(Election);

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The term: the fencing token of the leader's lease. [`Token::NONE`] where the
    /// store has no tokens.
    pub term: Token,
    /// What the leader tells, such as its address.
    pub note: Option<String>,
    /// Who it is.
    pub owner: ClientInfo,
    /// Since when, by the store's clock.
    pub since: SystemTime,
    /// How long it leads without renewal, when the store was asked.
    pub expires_in: Duration,
    /// What tells one leader's claim from another's, where there are no terms.
    pub(crate) arrival: Arrival,
}

impl Election {
    /// Of a lock that is held alone.
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock }
    }

    /// Stands for election, and waits until it leads. `note` is told to those
    /// who observe; an empty one is none.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws, in the background.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`]; `Invalid` for a note above 1024 bytes.
    ///
    /// # Examples
    /// See [`Election`].
    pub async fn campaign(&self, note: impl AsRef<str>) -> Result<Leadership, Error> {
        let lease = self.candidate(note)?.obtain(Wait::Forever).await?;
        Ok(Leadership { lease })
    }

    /// Leads if nobody does and nobody stands; `None` otherwise.
    ///
    /// # Cancel safety
    /// As [`Election::campaign`].
    ///
    /// # Errors
    /// As [`Election::campaign`].
    ///
    /// # Examples
    /// See [`Election`].
    pub async fn try_campaign(&self, note: impl AsRef<str>) -> Result<Option<Leadership>, Error> {
        self.campaign_with(note, Wait::No.into()).await
    }

    /// Stands for election for so long at most.
    ///
    /// # Cancel safety
    /// As [`Election::campaign`].
    ///
    /// # Errors
    /// `Timeout` when it was not elected in time; else as [`Election::campaign`].
    ///
    /// # Examples
    /// See [`Election`].
    pub async fn campaign_within(
        &self,
        note: impl AsRef<str>,
        limit: Duration,
    ) -> Result<Leadership, Error> {
        let lease = self.candidate(note)?.obtain(Wait::For(limit)).await?;
        Ok(Leadership { lease })
    }

    /// The verb behind the others, with every option. `None`: another leads or
    /// stands, with [`Wait::No`].
    ///
    /// # Cancel safety
    /// As [`Election::campaign`].
    ///
    /// # Errors
    /// As [`Election::campaign_within`].
    ///
    /// # Examples
    /// See [`crate::Mutex::acquire`].
    pub async fn campaign_with(
        &self,
        note: impl AsRef<str>,
        how: Acquire,
    ) -> Result<Option<Leadership>, Error> {
        let lease = self.candidate(note)?.acquire_as(how).await?;
        Ok(lease.map(|lease| Leadership { lease }))
    }

    fn candidate(&self, note: impl AsRef<str>) -> Result<Lock, Error> {
        self.lock.clone().with_note(note)
    }

    /// Who leads now; `None` if nobody does.
    ///
    /// # Cancel safety
    /// Dropping the future costs nothing.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`, `Corrupt`: see [`crate::ErrorKind`].
    ///
    /// # Examples
    /// See [`Election`].
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let leader = look(&self.lock.session, self.key()).await;
        leader.map_err(|error| observe_error(self.key(), error))
    }

    /// The leaders from now on: first who leads now, then each change: another
    /// leader, another note, or nobody. The store tells of changes; it is asked
    /// otherwise only when a leader's lease may have lapsed unseen, and every
    /// 20 s to go on telling. One that tells nobody anything
    /// ([`Capabilities::push`](crate::store::Capabilities::push)) is asked every
    /// second.
    ///
    /// A change that is followed by another at once may be left out.
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

/// A term of office: a lease that says so.
///
/// Dropping it resigns in the background.
#[derive(Debug)]
#[must_use = "a leadership that is dropped is resigned"]
pub struct Leadership {
    lease: Lease,
}

impl Leadership {
    /// The term: the fencing token. Hand it to whatever the leader writes to.
    /// [`Token::NONE`] where the store has no tokens
    /// ([`Capabilities::tokens`](crate::store::Capabilities::tokens)): nothing can be
    /// fenced then.
    #[must_use]
    pub fn term(&self) -> Token {
        self.lease.token()
    }

    /// Whether it leads, and may rely on it. Costs no round trip.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.lease.is_valid()
    }

    /// The lease behind it.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The lease behind it, on its own.
    pub fn into_lease(self) -> Lease {
        self.lease
    }

    /// Tells those who observe something else than before.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it unknown whether it was told.
    ///
    /// # Errors
    /// `Lost`: it does not lead any more. `Invalid` above 1024 bytes.
    /// `Unavailable`: no answer.
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
        let hold = self.lease.hold();
        let note = Note::new(note);
        let note = note.map_err(|invalid| hold.error(Operation::Proclaim, invalid.into()))?;
        hold.change(Operation::Proclaim, Change::Note(note)).await
    }

    /// What other tasks watch the leadership by.
    ///
    /// # Examples
    /// See [`crate::LossSignal`].
    #[must_use]
    pub fn loss_signal(&self) -> crate::LossSignal {
        self.lease.loss_signal()
    }

    /// Completes when it does not lead any more: stop then.
    ///
    /// # Cancel safety
    /// Dropping the future costs nothing.
    ///
    /// # Examples
    /// See [`Lease::lost`].
    pub async fn lost(&self) -> Loss {
        self.lease.lost().await
    }

    /// Runs `work` while it leads, and drops it the moment it does not.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`; the leadership stays.
    ///
    /// # Errors
    /// `Lost`: as [`Lease::run`].
    ///
    /// # Examples
    /// See [`Lease::run`].
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        self.lease.run(work).await
    }

    /// Steps down: the next candidate leads in the same step.
    ///
    /// # Cancel safety
    /// Dropping the future goes on in the background.
    ///
    /// # Errors
    /// As [`Lease::release`].
    ///
    /// # Examples
    /// See [`Election`].
    pub async fn resign(self) -> Result<Released, Error> {
        self.lease.release().await
    }
}
