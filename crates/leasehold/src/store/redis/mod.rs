//! `redis://`: one Redis or Valkey server, 6.2 or later.
//!
//! Every verb is one script and one round trip, also on several keys; the record of a key lies under
//! one key of Redis, `<prefix>lock:<name>`, and the pushes of a client go to one
//! channel, `<prefix>inbox:<name>`. All commands of a store share one connection
//! through a batcher; pushes arrive on it too (RESP3).
//!
//! Nothing is retried blindly: a lost connection or a response that does not
//! come in time is `Unavailable`, outcome unknown, and the same claim id asks
//! again. Scripts are sent by hash, and in full when the server does not know
//! them: then nothing has run.

mod acker;
mod acknowledge;
mod baseline;
mod connect;
mod doctor;
mod finder;
mod link;
mod list;
mod options;
mod primary;
mod push;
mod record;
mod refusal;
mod script;
mod sentinels;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Claim, Inbox, Key, Release, Renew, Reply, Snapshot, StoreTime};
use redis::{Cmd, Value};
use tokio::time::Instant;

pub use self::acknowledge::{Acknowledge, AcknowledgedBy};
pub use self::baseline::{Baseline, ServerCost};
use self::connect::Target;
pub(crate) use self::doctor::examine;
use self::link::Shared;
pub use self::options::{RedisAddress, RedisOptions};
use self::record::Record;
use self::script::{SCRIPTS, Script, Terms};
pub use self::sentinels::Sentinels;
use self::wire::Wire;
use crate::error::StoreError;
use crate::store::{
    Acknowledged, Acknowledges, AllAnswer, Answer, Capabilities, Listening, LockStore, PushSink,
    check_parts,
};

/// A store on one Redis or Valkey server. Cheap to share behind an `Arc`; its
/// connection closes when it is dropped.
pub struct RedisStore {
    shared: Arc<Shared>,
}

impl RedisStore {
    /// Opens a store: connects, and checks the version and the role of the server.
    ///
    /// # Errors
    /// `Unavailable` if the server cannot be reached, `Refused` if it is too old,
    /// a read-only replica, or refuses the credentials, `Invalid` for options
    /// that cannot work, `Unsupported` for TLS without the feature `tls`.
    pub async fn connect(options: RedisOptions) -> Result<Self, StoreError> {
        let shared = Shared::open(Target::new(&options)?).await?;
        Ok(Self { shared })
    }

    /// Opens a store with the address, the login and the certificates of a
    /// client that exists already; of `options` only the prefix, the retention
    /// and the time-outs are used.
    ///
    /// The store opens a connection of its own: pushes come on it, and they are
    /// only heard on a connection that was opened for them.
    ///
    /// # Errors
    /// As [`RedisStore::connect`].
    pub async fn from_client(
        client: &redis::Client,
        options: RedisOptions,
    ) -> Result<Self, StoreError> {
        options.check()?;
        let shared = Shared::open(Target::of_client(client, &options)?).await?;
        Ok(Self { shared })
    }

    /// The URL of the server, without the password.
    #[must_use]
    pub fn redacted_url(&self) -> &str {
        &self.shared.target().redacted
    }

    fn terms(&self, wire: &Wire) -> Terms {
        Terms {
            retention: self.shared.target().retention,
            believed: wire.believed.load(Ordering::Acquire),
        }
    }

    fn redis_key(&self, name: &str) -> String {
        format!("{}lock:{name}", self.shared.target().prefix)
    }

    async fn step(
        &self,
        script: &Script,
        key: &Key,
        arguments: impl Fn(&mut Cmd, Terms),
    ) -> Result<Answer, StoreError> {
        self.step_by(Counts::AtOnce, script, key, arguments).await
    }

    async fn step_by(
        &self,
        counts: Counts,
        script: &Script,
        key: &Key,
        arguments: impl Fn(&mut Cmd, Terms),
    ) -> Result<Answer, StoreError> {
        let key = self.redis_key(key.as_str());
        let (value, context) = self.ask(counts, script, &[&key], arguments).await?;
        context.answer(script::read_reply(&value)?)
    }

    /// Runs a script on the primary. A server that says it is none has carried
    /// out nothing: the request goes to the next, for as long as an answer may
    /// take.
    async fn ask(
        &self,
        counts: Counts,
        script: &Script,
        keys: &[&str],
        arguments: impl Fn(&mut Cmd, Terms),
    ) -> Result<(Value, Context), StoreError> {
        let mut end = None;
        loop {
            let wire = self.shared.wire().await?;
            // Read before sending: what is sent before the inbox is open may be
            // answered with pushes that nobody hears.
            let epoch = wire.epoch();
            let terms = self.terms(&wire);
            let (value, acknowledged) =
                run_by(&wire, counts, script, keys, |call| arguments(call, terms)).await?;
            match &value {
                Value::ServerError(error) if refusal::is_elsewhere(error) => {
                    let limit = self.shared.target().response_timeout;
                    if Instant::now() >= *end.get_or_insert_with(|| Instant::now() + limit) {
                        return Err(refusal::still_elsewhere(error));
                    }
                    wire.leave();
                }
                _ => {
                    let context = Context {
                        epoch,
                        acknowledged,
                    };
                    return Ok((value, context));
                }
            }
        }
    }
}

/// When an answer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    AtOnce,
    /// If it holds the key: once it is acknowledged, where a policy asks for it.
    Acknowledged,
}

