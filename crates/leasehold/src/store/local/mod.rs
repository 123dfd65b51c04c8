//! `local:` — many processes on one machine, and no server.
//!
//! The queue of each key is a file; a step locks it, runs the core and puts a
//! new file in its place. Who lives is seen by locked files, and pushes travel
//! through datagram sockets. `docs/adr/0004-local-store.md` says what is
//! promised and what is not.
//!
//! ```text
//! clock               the wall clock at this boot's origin
//! keys/<key>.json     the record: key, boot, checksum; the queue
//! keys/<key>.lock     locked during a step
//! sessions/<inbox>    locked as long as that client lives
//! inbox/<inbox>.sock  open while that client listens
//! ```

mod batch;
mod bury;
mod clock;
mod directory;
mod file;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod inbox;
mod lookout;
mod multi;
mod name;
mod options;
mod place;
mod record;
mod session;
mod step;
mod sweep;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Claim, Command, Inbox, Key, Outcome, Queue, Release, Renew, Reply, Snapshot, StoreTime,
};
use tokio::sync::Semaphore;

pub use self::options::LocalOptions;

use self::batch::Pending;
use self::clock::Clock;
use self::directory::Directory;
use self::inbox::OpenInbox;
use self::lookout::Lookout;
use self::name::file_name;
use self::place::Place;
use self::session::Session;
use self::step::blocking;
use super::{AllAnswer, Answer, Capabilities, Listening, LockStore, PushSink, check_parts, glob};
use crate::error::StoreError;

/// How soon the next in line looks whether those ahead of it live; those
/// further back look more rarely, so that somebody does should all ahead be dead.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// How soon those look who cannot be told anything.
const POLL_PAUSE: Duration = Duration::from_millis(50);

/// Queues in files of one machine: for the processes of one user.
///
/// One value is one client. Its claims end with it, even when it is killed, as
/// soon as somebody else wants the key.
///
/// [`listen`](LockStore::listen) wants a Tokio runtime with I/O enabled,
/// everything one with time.
#[derive(Clone)]
pub struct LocalStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    directory: Arc<Directory>,
    clock: Clock,
    session: Session,
    retention: Duration,
    hearing: Hearing,
    lookout: Arc<Lookout>,
    pending: Pending,
    /// Bounds the threads of steps that wait for others.
    waiting: Arc<Semaphore>,
}

impl Inner {
    fn open(path: PathBuf, retention: Duration) -> Result<Self, StoreError> {
        let directory = Arc::new(Directory::open(path)?);
        let inbox = Inbox::from_random(uuid::Uuid::new_v4().as_u64_pair().0);
        let inner = Self {
            clock: Clock::open(&directory)?,
            session: Session::open(directory.clone(), inbox)?,
            directory,
            retention,
            hearing: Hearing::default(),
            lookout: Arc::default(),
            pending: Pending::default(),
            waiting: Arc::new(Semaphore::new(step::THREADS)),
        };
        sweep::sweep(&inner);
        Ok(inner)
    }

    /// Makes its files again if somebody has removed them, before others are
    /// asked who lives.
    fn go_on(&self) {
        if self.session.go_on() {
            inbox::bind_again(self);
        }
    }
}

impl LocalStore {
    /// Opens the store, making its directory if it is missing.
    ///
    /// # Errors
    /// `Invalid` for options that cannot work. `Refused` for a directory that
    /// is another user's, that others may write to, that is on a network file
    /// system, or where files cannot be written.
    pub async fn open(options: LocalOptions) -> Result<Self, StoreError> {
        options.check()?;
        let path = options.resolve()?;
        let inner = blocking(move || Inner::open(path, options.retention)).await?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.inner.directory.path()
    }

    /// The address under which another process finds this store.
    #[must_use]
    pub fn url(&self) -> String {
        options::url(self.directory(), self.inner.retention)
    }

    async fn step(&self, key: &Key, command: Command) -> Result<Answer, StoreError> {
        // Before the step: an inbox that opens meanwhile has not heard of it.
        let epoch = self.inner.hearing.epoch();
        let command = Arc::new(command);
        let outcome = batch::run(&self.inner, key, command.clone()).await?;
        self.inner.lookout.note(key, &command, &outcome.reply);
        let reply = self.asked_again_soon(outcome.reply, outcome.at, epoch);
        Ok(Answer::new(reply, outcome.at, epoch))
    }

    async fn step_all(&self, parts: &[(Key, Claim)]) -> Result<AllAnswer, StoreError> {
        let epoch = self.inner.hearing.epoch();
        let answer = |outcome: Outcome| Answer::new(outcome.reply, outcome.at, epoch);
        let parts = multi::Parts::of(parts);
        Ok(match multi::run(&self.inner, parts).await? {
            Ok(outcomes) => AllAnswer::All(outcomes.into_iter().map(answer).collect()),
            Err((part, outcome)) => AllAnswer::NotAll {
                part,
                answer: answer(outcome),
            },
        })
    }

