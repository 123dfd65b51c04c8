//! A step: a script, sent to the primary and answered.
//!
//! A script is sent by its hash. Where the server does not know it, nothing has run, and it is
//! sent once more in full (`EVAL`), which also makes it known. No other way is needed, and this one
//! also works through proxies without `SCRIPT`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use leasehold_core::{ClaimId, Reply, StoreTime};
use leasehold_store::{Acknowledged, Answer, StoreError};
use redis::Value;
use tokio::time::Instant;

use super::manager::ConnectionManager;
use super::multiplexed::Connection;
use crate::codec::script::{Request, Script};
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

/// What is known of an answer besides the reply, such as who else has it.
pub(crate) struct Context {
    pub(crate) epoch: u64,
    pub(crate) acknowledged: Option<Result<Acknowledged, StoreError>>,
}

impl Context {
    pub(crate) fn answer(&self, (reply, at): (Reply, StoreTime)) -> Result<Answer, StoreError> {
        let mut answer = Answer::new(reply, at, self.epoch);
        if answer.has_token() {
            answer.acknowledged = self.acknowledged.clone().transpose()?;
        }
        Ok(answer)
    }
}

/// Asks the primary to run a script. A server that says it is none has carried out nothing: the
/// request goes to the next, for as long as an answer may take.
pub(crate) async fn ask_primary(
    shared: &Arc<ConnectionManager>,
    delivery: Delivery<'_>,
    request: &Request<'_>,
) -> Result<(Value, Context), StoreError> {
    let limit = shared.endpoint.options.response_timeout;
    let mut end = None;
    let mut goes_on = || Instant::now() < *end.get_or_insert_with(|| Instant::now() + limit);
    loop {
        let wire = shared.connection().await?;
        let parted = wire.has_parted();
        let (value, context) = send(&wire, delivery, request).await?;
        match &value {
            Value::ServerError(error) if errors::is_elsewhere(error) && goes_on() => wire.leave(),
            // Behind one address are several servers, and keys lie apart.
            Value::ServerError(error) if error.code() == "CROSSSLOT" && !parted => wire.part(),
            _ => return Ok((value, context)),
        }
    }
}

/// Runs a script that needs to know nothing of the server, and whose answer counts at once.
pub(crate) async fn run(
    wire: &Arc<Connection>,
    script: &Script,
    key: &str,
    arguments: &[&[u8]],
) -> Result<Value, StoreError> {
    let call = Request::call(script, key, arguments);
    let (value, _) = send(wire, Delivery::Plain, &call).await?;
    Ok(value)
}

/// How often a request that met `NOSCRIPT` relies on another to make the script known, before it
/// does so itself. Twice, since the first that it waits for may be about another script.
const RELIES: u32 = 2;

pub(crate) async fn send(
    wire: &Arc<Connection>,
    delivery: Delivery<'_>,
    request: &Request<'_>,
) -> Result<(Value, Context), StoreError> {
    for relied in 0..=RELIES {
        let loads = wire.loads.load(Ordering::Acquire);
        let sent = send_as(wire, delivery, request, false).await?;
        if !matches!(&sent.0, Value::ServerError(error) if error.code() == "NOSCRIPT") {
            return Ok(sent);
        }
        // What is seldom needed does not make every request larger.
        if relied < RELIES
            && let Some(sent) = Box::pin(send_in_full(wire, delivery, request, loads)).await?
        {
            return Ok(sent);
        }
    }
    Box::pin(send_as(wire, delivery, request, true)).await
}

/// Sends the script in full; `None`: it is to be sent by hash again. All requests under way find
/// out at once that the server does not know it, and one of them is enough to tell it: they take
/// turns, and nothing is sent if there have been more `loads` since.
async fn send_in_full(
    wire: &Arc<Connection>,
    delivery: Delivery<'_>,
    request: &Request<'_>,
    loads: u64,
) -> Result<Option<(Value, Context)>, StoreError> {
    let is_acknowledged =
        wire.acked_writer.is_some() && matches!(delivery, Delivery::Acknowledged(_));
    let _turn = wire.loading[usize::from(is_acknowledged)].lock().await;
    if wire.loads.load(Ordering::Acquire) != loads {
        return Ok(None);
    }
    let sent = send_as(wire, delivery, request, true).await;
    // Also in vain: those who wait find out for themselves, all at the same time.
    wire.loads.fetch_add(1, Ordering::AcqRel);
    sent.map(Some)
}

/// Sends a script by its hash or in full.
async fn send_as(
    wire: &Arc<Connection>,
    delivery: Delivery<'_>,
    request: &Request<'_>,
    in_full: bool,
) -> Result<(Value, Context), StoreError> {
    if matches!(request, Request::Call { last: true, .. }) {
        wire.batcher.landed();
    }
    // Read before sending: what is sent before the inbox is open may be answered with pushes that
    // nobody hears.
    let epoch = wire.epoch();
    let command = || request.command(in_full, wire.terms());
    let (value, acknowledged) = match (delivery, &wire.acked_writer) {
        (Delivery::Acknowledged(claims), Some(writer)) => {
            let (value, by) = Box::pin(writer.send(wire, command(), claims)).await?;
            (Ok(value), Some(by))
        }
        (Delivery::Asking, _) => (Box::pin(wire.send_asking(command())).await, None),
        _ => {
            let step = request.single().filter(|_| !in_full);
            (wire.send(step, command).await, None)
        }
    };
    let value = value.map_err(errors::of_connection)?;
    let context = Context {
        epoch,
        acknowledged,
    };
    Ok((value, context))
}
