//! The journal engine: makes a [`LockStore`](crate::LockStore) of a backend that keeps, for each
//! key, what was asked of its queue, in an order that the backend decides.
//!
//! A backend appends an entry, sets its time in the same operation, and answers with the time and
//! with what others have appended since. It need not understand an entry. Every client takes the
//! same steps on its copy of the queue, and so comes to the same result: a step costs one round
//! trip, however many clients use the key.
//!
//! Now and then a client writes its queue down as the *base*, so that the entries before it can
//! go. Pushes are doorbells: who is rung reads the journal, and is granted the key by what stands
//! there.
//!
//! ```text
//!      base            entries since
//! [ the queue ] [at, dead, bytes] [at, dead, bytes] ...
//!               ^ a position      ^ another one
//! ```
//!
//! - here: the trait, and what goes to and fro;
//! - `entry`: the bytes of entries and bases;
//! - `copy`: a client's copy of a queue;
//! - `keys`: the copies that are kept, and the turns of a client's steps on one key;
//! - `client`: its round trips, and what follows from their answers;
//! - `store`: the steps;
//! - `listening`: what keeps an inbox open;
//! - `page`: listings, and the removal of idle keys.

mod client;
mod copy;
mod entry;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod keys;
#[doc(hidden)]
pub mod listening;
mod page;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Command, Inbox, Key, StoreTime};

pub use self::entry::{damaged, other_format};
pub use self::store::JournalStore;

use crate::acknowledged::Acknowledged;
use crate::error::StoreError;
use crate::port::{Capabilities, Listening, PushSink};

/// The format of entries and bases. A backend keeps it with each record, and refuses to append to
/// one in another format ([`other_format`]). To be raised also if the core comes to another queue
/// by the same steps.
pub const FORMAT: u32 = 1;

/// How many inboxes an entry rings at most: one bit each in [`Entry::dead`].
pub const RUNG: usize = 63;

/// A backend that keeps a journal per key. [`JournalStore`] makes it a store.
///
/// # Errors
/// Those of [`LockStore`](crate::LockStore). `Corrupt` and `Unsupported` must leave the record as
/// it is.
#[async_trait]
pub trait Journal: Send + Sync + fmt::Debug + 'static {
    /// Same as [`LockStore::capabilities`](crate::LockStore::capabilities).
    fn capabilities(&self) -> Capabilities;

    /// Appends an entry to each of these journals, all in one atomic operation at one time of the
    /// backend's clock, and rings the inboxes of each ([`Append::ring`]).
    ///
    /// Nobody who is found dead listens again and appends something before the entry is there.
    ///
    /// The clock is read when nobody else can append to these journals any more, so that a later
    /// entry has a later time, unless the clock steps back. With `unchanged_since`, nothing is
    /// appended if one of the journals does not end at [`Append::known`] any more, or the clock
    /// shows an earlier time. A backend that can only compare and set may also answer so without
    /// it: the engine then tries again with what it has learned.
    async fn append(
        &self,
        parts: &[Append<'_>],
        unchanged_since: Option<StoreTime>,
    ) -> Result<Appended, StoreError>;

    /// Returns the acknowledgements of each append that succeeds, if the backend has a policy for
    /// them.
    fn acknowledged(&self) -> Option<Acknowledged> {
        None
    }

    /// Reads what was appended to these journals since, and the clock.
    async fn read(
        &self,
        keys: &[(&Key, Option<Position>)],
    ) -> Result<(StoreTime, Vec<News>), StoreError>;

    /// Rings inboxes without appending anything.
    async fn ring(&self, key: &Key, inboxes: &[Inbox]) -> Result<(), StoreError>;

    /// Reads some records in the order of their keys; none at the end.
    async fn page(&self, of: &PageOf<'_>) -> Result<Page, StoreError>;

    /// Removes a record, if its journal still ends there. If the key is used again, its positions
    /// are new ones: none is ever used twice.
    async fn forget(&self, key: &Key, at: Position) -> Result<(), StoreError>;

    /// Same as [`LockStore::inbox`](crate::LockStore::inbox).
    fn inbox(&self) -> &Inbox;

    /// Returns the number of the connection on which this client is rung, or looks by itself; zero if
    /// the inbox is not open.
    fn epoch(&self) -> u64;

    /// Returns whether others can ring this client, and see by that whether it lives. A client that
    /// cannot be rung is never passed over; its backend lets it look ([`Doorbell::ring_all`]).
    fn listens(&self) -> bool {
        self.epoch() != 0
    }

    /// Others have found this client dead, in an entry of that time. If its connection was open then,
    /// it is half open: the backend opens another.
    fn doubt(&self, at: StoreTime) {
        let _ = at;
    }

    /// Opens the inbox: rings the bell until the returned value is dropped. When rings may have
    /// been missed, the bell gets a [`Push::Reset`](crate::Push::Reset).
    async fn listen(&self, bell: Arc<dyn Doorbell>) -> Result<Box<dyn Listening>, StoreError>;
}

/// Where a client is rung. It is called on the backend's own task and returns at once.
pub trait Doorbell: PushSink {
    /// Somebody has appended something that concerns a claim of this client.
    fn ring(&self, key: &Key);

    /// Lets the client look at every key that concerns it, if there are no more than so many; returns
    /// whether there are. For a backend that cannot ring it, or that does not know the key yet.
    fn ring_all(&self, most: usize) -> bool;
}

/// A position in the journal of a key. The engine only compares positions, and hands them back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Which record of the key: another one after it was removed, and where the entries before are not
    /// those that a client knows.
    pub record: u64,
    /// How far in its journal.
    pub offset: u64,
}

