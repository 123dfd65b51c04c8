//! Locks that are known to be broken, each in one thing: the faults that the harness has
//! to find.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, RedisResult};
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::lock::{Acquired, Algorithm, Failure, Held, Lock, OnQueued};
use super::{Spec, Task};
use crate::faults::history::{Micros, now};

/// Deletes a key if it is ours.
const DELETE: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";

/// Prolongs a key if it is ours.
const PROLONG: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0";

/// A server, and a connection to it if there is one.
struct Node {
    client: redis::Client,
    connection: Mutex<Option<MultiplexedConnection>>,
    limit: Duration,
}

impl Node {
    async fn ask<T: FromRedisValue>(&self, command: &redis::Cmd) -> RedisResult<T> {
        let open = self.connection.lock().await.clone();
        let mut connection = match open {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let answer = command.query_async(&mut connection).await;
        if answer.is_err() {
            *self.connection.lock().await = None;
        }
        answer
    }

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.limit))
            .set_response_timeout(Some(self.limit));
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        *self.connection.lock().await = Some(connection.clone());
        Ok(connection)
    }
}

pub(super) struct Broken {
    algorithm: Algorithm,
    nodes: Arc<Vec<Node>>,
    ttl: Duration,
    /// Where owners' names and pauses come from.
    random: Mutex<fastrand::Rng>,
}

impl Broken {
    pub(super) fn connect(spec: &Spec) -> Result<Self, Failure> {
        let several = spec.algorithm == Algorithm::PlainRedlock;
        let limit = if several {
            spec.ttl / 10
        } else {
            spec.operation_timeout
        };
        let node = |url: String| {
            let client =
                redis::Client::open(url).map_err(|error| Failure::new("invalid", &error))?;
            let connection = Mutex::default();
            Ok(Node {
                client,
                connection,
                limit,
            })
        };
        let nodes: Result<Vec<_>, Failure> = spec.servers().into_iter().map(node).collect();
        Ok(Self {
            algorithm: spec.algorithm,
            nodes: Arc::new(nodes?),
            ttl: spec.ttl,
            random: Mutex::new(fastrand::Rng::with_seed(
                spec.seed ^ u64::from(std::process::id()),
            )),
        })
    }

    /// One attempt.
    async fn attempt(&self, key: &str) -> Result<Option<Lease>, Failure> {
        let owner = format!("{:032x}", self.random.lock().await.u128(..));
        let asked = now();
        let mut set = redis::cmd("SET");
        set.arg(&[key, &owner, "NX", "PX", &millis(self.ttl).to_string()]);
        let answers = join_all(self.nodes.iter().map(|it| it.ask::<Option<String>>(&set))).await;
        let counted_from = match self.algorithm {
            Algorithm::ValidFromAnswer => now(),
            _ => asked,
        };
        let lease = Lease {
            algorithm: self.algorithm,
            nodes: Arc::clone(&self.nodes),
            key: key.to_owned(),
            owner,
            ttl: self.ttl,
            valid_until: counted_from + reliable(self.algorithm, self.ttl),
            renewed: now(),
        };
        let granted = answers.iter().filter(|it| matches!(it, Ok(Some(_))));
        let granted = granted.count();
        if granted > self.nodes.len() / 2 && lease.valid_until > now() {
            return Ok(Some(lease));
        }
        let unknown = answers.into_iter().find_map(Result::err);
        if granted > 0 || unknown.is_some() {
            let _ = lease.delete_if_ours().await;
        }
        unknown.map_or(Ok(None), |error| Err(Failure::new("unavailable", &error)))
    }

    async fn pause(&self) {
        let micros = self.random.lock().await.u64(5_000..25_000);
        sleep(Duration::from_micros(micros)).await;
    }
}

/// How much of a TTL is relied on.
fn reliable(algorithm: Algorithm, ttl: Duration) -> Micros {
    let allowance = match algorithm {
        Algorithm::ValidFromAnswer => Duration::ZERO,
        _ => leasehold::core::drift_allowance(ttl),
    };
    u64::try_from(ttl.saturating_sub(allowance).as_micros()).unwrap_or(0)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[async_trait]
impl Lock for Broken {
    async fn acquire(&self, task: &Task, patience: Option<Duration>, _: OnQueued) -> Acquired {
        let asked = now();
        let mut failed = None;
        loop {
            match self.attempt(&task.key).await {
                Ok(Some(lease)) => return Ok(Box::new(lease)),
                Ok(None) => {}
                Err(failure) => failed = Some(failure),
            }
            let over = |limit: Duration| u128::from(now() - asked) >= limit.as_micros();
            if patience.map_or_else(|| failed.is_some(), over) {
                return Err(failed.unwrap_or_else(Failure::busy));
            }
            self.pause().await;
        }
    }
}

struct Lease {
    algorithm: Algorithm,
    nodes: Arc<Vec<Node>>,
    key: String,
    owner: String,
    ttl: Duration,
    valid_until: Micros,
    renewed: Micros,
}

impl Lease {
    async fn delete_if_ours(&self) -> usize {
        let mut delete = redis::cmd("EVAL");
        delete.arg(DELETE).arg(1).arg(&self.key).arg(&self.owner);
        self.on_how_many(&delete).await
    }

    /// How many servers answer a command with 1.
    async fn on_how_many(&self, command: &redis::Cmd) -> usize {
        let answers = join_all(self.nodes.iter().map(|node| node.ask::<i64>(command))).await;
        answers.iter().filter(|it| matches!(it, Ok(1))).count()
    }
}

#[async_trait]
impl Held for Lease {
    fn remaining(&self) -> Duration {
        Duration::from_micros(self.valid_until.saturating_sub(now()))
    }

    async fn tend(&mut self) -> bool {
        let due = self.renewed + u64::try_from(self.ttl.as_micros()).unwrap_or(0) / 3;
        if now() < due {
            return false;
        }
        let mut prolong = match self.algorithm {
            Algorithm::RenewWithoutOwner => redis::cmd("PEXPIRE"),
            Algorithm::PlainRedlock => redis::cmd("EVAL"),
            // These are for short work.
            _ => return false,
        };
        match self.algorithm {
            Algorithm::RenewWithoutOwner => prolong.arg(&self.key),
            _ if self.remaining().is_zero() => return false,
            _ => prolong.arg(PROLONG).arg(1).arg(&self.key).arg(&self.owner),
        };
        prolong.arg(millis(self.ttl));
        let asked = now();
        if self.on_how_many(&prolong).await > self.nodes.len() / 2 {
            self.valid_until = asked + reliable(self.algorithm, self.ttl);
            self.renewed = asked;
        }
        true
    }

    async fn release(self: Box<Self>) -> Option<bool> {
        let needed = self.nodes.len() / 2;
        Some(match self.algorithm {
            Algorithm::DelWithoutOwner => {
                let mut delete = redis::cmd("DEL");
                delete.arg(&self.key);
                self.on_how_many(&delete).await > needed
            }
            _ => self.delete_if_ours().await > needed,
        })
    }
}
