//! Converts errors of servers and connections to store errors.

mod lacking;
mod opening;
#[cfg(test)]
mod tests;

use std::time::Duration;

use leasehold_core::StoreTime;
use leasehold_store::{ErrorKind, StoreError};
use redis::{RedisError, ServerError};

pub(crate) use self::lacking::lacking;
pub(crate) use self::opening::{Dialling, is_closed, of_closed, of_opening};

/// The rule that gives a user just what leasehold needs.
pub(super) const ACL: &str = "ACL SETUSER <name> on ><password> resetchannels ~leasehold:* &leasehold:* \
    -@all +evalsha +script|load +time +mget +exists +type +set +setrange +del +hset +hget +hmget \
    +hgetall +hdel +pexpire +publish +subscribe +unsubscribe +scan +info +ping";

/// What a user of a cluster needs besides.
const ACL_IN_CLUSTER: &str = "+cluster|slots +asking";

/// The rule for this user, with this prefix.
pub(super) fn acl(user: &str, prefix: &str) -> String {
    ACL.replace("<name>", user).replace("leasehold:", prefix)
}

/// A user who may not run scripts.
pub(super) fn no_scripts(prefix: &str) -> StoreError {
    refused(
        "the server forbids scripts: neither EVALSHA with SCRIPT LOAD nor EVAL is allowed",
        format!(
            "this rule is enough: {}; `?layout=classic` needs no scripts",
            acl("<name>", prefix)
        ),
    )
}

/// A user whose scripts may not run these commands.
pub(super) fn no_right(commands: &str, prefix: &str) -> StoreError {
    refused(
        format!(
            "scripts of this user may not run {} on keys that begin with {prefix:?}",
            tame(commands)
        ),
        // Only an audit log needs these.
        match commands.contains("XADD") {
            true => format!(
                "this rule is enough: {} +xadd +xrange",
                acl("<name>", prefix)
            ),
            false => format!("this rule is enough: {}", acl("<name>", prefix)),
        },
    )
}

/// An error that the server answered.
pub(super) fn of_server(error: &ServerError) -> StoreError {
    refusal(error.code(), error.details().unwrap_or_default())
}

/// An error that the server answered when it was asked for the other nodes.
pub(super) fn of_topology(error: &ServerError) -> StoreError {
    let detail = error.details().unwrap_or_default();
    if detail.contains("cluster support disabled") {
        return refused("the server is not part of a cluster", "use redis:// for it");
    }
    of_server(error)
}

/// An error of the connection, or one that the server answered to a single command.
pub(super) fn of_connection(error: RedisError) -> StoreError {
    if error.kind() == redis::ErrorKind::RESP3NotSupported {
        return old_protocol();
    }
    let authentication = error.kind() == redis::ErrorKind::AuthenticationFailed;
    if let Some(code) = error.code() {
        return refusal(code, error.detail().unwrap_or_default());
    }
    if authentication {
        return refusal("WRONGPASS", "");
    }
    let message = if error.is_timeout() {
        "the server did not answer in time; the outcome is unknown".to_owned()
    } else {
        let why = tame(&error.to_string());
        format!("the connection to the server failed ({why}); the outcome is unknown")
    };
    StoreError::new(ErrorKind::Unavailable, message).with_source(error)
}

/// Whether it is about who we are.
pub(super) fn is_of_login(error: &StoreError) -> bool {
    ["WRONGPASS", "NOAUTH"]
        .iter()
        .any(|code| error.message().contains(code))
}

/// Whether a connection may have been refused for its protocol alone. `login`: its
/// greeting had a password, which a server that does not understand it has not seen.
pub(super) fn is_without_resp3(error: &RedisError, login: bool) -> bool {
    let named = |detail: &str| detail.to_ascii_uppercase().contains("HELLO");
    match error.code() {
        Some("NOPROTO") => true,
        Some("NOAUTH") => login,
        Some("ERR" | "NOPERM") => error.detail().is_some_and(named),
        _ => error.kind() == redis::ErrorKind::RESP3NotSupported,
    }
}

/// A server that does not speak RESP3.
pub(super) fn old_protocol() -> StoreError {
    StoreError::new(ErrorKind::Refused, "the server does not speak RESP3")
        .with_hint("use Redis 6.2 or later, or Valkey, without a proxy that speaks RESP2 only")
}

/// What a server says that is no primary, or none yet: nothing was carried out,
/// and another connection may lead to one that is.
pub(super) fn is_elsewhere(error: &ServerError) -> bool {
    let code = inner_code(error.code(), error.details().unwrap_or_default());
    matches!(code, "READONLY" | "MASTERDOWN" | "LOADING")
}

/// The same, and no other was found in time: asking again may help.
pub(super) fn still_elsewhere(error: &ServerError) -> StoreError {
    let refused = of_server(error);
    StoreError::new(ErrorKind::Unavailable, refused.message())
        .with_hint_of(&refused)
        .with_source(refused)
}

/// Redis 6.2 wraps what goes wrong within a script into an `ERR`, and names
/// the inner code in the text.
fn inner_code<'a>(code: &'a str, detail: &str) -> &'a str {
    let inner = [
        "OOM",
        "READONLY",
        "NOPERM",
        "MISCONF",
        "NOREPLICAS",
        "MOVED",
    ]
    .into_iter()
    .find(|inner| code == "ERR" && detail.contains(&format!("-{inner} ")));
    inner.unwrap_or(code)
}

/// How much of what a server says is passed on: it goes to logs and terminals.
const LONGEST: usize = 300;

/// The text of a server, shortened and made safe to show.
pub(super) fn tame(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(LONGEST)
        .collect()
}

