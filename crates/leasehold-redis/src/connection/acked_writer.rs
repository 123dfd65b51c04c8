//! Acknowledged writes: separate connections, each of which writes, waits for the acknowledgement
//! of its writes, and only then writes again.
//!
//! `WAIT` counts the writes of its own connection, and blocks that connection. So the scripts and
//! their `WAIT` are sent as one pipeline, on a connection that nobody else uses in the meantime.
//! Requests that arrive during a turn are sent together in the next one.

use std::iter;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_core::{ClaimId, TOMBSTONES};
use leasehold_store::idle::Idle;
use leasehold_store::{Acknowledged, StoreError};
use redis::{Cmd, Value};
use tokio::sync::oneshot;

use super::ack_policy::AckPolicy;
use super::in_flight::CompletionGuard;
use super::multiplexed::{Connection, broken};
use super::socket::Socket;
use crate::errors;
use crate::std_ext::lock;

/// How many connections at most.
const CONNECTIONS: usize = 4;

/// How many scripts travel with one `WAIT` at most.
///
/// A release waits for claims that were given up on their way ([`super::in_flight`]), but
/// cannot know what becomes of them when their connection ends. The record then knows
/// them as released, as long as no more than its tombstones are under way.
const PIPELINE: usize = TOMBSTONES / CONNECTIONS;
const _: () = assert!(PIPELINE > 0 && PIPELINE * CONNECTIONS <= TOMBSTONES);

/// One connection stays open; the others close when they were idle for so long.
const LINGER: Duration = Duration::from_secs(1);

/// What a command was answered, and what its `WAIT` was.
type Outcome = Result<(Value, Result<Acknowledged, StoreError>), StoreError>;

/// A command, and where its answer goes.
type Job = (Cmd, CompletionGuard, oneshot::Sender<Outcome>);

/// What waits, in order of arrival.
type Line = Mutex<Vec<Job>>;

/// The connections beside a wire, to the same process of the same server.
pub(crate) struct AckedWriter {
    policy: AckPolicy,
    /// Each sender holds it. If the last ends early (its runtime ends), what waits ends with it.
    line: Mutex<Weak<Line>>,
    idle: Arc<Idle<Socket>>,
}

impl AckedWriter {
    pub(super) fn new(policy: AckPolicy) -> Self {
        Self {
            policy,
            line: Mutex::default(),
            idle: Idle::new(LINGER),
        }
    }

    /// Opens the first connection.
    pub(super) async fn open(&self, wire: &Arc<Connection>) -> Result<(), StoreError> {
        self.idle.put(open(wire, self.policy).await?);
        Ok(())
    }

    /// Adds a job. With fewer senders than connections, the caller starts another for this line.
    fn push(&self, job: Job) -> Option<Arc<Line>> {
        let mut current = lock(&self.line);
        let line = current.upgrade().unwrap_or_default();
        lock(&line).push(job);
        *current = Arc::downgrade(&line);
        // All but this one are held by senders.
        (Arc::strong_count(&line) <= CONNECTIONS).then_some(line)
    }

    /// The first jobs whose callers have not left; `None`: nothing waits, and the sender is done.
    fn take(&self, line: &mut Option<Arc<Line>>) -> Option<Vec<Job>> {
        // Nobody adds a job meanwhile, and counts on a sender that is done.
        let _current = lock(&self.line);
        let mut jobs = lock(line.as_ref()?);
        jobs.retain(|(.., answer)| !answer.is_closed());
        if jobs.is_empty() {
            drop(jobs);
            *line = None;
            return None;
        }
        let count = jobs.len().min(PIPELINE);
        Some(jobs.drain(..count).collect())
    }

    /// Sends one command for these claims, and waits for its answer and for what its
    /// `WAIT` answers. May be dropped at any point.
    pub(super) async fn send(
        &self,
        wire: &Arc<Connection>,
        command: Cmd,
        claims: &[&ClaimId],
    ) -> Outcome {
        let link = wire.link.upgrade().ok_or_else(broken)?;
        let (_claim, guard) = link.abandoned.begin(claims);
        let (answer, answered) = oneshot::channel();
        if let Some(line) = self.push((command, guard, answer)) {
            wire.runtime.spawn(run(Arc::clone(wire), line));
        }
        tokio::select! {
            biased;
            () = wire.socket.signals.died() => Err(broken()),
            outcome = answered => outcome.unwrap_or_else(|_| {
                // Its runtime has ended, and that of the connection with it.
                wire.leave();
                Err(broken())
            }),
        }
    }
}

