//! Acknowledged writes: separate connections, each of which writes, waits for the acknowledgement
//! of its writes, and only then writes again.
//!
//! `WAIT` counts the writes of its own connection, and blocks that connection. So the scripts and
//! their `WAIT` are sent as one pipeline, on a connection that nobody else uses in the meantime.
//! Requests that arrive during a turn are sent together in the next one.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use leasehold_core::{ClaimId, TOMBSTONES};
use leasehold_store::{Acknowledged, StoreError};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::abandoned::Landing;
use super::multiplexed::{Connection, broken};
use crate::connection::demand::Demand;
use crate::lock::lock;
use crate::refusal;

/// How many connections at most.
const CONNECTIONS: usize = 4;

/// How many scripts travel with one `WAIT` at most.
///
/// A release waits for claims that were given up on their way ([`super::abandoned`]), but
/// cannot know what becomes of them when their connection ends. The record then knows
/// them as released, as long as no more than its tombstones are under way.
const PIPELINE: usize = TOMBSTONES / CONNECTIONS;
const _: () = assert!(PIPELINE > 0 && PIPELINE * CONNECTIONS <= TOMBSTONES);

/// One connection stays open; the others close when they were idle for so long.
const LINGER: Duration = Duration::from_secs(1);

/// What a command was answered, and what its `WAIT` was.
type Outcome = Result<(Value, Result<Acknowledged, StoreError>), StoreError>;

struct Job {
    command: Cmd,
    answer: oneshot::Sender<Outcome>,
    landing: Landing,
}

/// The connections beside a wire, to the same process of the same server.
pub(crate) struct Acker {
    demand: Demand,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    jobs: Vec<Job>,
    /// Since when; the one that was busy last comes last.
    idle: Vec<(MultiplexedConnection, Instant)>,
    /// Whether a task closes those that are idle for long.
    reaping: bool,
    /// How many tasks are at work, each with a connection or opening one.
    workers: usize,
}

impl Acker {
    pub(crate) fn new(demand: Demand) -> Self {
        Self {
            demand,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// What travels with the next `WAIT`.
    fn take(&self) -> Vec<Job> {
        let mut state = self.state();
        state.jobs.retain(|job| !job.answer.is_closed());
        let count = state.jobs.len().min(PIPELINE);
        state.jobs.drain(..count).collect()
    }

    /// Opens the first connection.
    pub(crate) async fn open(&self, wire: &Arc<Connection>) -> Result<(), StoreError> {
        let connection = open(wire, self.demand).await?;
        self.state().idle.push((connection, Instant::now()));
        Ok(())
    }

    /// Sends one command for these claims, and waits for its answer and for what its
    /// `WAIT` answers. May be dropped at any point.
    pub(crate) async fn send(
        &self,
        wire: &Arc<Connection>,
        command: Cmd,
        claims: &[&ClaimId],
    ) -> Outcome {
        let link = wire.link().ok_or_else(broken)?;
        let (flight, landing) = link.abandoned().begin(claims);
        let (answer, answered) = oneshot::channel();
        let more = {
            let mut state = self.state();
            state.jobs.push(Job {
                command,
                answer,
                landing,
            });
            let more = state.workers < CONNECTIONS;
            state.workers += usize::from(more);
            more
        };
        if more {
            wire.runtime.spawn(Worker::new(wire).work());
        }
        tokio::select! {
            biased;
            () = wire.signals.died() => Err(broken()),
            outcome = answered => {
                flight.answered();
                outcome.unwrap_or_else(|_| Err(broken()))
            }
        }
    }
}

/// A task at work. If it is dropped before it is done (its runtime ends), and no
/// other is left, nobody waits in vain.
struct Worker {
    wire: Arc<Connection>,
    done: bool,
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let (false, Some(acker)) = (self.done, &self.wire.acker) {
            let mut state = acker.state();
            state.workers -= 1;
            if state.workers == 0 {
                state.jobs.clear();
            }
        }
    }
}

impl Worker {
    fn new(wire: &Arc<Connection>) -> Self {
        Self {
            wire: Arc::clone(wire),
            done: false,
        }
    }

    async fn work(mut self) {
        let wire = Arc::clone(&self.wire);
        let Some(acker) = &wire.acker else { return };
        let mut connection = None;
        loop {
            {
                let mut state = acker.state();
                state.jobs.retain(|job| !job.answer.is_closed());
                if state.jobs.is_empty() {
                    state.idle.extend(connection.map(|it| (it, Instant::now())));
                    state.workers -= 1;
                    self.done = true;
                    if state.idle.len() > 1 && !state.reaping {
                        state.reaping = true;
                        tokio::spawn(reap(Arc::downgrade(&wire)));
                    }
                    return;
                }
            }
            connection = connection.or_else(|| acker.state().idle.pop().map(|(it, _)| it));
            let opened = match connection.take() {
                Some(connection) => Ok(connection),
                None => open(&wire, acker.demand).await,
            };
            // Taken when they can be sent at once: what is given up until then is not sent.
            let jobs = acker.take();
            match opened {
                Ok(opened) if jobs.is_empty() => connection = Some(opened),
                Ok(opened) => connection = turn(opened, jobs, acker.demand).await,
                Err(error) => {
                    for job in jobs {
                        // A caller that has left does not mind.
                        let _ = job.answer.send(Err(error.clone()));
                    }
                }
            }
        }
    }
}

/// Closes idle connections except one.
async fn reap(wire: Weak<Connection>) {
    loop {
        sleep(LINGER).await;
        let Some(wire) = wire.upgrade() else { return };
        let Some(acker) = &wire.acker else { return };
        let mut state = acker.state();
        let spare = state.idle.len().saturating_sub(1);
        let long = state.idle[..spare]
            .iter()
            .take_while(|(_, since)| since.elapsed() >= LINGER)
            .count();
        state.idle.drain(..long);
        if state.idle.len() <= 1 {
            state.reaping = false;
            return;
        }
    }
}

/// Opens a connection on which answers take as long as an acknowledgement may.
async fn open(wire: &Connection, demand: Demand) -> Result<MultiplexedConnection, StoreError> {
    let mut connection = wire.open_beside().await?;
    if let Some(link) = wire.link() {
        let limit = link.target().options.response_timeout;
        connection.set_response_timeout(limit + demand.within);
    }
    Ok(connection)
}

/// Writes, and waits for the acknowledgement. Gives the connection back unless
/// it is broken.
async fn turn(
    mut connection: MultiplexedConnection,
    jobs: Vec<Job>,
    demand: Demand,
) -> Option<MultiplexedConnection> {
    let mut pipeline = Pipeline::with_capacity(jobs.len() + 1);
    let mut answers = Vec::with_capacity(jobs.len());
    let mut landings = Vec::with_capacity(jobs.len());
    for job in jobs {
        pipeline.add_command(job.command);
        answers.push(job.answer);
        landings.push(job.landing);
    }
    pipeline.add_command(demand.command());
    let sent = connection.send_packed_commands(&pipeline, 0, answers.len() + 1);
    match sent.await {
        Ok(mut values) => {
            let waited = values.pop().unwrap_or(Value::Nil);
            for (answer, value) in answers.into_iter().zip(values) {
                let _ = answer.send(Ok((value, demand.read(&waited))));
            }
            Some(connection)
        }
        Err(error) => {
            let error = refusal::of_connection(error);
            for answer in answers {
                let _ = answer.send(Err(error.clone()));
            }
            None
        }
    }
}
