//! The batcher: sends requests together that arrive while others are in flight.
//!
//! Requests queue up while calls are in flight, and go out when the connection's task is between
//! answers: steps together in one call of their script, which costs the server half as much as one
//! call for each, and all others in one piece. Every caller that is ready then has added its own.
//! The next call takes as many requests as calls are in flight, so the busier the server is, the
//! larger the batches are. If enough for a part of all arrive in the meantime, they are sent at
//! once: while the server works on one part, the client works on another. Measured in
//! `docs/adr/07-redis-record.md`.
//!
//! What has to be acknowledged has a line of its own, with a `WAIT` behind each batch
//! ([`super::acked_writer`]).

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard};

use redis::{Cmd, RedisResult, Value};
use tokio::sync::oneshot;

use super::multiplexed::Connection;
use super::socket::to;
use crate::codec::script::{Request, Step, each_reply};
use crate::std_ext::lock;

/// Into how many parts all that is in flight is divided, at least. All answers of a call come
/// together: in one call of all, client and server would take turns instead of working at the same
/// time. Each part has a size that pays for the call, and does not keep others waiting for long.
const PARTS: usize = 4;
const PART_SIZE: RangeInclusive<usize> = 4..=64;

/// How many calls are in flight at most. What more of them would send waits at the server, each
/// call by itself.
const CALLS: usize = 16;

/// What is to be sent.
pub(super) enum Work {
    Command(Cmd),
    Step(Arc<Step>),
}

/// A request, and where its answer goes.
type Waiting<W> = (W, oneshot::Sender<RedisResult<Value>>);

/// What waits to be sent over a connection.
#[derive(Default)]
pub(super) struct Batcher {
    line: Mutex<Vec<Waiting<Work>>>,
    /// Each call in flight has one of these.
    calls: Arc<()>,
}

impl Batcher {
    fn calls(&self) -> usize {
        Arc::strong_count(&self.calls) - 1
    }

    /// No request that was taken from the line before can be sent after this.
    ///
    /// A request is taken and given to the socket under the lock of the line, so what its caller sends
    /// next, with nothing else in flight, cannot overtake it.
    pub(super) fn landed(&self) {
        drop(lock(&self.line));
    }
}

/// Sends this over `wire`, together with other waiting requests.
pub(super) fn send(wire: &Connection, request: Waiting<Work>) {
    let mut line = lock(&wire.batcher.line);
    line.push(request);
    let calls = wire.batcher.calls();
    if line.len() >= part_size(wire) && calls < CALLS {
        send_all(wire, line);
    } else if line.len() == call_size(wire) {
        drop(line);
        // While the server has something to do, what comes from others can be waited for.
        if !wire.socket.nudge(calls < 2) {
            // On a connection that is lost nobody else would send it, and find that out.
            send_all(wire, lock(&wire.batcher.line));
        }
    }
}

/// Sends what waits, unless enough is in flight: then the next answer brings us here again.
pub(super) fn flush(wire: &Connection) {
    let line = lock(&wire.batcher.line);
    if line.len() >= call_size(wire) && wire.batcher.calls() < CALLS {
        send_all(wire, line);
    }
}

/// How many make the next call, at least. Where one call is in flight, one request is enough: after
/// the last answer nobody comes to [`flush`].
fn call_size(wire: &Connection) -> usize {
    wire.batcher.calls().clamp(1, part_size(wire))
}

/// Writes once the line is free: whoever adds something waits for no call of the system.
fn send_all(wire: &Connection, mut line: MutexGuard<'_, Vec<Waiting<Work>>>) {
    let size = part_size(wire);
    let (mut commands, mut steps) = (Vec::new(), Vec::new());
    for (work, answer) in line.drain(..).filter(|(_, answer)| !answer.is_closed()) {
        match work {
            Work::Command(command) => commands.push((command, answer)),
            Work::Step(step) => steps.push((step, answer)),
        }
    }
    for part in in_parts(steps, size) {
        add_steps(wire, part);
    }
    for part in in_parts(commands, size) {
        let call = Arc::new(Arc::clone(&wire.batcher.calls));
        wire.socket.add(part.into_iter().map(|(command, answer)| {
            let (call, answer) = (Arc::clone(&call), to(answer));
            let counted = move |value| {
                drop(call);
                answer(value);
            };
            (command, Box::new(counted) as _)
        }));
    }
    drop(line);
    wire.socket.write();
}

/// Adds steps as one call, and hands out its answers one by one.
fn add_steps(wire: &Connection, part: Vec<Waiting<Arc<Step>>>) {
    let (steps, waiting): (Vec<_>, Vec<_>) = part.into_iter().unzip();
    let (steps, all, count) = (&steps, false, steps.len());
    let command = Request::Steps { steps, all }.command(false, wire.terms());
    let call = Arc::clone(&wire.batcher.calls);
    let hand_out = move |answer: RedisResult<Value>| {
        drop(call);
        let each = match answer {
            Ok(value) if count > 1 => each_reply(value).map_err(Ok),
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
    };
    wire.socket.add([(command, Box::new(hand_out) as _)]);
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
