//! Runs steps of the classic layout at one server: by a script, or by a transaction if the server
//! forbids scripts.
//!
//! A transaction watches the key, reads it, and changes it only if no other client has changed it
//! since (`WATCH`, `MULTI`, `EXEC`). It is as safe as the script and takes one more round trip.
//! All transactions use one separate connection, in the order of the requests.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_store::{ErrorKind, StoreError};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, ServerError, Value};

use super::verb::{Change, Outcome, Step, Verb, looks, read, read_found};
use crate::codec::script::unreadable;
use crate::connection::multiplexed::Connection;
use crate::connection::rights::Sending;
use crate::connection::step::{Failure, Way, run_request};
use crate::lock::lock;

/// How often a transaction is repeated because another client changed the key in between.
const TRIES: usize = 16;

/// The way to one server.
#[derive(Default)]
pub(in super::super) struct ClassicExecutor {
    /// The connection for transactions beside that wire, where they are needed.
    alone: Mutex<Option<(Weak<Connection>, Arc<Alone>)>>,
    /// One at a time opens it.
    opening: tokio::sync::Mutex<()>,
}

/// A connection that one transaction has at a time.
struct Alone {
    connection: MultiplexedConnection,
    turn: tokio::sync::Mutex<()>,
}

impl ClassicExecutor {
    /// Opens what will be needed.
    pub(in super::super) async fn open(&self, wire: &Arc<Connection>) -> Result<(), Failure> {
        if wire.server.rights.sending == Sending::Never {
            self.alone(wire).await?;
        }
        Ok(())
    }

    /// Takes a step.
    pub(in super::super) async fn step(
        &self,
        wire: &Arc<Connection>,
        key: &str,
        step: Step<'_>,
    ) -> Result<Outcome, Failure> {
        if wire.server.rights.sending != Sending::Never {
            let keys = [key];
            let call = step.call(&keys);
            let answer = run_request(wire, Way::Plain, &call).await;
            return read(&answer?);
        }
        let alone = self.alone(wire).await?;
        let outcome = alone.step(key, step).await;
        let unavailable = |failure: &Failure| matches!(failure, Failure::Store(error) if error.kind() == ErrorKind::Unavailable);
        if outcome.as_ref().is_err_and(unavailable) {
            // It may be broken: another is opened for the next.
            self.forget(&alone);
        }
        outcome
    }

    fn known(&self, wire: &Arc<Connection>) -> Option<Arc<Alone>> {
        let known = lock(&self.alone);
        let (of, alone) = known.as_ref()?;
        let same = std::ptr::eq(of.as_ptr(), Arc::as_ptr(wire)) && of.strong_count() > 0;
        same.then(|| Arc::clone(alone))
    }

    fn forget(&self, alone: &Arc<Alone>) {
        let mut known = lock(&self.alone);
        if known
            .as_ref()
            .is_some_and(|(_, ours)| Arc::ptr_eq(ours, alone))
        {
            *known = None;
        }
    }

    async fn alone(&self, wire: &Arc<Connection>) -> Result<Arc<Alone>, Failure> {
        if let Some(alone) = self.known(wire) {
            return Ok(alone);
        }
        let _one_at_a_time = self.opening.lock().await;
        if let Some(alone) = self.known(wire) {
            return Ok(alone);
        }
        let alone = Arc::new(Alone {
            connection: wire.open_beside().await?,
            turn: tokio::sync::Mutex::default(),
        });
        let mut known = lock(&self.alone);
        *known = Some((Arc::downgrade(wire), Arc::clone(&alone)));
        Ok(alone)
    }
}

/// The error that an answer is, if it is one.
fn refused(answer: Value) -> Option<ServerError> {
    match answer {
        Value::ServerError(error) => Some(error),
        _ => None,
    }
}

impl Alone {
    async fn step(&self, key: &str, step: Step<'_>) -> Result<Outcome, Failure> {
        if matches!(step.verb, Verb::First | Verb::Claim)
            && let Some(set) = step.command(Change::Set, key)
        {
            match self.send(&[set]).await?.as_slice() {
                [Value::Okay] => {
                    let ttl = Duration::from_millis(step.millis());
                    return Ok(Outcome::Ours(Some(ttl)));
                }
                [Value::Nil] => {}
                [Value::ServerError(error)] => return Err(Failure::Server(error.clone())),
                other => return Err(unreadable(&Value::Array(other.to_vec())).into()),
            }
        }
        self.transact(key, step).await
    }

    /// May be dropped at any point: what was watched then is watched no more as
    /// the next one begins.
    async fn transact(&self, key: &str, step: Step<'_>) -> Result<Outcome, Failure> {
        let _turn = self.turn.lock().await;
        for _ in 0..TRIES {
            let mut watch = redis::cmd("WATCH");
            watch.arg(key);
            let mut begin = vec![redis::cmd("UNWATCH"), watch];
            begin.extend(looks(key));
            let answers = self.send(&begin).await?;
            let (watched, looked) = answers.split_at(answers.len().min(2));
            if let Some(error) = watched.iter().cloned().find_map(refused) {
                return Err(Failure::Server(error));
            }
            let found = read_found(looked)?;
            let (outcome, change) = step.decide(&found);
            let Some(change) = step.command(change, key) else {
                return Ok(outcome);
            };
            let all = [redis::cmd("MULTI"), change, redis::cmd("EXEC")];
            let mut answers = self.send(&all).await?;
            let executed = answers.pop();
            // A command that was refused says why; EXEC, that one was.
            if let Some(error) = answers.into_iter().find_map(refused) {
                return Err(Failure::Server(error));
            }
            match executed {
                // Somebody has changed it: nothing was done.
                Some(Value::Nil) => {}
                Some(Value::Array(done)) => match done.into_iter().find_map(refused) {
                    Some(error) => return Err(Failure::Server(error)),
                    None => return Ok(outcome),
                },
                Some(Value::ServerError(error)) => return Err(Failure::Server(error)),
                other => return Err(unreadable(&other.unwrap_or(Value::Nil)).into()),
            }
        }
        Err(StoreError::new(
            ErrorKind::Unavailable,
            format!("other clients changed the key between read and write, {TRIES} times in a row"),
        )
        .into())
    }

    /// Sends commands in one piece.
    async fn send(&self, commands: &[Cmd]) -> Result<Vec<Value>, Failure> {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for command in commands {
            pipeline.add_command(command.clone());
        }
        let mut connection = self.connection.clone();
        let answers = connection.send_packed_commands(&pipeline, 0, commands.len());
        Ok(answers.await?)
    }
}
