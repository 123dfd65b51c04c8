//! `memory:` — the store in the memory of one process, also for tests.

mod log;

use std::collections::HashMap;
use std::sync::{Arc, TryLockError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Command, Inbox, Invalid, Key, Moment, Now, Queue, Snapshot, StoreTime, Token,
};

use tokio::task::coop::consume_budget;

use self::log::{KeptLog, MemoryLog};
use crate::access::Access;
use crate::audit::{AuditLimit, AuditLog};
use crate::clock;
use crate::error::StoreError;
use crate::fork::PerProcess;
use crate::listing::{Listing, OnePage};
use crate::params::{Field, Param, Params};
use crate::port::{Capabilities, Listening, PushSink, opened};
use crate::random::random_u64;
use crate::records::{Records, Step, Transacted};
use crate::report::{Finding, Report, Severity};
use crate::scheme::{Description, Opened, Scheme};
use crate::sync::{AtomicU64, Global, Mutex, Ordering, PoisonError, lock};
use leasehold_core::Push;

/// A store in the memory of this process. It wakes waiters without polling. Calls complete
/// without waiting, and yield to other tasks now and then.
///
/// Each value is one client; [`MemoryStore::client`] makes another client of the same queues.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// use std::{sync::Arc, time::Duration};
/// use leasehold::store::memory::MemoryStore;
///
/// let (store, time) = MemoryStore::with_manual_clock();
/// let a = leasehold::Client::builder().with_store(Arc::new(store.client())).connect().await?;
/// let b = leasehold::Client::builder().with_store(Arc::new(store)).connect().await?;
/// let first = a.mutex("k")?.lock().await?;
/// assert!(b.mutex("k")?.try_lock().await?.is_none());
/// time.advance(Duration::from_secs(31)); // the holder slept through its lease
/// let second = b.mutex("k")?.lock().await?;
/// assert!(second.token() > first.token());
/// # Ok(()) }
/// ```
pub struct MemoryStore {
    shared: Arc<Shared>,
    inbox: Inbox,
}

struct Shared {
    kept: Mutex<Kept>,
    /// Held by the task that sends pushes.
    turn: Mutex<()>,
    listeners: Mutex<HashMap<Inbox, Listener>>,
    epochs: AtomicU64,
    clock: Clock,
}

#[derive(Default)]
struct Kept {
    queues: HashMap<Key, Queue>,
    /// The last token of all keys, so that idle keys need not be kept.
    last_token: Token,
    audit: Option<KeptLog>,
    /// What is to be pushed, in the order of the steps.
    pushes: Vec<(Arc<dyn PushSink>, Push)>,
}

#[derive(Clone)]
struct Listener {
    epoch: u64,
    sink: Arc<dyn PushSink>,
}

enum Clock {
    /// The wall clock when the store was made, carried on by a steady one.
    Steady(StoreTime, Moment),
    Manual(AtomicU64),
}

impl Clock {
    fn now(&self) -> StoreTime {
        match self {
            Self::Steady(wall, made) => *wall + clock::now().since(*made),
            Self::Manual(micros) => StoreTime(micros.load(Ordering::SeqCst)),
        }
    }
}

static NAMED: PerProcess<Global<HashMap<String, Weak<Shared>>>> = PerProcess::new();

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// Makes a new, empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Shared::steady())
    }

    /// Opens the store of this process with that name, as `memory:name` does. It exists as long
    /// as it has clients.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let named = NAMED.get_or_init(Global::default);
        let mut named = named.lock().unwrap_or_else(PoisonError::into_inner);
        named.retain(|_, shared| shared.strong_count() > 0);
        let shared = named.get(name).and_then(Weak::upgrade);
        let shared = shared.unwrap_or_else(Shared::steady);
        named.insert(name.to_owned(), Arc::downgrade(&shared));
        Self::on(shared)
    }

    /// Makes an empty store with a manual clock.
    #[must_use]
    pub fn with_manual_clock() -> (Self, ManualClock) {
        let start = 1_700_000_000_000_000;
        let shared = Shared::new(Clock::Manual(AtomicU64::new(start)));
        (Self::on(shared.clone()), ManualClock { shared })
    }

    /// Keeps an audit log from now on, for all clients of these queues, as `memory:?audit=1000`
    /// does.
    #[must_use]
    pub fn audited(self, limit: AuditLimit) -> Self {
        // Another client may have written to it by now.
        let new = || KeptLog::new(limit);
        lock(&self.shared.kept).audit.get_or_insert_with(new).limit = limit;
        self
    }

    /// Makes another client of the same queues.
    #[must_use]
    pub fn client(&self) -> Self {
        Self::on(self.shared.clone())
    }

    fn on(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            inbox: Inbox::from_random(random_u64()),
        }
    }
}

