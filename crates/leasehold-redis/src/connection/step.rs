//! A step: a script, sent over a connection and answered.
//!
//! A script is sent by its hash. Where the server does not know it, nothing has run, and it is
//! sent once more in full (`EVAL`), which also makes it known. No other way is needed, and this one
//! also works through proxies without `SCRIPT`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use leasehold_core::{ClaimId, Reply, StoreTime};
use leasehold_store::{Acknowledged, Answer, StoreError};
use redis::Value;
use tokio::sync::MutexGuard;

use super::multiplexed::Connection;
use crate::codec::script::Request;
use crate::errors;

/// How the answer to a script comes to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery<'a> {
    /// It counts at once.
    Plain,
    /// If it holds the key for one of these claims, it counts once it is acknowledged, where a
    /// policy asks for it.
    Acknowledged(&'a [&'a ClaimId]),
    /// It comes from a server on its way to which the key's slot is.
    Asking,
}

/// What a script answered, and what is known of that, such as who else has it.
pub(crate) struct ScriptAnswer {
    pub(crate) value: Value,
    pub(crate) epoch: u64,
    pub(crate) acknowledged: Option<Result<Acknowledged, StoreError>>,
}

impl ScriptAnswer {
    /// Whether it is the error with this code.
    pub(crate) fn is_error(&self, code: &str) -> bool {
        matches!(&self.value, Value::ServerError(error) if error.code() == code)
    }

    /// The answer of the store, if that was the reply.
    pub(crate) fn answer(&self, (reply, at): (Reply, StoreTime)) -> Result<Answer, StoreError> {
        let mut answer = Answer::new(reply, at, self.epoch);
        if answer.has_token() {
            answer.acknowledged = self.acknowledged.clone().transpose()?;
        }
        Ok(answer)
    }
}

/// How often a request that met `NOSCRIPT` relies on another to make the script known, before it
/// does so itself. Twice, since the first that it waits for may be about another script.
const RELIES: u32 = 2;

impl Connection {
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
            let answered = self.send_script(delivery, request, in_full).await;
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

    /// Sends a script by its hash or in full.
    async fn send_script(
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
        let (value, acknowledged) = match (delivery, &self.acked_writer) {
            (Delivery::Acknowledged(claims), Some(writer)) => {
                let (value, by) = Box::pin(writer.send(self, command(), claims)).await?;
                (Ok(value), Some(by))
            }
            (Delivery::Asking, _) => (Box::pin(self.send_asking(command())).await, None),
            _ => {
                let step = request.single().filter(|_| !in_full);
                (self.send(step, command).await, None)
            }
        };
        Ok(ScriptAnswer {
            value: value.map_err(errors::of_connection)?,
            epoch,
            acknowledged,
        })
    }
}