/// A sender: takes turns until nothing waits.
async fn run(wire: Arc<Connection>, line: Arc<Line>) {
    let Some(writer) = &wire.acked_writer else {
        return;
    };
    let (mut line, mut connection) = (Some(line), None);
    while let Some(jobs) = writer.take(&mut line) {
        connection = turn(&wire, writer, connection, jobs).await;
    }
    if let Some(connection) = connection {
        writer.idle.put(connection);
    }
}

/// A connection that is idle and still stands: a server closes those that ask nothing for long.
fn kept(idle: &Idle<Socket>) -> Option<Socket> {
    iter::from_fn(|| idle.take()).find(|socket| !socket.is_lost())
}

/// Opens a further connection to the same process of the server, on which nothing is heard, and answers
/// take as long as an acknowledgement may.
async fn open(wire: &Connection, policy: AckPolicy) -> Result<Socket, StoreError> {
    let link = wire.link.upgrade().ok_or_else(broken)?;
    let endpoint = &link.endpoint;
    let opened = match &wire.server.named {
        Some(named) if endpoint.search().is_some() => endpoint.open_named(named, None).await,
        _ => endpoint.connect(None).await,
    };
    let opened = opened.map_err(|error| link.judge(error))?;
    if opened.server.run_id != wire.server.run_id {
        // The address leads elsewhere by now.
        wire.leave();
        return Err(broken());
    }
    let socket = opened.handshake.socket;
    socket.set_response_timeout(endpoint.options.response_timeout + policy.within);
    Ok(socket)
}

/// Writes, and waits for the acknowledgement. Gives the connection back unless
/// it is broken.
async fn turn(
    wire: &Connection,
    writer: &AckedWriter,
    connection: Option<Socket>,
    mut jobs: Vec<Job>,
) -> Option<Socket> {
    let opened = match connection.or_else(|| kept(&writer.idle)) {
        Some(connection) => Ok(connection),
        None => open(wire, writer.policy).await,
    };
    // What was given up while the connection was opened is not sent.
    jobs.retain(|(.., answer)| !answer.is_closed());
    let (commands, guards, answers): (Vec<_>, Vec<_>, Vec<_>) = jobs.into_iter().collect();
    let wait = writer.policy.command();
    let answered = match &opened {
        Ok(_) if commands.is_empty() => Ok(Vec::new()),
        Ok(connection) => {
            let answered = connection.ask_all(commands.iter().chain([&wait])).await;
            answered.map_err(errors::of_connection)
        }
        Err(error) => Err(error.clone()),
    };
    // Kept until all is answered: who has an answer has given nothing up.
    drop(guards);
    // A caller that has left does not mind.
    match answered {
        Ok(mut values) => {
            let waited = values.pop().unwrap_or(Value::Nil);
            for (answer, value) in answers.into_iter().zip(values) {
                let _ = answer.send(Ok((value, writer.policy.read(&waited))));
            }
            opened.ok()
        }
        Err(error) => {
            for answer in answers {
                let _ = answer.send(Err(error.clone()));
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{duplex, split};

    use super::super::socket::Stream;
    use super::*;

    #[tokio::test]
    async fn a_connection_that_the_server_has_closed_is_not_used_again() {
        let idle = Idle::new(LINGER);
        let mut ends = Vec::new();
        for stands in [true, false] {
            let (ours, theirs) = duplex(64);
            let socket = Socket::start(Stream::new(split(ours), None), LINGER, None);
            match stands {
                true => ends.push(theirs),
                false => {
                    drop(theirs);
                    socket.ask(&redis::cmd("PING")).await.unwrap_err();
                }
            }
            idle.put(socket);
        }
        assert!(!kept(&idle).expect("one stands").is_lost());
        assert!(kept(&idle).is_none());
    }
}
