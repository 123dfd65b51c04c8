//! One connection, and the batcher in front of it.
//!
//! A command that finds nothing in flight is sent at once from its caller's
//! task. The others queue up; a short-lived task lets every ready caller add
//! its own (one `yield_now`) and sends all of them together: steps as one call of
//! their script, which costs the server half of what one call each does, the rest as
//! one pipeline. Measured in `docs/adr/0003-redis-record.md`: twice the throughput
//! from 64 tasks on, nothing lost with one.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use leasehold_store::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use super::acker::Acker;
use super::connect::{Opened, Target};
use super::gate::Gate;
use super::manager::ConnectionManager;
use super::server::Server;
use crate::codec::script::{Request as _, Steps, Terms};
use crate::lock::lock;
use crate::refusal;

/// How many commands travel as one pipeline, and steps in one call, at most. All
/// answers come together: in one of hundreds, client and server would take turns
/// instead of working at the same time.
const PIPELINE: usize = 16;

/// A connection on which nothing was answered for so long, of all that was
/// asked and given up, is suspect.
const SUSPICIOUS: Duration = Duration::from_secs(1);

/// What the pushes of a connection and its requests both look at.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// Zero until the inbox is subscribed on this connection.
    pub(crate) epoch: AtomicU64,
    /// Set when the connection is lost.
    pub(crate) dead: AtomicBool,
    died: Notify,
}

impl Signals {
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Release);
        self.died.notify_waiters();
    }

    pub(crate) async fn died(&self) {
        let died = self.died.notified();
        tokio::pin!(died);
        // Enlist before looking, so that it does not fall between.
        died.as_mut().enable();
        if !self.dead.load(Ordering::Acquire) {
            died.await;
        }
    }
}

pub(crate) struct Connection {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) signals: Arc<Signals>,
    pub(crate) server: Server,
    /// The connections for what must be acknowledged, where a policy asks for it.
    pub(crate) acker: Option<Acker>,
    /// Where the last token of all keys is.
    last: String,
    retention: Duration,
    /// Whether no two keys can be in one call: in a cluster they lie on several servers.
    parted: AtomicBool,
    link: Weak<ConnectionManager>,
    queue: Mutex<Vec<Job>>,
    in_flight: AtomicUsize,
    suspected: AtomicBool,
    /// When the first of the requests was sent that were all given up since the
    /// last answer.
    silent_since: Mutex<Option<Instant>>,
}

struct Job {
    work: Work,
    answer: oneshot::Sender<RedisResult<Value>>,
}

/// What is to be sent.
enum Work {
    Command(Cmd),
    /// A step of a key.
    Step(String, Vec<u8>),
}

impl Connection {
    pub(crate) fn new(opened: Opened, target: &Target, link: Weak<ConnectionManager>) -> Self {
        let options = &target.options;
        Self {
            last: format!("{}last", options.prefix),
            retention: options.retention,
            parted: AtomicBool::new(target.is_cluster()),
            connection: opened.connection,
            acker: opened.server.demand.map(Acker::new),
            server: opened.server,
            signals: opened.signals,
            link,
            queue: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            suspected: AtomicBool::new(false),
            silent_since: Mutex::default(),
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.signals.epoch.load(Ordering::Acquire)
    }

    /// What scripts are told of this server.
    pub(crate) fn terms(&self) -> Terms<'_> {
        let parted = self.has_parted();
        Terms {
            last: (!parted).then_some(&self.last),
            gated: self.server.gate.as_ref().map(Gate::gated),
            retention: self.retention,
            believed: self.server.rights.counts && !parted,
        }
    }

