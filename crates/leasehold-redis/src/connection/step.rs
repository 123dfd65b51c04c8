//! A step: a script, sent to the primary and answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use leasehold_core::{ClaimId, Reply, StoreTime};
use leasehold_store::{Acknowledged, Answer, StoreError};
use redis::{Cmd, RedisError, ServerError, Value};
use tokio::time::Instant;

use super::manager::ConnectionManager;
use super::multiplexed::Connection;
use super::rights::Sending;
use crate::codec::script::{Call, Request, Script};
use crate::refusal;

/// How a script is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way<'a> {
    /// Its answer counts at once.
    Plain,
    /// If its answer holds the key for one of these claims, it counts once it is
    /// acknowledged, where a policy asks for it.
    Acknowledged(&'a [&'a ClaimId]),
    /// To a server on its way to which the key's slot is.
    Asking,
}

/// What is known of an answer besides the reply.
pub(crate) struct Context {
    pub(crate) epoch: u64,
    pub(crate) acknowledged: Option<Result<Acknowledged, StoreError>>,
}

impl Context {
    pub(crate) fn answer(&self, (reply, at): (Reply, StoreTime)) -> Result<Answer, StoreError> {
        let mut answer = Answer::new(reply, at, self.epoch);
        if answer.holds() {
            answer.acknowledged = self.acknowledged.clone().transpose()?;
        }
        Ok(answer)
    }
}

/// Why something was not done, or may not have been.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server said so: nothing was changed.
    Server(ServerError),
    Store(StoreError),
}

impl Failure {
    /// What the caller is told; `of_server` says what a server's error means.
    pub(crate) fn or(self, of_server: impl Fn(&ServerError) -> StoreError) -> StoreError {
        match self {
            Self::Server(error) => of_server(&error),
            Self::Store(error) => error,
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::Store(refusal::of_connection(error))
    }
}

/// Asks the primary. A server that says it is none has carried out nothing: the
/// question goes to the next, for as long as an answer may take.
pub(crate) async fn at_primary<T, F>(
    shared: &ConnectionManager,
    ask: impl Fn(Arc<Connection>) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let limit = shared.target().options.response_timeout;
    let mut end = None;
    loop {
        let wire = shared.connection().await?;
        match ask(Arc::clone(&wire)).await {
            Err(Failure::Server(error)) if refusal::is_elsewhere(&error) => {
                if Instant::now() >= *end.get_or_insert_with(|| Instant::now() + limit) {
                    return Err(refusal::still_elsewhere(&error).into());
                }
                wire.leave();
            }
            answer => return answer,
        }
    }
}

/// Asks the primary to run a script.
pub(crate) async fn ask_primary(
    shared: &Arc<ConnectionManager>,
    way: Way<'_>,
    request: &impl Request,
) -> Result<(Value, Context), StoreError> {
    let asked = at_primary(shared, |wire| async move {
        loop {
            // Read before sending: what is sent before the inbox is open may be
            // answered with pushes that nobody hears.
            let epoch = wire.epoch();
            let parted = wire.has_parted();
            let (value, acknowledged) = send(&wire, way, request).await?;
            match value {
                Value::ServerError(error) if refusal::is_elsewhere(&error) => {
                    return Err(Failure::Server(error));
                }
                // Behind one address are several servers, and keys lie apart.
                Value::ServerError(error) if error.code() == "CROSSSLOT" && !parted => wire.part(),
                value => {
                    let context = Context {
                        epoch,
                        acknowledged,
                    };
                    return Ok((value, context));
                }
            }
        }
    });
    asked
        .await
        .map_err(|failure| failure.or(refusal::of_server))
}

/// Runs a script, whose answer counts at once.
pub(crate) async fn run(
    wire: &Arc<Connection>,
    way: Way<'_>,
    script: &Script,
    keys: &[&str],
    arguments: impl Fn(&mut Cmd),
) -> Result<Value, StoreError> {
    let call = Call {
        script,
        keys,
        arguments,
    };
    run_request(wire, way, &call).await
}

/// The same for any request.
pub(crate) async fn run_request(
    wire: &Arc<Connection>,
    way: Way<'_>,
    request: &impl Request,
) -> Result<Value, StoreError> {
    let (value, _) = send(wire, way, request).await?;
    Ok(value)
}

/// What was answered, and who else has it, where that was asked for.
type Sent = (Value, Option<Result<Acknowledged, StoreError>>);

/// Sends a script, which the server is told in full if it does not know it.
async fn send(
    wire: &Arc<Connection>,
    way: Way<'_>,
    request: &impl Request,
) -> Result<Sent, StoreError> {
    let in_full = wire.server.rights.sending == Sending::InFull;
    loop {
        let loads = wire.loads.count.load(Ordering::Acquire);
        let sent = send_as(wire, way, request, in_full).await?;
        match &sent.0 {
            Value::ServerError(error) if error.code() == "NOSCRIPT" => {}
            _ => return Ok(sent),
        }
        // What is seldom needed does not make every request larger.
        if let Some(sent) = Box::pin(load(wire, way, request, loads)).await? {
            return Ok(sent);
        }
    }
}

/// Sends a script in full, and what it was to answer. `None`: another request has sent one since
/// there were so many `loads`; all that are under way find out at once that the server does not
/// know them, and one of them is enough to tell it.
async fn load(
    wire: &Arc<Connection>,
    way: Way<'_>,
    request: &impl Request,
    loads: u64,
) -> Result<Option<Sent>, StoreError> {
    let turn = wire.loads.turn.lock().await;
    if wire.loads.count.load(Ordering::Acquire) != loads {
        return Ok(None);
    }
    let by_hash = wire.server.rights.sending == Sending::ByHash;
    let sent = if by_hash {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&request.script().text);
        let loaded = wire.send(load).await;
        loaded
            .map(|value| (value, None))
            .map_err(refusal::of_connection)
    } else {
        send_as(wire, way, request, true).await
    };
    // Also in vain: whoever waits here finds out for itself, at the same time as the others.
    wire.loads.count.fetch_add(1, Ordering::AcqRel);
    drop(turn);
    match sent? {
        (Value::ServerError(error), _) if by_hash => Err(refusal::of_server(&error)),
        _ if by_hash => send_as(wire, way, request, false).await.map(Some),
        sent => Ok(Some(sent)),
    }
}

/// Sends a script by its hash or in full.
async fn send_as(
    wire: &Arc<Connection>,
    way: Way<'_>,
    request: &impl Request,
    in_full: bool,
) -> Result<Sent, StoreError> {
    let command = || request.command(in_full, wire.terms());
    let value = match (way, &wire.acker) {
        (Way::Acknowledged(claims), Some(acker)) => {
            let sent = Box::pin(acker.send(wire, command(), claims)).await;
            return sent.map(|(value, acknowledged)| (value, Some(acknowledged)));
        }
        (Way::Asking, _) => Box::pin(wire.send_asking(command())).await,
        _ => {
            let step = request.single().filter(|_| !in_full);
            wire.send_or_join(step, command).await
        }
    };
    Ok((value.map_err(refusal::of_connection)?, None))
}
