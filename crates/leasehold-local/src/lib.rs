//! `local:` — many processes on one machine, and no server: a store of
//! [leasehold](https://docs.rs/leasehold).
//!
//! Whoever uses it needs the crate `leasehold` only, which has all of this as
//! `leasehold::store::local`, and opens it by its URL:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let url = format!("local:{}", directory.path().display());
//! let client = leasehold::connect(url).await?; // "local:", or "local:/some/directory"
//! client.mutex("orders/42")?.with_lock(async |_| { /* the work */ }).await?;
//! # Ok(()) }
//! ```
//!
//! The queue of each key is a file; a step locks it, runs the core and writes down what it
//! was asked. Who lives is seen by locked files, and pushes travel
//! through datagram sockets. The page *One machine, without a server* of the repository says what is
//! promised and what is not.
//!
//! ```text
//! clock               the wall clock at this boot's origin, and a checksum
//! clock.lock          locked while that is written
//! records/<key>.rec   the record, locked during a step: the queue, and the steps since
//! audit/              the audit log, if there is one
//! keys                empty, in the way of the first versions
//! sessions/<inbox>    locked as long as that client lives
//! inbox/<inbox>.sock  open while that client listens
//! group               the number of the group for which it was made, if it was
//! ```

// docs.rs says of each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire_record;
mod clock;
mod directory;
mod errors;
mod file;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod inbox;
mod list;
mod liveness;
mod liveness_watch;
mod log;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "not known there"))]
mod machine;
mod name;
mod options;
mod record;
mod record_file;
mod record_guard;
mod remove_dead;
mod scheme;
mod step;
mod sweep;

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Command, Inbox, Key, Outcome, Queue, Reply, Snapshot, StoreTime};
use leasehold_store::random::random_u64;
use leasehold_store::sync::{Mutex, check_runtime, lock};
use leasehold_store::{
    AuditLog, Capabilities, Listening, Listing, PushSink, Records, Step, StoreError, Taken,
    Transacted, debug,
};
use rustix::io::Errno;
use tokio::task::JoinSet;

pub use self::options::LocalOptions;
pub use self::scheme::Local;

use self::acquire_record::blocking;
use self::clock::Clock;
use self::directory::{Directory, MARK, Makes, RECORDS, create_dir};
use self::group::Group;
use self::inbox::Subscription;
use self::liveness::Session;
use self::liveness_watch::{LivenessWatch, watch};
use self::log::{FileLog, Log};
use self::record_file::{OpenRecords, RecordFile};

/// How soon the next in line looks whether those ahead of it live; those
/// further back look more rarely, so that somebody does should all ahead be dead.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// How soon those look who cannot be told anything.
const POLL_PAUSE: Duration = Duration::from_millis(50);

/// Queues in files of one machine: for the processes of one user, or of a group's members.
///
/// One value is one client. Its claims end with it, even when it is killed, as
/// soon as somebody else wants the key.
///
/// [`listen`](leasehold_store::LockStore::listen) wants a Tokio runtime with I/O enabled,
/// everything one with time.
#[derive(Clone)]
pub struct LocalStore {
    inner: Arc<Inner>,
    /// Ends with the last clone of this.
    _sweeper: Arc<JoinSet<()>>,
}

struct Inner {
    directory: Arc<Directory>,
    clock: Clock,
    session: Session,
    options: LocalOptions,
    subscription: Mutex<Subscription>,
    watcher: Arc<LivenessWatch>,
    records: OpenRecords,
    audit: Option<Log>,
    /// From which pushes are sent.
    outbox: UnixDatagram,
}

impl Inner {
    /// Sweeps, too. Waits while others hold its locks.
    fn open(options: &LocalOptions) -> Result<Arc<Self>, StoreError> {
        let inner = Self::try_open(options, true)?;
        sweep::sweep(&inner);
        Ok(inner)
    }

