//! Permissions of the client at a server, checked for each new connection.
//!
//! ACLs, proxies and managed servers can forbid commands. All permissions are checked in one
//! round trip, together with `INFO`. Each missing permission is logged once. The client works
//! without it in degraded mode, if that is safe (`docs/adr/08-redis-connections.md`).

use std::collections::HashMap;

use leasehold_store::StoreError;
use leasehold_store::fork::Lazy;
use leasehold_store::random::random_u128;
use redis::{RedisResult, Value};

use super::endpoint::Endpoint;
use super::socket::Socket;
use super::value::text_of;
use crate::codec::script::{Script, unreadable};
use crate::errors::{self, is_forbidden};

/// What the scripts run on the key of a lock, and on that of a vote.
const OF_LOCKS: &[&str] = &[
    "TIME", "MGET", "EXISTS", "TYPE", "SET", "SETRANGE", "DEL", "HSET", "HGET", "HMGET", "HGETALL",
    "HDEL", "PEXPIRE",
];

/// The commands that the scripts run, as far as it is safe to try them.
fn commands(endpoint: &Endpoint) -> Vec<&'static str> {
    if endpoint.options.is_classic() {
        // Its keys may be anybody's.
        return Vec::new();
    }
    let log = endpoint.options.audit.map(|_| "XADD");
    OF_LOCKS.iter().copied().chain(log).collect()
}

/// What of `INFO` is asked for: `clients` is the doctor's.
const SECTIONS: [&str; 6] = [
    "server",
    "replication",
    "memory",
    "cluster",
    "persistence",
    "clients",
];

static PROBE: Lazy<Script> = Lazy::new(|| Script::new(include_str!("../codec/lua/rights.lua")));

/// Something that is forbidden here, and can be done without.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MissingPermission {
    /// What it takes away.
    pub(crate) check: &'static str,
    pub(crate) found: &'static str,
    pub(crate) cost: &'static str,
    /// What would do, with `<prefix>` in it.
    remedy: &'static str,
}

const PUSHES: &str = "pushes";

impl MissingPermission {
    const RESP3: &Self = &Self {
        check: PUSHES,
        found: "the server does not speak RESP3",
        cost: "clients poll for their grants; a dead waiter delays the others by its waiter TTL",
        remedy: "use Redis 6.2 or later, or Valkey, without a proxy that speaks RESP2 only",
    };

    const SUBSCRIBE: &Self = &Self {
        found: "SUBSCRIBE is forbidden",
        remedy: "add +subscribe +unsubscribe &<prefix>* to the user's ACL rule",
        ..*Self::RESP3
    };

    pub(crate) const PUBLISH: &Self = &Self {
        found: "PUBLISH is forbidden",
        remedy: "add +publish &<prefix>* to the user's ACL rule",
        ..*Self::RESP3
    };

    pub(crate) const INFO: &Self = &Self {
        check: "info",
        found: "INFO is forbidden",
        cost: "version, role, memory policy and restarts are unknown; a dead waiter delays others \
         by its waiter TTL",
        remedy: "add +info to the user's ACL rule",
    };

    pub(crate) fn remedy(&self, prefix: &str) -> String {
        self.remedy.replace("<prefix>", prefix)
    }
}

/// The permissions of the client at a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) missing: Vec<&'static MissingPermission>,
    /// Whether `PUBLISH` counted the one listener that there was.
    pub(crate) counts: bool,
}

impl Rights {
    /// Whether pushes can be received and sent.
    pub(crate) fn push(&self) -> bool {
        self.missing.iter().all(|missing| missing.check != PUSHES)
    }
}