/// Codes that say all by themselves: what they mean, and what to do.
const KNOWN: [(&[&str], &str, &str); 6] = [
    (
        &["OOM"],
        "the server is out of memory",
        "raise its maxmemory, or delete data that is not needed",
    ),
    (
        &["READONLY"],
        "the server is a read-only replica",
        "connect to the primary; after a fail-over, to the new one",
    ),
    (
        &["NOAUTH"],
        "the server asks for a password, and none was given (NOAUTH)",
        "log in: redis://user:password@host, or a password file",
    ),
    (
        &["MISCONF"],
        "the server cannot write its snapshot and refuses writes",
        "check its log; see stop-writes-on-bgsave-error",
    ),
    (
        &["NOREPLICAS"],
        "the server has too few replicas and refuses writes",
        "see its min-replicas-to-write",
    ),
    (
        &["MOVED", "ASK", "CLUSTERDOWN", "CROSSSLOT"],
        "the server is a node of a Redis Cluster and does not keep this key",
        "for a cluster write redis-cluster://, with one or more of its nodes",
    ),
];

fn refusal(code: &str, detail: &str) -> StoreError {
    let (code, detail) = (&*tame(code), &*tame(detail));
    let inner = inner_code(code, detail);
    let known = KNOWN.iter().find(|(codes, ..)| codes.contains(&inner));
    if let Some((_, message, hint)) = known {
        return refused(*message, *hint);
    }
    match inner {
        "LHTYPE" => foreign(detail),
        "LHFOREIGN" => other_settings(),
        "LHCLOCK" => clock_too_late(detail.parse().unwrap_or(u64::MAX)),
        "LHVERSION" => newer(detail.parse().unwrap_or(0)),
        "NOPERM" => refused(
            format!("the user may not do this: {detail}"),
            format!(
                "this rule is enough (with the prefix you use): {ACL}; for a cluster add \
                 {ACL_IN_CLUSTER}"
            ),
        ),
        "WRONGPASS" => refused(
            format!(
                "the server refuses the user name or password ({})",
                format!("WRONGPASS {detail}").trim_end()
            ),
            "check the credentials; a password file is read again with each connection",
        ),
        "DENIED" if detail.contains("protected mode") => refused(
            "the server is in protected mode and accepts only local connections (DENIED)",
            "set a password on the server, or `bind` it to a private address",
        ),
        "ERR" if detail.contains("max number of clients") => StoreError::new(
            ErrorKind::Unavailable,
            "the server has reached its limit of clients (maxclients)",
        )
        .with_hint("raise maxclients, or find the programs that leave connections open"),
        "LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN" => {
            refused(format!("the server is not ready: {detail}"), "try later")
                .with_retry_after(Duration::from_secs(1))
        }
        // A command that a script may not run, which it says in as many ways.
        _ if tells_of_rights(detail) => refusal("NOPERM", detail),
        _ if detail.contains("user_script") => damaged(),
        _ => StoreError::new(
            ErrorKind::Refused,
            format!("the server answered {code} {detail}"),
        ),
    }
}

/// A server that takes no writes.
pub(super) fn read_only() -> StoreError {
    refusal("READONLY", "")
}

/// Whether it is about what the user may do, which is said in many ways.
fn tells_of_rights(detail: &str) -> bool {
    let ways = [
        "has no permissions to",
        "can't run this command",
        "can't access",
        "ACL failure",
        "Unknown Redis command",
    ];
    ways.iter().any(|way| detail.contains(way))
}

fn refused(message: impl Into<String>, hint: impl Into<String>) -> StoreError {
    StoreError::new(ErrorKind::Refused, message).with_hint(hint)
}

/// The key contains something that is not leasehold's.
pub(super) fn foreign(found: &str) -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        format!(
            "the key contains a {} that is not leasehold's; nothing was changed",
            tame(found)
        ),
    )
    .with_hint(
        "choose another prefix, or delete the key; if it is a lock of another library, \
         layout=classic shares it",
    )
}

/// The server belongs to clients with other settings.
pub(super) fn other_settings() -> StoreError {
    refused(
        "the server belongs to clients with other settings",
        "use one max_ttl and quarantine in all clients, and no redlock:// set; `leasehold init` \
         changes them",
    )
}

/// A clock from which tokens and deadlines cannot be counted.
pub(super) fn clock_too_late(micros: u64) -> StoreError {
    let late = StoreTime(micros).check().err();
    let late = late.map_or_else(String::new, |late| format!(": {late}"));
    refused(
        format!("the server's clock is wrong{late}"),
        "correct the server's clock; nothing was changed, and the key works again after that",
    )
}

/// A record of a later version.
pub(super) fn newer(version: u8) -> StoreError {
    refused(
        format!(
            "the record of the key has format version {version}, which is newer than this \
         client"
        ),
        "upgrade leasehold on this host",
    )
}

/// The name of something that is not ours.
pub(super) fn no_key() -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        "its name is not UTF-8, so it is not a key of leasehold",
    )
}

/// A record of ours that cannot be read.
pub(super) fn damaged() -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        "the record of the key is damaged; nothing was changed",
    )
    .with_hint("inspect it, and delete it when nobody holds the key")
}

/// There is no connection, so nothing can have been carried out.
pub(super) fn no_connection(last: Option<&StoreError>) -> StoreError {
    let Some(last) = last else {
        return StoreError::new(
            ErrorKind::Unavailable,
            "there is no connection to the server",
        );
    };
    let message = format!("there is no connection to the server: {last}");
    let error = StoreError::new(last.kind(), message)
        .with_hint_of(last)
        .with_source(last.clone());
    match last.retry_after() {
        Some(after) => error.with_retry_after(after),
        None => error,
    }
}