    /// Opens it by some 30 system calls. `Unavailable` where it would have to `wait` and may not:
    /// the clock of this boot is not set, or another process has the lock.
    fn try_open(options: &LocalOptions, wait: bool) -> Result<Arc<Self>, StoreError> {
        let (path, by_default) = options.place()?;
        // The default one is made wholly.
        let makes = by_default.map_or(Makes::Last, |_| Makes::All);
        let directory = Directory::open_for(path, options.group.as_deref(), makes)?;
        let directory = Arc::new(directory);
        let audit = options.audit.map(|limit| Log::open(&directory, limit));
        let audit = audit.transpose()?;
        let clock = Clock::open(&directory, wait)?;
        let inbox = Inbox::from_random(random_u64());
        let session = Session::open(directory.clone(), inbox, wait)?;
        let no_socket = |error: std::io::Error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            directory.failed("open a socket for", errno)
        };
        let outbox = UnixDatagram::unbound().map_err(no_socket)?;
        outbox.set_nonblocking(true).map_err(no_socket)?;
        directory.keep();
        Ok(Arc::new(Self {
            clock,
            session,
            directory,
            audit,
            options: options.clone(),
            subscription: Mutex::default(),
            watcher: Arc::default(),
            records: OpenRecords::default(),
            outbox,
        }))
    }

    /// What claims are told when no step was possible: where the directory has gone,
    /// the claims have gone with it, and whoever holds must stop now.
    fn after_failure(&self, commands: &[Command], error: StoreError) -> Result<Taken, StoreError> {
        let asks_to_have = |one: &_| !matches!(one, Command::Renew(_) | Command::Release(_));
        if commands.iter().any(asks_to_have) || !self.directory.has_gone() {
            return Err(error);
        }
        tracing::warn!(%error, "the locks in that directory are lost");
        let gone = |one: &_| Queue::default().apply(one, self.clock.now());
        Ok(Ok(commands.iter().map(gone).collect()))
    }
}

impl LocalStore {
    /// Opens the store, making its directory if it is missing; one that is named, only if the
    /// directory above it is there.
    ///
    /// # Errors
    /// `Invalid` for options that cannot work. `Refused` for a directory that
    /// is another user's, that others may write to, that other machines may use,
    /// or where files cannot be written; where `/proc` does not tell the boot and its
    /// time; for a directory that was made for a group of which this
    /// process is no member, or in which others than the members could do something.
    pub async fn open(options: LocalOptions) -> Result<Self, StoreError> {
        check_runtime()?;
        options.check()?;
        // One that may not be looked into is another's, or a group's.
        let is_marked = |place: &Path| place.join(MARK).try_exists().unwrap_or(true);
        // Who is in a group may be asked of another process.
        let is_shared = options.group.is_some() || is_marked(&options.place()?.0);
        if options.audit.is_none()
            && !is_shared
            && let Ok(inner) = Inner::try_open(&options, false)
        {
            sweep::on_opening(&inner).await?;
            return Ok(Self::of(inner));
        }
        // It may have to wait, or says again why it cannot be opened.
        blocking(move || Inner::open(&options)).await.map(Self::of)
    }

    /// Makes the directory, for the members of a group if the options name one. Says where it is,
    /// and whether it was made now.
    async fn make(mut options: LocalOptions) -> Result<(PathBuf, bool), StoreError> {
        options.audit = None;
        blocking(move || {
            let (path, _) = options.place()?;
            let group = options.group.as_deref().map(Group::find).transpose()?;
            let made = match &group {
                Some(group) => create_dir::make(&path, group)?,
                None => !path.join(RECORDS).exists(),
            };
            // Makes what is one user's, and looks whether it can be used.
            Inner::open(&options)?;
            Ok((path, made))
        })
        .await
    }

    /// Begins to sweep from time to time.
    fn of(inner: Arc<Inner>) -> Self {
        let _sweeper = Arc::new(sweep::start(&inner));
        Self { inner, _sweeper }
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.inner.directory.path()
    }