/// Checks the permissions at a server, in one round trip. `channel`: the channel of pushes, if there
/// is one. Returns the fields of `INFO`, none where it is forbidden, and the rights; these are refused
/// where no script can be run.
pub(super) async fn find(
    connection: &Socket,
    endpoint: &Endpoint,
    resp3: bool,
    channel: Option<&str>,
) -> Result<(HashMap<String, String>, Result<Rights, StoreError>), StoreError> {
    let mut pipeline = redis::pipe();
    for section in SECTIONS {
        pipeline.cmd("INFO").arg(section);
    }
    // In full first, which makes the script known. Nobody else has its key: where only trying
    // helps, it is tried.
    let prefix = &endpoint.options.prefix;
    let key = format!("{prefix}lock:{:032x}", random_u128());
    let commands = commands(endpoint);
    for (verb, script) in [("EVAL", &PROBE.text), ("EVALSHA", &PROBE.hash)] {
        let probe = pipeline.cmd(verb).arg(script).arg(0).arg(&key);
        probe.arg(&commands);
    }
    // The inbox is open while `PUBLISH` counts, and closed right after it.
    if let Some(channel) = channel.filter(|_| resp3) {
        pipeline.cmd("SUBSCRIBE").arg(channel);
        pipeline.cmd("PUBLISH").arg(channel).arg("");
        pipeline.cmd("UNSUBSCRIBE").arg(channel);
    }
    let answers = connection.ask_all(pipeline.cmd_iter()).await;
    let answers = answers.map_err(errors::of_connection)?;
    let (sections, rest) = answers.split_at(SECTIONS.len().min(answers.len()));
    let [in_full, by_hash, inbox @ ..] = rest else {
        return Err(unreadable(&Value::Nil));
    };
    let (subscribed, published) = match inbox {
        [opened, published, closed] => {
            forbidden_or_lost(Ok(closed.clone()))?.ok();
            (forbidden_or_lost(Ok(opened.clone()))?, Some(published))
        }
        _ => (Ok(()), None),
    };
    let info = read_info(sections)?;
    let forbidden = |value: &Value| matches!(value, Value::ServerError(e) if is_forbidden(e));
    let facts = [
        (MissingPermission::INFO, info.is_empty()),
        (MissingPermission::RESP3, channel.is_some() && !resp3),
        (MissingPermission::SUBSCRIBE, subscribed.is_err()),
        (MissingPermission::PUBLISH, published.is_some_and(forbidden)),
    ];
    let rights = match forbidden(in_full) || forbidden(by_hash) {
        true => Err(errors::no_scripts(prefix, endpoint.options.is_classic())),
        false => allowed(by_hash, prefix).map(|()| Rights {
            missing: facts
                .into_iter()
                .filter_map(|(missing, is_so)| is_so.then_some(missing))
                .collect(),
            counts: matches!(published, Some(Value::Int(1))),
        }),
    };
    Ok((info, rights))
}

/// Whether scripts may run all their commands: a script cannot roll back if a command is denied.
pub(crate) fn allowed(answer: &Value, prefix: &str) -> Result<(), StoreError> {
    let Value::Array(forbidden) = answer else {
        // It cannot say now, or not at all.
        return Ok(());
    };
    let forbidden: Vec<_> = forbidden.iter().filter_map(text_of).collect();
    match forbidden.is_empty() {
        true => Ok(()),
        false => Err(errors::no_right(&forbidden.join(", "), prefix)),
    }
}

/// What a command that opens or closes the inbox was answered: an error within if
/// it is forbidden, without if the connection is at fault.
pub(crate) fn forbidden_or_lost(
    answer: RedisResult<Value>,
) -> Result<Result<(), StoreError>, StoreError> {
    match answer.map_err(errors::of_connection)? {
        Value::ServerError(error) if is_forbidden(&error) => Ok(Err(errors::of_server(&error))),
        Value::ServerError(error) => Err(errors::of_server(&error)),
        _ => Ok(Ok(())),
    }
}

pub(crate) fn read_info(sections: &[Value]) -> Result<HashMap<String, String>, StoreError> {
    let mut info = HashMap::new();
    for section in sections {
        match (section, text_of(section)) {
            (Value::ServerError(error), _) if is_forbidden(error) => {}
            (_, Some(text)) => info.extend(fields(&text)),
            (_, None) => return Err(unreadable(section)),
        }
    }
    Ok(info)
}

/// The fields of an answer to `INFO`.
pub(crate) fn fields(text: &str) -> impl Iterator<Item = (String, String)> {
    text.lines()
        .filter_map(|line| line.trim().split_once(':'))
        .map(|(name, value)| (name.to_owned(), errors::tame(value)))
}
