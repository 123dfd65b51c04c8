//! The batcher: sends requests together that arrive while others are in flight.
//!
//! Requests are queued, and tasks send them: steps together in one call of their script, which
//! costs the server half as much as one call for each, and all others as pipelines. A task starts
//! with the first request of the queue, lets every ready caller add its own (one `yield_now`),
//! and waits for the answers before it sends more. There are few tasks, so the busier the server
//! is, the larger the batches are. If enough requests for a call arrive in the meantime, another
//! task sends them at once: while the server works on one part, the client works on another.
//! Measured in `docs/adr/0036-one-counter.md`.
//!
//! What has to be acknowledged has a line of its own, with a `WAIT` behind each batch
//! ([`super::acked_writer`]).

use std::ops::RangeInclusive;
use std::sync::Arc;

use futures_util::future::{join, join_all};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::{RwLock, oneshot};

use super::line::{Line, Sender};
use super::multiplexed::{Connection, closed};
use crate::codec::script::{Request, Step, each_reply};

/// Into how many parts all that is in flight is divided, at least. All answers of a call come
/// together: in one call of all, client and server would take turns instead of working at the same
/// time. Each part has a size that pays for the call, and does not keep others waiting for long.
const PARTS: usize = 4;
const PART_SIZE: RangeInclusive<usize> = 8..=64;

/// How many tasks send at most, that wait for more or have enough for a call. What more of them
/// would send waits at the server, each call by itself.
const SENDERS: usize = 4;
const SENDERS_IN_FULL: usize = 16;

/// What is to be sent.
pub(super) enum Work {
    Command(Cmd),
    Step(Arc<Step>),
}

type Answer = RedisResult<Value>;
type Waiting<W> = (W, oneshot::Sender<Answer>);

/// What waits to be sent over a connection.
#[derive(Default)]
pub(super) struct Batcher {
    line: Arc<Line<Work, Answer>>,
    /// Held for reading by each task that has requests in hand, until they are answered.
    rounds: RwLock<()>,
}

impl Batcher {
    /// Waits until no request that was given up can still be sent after this.
    ///
    /// A task that has taken a request sends it even if its caller leaves now. Meanwhile what
    /// the caller sends next, with nothing else in flight, would overtake it.
    pub(super) async fn landed(&self) {
        drop(self.rounds.write().await);
    }
}

/// Sends this over `wire`, together with other waiting requests.
pub(super) async fn send(wire: &Arc<Connection>, work: Work) -> Answer {
    let mut full = false;
    let (answered, sender) = wire.batcher.line.push(work, |waiting, senders| {
        full = waiting == part_size(wire);
        match full {
            true => senders < SENDERS_IN_FULL,
            false => waiting == 1 && senders < SENDERS,
        }
    });
    if let Some(sender) = sender {
        wire.runtime.spawn(run(Arc::clone(wire), sender, full));
    }
    // The runtime of the sender has ended: nobody knows what was sent.
    answered.await.unwrap_or_else(|_| Err(closed()))
}

/// Sends what has queued up, until nothing has. `full`: there is enough for a call, and it does not
/// wait for more.
async fn run(wire: Arc<Connection>, mut sender: Sender<Work, Answer>, mut full: bool) {
    loop {
        if !std::mem::take(&mut full) {
            tokio::task::yield_now().await;
        }
        let _round = wire.batcher.rounds.read().await;
        let Some(waiting) = sender.take(usize::MAX) else {
            return;
        };
        let size = part_size(&wire);
        let (mut commands, mut steps) = (Vec::new(), Vec::new());
        for (work, answer) in waiting {
            match work {
                Work::Command(command) => commands.push((command, answer)),
                Work::Step(step) => steps.push((step, answer)),
            }
        }
        join(
            join_all(in_parts(steps, size).map(|part| send_steps(&wire, part))),
            join_all(in_parts(commands, size).map(|part| send_commands(&wire, part))),
        )
        .await;
    }
}

/// How many travel together, at most.
fn part_size(wire: &Connection) -> usize {
    (wire.in_flight() / PARTS).clamp(*PART_SIZE.start(), *PART_SIZE.end())
}

/// Parts of that size.
fn in_parts<T>(all: Vec<T>, size: usize) -> impl Iterator<Item = Vec<T>> {
    let mut all = all.into_iter();
    std::iter::from_fn(move || {
        let part: Vec<_> = all.by_ref().take(size).collect();
        (!part.is_empty()).then_some(part)
    })
}

/// Sends steps in one call, and hands out the answers one by one.
async fn send_steps(wire: &Connection, parts: Vec<Waiting<Arc<Step>>>) {
    let (steps, waiting): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let (steps, all) = (&steps, false);
    let command = Request::Steps { steps, all }.command(false, wire.terms());
    let sent = wire.connection.clone().send_packed_command(&command).await;
    let each = match sent {
        Ok(value) if steps.len() > 1 => each_reply(value).map_err(Ok),
        other => Err(other),
    };
    let mut answers = each.map(Vec::into_iter);
    for answer in waiting {
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
async fn send_commands(wire: &Connection, commands: Vec<Waiting<Cmd>>) {
    let (commands, answers): (Vec<_>, Vec<_>) = commands.into_iter().unzip();
    let values = match send_together(&mut wire.connection.clone(), commands).await {
        Ok(values) => values.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); answers.len()],
    };
    for (answer, value) in answers.into_iter().zip(values) {
        let _ = answer.send(value);
    }
}

/// Sends commands in one piece.
pub(super) async fn send_together(
    connection: &mut MultiplexedConnection,
    commands: impl IntoIterator<Item = Cmd>,
) -> RedisResult<Vec<Value>> {
    let commands = commands.into_iter();
    let mut pipeline = Pipeline::with_capacity(commands.size_hint().0);
    for command in commands {
        pipeline.add_command(command);
    }
    let count = pipeline.len();
    connection.send_packed_commands(&pipeline, 0, count).await
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn what_is_sent_last_waits_for_all_that_is_in_hand() {
        let batcher = Batcher::default();
        assert!(batcher.landed().now_or_never().is_some(), "nothing is");
        let round = batcher.rounds.read().await;
        let mut last = Box::pin(batcher.landed());
        assert!(last.as_mut().now_or_never().is_none());
        drop(round);
        assert!(last.now_or_never().is_some());
    }
}