    /// The address under which another process finds this store.
    #[must_use]
    pub fn url(&self) -> String {
        let options = LocalOptions {
            group: self.inner.directory.group().map(Group::text),
            ..self.inner.options.clone()
        };
        options.url(self.directory())
    }

    /// Sees to it that the dead ahead of a claim that waits are found. One that waits without an
    /// inbox asks again before anything can lapse: whoever asks finds them.
    fn look_after(&self, key: &Key, outcome: &mut Outcome, epoch: u64) {
        if let Reply::Standing(standing) = &mut outcome.reply
            && standing.token.is_none()
        {
            let listens = lock(&self.inner.subscription).reader.is_some();
            if listens {
                self.inner.watcher.note(key, standing);
            }
            let pause = match epoch {
                0 => LOOK_PAUSE,
                _ if listens => return,
                _ => POLL_PAUSE,
            };
            // Those further back stagger by themselves.
            let pause = pause.saturating_mul(u32::try_from(standing.position).unwrap_or(u32::MAX));
            let until = outcome.at + pause;
            standing.blocked_until = standing.blocked_until.map(|blocked| blocked.min(until));
        }
    }
}

debug!(LocalStore; |it| directory: it.directory(), inbox: it.inbox());

#[async_trait]
impl Records for LocalStore {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::queueing("local");
        can.durable_tokens = true;
        can.liveness = true;
        can
    }

    async fn transact(&self, keys: &[&Key], step: Step<'_>) -> Result<Transacted, StoreError> {
        // Before the step: an inbox that opens meanwhile has not heard of it.
        let epoch = lock(&self.inner.subscription).epoch;
        let (commands, together) = match step {
            Step::One(command) => (slice::from_ref(command), false),
            Step::All(claims) => (claims, true),
        };
        let mut taken = match step::take(&self.inner, keys, commands, together).await {
            Ok(taken) => taken,
            Err(error) => self.inner.after_failure(commands, error)?,
        };
        for (key, outcome) in keys.iter().zip(taken.iter_mut().flatten()) {
            self.look_after(key, outcome, epoch);
        }
        Ok(Transacted { taken, epoch })
    }

    async fn look(&self, key: &Key) -> Result<Snapshot, StoreError> {
        let (inner, key) = (self.inner.clone(), key.clone());
        blocking(move || {
            inner.directory.check_stands()?;
            let queue = RecordFile::of_key(&inner, &key).read_key(&key)?;
            look(&inner, &key, &queue)
        })
        .await
    }

    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        Box::new(list::RecordListing {
            inner: self.inner.clone(),
            pattern: pattern.into(),
            names: None,
            read: 0,
        })
    }

    fn audit_log<'a>(
        &'a self,
        _key: Option<&Key>,
        since: StoreTime,
    ) -> Option<Box<dyn AuditLog + 'a>> {
        Some(Box::new(FileLog {
            inner: self.inner.clone(),
            since,
            read: None,
            is_at_end: false,
        }))
    }

    fn inbox(&self) -> &Inbox {
        self.inner.session.inbox()
    }

    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        let (store, watcher) = (Arc::downgrade(&self.inner), self.inner.watcher.clone());
        let watching = |epoch| watch(store, watcher, epoch);
        Ok(inbox::open(self.inner.clone(), sink, watching))
    }

    fn child_fds(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        self.inner.session.lifeline().into_iter().collect()
    }
}

/// A look that removes the dead first, if there are any and nobody is in the way.
fn look(inner: &Arc<Inner>, key: &Key, queue: &Queue) -> Result<Snapshot, StoreError> {
    if remove_dead::are_in(inner, queue)
        && let Some(seen) = step::without_dead(inner, key)?
    {
        return Ok(seen);
    }
    Ok(queue.look(inner.clock.now()))
}

#[cfg(test)]
mod tests;
