//! The batcher: requests that find others in flight are sent together.
//!
//! They queue up; a short-lived task lets every ready caller add its own (one `yield_now`) and
//! sends all of them: steps as one call of their script, which costs the server half of what one
//! call each does, the rest as one pipeline. Measured in `docs/adr/0003-redis-record.md`: twice
//! the throughput from 64 tasks on, nothing lost with one.

use std::sync::{Arc, Mutex};

use futures_util::future::{join, join_all};
use redis::{Cmd, RedisResult, Value};
use tokio::sync::oneshot;

use super::multiplexed::{Connection, closed};
use crate::codec::script::{Request as _, Steps};
use crate::lock::lock;

/// How many commands travel as one pipeline, and steps in one call, at most. All
/// answers come together: in one of hundreds, client and server would take turns
/// instead of working at the same time.
const PIPELINE: usize = 16;

/// What is to be sent.
pub(super) enum Work {
    Command(Cmd),
    /// A step of a key.
    Step(String, Vec<u8>),
}

type Answer = oneshot::Sender<RedisResult<Value>>;

/// What waits to be sent over a connection.
#[derive(Default)]
pub(super) struct Batcher(Mutex<Vec<(Work, Answer)>>);

impl Batcher {
    fn take(&self) -> Vec<(Work, Answer)> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// Sends this over `wire`, with whatever else waits there.
pub(super) async fn send(wire: &Arc<Connection>, work: Work) -> RedisResult<Value> {
    let (answer, answered) = oneshot::channel();
    let first = {
        let mut queue = lock(&wire.batcher.0);
        queue.push((work, answer));
        queue.len() == 1
    };
    if first {
        tokio::spawn(Batch(Some(Arc::clone(wire))).send());
    }
    // The runtime of the batch has ended: nobody knows what was sent.
    answered.await.unwrap_or_else(|_| Err(closed()))
}

/// The task that sends what has queued up at this connection. If it is dropped before that (its
/// runtime ends), nothing stays behind in the queue.
struct Batch(Option<Arc<Connection>>);

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(wire) = &self.0 {
            drop(wire.batcher.take());
        }
    }
}

impl Batch {
    async fn send(mut self) {
        tokio::task::yield_now().await;
        // From here on the queue belongs to the next batch.
        let Some(wire) = self.0.take() else { return };
        let (mut commands, mut steps) = (Vec::new(), Vec::new());
        for (work, answer) in wire.batcher.take() {
            match work {
                _ if answer.is_closed() => {}
                Work::Command(command) => commands.push((command, answer)),
                Work::Step(key, step) => steps.push((key, step, answer)),
            }
        }
        join(
            join_all(in_parts(steps).map(|part| send_steps(&wire, part))),
            join_all(in_parts(commands).map(|part| send_commands(&wire, part))),
        )
        .await;
    }
}

/// Parts of the size that travels together.
fn in_parts<T>(all: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let mut all = all.into_iter();
    std::iter::from_fn(move || {
        let part: Vec<_> = all.by_ref().take(PIPELINE).collect();
        (!part.is_empty()).then_some(part)
    })
}

/// Sends steps in one call, and hands out the answers one by one.
async fn send_steps(wire: &Connection, parts: Vec<(String, Vec<u8>, Answer)>) {
    let command = {
        let steps = parts.iter().map(|(key, step, _)| (&**key, &**step));
        let (keys, steps): (Vec<_>, Vec<&[u8]>) = steps.unzip();
        let (keys, steps, all) = (&keys, &steps, false);
        Steps { keys, steps, all }.command(false, wire.terms())
    };
    let sent = wire.connection.clone().send_packed_command(&command).await;
    let alone = parts.len() == 1;
    let mut answers = match sent {
        Ok(Value::Array(values)) if !alone => Ok(values.into_iter()),
        other => Err(other),
    };
    for (.., answer) in parts {
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
