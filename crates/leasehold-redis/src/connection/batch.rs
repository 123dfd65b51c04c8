//! The batcher: sends requests together that arrive while others are in flight.
//!
//! Requests are queued, and tasks send them: steps together in one call of their script, which
//! costs the server half as much as one call for each, and all others as pipelines. A task starts
//! with the first request of the queue, lets every ready caller add its own (one `yield_now`),
//! and waits for the answers before it sends more. There are few tasks, so the busier the server
//! is, the larger the batches are. If enough requests for a call arrive in the meantime, another
//! task sends them at once: while the server works on one part, the client works on another.
//! Measured in `docs/adr/0036-one-counter.md`.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use futures_util::future::{join, join_all};
use redis::{Cmd, RedisResult, Value};
use tokio::sync::{RwLock, oneshot};

use super::multiplexed::{Connection, closed};
use crate::codec::script::{Request as _, Step, Steps, each_reply};
use crate::lock::lock;

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

type Answer = oneshot::Sender<RedisResult<Value>>;

/// What waits to be sent over a connection.
#[derive(Default)]
pub(super) struct Batcher {
    line: Mutex<Line>,
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

#[derive(Default)]
struct Line {
    waiting: Vec<(Work, Answer)>,
    senders: usize,
}

/// Sends this over `wire`, together with other waiting requests.
pub(super) async fn send(wire: &Arc<Connection>, work: Work) -> RedisResult<Value> {
    let (answer, answered) = oneshot::channel();
    let full = {
        let mut line = lock(&wire.batcher.line);
        line.waiting.push((work, answer));
        let (full, limit) = match line.waiting.len() {
            1 => (Some(false), SENDERS),
            waiting if waiting == part_size(wire) => (Some(true), SENDERS_IN_FULL),
            _ => (None, 0),
        };
        // Else there is somebody who will take it along.
        let full = full.filter(|_| line.senders < limit);
        line.senders += usize::from(full.is_some());
        full
    };
    if let Some(full) = full {
        Sender::spawn(wire, full);
    }
    // The runtime of the sender has ended: nobody knows what was sent.
    answered.await.unwrap_or_else(|_| Err(closed()))
}

/// A task that sends what has queued up at its connection, until nothing has. If it is dropped
/// before that (its runtime ends), and it is the last, nothing stays behind in the queue.
struct Sender {
    wire: Arc<Connection>,
    /// There is enough for a call: it does not wait for more.
    full: bool,
    done: bool,
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.done {
            let mut line = lock(&self.wire.batcher.line);
            line.senders -= 1;
            if line.senders == 0 {
                line.waiting.clear();
            }
        }
    }
}

impl Sender {
    fn spawn(wire: &Arc<Connection>, full: bool) {
        let sender = Self {
            wire: Arc::clone(wire),
            full,
            done: false,
        };
        wire.runtime.spawn(sender.work());
    }

    async fn work(mut self) {
        let wire = Arc::clone(&self.wire);
        loop {
            if !std::mem::take(&mut self.full) {
                tokio::task::yield_now().await;
            }
            let _round = wire.batcher.rounds.read().await;
            let Some(waiting) = self.take() else { return };
            let size = part_size(&wire);
            let (mut commands, mut steps) = (Vec::new(), Vec::new());
            for (work, answer) in waiting {
                match work {
                    _ if answer.is_closed() => {}
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

    /// All that waits; none where nothing does, and this task is done.
    fn take(&mut self) -> Option<Vec<(Work, Answer)>> {
        let mut line = lock(&self.wire.batcher.line);
        self.done = line.waiting.is_empty();
        line.senders -= usize::from(self.done);
        (!self.done).then(|| std::mem::take(&mut line.waiting))
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
async fn send_steps(wire: &Connection, parts: Vec<(Arc<Step>, Answer)>) {
    let (steps, waiting): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let (steps, all) = (&steps, false);
    let command = Steps { steps, all }.command(false, wire.terms());
    let sent = wire.connection.clone().send_packed_command(&command).await;
    let alone = steps.len() == 1;
    let each = match sent {
        Ok(value) if !alone => each_reply(value).map_err(Ok),
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
async fn send_commands(wire: &Connection, commands: Vec<(Cmd, Answer)>) {
    let mut pipeline = redis::Pipeline::with_capacity(commands.len());
    let mut answers = Vec::with_capacity(commands.len());
    for (command, answer) in commands {
        pipeline.add_command(command);
        answers.push(answer);
    }
    let mut connection = wire.connection.clone();
    let sent = connection.send_packed_commands(&pipeline, 0, answers.len());
    let values = match sent.await {
        Ok(values) => values.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); answers.len()],
    };
    for (answer, value) in answers.into_iter().zip(values) {
        let _ = answer.send(value);
    }
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