    /// From now on each call has one key.
    pub(crate) fn part(&self) {
        self.parted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_parted(&self) -> bool {
        self.parted.load(Ordering::Relaxed)
    }

    /// Sends one command and waits for its answer, which may be an error of the
    /// server ([`Value::ServerError`]). May be dropped at any point.
    pub(crate) async fn send(self: &Arc<Self>, command: Cmd) -> RedisResult<Value> {
        self.carry(Work::Command(command)).await
    }

    /// The same for a step, which may travel with others.
    pub(crate) async fn step(self: &Arc<Self>, key: &str, step: &[u8]) -> RedisResult<Value> {
        let work = match self.has_parted() {
            true => Work::Command(call(&[(key, step)], self.terms())),
            false => Work::Step(key.to_owned(), step.to_vec()),
        };
        self.carry(work).await
    }

    async fn carry(self: &Arc<Self>, work: Work) -> RedisResult<Value> {
        let mut flight = InFlight::start(self);
        let answer = async {
            if flight.alone {
                let command = match work {
                    Work::Command(command) => command,
                    Work::Step(key, step) => call(&[(&key, &step)], self.terms()),
                };
                self.connection.clone().send_packed_command(&command).await
            } else {
                self.send_batched(work).await
            }
        };
        let answer = if self.server.named.is_some() {
            // A primary that was replaced may be stopped, and go on later: its
            // answers are not to be waited for, and not to be believed.
            tokio::select! {
                biased;
                () = self.signals.died() => Err(closed()),
                answer = answer => answer,
            }
        } else {
            answer.await
        };
        self.note(&mut flight, &answer);
        answer
    }

    /// What an answer, or the lack of one, says about the connection.
    fn note(&self, flight: &mut InFlight<'_>, answer: &RedisResult<Value>) {
        flight.answered = answer
            .as_ref()
            .map_or_else(|error| !error.is_timeout(), |_| true);
        if let Err(error) = answer
            && error.is_unrecoverable_error()
            && let Some(link) = self.link.upgrade()
        {
            // The connection says so itself, unless its task was ended with its
            // runtime.
            link.lost(&self.signals);
        }
    }

    /// Sends a command with `ASKING` right before it: what others send at the same
    /// time does not come between, since a pipeline is written in one piece.
    pub(crate) async fn send_asking(self: &Arc<Self>, command: Cmd) -> RedisResult<Value> {
        let mut flight = InFlight::start(self);
        let mut pipeline = redis::Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command);
        let mut connection = self.connection.clone();
        let answers = connection.send_packed_commands(&pipeline, 0, 2).await;
        let answer = answers.map(|answers| {
            let refused = |answer: &Value| matches!(answer, Value::ServerError(_));
            let first = answers.iter().position(refused).unwrap_or(1);
            answers.into_iter().nth(first).unwrap_or(Value::Nil)
        });
        self.note(&mut flight, &answer);
        answer
    }

    async fn send_batched(self: &Arc<Self>, work: Work) -> RedisResult<Value> {
        let (answer, answered) = oneshot::channel();
        let first = {
            let mut queue = self.queue();
            queue.push(Job { work, answer });
            queue.len() == 1
        };
        if first {
            tokio::spawn(Batch::new(self).send());
        }
        answered.await.unwrap_or_else(|_| Err(closed()))
    }

    pub(crate) fn link(&self) -> Option<Arc<ConnectionManager>> {
        self.link.upgrade()
    }

    /// Opens a further connection to the same process of the server, on which nothing is
    /// heard.
    pub(crate) async fn open_beside(&self) -> Result<MultiplexedConnection, StoreError> {
        let link = self.link().ok_or_else(broken)?;
        let opened = link.target().open_beside(&self.server).await?;
        if opened.server.run_id != self.server.run_id {
            // The address leads elsewhere by now.
            self.leave();
            return Err(broken());
        }
        Ok(opened.connection)
    }

    /// The server cannot do its work: connects again, perhaps to another.
    pub(crate) fn leave(&self) {
        if let Some(link) = self.link.upgrade() {
            link.lost(&self.signals);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Vec<Job>> {
        lock(&self.queue)
    }

    /// Asks whether the connection still lives; ends it if not.
    fn suspect(self: &Arc<Self>) {
        if self.suspected.swap(true, Ordering::AcqRel) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let wire = Arc::clone(self);
        runtime.spawn(async move {
            wire.check(SUSPICIOUS).await;
            wire.suspected.store(false, Ordering::Release);
        });
    }

    /// Ends the connection if the server does not say within `limit` that it is there.
    pub(crate) async fn check(&self, limit: Duration) {
        let (ping, mut connection) = (redis::cmd("PING"), self.connection.clone());
        let answer = timeout(limit, connection.send_packed_command(&ping)).await;
        if !matches!(answer, Ok(Ok(_))) {
            self.leave();
        }
    }
}

fn closed() -> redis::RedisError {
    std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()
}

/// The same, as the caller is told.
pub(super) fn broken() -> StoreError {
    refusal::of_connection(closed())
}

/// A request under way.
struct InFlight<'a> {
    wire: &'a Arc<Connection>,
    alone: bool,
    since: Instant,
    answered: bool,
}

impl<'a> InFlight<'a> {
    fn start(wire: &'a Arc<Connection>) -> Self {
        Self {
            alone: wire.in_flight.fetch_add(1, Ordering::AcqRel) == 0,
            wire,
            since: Instant::now(),
            answered: false,
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.wire.in_flight.fetch_sub(1, Ordering::AcqRel);
        let since = {
            let silent = &self.wire.silent_since;
            let mut silent = lock(silent);
            if self.answered {
                *silent = None;
                return;
            }
            *silent.get_or_insert(self.since)
        };
        if since.elapsed() >= SUSPICIOUS {
            self.wire.suspect();
        }
    }
}

/// The task that sends what has queued up. If it is dropped before that (its
/// runtime ends), nothing stays behind in the queue.
struct Batch {
    wire: Arc<Connection>,
    sent: bool,
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.sent {
            drop(std::mem::take(&mut *self.wire.queue()));
        }
    }
}

impl Batch {
    fn new(wire: &Arc<Connection>) -> Self {
        Self {
            wire: Arc::clone(wire),
            sent: false,
        }
    }

