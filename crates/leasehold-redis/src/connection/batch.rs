//! The batcher: requests that find others in flight are sent together.
//!
//! They queue up; a task lets every ready caller add its own (one `yield_now`) and sends all there
//! is: steps as calls of their script, which cost the server half of what one call each does, the
//! rest as pipelines. There are a few such tasks at most, and each waits for its answers. So the
//! busier the server is, the more travels together, and nobody waits while it is not. Measured in
//! `docs/adr/0036-one-counter.md`.

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

/// How many tasks send at most. What more of them would send waits at the server, each call by
/// itself.
const SENDERS: usize = 4;

/// What is to be sent.
pub(super) enum Work {
    Command(Cmd),
    /// A step of a key.
    Step(String, Vec<u8>),
}

type Answer = oneshot::Sender<RedisResult<Value>>;

/// What waits to be sent over a connection.
#[derive(Default)]
pub(super) struct Batcher(Mutex<Line>);

#[derive(Default)]
struct Line {
    waiting: Vec<(Work, Answer)>,
    senders: usize,
}

/// Sends this over `wire`, with whatever else waits there.
pub(super) async fn send(wire: &Arc<Connection>, work: Work) -> RedisResult<Value> {
    let (answer, answered) = oneshot::channel();
    let more = {
        let mut line = lock(&wire.batcher.0);
        line.waiting.push((work, answer));
        // Else there is somebody who will take it along.
        let more = line.waiting.len() == 1 && line.senders < SENDERS;
        line.senders += usize::from(more);
        more
    };
    if more {
        Sender::spawn(wire);
    }
    // The runtime of the sender has ended: nobody knows what was sent.
    answered.await.unwrap_or_else(|_| Err(closed()))
}

/// A task that sends what has queued up at its connection, until nothing has. If it is dropped
/// before that (its runtime ends), and it is the last, nothing stays behind in the queue.
struct Sender {
    wire: Arc<Connection>,
    done: bool,
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.done {
            let mut line = lock(&self.wire.batcher.0);
            line.senders -= 1;
            if line.senders == 0 {
                line.waiting.clear();
            }
        }
    }
}

impl Sender {
    fn spawn(wire: &Arc<Connection>) {
        let sender = Self {
            wire: Arc::clone(wire),
            done: false,
        };
        wire.runtime.spawn(sender.work());
    }

    async fn work(mut self) {
        loop {
            tokio::task::yield_now().await;
            let Some(waiting) = self.take() else { return };
            let (mut commands, mut steps) = (Vec::new(), Vec::new());
            for (work, answer) in waiting {
                match work {
                    _ if answer.is_closed() => {}
                    Work::Command(command) => commands.push((command, answer)),
                    Work::Step(key, step) => steps.push((key, step, answer)),
                }
            }
            join(
                join_all(in_parts(steps).map(|part| send_steps(&self.wire, part))),
                join_all(in_parts(commands).map(|part| send_commands(&self.wire, part))),
            )
            .await;
        }
    }

    /// All that waits; none where nothing does, and this task is done.
    fn take(&mut self) -> Option<Vec<(Work, Answer)>> {
        let mut line = lock(&self.wire.batcher.0);
        self.done = line.waiting.is_empty();
        line.senders -= usize::from(self.done);
        (!self.done).then(|| std::mem::take(&mut line.waiting))
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
