//! The baseline of `leasehold bench`: plain Redis commands on a separate connection, as other
//! libraries use them.

use std::sync::LazyLock;
use std::time::Duration;

use leasehold_store::{ErrorKind, StoreError};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Script, Value, cmd};

use super::RedisStore;
use crate::refusal;
use crate::routing::Route;

/// Compare-and-delete, as every lock on `SET NX` has it (redis.io, "Distributed
/// Locks with Redis").
static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(RELEASE_TEXT));
const RELEASE_TEXT: &str = "\
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0";

/// The least that gives a fencing token: a lock and a counter.
static FENCED: LazyLock<Script> = LazyLock::new(|| Script::new(FENCED_TEXT));
const FENCED_TEXT: &str = "\
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return redis.call('INCR', KEYS[2])
end
return 0";

/// Plain commands on a separate connection, for measurements and not for locking.
#[derive(Debug, Clone)]
pub struct Baseline {
    connection: MultiplexedConnection,
    prefix: String,
}

/// What the server has used since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerCost {
    /// Scripts that were run.
    pub scripts: u64,
    /// The time inside scripts.
    pub script_time: Duration,
    /// The time inside `SET`, also where a script called it.
    pub set_time: Duration,
    /// Processor time of the whole server, networking included.
    pub cpu: Duration,
}

impl Baseline {
    /// Makes the baseline of a store's server: connects, and loads its scripts.
    ///
    /// # Errors
    /// Same as [`RedisStore::connect`].
    pub async fn new(store: &RedisStore) -> Result<Self, StoreError> {
        let Route::One(shared) = &store.route else {
            return Err(StoreError::new(
                ErrorKind::Unsupported,
                "a cluster has no single server to compare with",
            )
            .with_hint("measure one of its nodes alone"));
        };
        let baseline = Self {
            connection: shared.target().connect(None).await?.connection,
            prefix: store.prefix().to_owned(),
        };
        for text in [RELEASE_TEXT, FENCED_TEXT] {
            let mut load = cmd("SCRIPT");
            load.arg("LOAD").arg(text);
            baseline.send(load).await?;
        }
        Ok(baseline)
    }

    /// Makes one bare round trip (`PING`).
    ///
    /// # Errors
    /// `Unavailable`: no answer.
    pub async fn round_trip(&self) -> Result<(), StoreError> {
        self.send(cmd("PING")).await.map(drop)
    }

    /// Runs `SET NX PX`; returns whether the key was free.
    ///
    /// # Errors
    /// `Unavailable`: no answer.
    pub async fn plain_acquire(&self, name: &str, id: &str) -> Result<bool, StoreError> {
        let mut set = cmd("SET");
        set.arg(self.key(name))
            .arg(id)
            .arg("NX")
            .arg("PX")
            .arg(30_000);
        Ok(self.send(set).await? == Value::Okay)
    }

    /// Runs `SET NX PX` and `INCR` in one script; returns whether the key was free.
    ///
    /// # Errors
    /// `Unavailable`: no answer.
    pub async fn fenced_acquire(&self, name: &str, id: &str) -> Result<bool, StoreError> {
        let mut call = cmd("EVALSHA");
        call.arg(FENCED.get_hash()).arg(2).arg(self.key(name));
        call.arg(self.key(name) + ":token").arg(id).arg(30_000);
        Ok(self.send(call).await? != Value::Int(0))
    }

    /// Runs a compare-and-delete; returns whether the key was held with this id.
    ///
    /// # Errors
    /// `Unavailable`: no answer.
    pub async fn release(&self, name: &str, id: &str) -> Result<bool, StoreError> {
        let mut call = cmd("EVALSHA");
        call.arg(RELEASE.get_hash())
            .arg(1)
            .arg(self.key(name))
            .arg(id);
        Ok(self.send(call).await? == Value::Int(1))
    }

    /// Deletes the data of the measurement.
    ///
    /// # Errors
    /// `Unavailable`: no answer.
    pub async fn clear(&self, name: &str) -> Result<(), StoreError> {
        let mut del = cmd("DEL");
        del.arg(self.key(name)).arg(self.key(name) + ":token");
        self.send(del).await.map(drop)
    }

    /// Returns what the server has used so far. It includes all clients: measure on a server that
    /// is otherwise idle.
    ///
    /// # Errors
    /// `Unavailable`: no answer.
    pub async fn server_cost(&self) -> Result<ServerCost, StoreError> {
        let mut info = cmd("INFO");
        info.arg("everything");
        let text = match self.send(info).await? {
            Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Value::VerbatimString { text, .. } => text,
            _ => {
                return Err(StoreError::new(
                    ErrorKind::Unsupported,
                    "the server's answer to INFO is not text",
                ));
            }
        };
        Ok(read_cost(&text))
    }

    fn key(&self, name: &str) -> String {
        format!("{}bench:{name}", self.prefix)
    }

    async fn send(&self, command: Cmd) -> Result<Value, StoreError> {
        let mut connection = self.connection.clone();
        let answer = connection.send_packed_command(&command).await;
        match answer.map_err(refusal::of_connection)? {
            Value::ServerError(error) => Err(refusal::of_server(&error)),
            value => Ok(value),
        }
    }
}

/// What `INFO everything` says of it.
pub(crate) fn read_cost(text: &str) -> ServerCost {
    let seconds = |name: &str| field(text, name, ':').and_then(|s| s.trim().parse().ok());
    let cpu: f64 =
        seconds("used_cpu_user:").unwrap_or(0.0) + seconds("used_cpu_sys:").unwrap_or(0.0);
    let mut cost = ServerCost {
        cpu: Duration::try_from_secs_f64(cpu).unwrap_or_default(),
        ..ServerCost::default()
    };
    for line in text
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_"))
    {
        let Some((name, stats)) = line.split_once(':') else {
            continue;
        };
        let number = |name| field(stats, name, '=').and_then(|n| n.parse::<u64>().ok());
        let time = Duration::from_micros(number("usec=").unwrap_or(0));
        match name {
            "evalsha" => {
                cost.scripts = number("calls=").unwrap_or(0);
                cost.script_time = time;
            }
            "set" => cost.set_time = time,
            _ => {}
        }
    }
    cost
}

/// The text after `name`, up to the next separator.
fn field<'a>(text: &'a str, name: &str, kind: char) -> Option<&'a str> {
    let rest = &text[text.find(name)? + name.len()..];
    let end = if kind == '=' { ',' } else { '\n' };
    Some(rest.split(end).next().unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_has_spent() {
        let info = "used_cpu_sys:0.25\r\nused_cpu_user:1.5\r\n\
            cmdstat_evalsha:calls=3,usec=70,usec_per_call=23.3\r\ncmdstat_set:calls=9,usec=8\r\n";
        let wanted = ServerCost {
            scripts: 3,
            script_time: Duration::from_micros(70),
            set_time: Duration::from_micros(8),
            cpu: Duration::from_millis(1_750),
        };
        assert_eq!(read_cost(info), wanted);
        for odd in ["-1", "NaN", "1e300", "much", ""] {
            let cost = read_cost(&format!("used_cpu_user:{odd}"));
            assert_eq!(cost, ServerCost::default(), "{odd}");
        }
    }
}
