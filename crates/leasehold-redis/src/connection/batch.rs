//! The batcher: requests that find others in flight are sent together.
//!
//! They queue up; a task lets every ready caller add its own (one `yield_now`) and sends what
//! there is: steps as one call of their script, which costs the server half of what one call each
//! does, the rest as one pipeline. There are a few such tasks at most, each with one call under
//! way. So the busier the server is, the more travels together, and nobody waits while it is not.
//! Measured in `docs/adr/0003-redis-record.md`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures_util::future::join;
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

/// How many calls that are not full are under way at most. More would wait at the server, each by
/// itself.
const IN_FLIGHT: usize = 4;

/// What waits to be sent over a connection.
#[derive(Default)]
pub(super) struct Batcher(Mutex<Line>);

#[derive(Default)]
struct Line {
    waiting: VecDeque<(Work, Answer)>,
    /// How many tasks send.
    senders: usize,
}

impl Line {
    /// Whether one more task is to send what waits.
    fn wants_sender(&mut self) -> bool {
        let is_full = self.waiting.len() >= PIPELINE;
        let more = is_full || (self.senders < IN_FLIGHT && !self.waiting.is_empty());
        self.senders += usize::from(more);
        more
    }

    /// What travels next, with a task that is free; none where that is not needed any more.
    fn take(&mut self) -> Vec<(Work, Answer)> {
        let is_full = self.waiting.len() >= PIPELINE;
        let count = match is_full || self.senders <= IN_FLIGHT {
            true => self.waiting.len().min(PIPELINE),
            false => 0,
        };
        self.senders -= usize::from(count == 0);
        self.waiting.drain(..count).collect()
    }
}

/// Sends this over `wire`, with whatever else waits there.
pub(super) async fn send(wire: &Arc<Connection>, work: Work) -> RedisResult<Value> {
    let (answer, answered) = oneshot::channel();
    let more = {
        let mut line = lock(&wire.batcher.0);
        line.waiting.push_back((work, answer));
        // Else there is somebody who will take it along.
        let count = line.waiting.len();
        (count == 1 || count.is_multiple_of(PIPELINE)) && line.wants_sender()
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
            let Some(part) = self.take() else { return };
            let (mut commands, mut steps) = (Vec::new(), Vec::new());
            for (work, answer) in part {
                match work {
                    _ if answer.is_closed() => {}
                    Work::Command(command) => commands.push((command, answer)),
                    Work::Step(key, step) => steps.push((key, step, answer)),
                }
            }
            join(
                send_steps(&self.wire, steps),
                send_commands(&self.wire, commands),
            )
            .await;
        }
    }

    /// What travels next; none where nothing waits, and this task is done.
    fn take(&mut self) -> Option<Vec<(Work, Answer)>> {
        let (part, more) = {
            let mut line = lock(&self.wire.batcher.0);
            let part = line.take();
            self.done = part.is_empty();
            (part, !self.done && line.wants_sender())
        };
        if more {
            Self::spawn(&self.wire);
        }
        (!self.done).then_some(part)
    }
}

/// Sends steps in one call, and hands out the answers one by one.
async fn send_steps(wire: &Connection, parts: Vec<(String, Vec<u8>, Answer)>) {
    if parts.is_empty() {
        return;
    }
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
    if commands.is_empty() {
        return;
    }
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