impl Shared {
    fn steady() -> Arc<Self> {
        Self::new(Clock::Steady(StoreTime(0) + clock::wall(), clock::now()))
    }

    fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            kept: Mutex::default(),
            turn: Mutex::default(),
            listeners: Mutex::default(),
            epochs: AtomicU64::new(1),
            clock,
        })
    }

    fn listener(&self, inbox: &Inbox) -> Option<Listener> {
        lock(&self.listeners).get(inbox).cloned()
    }

    /// Sends what is to be pushed, one task at a time, so that it keeps its order. The records are
    /// not locked: those who hear it may use the store.
    fn push(&self) {
        while !lock(&self.kept).pushes.is_empty() {
            let turn = self.turn.try_lock();
            if matches!(turn, Err(TryLockError::WouldBlock)) {
                // Who sends looks again afterwards.
                return;
            }
            let pushes = std::mem::take(&mut lock(&self.kept).pushes);
            pushes.into_iter().for_each(|(to, push)| to.push(push));
        }
    }
}

#[async_trait]
impl Records for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::queueing("memory")
    }

    async fn transact(&self, keys: &[&Key], step: Step<'_>) -> Result<Transacted, StoreError> {
        if !matches!(step, Step::One(Command::Release(_))) {
            consume_budget().await;
        }
        let mut kept = lock(&self.shared.kept);
        let listener = self.shared.listener(&self.inbox);
        let now = Now {
            last_token: Some(kept.last_token),
            audited: kept.audit.is_some(),
            listens: listener.is_some(),
            ..Now::from(self.shared.clock.now())
        };
        let epoch = listener.map_or(0, |listener| listener.epoch);
        let take = |key: &&Key| kept.queues.remove(*key).unwrap_or_default();
        let mut queues: Vec<_> = keys.iter().map(take).collect();
        let mut taken = step.apply(&mut queues, now);
        let mut outcomes = taken.iter_mut().flatten();
        for (key, mut queue) in keys.iter().zip(queues) {
            if let Some(outcome) = outcomes.next() {
                let at = outcome.at;
                queue.deliver(outcome, now, |event| {
                    let to = self.shared.listener(event.inbox());
                    let push = to.map(|to| (to.sink, Push::of(event, key, at, to.epoch)));
                    let is_heard = push.is_some();
                    kept.pushes.extend(push);
                    is_heard
                });
                if let Some(log) = &mut kept.audit {
                    log.note(key, std::mem::take(&mut outcome.audit));
                }
            }
            kept.last_token = kept.last_token.max(queue.last_token());
            if !queue.is_spent() {
                kept.queues.insert((*key).clone(), queue);
            }
        }
        drop(kept);
        self.shared.push();
        Ok(Transacted { taken, epoch })
    }

    async fn look(&self, key: &Key) -> Result<Snapshot, StoreError> {
        consume_budget().await;
        let clock = self.shared.clock.now();
        let kept = lock(&self.shared.kept);
        let nothing = Queue::default();
        Ok(kept.queues.get(key).unwrap_or(&nothing).look(clock))
    }

    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        let clock = self.shared.clock.now();
        let kept = lock(&self.shared.kept);
        let queues = kept.queues.iter().map(|(key, queue)| (key, Ok(queue)));
        Box::new(OnePage::new(queues, pattern, clock))
    }

    fn audit_log<'a>(
        &'a self,
        _key: Option<&Key>,
        _since: StoreTime,
    ) -> Option<Box<dyn AuditLog + 'a>> {
        let (store, read) = (self, 0);
        Some(Box::new(MemoryLog { store, read }))
    }

    fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        let epoch = self.shared.epochs.fetch_add(1, Ordering::Relaxed);
        lock(&self.shared.listeners).insert(self.inbox.clone(), Listener { epoch, sink });
        let (shared, inbox) = (self.shared.clone(), self.inbox.clone());
        Ok(opened(move || {
            // A later one may have taken the place.
            lock(&shared.listeners).retain(|of, listener| *of != inbox || listener.epoch != epoch);
        }))
    }
}

