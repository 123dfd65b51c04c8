//! The server without locks: plain commands, as other libraries use them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_store::StoreError;
use leasehold_store::access::Access;
use leasehold_store::bare::{BareServer, BareWork, ServerCost};
use leasehold_store::sync::check_runtime;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, InfoDict, RedisResult, Script, cmd};

use crate::connection::endpoint::Endpoint;
use crate::errors;
use crate::options::{RedisLayout, RedisOptions};

/// The server of a URL without a store, to measure it. None where there is nothing to compare with.
pub async fn bare(url: &str, access: &Access) -> Result<Option<Box<dyn BareServer>>, StoreError> {
    let options = RedisOptions::from_url(url)?.with_access(access);
    Ok(match options.layout {
        RedisLayout::Native => Some(Box::new(Bare::open(&options).await?)),
        RedisLayout::Classic => None,
    })
}

const WORKS: [BareWork; 3] = [
    BareWork::new("round_trip", "one round trip", None),
    BareWork::new("plain", "SET NX, delete", Some(("of_plain", 1.0))),
    BareWork::new("fenced", "fenced minimum", Some(("of_fenced", 1.0))),
];

/// Compare-and-delete, as every lock on `SET NX` has it (redis.io, "Distributed Locks with Redis").
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then
           return redis.call('DEL', KEYS[1])
         end
         return 0";

/// The least that gives a fencing token: a lock and a counter.
const FENCED: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
           return redis.call('INCR', KEYS[2])
         end
         return 0";

/// How long a lock lasts, in milliseconds.
const TTL: usize = 30_000;

#[derive(Debug)]
struct Bare {
    connection: MultiplexedConnection,
    release: Script,
    fenced: Script,
    prefix: String,
    /// So many have worked.
    tasks: AtomicUsize,
}

impl Bare {
    async fn open(options: &RedisOptions) -> Result<Self, StoreError> {
        check_runtime()?;
        Ok(Self {
            connection: Endpoint::new(options)?.open_for_others().await?,
            release: Script::new(RELEASE),
            fenced: Script::new(FENCED),
            prefix: format!("{}bench:", options.prefix),
            tasks: AtomicUsize::new(0),
        })
    }

    fn keys(&self, task: usize) -> [String; 2] {
        let key = format!("{}pair-{task}", self.prefix);
        [key.clone(), key + ":token"]
    }

    async fn send<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        done(command.query_async(&mut self.connection.clone()).await)
    }
}

#[async_trait]
impl BareServer for Bare {
    fn works(&self) -> &'static [BareWork] {
        &WORKS
    }

    async fn work(&self, place: usize, task: usize) -> Result<(), StoreError> {
        self.tasks.fetch_max(task + 1, Ordering::Relaxed);
        let ([key, token], mut connection) = (self.keys(task), self.connection.clone());
        match place {
            0 => return self.send(&cmd("PING")).await,
            1 => {
                let mut set = cmd("SET");
                set.arg(&key).arg("id").arg("NX").arg("PX").arg(TTL);
                self.send::<()>(&set).await?;
            }
            _ => {
                let mut call = self.fenced.key(&key);
                let call = call.key(token).arg("id").arg(TTL);
                done::<()>(call.invoke_async(&mut connection).await)?;
            }
        }
        let mut release = self.release.key(key);
        done(release.arg("id").invoke_async(&mut connection).await)
    }

    async fn cost(&self, place: Option<usize>) -> Result<Option<ServerCost>, StoreError> {
        let info = self.send(cmd("INFO").arg("everything")).await?;
        Ok(Some(spent(&info, place == Some(1))))
    }

    async fn clear(&self) -> Result<(), StoreError> {
        for task in 0..self.tasks.load(Ordering::Relaxed) {
            self.send::<()>(cmd("DEL").arg(&self.keys(task))).await?;
        }
        Ok(())
    }
}

fn done<T>(answer: RedisResult<T>) -> Result<T, StoreError> {
    answer.map_err(errors::of_connection)
}

/// Scripts, and the processor time; `with_set`: also the time in `SET`, which counts twice within a
/// script.
fn spent(info: &InfoDict, with_set: bool) -> ServerCost {
    let cpu = |name| info.get::<f64>(name).unwrap_or(0.0);
    let cpu = cpu("used_cpu_user") + cpu("used_cpu_sys");
    let stats = |command, name: &str| {
        let stats: String = info.get(command)?;
        let fields = stats.split(',').filter_map(|field| field.split_once('='));
        let mut values = fields.filter(|(field, _)| *field == name);
        values.next()?.1.parse::<u64>().ok()
    };
    let time = |command| Duration::from_micros(stats(command, "usec").unwrap_or(0));
    let set = time("cmdstat_set") * u32::from(with_set);
    ServerCost {
        calls: stats("cmdstat_evalsha", "calls").unwrap_or(0),
        time: time("cmdstat_evalsha").saturating_add(set),
        cpu: Duration::try_from_secs_f64(cpu).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_has_spent() {
        let cost = |info: &str, with_set| spent(&InfoDict::new(info), with_set);
        let info = "used_cpu_sys:0.25\r\nused_cpu_user:1.5\r\n\
            cmdstat_evalsha:calls=3,usec=70,usec_per_call=23.3\r\ncmdstat_set:calls=9,usec=8\r\n";
        for (with_set, micros) in [(false, 70), (true, 78)] {
            let (time, cpu) = (Duration::from_micros(micros), Duration::from_millis(1_750));
            let calls = 3;
            let wanted = ServerCost { calls, time, cpu };
            assert_eq!(cost(info, with_set), wanted);
        }
        for odd in ["-1", "NaN", "1e300", "much", ""] {
            let spent = cost(&format!("used_cpu_user:{odd}"), false);
            assert_eq!(spent, ServerCost::default(), "{odd}");
        }
    }
}