    async fn send(mut self) {
        tokio::task::yield_now().await;
        let mut jobs = std::mem::take(&mut *self.wire.queue());
        // From here on the queue belongs to the next batch.
        self.sent = true;
        jobs.retain(|job| !job.answer.is_closed());
        let (mut commands, mut steps) = (Vec::new(), Vec::new());
        for Job { work, answer } in jobs {
            match work {
                Work::Command(command) => commands.push((command, answer)),
                Work::Step(key, step) => steps.push((key, step, answer)),
            }
        }
        let mut parcels: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        for steps in in_parts(steps) {
            parcels.push(Box::pin(send_steps(&self.wire, steps)));
        }
        for commands in in_parts(commands) {
            parcels.push(Box::pin(send_commands(&self.wire, commands)));
        }
        while parcels.next().await.is_some() {}
    }
}

type Answer = oneshot::Sender<RedisResult<Value>>;

/// Parts of the size that travels together.
fn in_parts<T>(all: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let mut all = all.into_iter();
    std::iter::from_fn(move || {
        let part: Vec<_> = all.by_ref().take(PIPELINE).collect();
        (!part.is_empty()).then_some(part)
    })
}

/// One call for all these steps.
fn call(steps: &[(&str, &[u8])], terms: Terms<'_>) -> Cmd {
    let (keys, steps): (Vec<_>, Vec<_>) = steps.iter().copied().unzip();
    let all = false;
    let (keys, steps) = (&keys, &steps);
    Steps { keys, steps, all }.command(false, terms)
}

/// Sends steps in one call, and hands out the answers one by one.
async fn send_steps(wire: &Connection, steps: Vec<(String, Vec<u8>, Answer)>) {
    let parts: Vec<_> = steps
        .iter()
        .map(|(key, step, _)| (&**key, &**step))
        .collect();
    let command = call(&parts, wire.terms());
    let sent = wire.connection.clone().send_packed_command(&command).await;
    let alone = steps.len() == 1;
    let mut answers = match sent {
        Ok(Value::Array(values)) if !alone => Ok(values.into_iter()),
        other => Err(other),
    };
    for (.., answer) in steps {
        let value = match &mut answers {
            Ok(values) => Ok(values.next().unwrap_or(Value::Nil)),
            // One for all: nothing was done, or nobody knows.
            Err(value) => value.clone(),
        };
        // A caller that has left does not mind.
        let _ = answer.send(value);
    }
}

/// Sends one pipeline, and hands out its answers one by one.
async fn send_commands(wire: &Connection, commands: Vec<(Cmd, Answer)>) {
    let mut pipeline = redis::Pipeline::with_capacity(commands.len());
    let mut answers = Vec::with_capacity(commands.len());
    for (command, answer) in commands {
        pipeline.add_command(command);
        answers.push(answer);
    }
    let mut connection = wire.connection.clone();
    let sent = connection.send_packed_commands(&pipeline, 0, answers.len());
    match sent.await {
        Ok(values) => {
            for (answer, value) in answers.into_iter().zip(values) {
                let _ = answer.send(Ok(value));
            }
        }
        Err(error) => {
            for answer in answers {
                let _ = answer.send(Err(error.clone()));
            }
        }
    }
}
