//! One connection, shared by all requests of a client.
//!
//! If no request is in flight, a request is sent at once. The others are sent together by the
//! batcher.
//!
//! A script is sent by its hash. Where the server does not know it, nothing has run, and it is
//! sent once more in full (`EVAL`), which also makes it known. No other way is needed, and this one
//! also works through proxies without `SCRIPT`.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_store::StoreError;
use leasehold_store::sync::timeout;
use redis::{Cmd, RedisResult, Value};
use tokio::sync::{MutexGuard, oneshot};
use tokio::time::Instant;

use super::acked_writer::AckedWriter;
use super::batch::{self, Batcher, Work};
use super::endpoint::{Endpoint, Opened};
use super::handshake::Server;
use super::manager::ConnectionManager;
use super::socket::{Socket, closed, to};
use super::step::{Delivery, ScriptAnswer};
use crate::codec::audit::Audit;
use crate::codec::script::{Request, Terms};
use crate::errors;
use crate::std_ext::{BackgroundTask, lock};

/// A connection on which nothing was answered for so long, of all that was
/// asked and given up, is suspect.
const SUSPICIOUS: Duration = Duration::from_secs(1);

/// How often a request that met `NOSCRIPT` relies on another to make the script known, before it
/// does so itself. Twice, since the first that it waits for may be about another script.
const RELIES: u32 = 2;

pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) server: Server,
    /// The connections for what must be acknowledged, where a policy asks for it.
    pub(super) acked_writer: Option<AckedWriter>,
    /// Where the last token of all keys is.
    last: String,
    retention: Duration,
    audit: Option<Audit>,
    /// Whether no two keys can be in one call: in a cluster they lie on several servers.
    parted: AtomicBool,
    /// Of a set.
    is_member: bool,
    pub(super) link: Weak<ConnectionManager>,
    pub(super) batcher: Batcher,
    /// Where the connection itself is driven: what sends for others must not stand still with the
    /// runtime of whoever came first.
    pub(super) runtime: tokio::runtime::Handle,
    /// Held by who sends a script that the server does not know: the first, or the second by who also
    /// waits for its acknowledgement.
    pub(super) loading: [tokio::sync::Mutex<()>; 2],
    /// How often somebody has.
    pub(super) loads: AtomicU64,
    in_flight: AtomicUsize,
    /// Whether it still lives.
    checking: BackgroundTask,
    /// When the first of the requests was sent that were all given up since the
    /// last answer.
    silent_since: Mutex<Option<Instant>>,
}

impl Connection {
    pub(crate) fn start(
        Opened { handshake, server }: Opened,
        endpoint: &Endpoint,
        link: Weak<ConnectionManager>,
    ) -> Arc<Self> {
        let options = &endpoint.options;
        let wire = Arc::new(Self {
            last: format!("{}last", options.prefix),
            retention: options.retention,
            audit: options.audit.map(|it| Audit::new(&options.prefix, it)),
            parted: AtomicBool::new(server.in_cluster || endpoint.set.is_some()),
            is_member: endpoint.set.is_some(),
            socket: handshake.socket,
            acked_writer: server.ack.map(AckedWriter::new),
            server,
            link,
            batcher: Batcher::default(),
            runtime: tokio::runtime::Handle::current(),
            loading: <[tokio::sync::Mutex<()>; 2]>::default(),
            loads: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            checking: BackgroundTask::default(),
            silent_since: Mutex::default(),
        });
        let weak = Arc::downgrade(&wire);
        wire.socket
            .between(move || weak.upgrade().iter().for_each(|wire| batch::flush(wire)));
        wire
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.socket.signals.epoch.load(Ordering::Acquire)
    }

