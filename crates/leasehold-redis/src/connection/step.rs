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
        if answer.has_token() {
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
    /// The error for the caller; `of_server` converts a server's error.
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
                    return Err(Failure::Server(error));
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
        last: false,
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

/// How often a request that met `NOSCRIPT` relies on another to load the script, before it does so
/// itself. Twice, since the first load that it waits for may be of another script.
const RELIES: u32 = 2;

/// Sends a script, which the server is told in full if it does not know it.
async fn send(
    wire: &Arc<Connection>,
    way: Way<'_>,
    request: &impl Request,
) -> Result<Sent, StoreError> {
    let in_full = wire.server.rights.sending == Sending::InFull;
    let mut told = 0;
    loop {
        let loads = wire.loads.count.load(Ordering::Acquire);
        let sent = send_as(wire, way, request, in_full).await?;
        let unknown = matches!(&sent.0, Value::ServerError(e) if e.code() == "NOSCRIPT");
        // Bounded, since a server may forget each time.
        if !unknown || in_full || told > RELIES {
            return Ok(sent);
        }
        let relies = (told < RELIES).then_some(loads);
        // What is seldom needed does not make every request larger.
        if let Some(sent) = Box::pin(tell(wire, way, request, relies)).await? {
            return Ok(sent);
        }
        told += 1;
    }
}

/// Tells the server a script; `None`: it is to be asked again by hash. All requests under way find
/// out at once that the server does not know it, and one of them is enough to tell it: with
/// `loads`, they take turns, and nothing is sent if there have been more loads since.
async fn tell(
    wire: &Arc<Connection>,
    way: Way<'_>,
    request: &impl Request,
    loads: Option<u64>,
) -> Result<Option<Sent>, StoreError> {
    let _turn = match loads {
        Some(loads) => {
            let turn = wire.loads.turn.lock().await;
            if wire.loads.count.load(Ordering::Acquire) != loads {
                return Ok(None);
            }
            Some(turn)
        }
        None => None,
    };
    let told = if wire.server.rights.sending == Sending::ByHash {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&request.script().text);
        match wire.send(load).await {
            // Nothing was done: as if this were the answer to the script.
            Ok(refused @ Value::ServerError(_)) => Ok(Some((refused, None))),
            loaded => loaded.map(|_| None).map_err(refusal::of_connection),
        }
    } else {
        send_as(wire, way, request, true).await.map(Some)
    };
    // Also in vain: those who wait find out for themselves, all at the same time.
    wire.loads.count.fetch_add(1, Ordering::AcqRel);
    told
}

/// Sends a script by its hash or in full.
async fn send_as(
    wire: &Arc<Connection>,
    way: Way<'_>,
    request: &impl Request,
    in_full: bool,
) -> Result<Sent, StoreError> {
    if request.is_last() {
        Box::pin(wire.batcher.landed()).await;
    }
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