crate::debug!(MemoryStore; |it| inbox: it.inbox);

/// The parameters of a URL.
const PARAMS: &[Param<Option<AuditLimit>>] = &[("audit", |limit| Field::Audit(limit))];

/// Reads a URL: the name, and the audit log.
fn read_url(url: &str) -> Result<(&str, Option<AuditLimit>), Invalid> {
    let rest = url.strip_prefix("memory:").unwrap_or_default();
    let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut limit = None;
    Params::of_query(query)?.read_all(PARAMS, &mut limit)?;
    Ok((name, limit))
}

/// What is for several processes.
const FOR_SEVERAL: &str = "use local: for one machine, or a server for several";

/// The URL scheme of `memory:` and `memory:name`.
#[derive(Debug)]
pub struct Memory;

#[async_trait]
impl Scheme for Memory {
    fn names(&self) -> &'static [&'static str] {
        &["memory"]
    }

    fn examples(&self) -> &'static [&'static str] {
        &["memory:"]
    }

    fn describe(&self, url: &str) -> Result<Description, Invalid> {
        read_url(url).map(|_| Description::without_servers(url))
    }

    /// It is for tests in one process, and a command is meant to exclude others.
    fn warning(&self, _url: &str) -> Option<Invalid> {
        let why = "memory: excludes no other process: each has its own locks";
        Some(Invalid::new(why, FOR_SEVERAL))
    }

    async fn open(&self, url: &str, _access: &Access) -> Result<Opened, StoreError> {
        let (name, limit) = read_url(url)?;
        let store = match name {
            "" => MemoryStore::new(),
            name => MemoryStore::named(name),
        };
        let store = match limit {
            None => store,
            Some(limit) => store.audited(limit),
        };
        Ok(Opened::new(Arc::new(store), url))
    }

    async fn examine(&self, url: &str, _access: &Access) -> Result<Report, StoreError> {
        let found = "locks exist only in the memory of one process";
        let finding = Finding::new(Severity::Warning, "reach", found)
            .meaning("no other process sees them, and a restart forgets them")
            .remedied(FOR_SEVERAL);
        let promise = "Exclusion and fencing among the tasks of this process.";
        Ok(Report::new(url, promise, vec![finding]))
    }
}

/// A manual clock of a [`MemoryStore`].
#[derive(Clone)]
pub struct ManualClock {
    shared: Arc<Shared>,
}

impl ManualClock {
    /// Advances the time, and wakes all clients.
    pub fn advance(&self, by: Duration) {
        self.shift(by, u64::saturating_add);
    }

    /// Steps the clock back, as on a server with a wrong clock.
    pub fn step_back(&self, by: Duration) {
        self.shift(by, u64::saturating_sub);
    }

    /// Deletes all records, as a restart without persistence does.
    pub fn lose_everything(&self) {
        let mut kept = lock(&self.shared.kept);
        let audit = kept.audit.take().map(KeptLog::emptied);
        *kept = Kept {
            audit,
            ..Kept::default()
        };
        drop(kept);
        self.shift(Duration::from_micros(1), u64::saturating_add);
    }

    fn shift(&self, by: Duration, to: impl Fn(u64, u64) -> u64) {
        let by = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        if let Clock::Manual(micros) = &self.shared.clock {
            let order = Ordering::SeqCst;
            let _ = micros.fetch_update(order, order, |now| Some(to(now, by)));
        }
        let listeners: Vec<_> = lock(&self.shared.listeners).values().cloned().collect();
        for listener in listeners {
            listener.sink.push(Push::Reset);
        }
    }
}

crate::debug!(ManualClock; |it| now: it.shared.clock.now());