    /// The arguments of scripts about this server.
    pub(crate) fn terms(&self) -> Terms<'_> {
        let parted = self.has_parted();
        Terms {
            last: (!parted).then_some(&self.last),
            gated: self.server.gate.as_ref(),
            retention: self.retention,
            believed: self.server.rights.counts && (!parted || self.is_member),
            listens: self.epoch() != 0,
            is_member: self.is_member,
            audit: self.audit.as_ref(),
        }
    }

    /// From now on each call has one key.
    pub(crate) fn part(&self) {
        self.parted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_parted(&self) -> bool {
        self.parted.load(Ordering::Relaxed)
    }

    /// Runs a script, by its hash or, once the server does not know that, in full.
    pub(crate) async fn run(
        self: &Arc<Self>,
        delivery: Delivery<'_>,
        request: &Request<'_>,
    ) -> Result<ScriptAnswer, StoreError> {
        let (mut turn, mut relied) = (None, 0);
        loop {
            let loads = self.loads.load(Ordering::Acquire);
            let in_full = turn.is_some() || relied > RELIES;
            let answered = self.send(delivery, request, in_full).await;
            if turn.is_some() {
                // Also in vain: those who wait find out for themselves, all at the same time.
                self.loads.fetch_add(1, Ordering::AcqRel);
            }
            let answered = answered?;
            if in_full || !answered.is_error("NOSCRIPT") {
                return Ok(answered);
            }
            if relied < RELIES {
                // What is seldom needed does not make every request larger.
                turn = Box::pin(self.turn_to_load(delivery, loads)).await;
            }
            relied += u32::from(turn.is_none());
        }
    }

    /// The turn to send the script in full; `None`: it is to be sent by hash again. All requests
    /// under way find out at once that the server does not know it, and one of them is enough to
    /// tell it: they take turns, and nothing is sent if there have been more `loads` since.
    async fn turn_to_load(&self, delivery: Delivery<'_>, loads: u64) -> Option<MutexGuard<'_, ()>> {
        let is_acknowledged =
            self.acked_writer.is_some() && matches!(delivery, Delivery::Acknowledged(_));
        let turn = self.loading[usize::from(is_acknowledged)].lock().await;
        (self.loads.load(Ordering::Acquire) == loads).then_some(turn)
    }

    /// Sends a request, a script by its hash or in full, and waits for its answer, which may be an
    /// error of the server ([`Value::ServerError`]). May be dropped at any point. A single step may
    /// travel with others.
    async fn send(
        self: &Arc<Self>,
        delivery: Delivery<'_>,
        request: &Request<'_>,
        in_full: bool,
    ) -> Result<ScriptAnswer, StoreError> {
        if matches!(request, Request::Call { last: true, .. }) {
            self.batcher.landed();
        }
        // Read before sending: what is sent before the inbox is open may be answered with pushes
        // that nobody hears.
        let epoch = self.epoch();
        let command = || request.command(in_full, self.terms());
        if let (Delivery::Acknowledged(claims), Some(writer)) = (delivery, &self.acked_writer) {
            let (value, by) = Box::pin(writer.send(self, command(), claims)).await?;
            let acknowledged = Some(by);
            return Ok(ScriptAnswer {
                value,
                epoch,
                acknowledged,
            });
        }
        let mut flight = InFlight {
            alone: self.in_flight.fetch_add(1, Ordering::AcqRel) == 0,
            wire: self,
            since: Instant::now(),
            answered: false,
        };
        let answer = if delivery == Delivery::Asking {
            Box::pin(self.ask_asking(command())).await
        } else {
            let (answer, answered) = oneshot::channel();
            match request.single().filter(|_| !in_full) {
                _ if flight.alone => self.socket.send([(command(), to(answer))]),
                Some(step) if !self.has_parted() => {
                    batch::send(self, (Work::Step(Arc::clone(step)), answer));
                }
                _ => batch::send(self, (Work::Command(command()), answer)),
            }
            // The runtime of the connection has ended: nobody knows what was sent.
            let answer = async { answered.await.unwrap_or_else(|_| Err(closed())) };
            match self.server.named {
                Some(_) => Box::pin(self.unless_dead(answer)).await,
                None => answer.await,
            }
        };
        flight.answered = !matches!(&answer, Err(error) if error.is_timeout());
        if matches!(&answer, Err(error) if error.is_unrecoverable_error()) {
            // The connection says so itself, unless its task was ended with its runtime.
            self.leave();
        }
        Ok(ScriptAnswer {
            value: answer.map_err(errors::of_connection)?,
            epoch,
            acknowledged: None,
        })
    }

    /// Waits for an answer. A primary that Sentinels have replaced may be paused and resume later:
    /// its answers must not be awaited or trusted.
    async fn unless_dead(
        &self,
        answer: impl Future<Output = RedisResult<Value>>,
    ) -> RedisResult<Value> {
        tokio::select! {
            biased;
            () = self.socket.signals.died() => Err(closed()),
            answer = answer => answer,
        }
    }

    /// How many requests are under way.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Sends a command with `ASKING` right before it: what others send at the same
    /// time does not come between, since a pipeline is written in one piece.
    async fn ask_asking(&self, command: Cmd) -> RedisResult<Value> {
        let answers = self
            .socket
            .ask_all(&[redis::cmd("ASKING"), command])
            .await?;
        let refused = |answer: &Value| matches!(answer, Value::ServerError(_));
        let first = answers.iter().position(refused).unwrap_or(1);
        Ok(answers.into_iter().nth(first).unwrap_or(Value::Nil))
    }

    /// The server cannot do its work: connects again, perhaps to another.
    pub(crate) fn leave(&self) {
        if let Some(link) = self.link.upgrade() {
            link.lost(&self.socket.signals);
        }
    }

    /// Ends the connection if the server does not say within `limit` that it is there.
    pub(crate) async fn check(&self, limit: Duration) {
        let answer = timeout(limit, self.socket.ask(&redis::cmd("PING"))).await;
        if !matches!(answer, Ok(Ok(_))) {
            self.leave();
        }
    }
}

/// The connection is lost, as the caller is told.
pub(super) fn broken() -> StoreError {
    errors::of_connection(closed())
}

/// A request under way.
struct InFlight<'a> {
    wire: &'a Arc<Connection>,
    alone: bool,
    since: Instant,
    answered: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.wire.in_flight.fetch_sub(1, Ordering::AcqRel);
        let mut silent = lock(&self.wire.silent_since);
        if self.answered {
            *silent = None;
        } else if silent.get_or_insert(self.since).elapsed() >= SUSPICIOUS {
            drop(silent);
            let wire = Arc::clone(self.wire);
            let checking = async move { wire.check(SUSPICIOUS).await };
            self.wire.checking.ensure(checking);
        }
    }
}