    /// Lets a claim that waits without an inbox ask again before anything can
    /// lapse: whoever asks finds the dead.
    fn asked_again_soon(&self, mut reply: Reply, at: StoreTime, epoch: u64) -> Reply {
        let pause = match (self.inner.hearing.is_deaf(), epoch) {
            (true, _) => Some(POLL_PAUSE),
            (false, 0) => Some(LOOK_PAUSE),
            (false, _) => None,
        };
        if let (Reply::Standing(standing), Some(pause)) = (&mut reply, pause) {
            // Those further back stagger by themselves.
            let pause = pause.saturating_mul(u32::try_from(standing.position).unwrap_or(u32::MAX));
            standing.blocked_until = standing.blocked_until.map(|until| until.min(at + pause));
        }
        reply
    }
}

impl fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalStore")
            .field("directory", &self.directory())
            .field("inbox", self.inbox())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl LockStore for LocalStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durable_tokens: true,
            liveness: true,
            ..Capabilities::queueing("local")
        }
    }

    async fn claim(&self, key: &Key, claim: &Claim) -> Result<Answer, StoreError> {
        self.step(key, Command::Claim(claim.clone())).await
    }

    async fn renew(&self, key: &Key, renew: &Renew) -> Result<Answer, StoreError> {
        self.step(key, Command::Renew(renew.clone())).await
    }

    async fn release(&self, key: &Key, release: &Release) -> Result<Answer, StoreError> {
        self.step(key, Command::Release(release.clone())).await
    }

    async fn claim_all(&self, parts: &[(Key, Claim)]) -> Result<Option<AllAnswer>, StoreError> {
        check_parts(parts)?;
        self.step_all(parts).await.map(Some)
    }

    async fn resize(&self, key: &Key, from: u32, to: u32) -> Result<Answer, StoreError> {
        self.step(key, Command::Resize { from, to }).await
    }

    async fn watch(&self, key: &Key, ttl: Duration) -> Result<Answer, StoreError> {
        let inbox = self.inbox().clone();
        self.step(key, Command::Watch { inbox, ttl }).await
    }

    async fn break_key(&self, key: &Key) -> Result<Answer, StoreError> {
        self.step(key, Command::Break).await
    }

    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        let (inner, key) = (self.inner.clone(), key.clone());
        blocking(move || {
            let place = Place::of(&file_name(key.as_str()));
            let queue = place.read_key(&inner.directory, &inner.clock, &key)?;
            look(&inner, &key, queue)
        })
        .await
    }

    async fn list(&self, pattern: &str) -> Result<Vec<(Key, Snapshot)>, StoreError> {
        let (inner, pattern) = (self.inner.clone(), pattern.to_owned());
        blocking(move || {
            let names = sweep::records(&inner.directory)
                .map_err(|errno| inner.directory.failed("read", errno))?;
            let mut found = Vec::new();
            for name in names {
                let (key, queue) = match Place::of(&name).read(&inner.directory, &inner.clock) {
                    Ok(Some((header, queue))) => (header.key, queue),
                    Ok(None) => continue,
                    // One bad record must not hide the others.
                    Err(error) => {
                        tracing::warn!(%error, "a record was left out");
                        continue;
                    }
                };
                if queue.is_empty() || !glob::matches(&pattern, key.as_str()) {
                    continue;
                }
                let snapshot = look(&inner, &key, queue)?;
                if !snapshot.holders.is_empty() || !snapshot.waiters.is_empty() {
                    found.push((key, snapshot));
                }
            }
            found.sort_by(|(a, _), (b, _)| a.cmp(b));
            Ok(found)
        })
        .await
    }

    fn inbox(&self) -> &Inbox {
        self.inner.session.inbox()
    }

    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        Ok(Box::new(OpenInbox::open(self.inner.clone(), sink)))
    }

    fn lifelines(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        self.inner.session.lifeline().into_iter().collect()
    }
}

/// A look that buries the dead first, if there are any and nobody is in the way.
fn look(inner: &Inner, key: &Key, mut queue: Queue) -> Result<Snapshot, StoreError> {
    if bury::has_dead(inner, &queue)
        && let Some((buried, _)) = step::try_take(inner, key, None)?
    {
        queue = buried;
    }
    Ok(queue.look(inner.clock.now()))
}

/// Whether the inbox is open, and since when.
#[derive(Debug, Default)]
struct Hearing {
    /// The epoch of the open inbox; zero while none is open.
    epoch: AtomicU64,
    epochs: AtomicU64,
    /// No socket could be had.
    deaf: AtomicBool,
    /// Where the open inbox takes another socket.
    sockets: Mutex<Option<inbox::Sockets>>,
}

impl Hearing {
    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::SeqCst)
    }

    fn next_epoch(&self) -> u64 {
        self.epochs.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn open(&self, epoch: u64, sockets: Option<inbox::Sockets>) {
        self.deaf.store(sockets.is_none(), Ordering::SeqCst);
        *self.sockets() = sockets;
        self.epoch.store(epoch, Ordering::SeqCst);
    }

    fn sockets(&self) -> MutexGuard<'_, Option<inbox::Sockets>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was that inbox that was open, which is now closed.
    fn close(&self, epoch: u64) -> bool {
        self.epoch
            .compare_exchange(epoch, 0, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}