/// An entry to append.
#[derive(Debug)]
pub struct Append<'a> {
    /// To the journal of this key.
    pub key: &'a Key,
    /// Where the journal ended when the client read it last; `None` if it does not know.
    pub known: Option<Position>,
    /// The entry.
    pub bytes: &'a [u8],
    /// The inboxes to ring, at most [`RUNG`]. Which of them are dead becomes part of the entry.
    pub ring: &'a [Inbox],
    /// What the backend has given to be kept, when the journal ended at [`known`](Self::known).
    pub kept: Option<&'a [u8]>,
    is_late: bool,
    copy: &'a copy::Copy,
    commands: &'a [Command],
}

impl Append<'_> {
    /// Writes down the queue as it was at [`known`](Self::known): the base before this entry, for
    /// a backend that writes a record anew at each step.
    ///
    /// # Errors
    /// `Refused` if it cannot be written down.
    pub fn base(&self) -> Result<Vec<u8>, StoreError> {
        self.copy.base()
    }

    /// Writes the queue down as [`base`](Self::base) does, if it is time to: once the entries since the
    /// last base have more than `least` bytes, and are long beside it. It stands for all up to
    /// [`known`](Self::known); some of the entries before may stay, for clients that are not far behind.
    ///
    /// Also returns how many bytes of entries the client knows of since the last base. If that base
    /// has been replaced meanwhile, the new one is not needed.
    ///
    /// # Errors
    /// As [`base`](Self::base).
    pub fn new_base(&self, least: u64) -> Result<Option<(Vec<u8>, u64)>, StoreError> {
        let is_due = self.known.is_some() && self.copy.is_long(least);
        let base = is_due.then(|| self.base()).transpose()?;
        Ok(base.map(|base| (base, self.copy.since_base)))
    }

    /// How many claims the queue has before this entry.
    #[must_use]
    pub fn claims(&self) -> usize {
        self.copy.queue.claims()
    }

    /// Whether others' entries came in between again and again, as for a client that is far away: for a
    /// backend that compares and sets.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.is_late
    }

    /// Whether the entry may add a claim: for a backend that keeps room for renewals.
    #[must_use]
    pub fn grows(&self) -> bool {
        self.commands.iter().any(|command| match command {
            Command::Claim(claim) => !self.copy.queue.has(&claim.id),
            _ => false,
        })
    }
}

/// What came of an append.
#[derive(Debug, Clone)]
pub struct Appended {
    /// The backend's clock: the time of the entries.
    pub at: StoreTime,
    /// Whether the entries were appended. If not, something had changed.
    pub appended: bool,
    /// What the client did not know of each journal, without the entry that was appended.
    pub news: Vec<News>,
}

impl Appended {
    /// The answer where nothing was appended, since something had changed.
    #[doc(hidden)]
    #[must_use]
    pub fn conflict(at: StoreTime, news: Vec<News>) -> Self {
        let appended = false;
        Self { at, appended, news }
    }
}

/// What a client did not know of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct News {
    /// If the client is too far behind, the base from which the entries go on. It is empty before
    /// a first base was written.
    pub base: Option<Vec<u8>>,
    /// The entries since the base, or since the position that the client named.
    pub entries: Vec<Entry>,
    /// Where the journal ends now, with the entry that was appended; `None` if there is none.
    pub end: Option<Position>,
    /// How many bytes of entries there are since the last base.
    pub since_base: u64,
    /// How long the last base is.
    pub base_length: u64,
    /// As [`Entry::dead`], for the entry that was appended.
    pub dead: u64,
    /// What the backend wants to have back with the next entry: [`Append::kept`].
    pub kept: Option<Arc<[u8]>>,
}

impl News {
    /// What there is to know of a key that nobody has used.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            base: Some(Vec::new()),
            ..Self::default()
        }
    }
}

/// An entry as it was appended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The backend's clock when it was appended.
    pub at: StoreTime,
    /// Which of the inboxes that it rang were dead: bit 0 stands for the first.
    pub dead: u64,
    /// What was appended.
    pub bytes: Vec<u8>,
}

/// Which records to read.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageOf<'a> {
    /// Those whose keys begin so.
    pub prefix: &'a str,
    /// Those behind this key.
    pub after: Option<&'a str>,
    /// Those to which nothing was appended for so long, by the backend's clock.
    pub idle_for: Option<Duration>,
}

/// Some records.
#[derive(Debug, Clone)]
pub struct Page {
    /// The backend's clock.
    pub at: StoreTime,
    /// The records, in the order of their keys: the key, the time of the last entry, and all of
    /// the journal, or why it cannot be read.
    pub records: Vec<(String, StoreTime, Result<News, StoreError>)>,
}
