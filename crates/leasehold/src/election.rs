//! One leader at a time, known to all.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use futures_util::Stream;
use futures_util::stream::{BoxStream, unfold};
use leasehold_core::{
    Arrival, Backoff, Change, HintLimit, Key, Loss, Mode, Moment, Note, Owner, Token,
};
use tokio::sync::Notify;

use crate::clock;
use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::face::{Face, options};
use crate::hold::Released;
use crate::inspection::Inspection;
use crate::lease::Lease;
use crate::session::closing::Closed;
use crate::session::watches::Watch;
use crate::session::{Session, random_u64, unanswered};
use crate::sync::{sleep, timeout};
use crate::waiting::{Acquire, Wait};

/// After the time at which a leader's lease can lapse, look this much later.
const AFTER_LAPSE: Duration = Duration::from_millis(20);

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
    face: Face,
}

options!(Election);

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// The term: the fencing token of the leader's lease. [`Token::NONE`] where the
    /// store has no tokens.
    pub term: Token,
    /// What the leader tells, such as its address.
    pub note: Option<String>,
    /// Who it is.
    pub owner: Owner,
    /// Since when, by the store's clock.
    pub since: SystemTime,
    /// How long it leads without renewal, when the store was asked.
    pub expires_in: Duration,
    /// What tells one leader's claim from another's, where there are no terms.
    pub(crate) arrival: Arrival,
}

impl Election {
    pub(crate) fn new(session: Arc<Session>, key: Key, owner: Owner) -> Self {
        let face = Face::new(session, key, owner, Mode::EXCLUSIVE);
        Self { face }
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
        let lease = self.candidate(note)?.acquire(how).await?;
        Ok(lease.map(|lease| Leadership { lease }))
    }

    fn candidate(&self, note: impl AsRef<str>) -> Result<Face, Error> {
        let mut face = self.face.clone();
        let note = Note::new(note).map_err(|invalid| self.face.error(invalid.into()))?;
        face.wish.note = Some(note).filter(|note| !note.as_str().is_empty());
        Ok(face)
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
        let leader = look(&self.face.session, self.key()).await;
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
        let observer = Observer {
            watch: Watch::start(&self.face.session, self.key()),
            session: self.face.session.clone(),
            key: self.key().clone(),
            told: None,
            hints: HintLimit::default(),
            failing: None,
            closed: false,
        };
        let next = |mut observer: Observer| async move {
            if observer.closed {
                return None;
            }
            let told = observer.next().await;
            let closed = |error: &Error| error.kind() == ErrorKind::Closed;
            observer.closed = told.as_ref().is_err_and(closed);
            Some((told, observer))
        };
        Leaders(Box::pin(unfold(observer, next)))
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("key", self.key())
            .finish_non_exhaustive()
    }
}

async fn look(session: &Session, key: &Key) -> Result<Option<Leader>, StoreError> {
    let limit = session.settings.operation_timeout;
    let look = timeout(limit, session.store.inspect(key)).await;
    let look = look.unwrap_or_else(|_| Err(unanswered(limit)))?;
    let arrivals: Vec<_> = look.holders.iter().map(|it| it.claim.arrival).collect();
    let seen = Inspection::new(key.clone(), look);
    let mut holders = seen.holders.into_iter().zip(arrivals);
    let leader = holders.find(|(holder, _)| holder.mode == Mode::EXCLUSIVE && !holder.kept);
    Ok(leader.map(|(holder, arrival)| Leader {
        arrival,
        term: holder.token,
        note: holder.note,
        owner: holder.owner,
        since: holder.since,
        expires_in: holder.expires_in,
    }))
}

fn observe_error(key: &Key, error: StoreError) -> Error {
    Error::new(Operation::Observe, Some(key.clone()), error)
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

/// The leaders of an election, one after the other: a stream that ends only when its
/// client is closed.
///
/// An error is told once; then it goes on by itself.
pub struct Leaders(BoxStream<'static, Result<Option<Leader>, Error>>);

impl Leaders {
    /// The next change; the first is who leads now.
    ///
    /// # Cancel safety
    /// Dropping the future misses nothing.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`, `Corrupt`: see [`crate::ErrorKind`]. The next
    /// call goes on. `Closed`: no call tells anything any more.
    ///
    /// # Examples
    /// See [`Election::observe`].
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        match futures_util::StreamExt::next(&mut self.0).await {
            Some(told) => told,
            None => Err(Error::new(
                Operation::Observe,
                None,
                Closed::ShutDown.error(),
            )),
        }
    }
}

impl Stream for Leaders {
    type Item = Result<Option<Leader>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaders").finish_non_exhaustive()
    }
}

struct Observer {
    watch: Watch,
    session: Arc<Session>,
    key: Key,
    /// What was told last: the claim, the term and the note.
    told: Option<Option<(Arrival, Token, Option<String>)>>,
    /// Anybody may say that there is a change.
    hints: HintLimit,
    /// Pauses while the store cannot be asked.
    failing: Option<Backoff>,
    /// Whether its client was closed, and it has said so.
    closed: bool,
}

impl Observer {
    async fn next(&mut self) -> Result<Option<Leader>, Error> {
        let (session, key) = (self.session.clone(), self.key.clone());
        let told = session.while_open(self.next_change()).await;
        told.map_err(|closed| observe_error(&key, closed))?
    }

    async fn next_change(&mut self) -> Result<Option<Leader>, Error> {
        let changed: Arc<Notify> = self.watch.changed();
        loop {
            if let Some(pauses) = &mut self.failing {
                sleep(pauses.pause()).await;
            }
            let change = changed.notified();
            tokio::pin!(change);
            // Enlist before asking, so that no change falls between.
            change.as_mut().enable();
            let (leader, ask_again) = match self.ask().await {
                Ok(asked) => asked,
                Err(error) => {
                    if self.failing.is_none() {
                        let (base, cap) = (Duration::from_millis(50), Duration::from_secs(2));
                        self.failing = Some(Backoff::new(base, cap, random_u64()));
                        return Err(observe_error(&self.key, error));
                    }
                    continue;
                }
            };
            self.failing = None;
            let seen = leader.as_ref().map(|l| (l.arrival, l.term, l.note.clone()));
            if self.told.as_ref() != Some(&seen) {
                self.told = Some(seen);
                return Ok(leader);
            }
            let lapse = leader.map(|leader| clock::now() + leader.expires_in + AFTER_LAPSE);
            let wake_at = lapse.map_or(ask_again, |lapse| lapse.min(ask_again));
            tokio::select! {
                () = change => {
                    let now = clock::now();
                    sleep(self.hints.ask_at(now).since(now)).await;
                }
                () = sleep(wake_at.since(clock::now())) => {}
            }
        }
    }

    /// Who leads, and when to ask again at the latest.
    async fn ask(&self) -> Result<(Option<Leader>, Moment), StoreError> {
        let limit = self.session.settings.operation_timeout;
        let asked = timeout(limit, self.watch.ask()).await;
        let pause = asked.unwrap_or_else(|_| Err(unanswered(limit)))?;
        let leader = look(&self.session, &self.key).await?;
        Ok((leader, clock::now() + pause))
    }
}