/// What is known of an answer besides the reply.
struct Context {
    epoch: u64,
    acknowledged: Option<Result<Acknowledged, StoreError>>,
}

impl Context {
    fn answer(&self, (reply, at): (Reply, StoreTime)) -> Result<Answer, StoreError> {
        let mut answer = Answer::new(reply, at, self.epoch);
        if answer.holds() {
            answer.acknowledged = self.acknowledged.clone().transpose()?;
        }
        Ok(answer)
    }
}

/// Runs a script, whose answer counts at once.
async fn run(
    wire: &Arc<Wire>,
    script: &Script,
    keys: &[&str],
    arguments: impl Fn(&mut Cmd),
) -> Result<Value, StoreError> {
    let (value, _) = run_by(wire, Counts::AtOnce, script, keys, arguments).await?;
    Ok(value)
}

/// Runs a script, which the server is told in full if it does not know it.
async fn run_by(
    wire: &Arc<Wire>,
    counts: Counts,
    script: &Script,
    keys: &[&str],
    arguments: impl Fn(&mut Cmd),
) -> Result<(Value, Option<Result<Acknowledged, StoreError>>), StoreError> {
    let send = || async {
        let mut call = script::call(script, keys);
        arguments(&mut call);
        match &wire.acker {
            Some(acker) if counts == Counts::Acknowledged => {
                let (value, acknowledged) = acker.send(wire, call).await?;
                Ok((value, Some(acknowledged)))
            }
            _ => {
                let value = wire.send(call).await.map_err(refusal::of_connection)?;
                Ok((value, None))
            }
        }
    };
    let answer = send().await?;
    match &answer.0 {
        Value::ServerError(error) if error.code() == "NOSCRIPT" => {}
        _ => return Ok(answer),
    }
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(&script.text);
    if let Value::ServerError(error) = wire.send(load).await.map_err(refusal::of_connection)? {
        return Err(refusal::of_server(&error));
    }
    send().await
}

#[async_trait]
impl LockStore for RedisStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durable_tokens: true,
            acknowledges: self
                .shared
                .target()
                .acknowledge
                .map_or(Acknowledges::Nothing, |policy| policy.acknowledges()),
            ..Capabilities::queueing("redis")
        }
    }

    async fn claim(&self, key: &Key, claim: &Claim) -> Result<Answer, StoreError> {
        claim.mode.check()?;
        self.step_by(Counts::Acknowledged, &SCRIPTS.claim, key, |call, terms| {
            script::add_claim(call, claim, terms);
        })
        .await
    }

    async fn claim_all(&self, parts: &[(Key, Claim)]) -> Result<Option<AllAnswer>, StoreError> {
        check_parts(parts)?;
        let keys: Vec<_> = parts
            .iter()
            .map(|(key, _)| self.redis_key(key.as_str()))
            .collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let (value, context) = self
            .ask(
                Counts::Acknowledged,
                &SCRIPTS.claim_all,
                &keys,
                |call, terms| {
                    script::add_claims(call, parts.iter().map(|(_, claim)| claim), terms);
                },
            )
            .await?;
        Ok(Some(match script::read_replies(&value)? {
            Ok(replies) => AllAnswer::All(
                replies
                    .into_iter()
                    .map(|reply| context.answer(reply))
                    .collect::<Result<_, _>>()?,
            ),
            Err((part, reply)) => AllAnswer::NotAll {
                part,
                answer: context.answer(reply)?,
            },
        }))
    }

    async fn renew(&self, key: &Key, renew: &Renew) -> Result<Answer, StoreError> {
        self.step(&SCRIPTS.renew, key, |call, terms| {
            script::add_renew(call, renew, terms);
        })
        .await
    }

    async fn confirm(&self, key: &Key, renew: &Renew) -> Result<Answer, StoreError> {
        self.step_by(Counts::Acknowledged, &SCRIPTS.renew, key, |call, terms| {
            script::add_renew(call, renew, terms);
        })
        .await
    }

    async fn release(&self, key: &Key, release: &Release) -> Result<Answer, StoreError> {
        self.step(&SCRIPTS.release, key, |call, terms| {
            script::add_release(call, release, terms);
        })
        .await
    }

    async fn resize(&self, key: &Key, from: u32, to: u32) -> Result<Answer, StoreError> {
        self.step(&SCRIPTS.resize, key, |call, terms| {
            script::add_resize(call, from, to, terms);
        })
        .await
    }

    async fn watch(&self, key: &Key, ttl: Duration) -> Result<Answer, StoreError> {
        self.step(&SCRIPTS.watch, key, |call, terms| {
            script::add_watch(call, self.inbox(), ttl, terms);
        })
        .await
    }

    async fn break_key(&self, key: &Key) -> Result<Answer, StoreError> {
        self.step(&SCRIPTS.break_key, key, script::add_break).await
    }

    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        let wire = self.shared.wire().await?;
        let key = self.redis_key(key.as_str());
        let value = run(&wire, &SCRIPTS.inspect, &[&key], |_| {}).await?;
        let (record, clock) = Record::read(value)?;
        Ok(record.look(clock))
    }

    async fn list(&self, pattern: &str) -> Result<Vec<(Key, Snapshot)>, StoreError> {
        list::list(self, pattern).await
    }

    fn inbox(&self) -> &Inbox {
        self.shared.inbox()
    }

    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        Ok(Box::new(self.shared.listen(sink).await?))
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("url", &self.redacted_url())
            .finish_non_exhaustive()
    }
}
