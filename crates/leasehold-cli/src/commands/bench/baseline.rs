//! What locks are compared with: plain commands, as other libraries use them.

use std::ops::Sub;
use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, InfoDict, RedisError, RedisResult, Script, cmd};

use crate::exit;
use crate::failure::Failure;

/// Compare-and-delete, as every lock on `SET NX` has it (redis.io, "Distributed Locks with Redis").
static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then
           return redis.call('DEL', KEYS[1])
         end
         return 0",
    )
});

/// The least that gives a fencing token: a lock and a counter.
static FENCED: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
           return redis.call('INCR', KEYS[2])
         end
         return 0",
    )
});

/// How long a lock lasts, in milliseconds.
const TTL: usize = 30_000;

/// A bare server.
#[derive(Clone)]
pub(super) struct Baseline {
    connection: MultiplexedConnection,
    prefix: String,
}

/// What the server has used since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ServerCost {
    /// Scripts that were run.
    pub(super) scripts: u64,
    /// The time inside scripts.
    pub(super) script_time: Duration,
    /// The time inside `SET`, also where a script called it.
    pub(super) set_time: Duration,
    /// Processor time of the whole server, networking included.
    pub(super) cpu: Duration,
}

impl Baseline {
    pub(super) fn new(connection: MultiplexedConnection, prefix: &str) -> Self {
        Self {
            connection,
            prefix: format!("{prefix}bench:"),
        }
    }

    /// One bare round trip.
    pub(super) async fn round_trip(&self) -> Result<(), Failure> {
        self.send(&cmd("PING")).await
    }

    /// `SET NX PX`.
    pub(super) async fn plain_acquire(&self, name: &str, id: &str) -> Result<(), Failure> {
        let mut set = cmd("SET");
        set.arg(self.key(name)).arg(id);
        set.arg("NX").arg("PX").arg(TTL);
        self.send(&set).await
    }

    /// `SET NX PX` and `INCR` in one script.
    pub(super) async fn fenced_acquire(&self, name: &str, id: &str) -> Result<(), Failure> {
        let mut call = FENCED.key(self.key(name));
        call.key(self.key(name) + ":token").arg(id).arg(TTL);
        done(call.invoke_async(&mut self.connection.clone()).await)
    }

    /// Compare-and-delete.
    pub(super) async fn release(&self, name: &str, id: &str) -> Result<(), Failure> {
        let mut call = RELEASE.key(self.key(name));
        done(
            call.arg(id)
                .invoke_async(&mut self.connection.clone())
                .await,
        )
    }

    /// Deletes the data of the measurement.
    pub(super) async fn clear(&self, name: &str) -> Result<(), Failure> {
        let keys = [self.key(name), self.key(name) + ":token"];
        self.send(cmd("DEL").arg(&keys)).await
    }

    /// It includes all clients: measure on a server that is otherwise idle.
    pub(super) async fn server_cost(&self) -> Result<ServerCost, Failure> {
        Ok(ServerCost::of(
            &self.send(cmd("INFO").arg("everything")).await?,
        ))
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    async fn send<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Failure> {
        done(command.query_async(&mut self.connection.clone()).await)
    }
}

fn done<T>(answer: RedisResult<T>) -> Result<T, Failure> {
    let failed = |error: RedisError| {
        Failure::new(
            exit::UNAVAILABLE,
            format!("cannot measure the server: {error}"),
        )
    };
    answer.map_err(failed)
}

impl ServerCost {
    fn of(info: &InfoDict) -> Self {
        let cpu = |name| info.get::<f64>(name).unwrap_or(0.0);
        let cpu = cpu("used_cpu_user") + cpu("used_cpu_sys");
        let stats = |command, name: &str| {
            let stats: String = info.get(command)?;
            let fields = stats.split(',').filter_map(|field| field.split_once('='));
            let mut values = fields.filter(|(field, _)| *field == name);
            values.next()?.1.parse::<u64>().ok()
        };
        let time = |command| Duration::from_micros(stats(command, "usec").unwrap_or(0));
        Self {
            scripts: stats("cmdstat_evalsha", "calls").unwrap_or(0),
            script_time: time("cmdstat_evalsha"),
            set_time: time("cmdstat_set"),
            cpu: Duration::try_from_secs_f64(cpu).unwrap_or_default(),
        }
    }
}

impl Sub for ServerCost {
    type Output = Self;

    fn sub(self, then: Self) -> Self {
        Self {
            scripts: self.scripts.saturating_sub(then.scripts),
            script_time: self.script_time.saturating_sub(then.script_time),
            set_time: self.set_time.saturating_sub(then.set_time),
            cpu: self.cpu.saturating_sub(then.cpu),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_has_spent() {
        let cost = |info: &str| ServerCost::of(&InfoDict::new(info));
        let info = "used_cpu_sys:0.25\r\nused_cpu_user:1.5\r\n\
            cmdstat_evalsha:calls=3,usec=70,usec_per_call=23.3\r\ncmdstat_set:calls=9,usec=8\r\n";
        let wanted = ServerCost {
            scripts: 3,
            script_time: Duration::from_micros(70),
            set_time: Duration::from_micros(8),
            cpu: Duration::from_millis(1_750),
        };
        assert_eq!(cost(info), wanted);
        for odd in ["-1", "NaN", "1e300", "much", ""] {
            let spent = cost(&format!("used_cpu_user:{odd}"));
            assert_eq!(spent, ServerCost::default(), "{odd}");
        }
    }
}
