//! What the server's refusals and the connection's failures mean to a caller.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::StoreTime;
use leasehold_store::{ErrorKind, StoreError};
use redis::{RedisError, ServerError};

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
        "scripts are forbidden here: neither EVALSHA with SCRIPT LOAD nor EVAL can be used",
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
        format!("this rule is enough: {}", acl("<name>", prefix)),
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

/// An error in opening a connection, for which `limit` was given: nothing was asked yet.
pub(super) fn of_opening(error: RedisError, limit: Duration) -> StoreError {
    let io = io_error(&error);
    let said = |message: String, hint: &str| {
        StoreError::new(ErrorKind::Unavailable, message).with_hint(hint)
    };
    let text = tame(&error.to_string());
    let failed = match io.map(io::Error::kind) {
        _ if text.contains(UNRESOLVED) || text.contains("No address found") => {
            let why = text.rsplit(": ").next().unwrap_or_default();
            said(
                format!("the name of the host cannot be resolved ({why})"),
                "check the host in the URL, and this machine's DNS",
            )
        }
        _ if error.is_timeout() => said(
            format!("no answer within {limit:?}"),
            "is the server running, and reachable from here? does the port expect TLS?",
        ),
        Some(io::ErrorKind::ConnectionRefused) => said(
            "connection refused".to_owned(),
            "is the server running, and is it this port?",
        ),
        Some(io::ErrorKind::NotFound) => said(
            "there is no such socket".to_owned(),
            "is the server running? `unixsocket` in its configuration names the socket",
        ),
        Some(io::ErrorKind::PermissionDenied) => said(
            format!("this user may not connect ({text})"),
            "`unixsocketperm` in the configuration of the server says who may",
        ),
        Some(
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe,
        ) => said(
            format!("the server closed the connection at once ({text})"),
            "does it expect TLS (rediss://)? does it have too many clients (maxclients)?",
        ),
        _ => match io.and_then(tls_failure) {
            Some(failed) => failed,
            None if io.is_some() => said(text, "is the server running, and reachable from here?"),
            // It was answered.
            None => return of_connection(error),
        },
    };
    failed.with_source(error)
}

/// How resolving a name fails, whatever the reason.
const UNRESOLVED: &str = "failed to lookup address information";

fn io_error(error: &RedisError) -> Option<&io::Error> {
    use std::error::Error as _;
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    error.source()?.downcast_ref::<Shared>()?.downcast_ref()
}

#[cfg(not(feature = "tls"))]
fn tls_failure(_: &io::Error) -> Option<StoreError> {
    None
}

/// What TLS says; waiting cures none of it that has to do with certificates.
#[cfg(feature = "tls")]
fn tls_failure(error: &io::Error) -> Option<StoreError> {
    use rustls::Error as Tls;
    let failed: &Tls = error.get_ref()?.downcast_ref()?;
    let text = tame(&failed.to_string());
    Some(match failed {
        Tls::InvalidCertificate(_) => refused(
            format!("the certificate of the server is not trusted ({text})"),
            "name the authority that signed it (`ca` in the URL), and the server as the \
             certificate does",
        ),
        Tls::AlertReceived(_) => refused(
            format!("the server refuses the TLS handshake ({text})"),
            "it may ask for a certificate of the client: `cert` and `key` in the URL",
        ),
        Tls::InvalidMessage(_) => refused(
            format!("the server does not speak TLS on this port ({text})"),
            "use redis:// for a connection without TLS, or the server's `tls-port`",
        ),
        _ => StoreError::new(
            ErrorKind::Unavailable,
            format!("the TLS handshake failed ({text})"),
        )
        .with_hint("look at the log of the server"),
    })
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

/// What a server says, as far as it is shown.
pub(super) fn tame(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(LONGEST)
        .collect()
}

fn refusal(code: &str, detail: &str) -> StoreError {
    let (code, detail) = (&*tame(code), &*tame(detail));
    match inner_code(code, detail) {
        "LHTYPE" => foreign(detail),
        "LHFOREIGN" => other_settings(),
        "LHCLOCK" => clock_too_late(detail.parse().unwrap_or(u64::MAX)),
        "LHVERSION" => newer(detail.parse().unwrap_or(0)),
        "OOM" => refused(
            "the server is out of memory",
            "raise its maxmemory, or remove what it need not keep",
        ),
        "READONLY" => refused(
            "the server is a read-only replica",
            "connect to the primary; after a fail-over, to the new one",
        ),
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
        "NOAUTH" => refused(
            "the server asks for a password, and none was given (NOAUTH)",
            "log in: redis://user:password@host, or a password file",
        ),
        "DENIED" if detail.contains("protected mode") => refused(
            "the server is in protected mode, and lets in only who is on its own machine (DENIED)",
            "set a password at the server, or `bind` it to an address that only friends reach",
        ),
        "ERR" if detail.contains("max number of clients") => StoreError::new(
            ErrorKind::Unavailable,
            "the server has as many clients as it takes (maxclients)",
        )
        .with_hint("raise maxclients, or find out who leaves connections open"),
        "MISCONF" => refused(
            "the server cannot write its snapshot and refuses writes",
            "look at its log; see stop-writes-on-bgsave-error",
        ),
        "NOREPLICAS" => refused(
            "the server has too few replicas and refuses writes",
            "see its min-replicas-to-write",
        ),
        "MOVED" | "ASK" | "CLUSTERDOWN" | "CROSSSLOT" => refused(
            "the server is a node of a Redis Cluster and does not keep this key",
            "for a cluster write redis-cluster://, with one or more of its nodes",
        ),
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

/// Something that is not ours stands at the key.
pub(super) fn foreign(found: &str) -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        format!(
            "a {} that is not leasehold's stands at the key; it was left as it is",
            tame(found)
        ),
    )
    .with_hint(
        "choose another prefix, or remove it; if it is another library's lock, layout=classic \
         shares it",
    )
}

/// The server belongs to clients with other settings.
pub(super) fn other_settings() -> StoreError {
    refused(
        "the server belongs to clients with other settings",
        "all its clients with this prefix name the same max_ttl and quarantine; `leasehold init` \
         moves it to new ones, and no redlock:// set uses it too",
    )
}

/// A clock from which tokens and deadlines cannot be counted.
pub(super) fn clock_too_late(micros: u64) -> StoreError {
    let late = StoreTime(micros).check().err();
    let late = late.map_or_else(String::new, |late| format!(": {late}"));
    refused(
        format!("the server's clock is wrong{late}"),
        "set the server's clock; nothing was changed, and the key works again then",
    )
}

/// A record of a later version.
pub(super) fn newer(version: u8) -> StoreError {
    refused(
        format!("the key is kept in version {version} of the format, newer than this client"),
        "upgrade leasehold here",
    )
}

/// The name of something that is not ours.
pub(super) fn no_key() -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        "its name is not UTF-8, so it is no key of leasehold",
    )
}

/// A record of ours that cannot be read.
pub(super) fn damaged() -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        "the record at the key is damaged; it was left as it is",
    )
    .with_hint("inspect it, and delete it when nobody holds the key")
}

/// Nobody answered, and nothing can have been carried out.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_connection_was_not_opened_is_said() {
        let limit = Duration::from_secs(5);
        let of = |error: io::Error| of_opening(error.into(), limit);
        let kind = |kind: io::ErrorKind| of(kind.into());
        for (error, said) in [
            (
                of(io::Error::other(
                    "failed to lookup address information: Name or service not known",
                )),
                "the name of the host cannot be resolved (Name or service not known)",
            ),
            (kind(io::ErrorKind::TimedOut), "no answer within 5s"),
            (kind(io::ErrorKind::ConnectionRefused), "connection refused"),
            (kind(io::ErrorKind::NotFound), "there is no such socket"),
        ] {
            assert_eq!(error.to_string(), said);
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{said}");
            assert!(error.hint().is_some(), "{said}");
        }
        let closed = kind(io::ErrorKind::UnexpectedEof);
        assert!(
            closed.to_string().contains("closed the connection"),
            "{closed}"
        );
        let answered = |text: &str| {
            let error = redis::parse_redis_value(text.as_bytes()).unwrap();
            let redis::Value::ServerError(error) = error else {
                panic!("no error: {error:?}")
            };
            of_opening(error.into(), limit)
        };
        for (text, code, kind) in [
            (
                "-WRONGPASS invalid username-password pair\r\n",
                "WRONGPASS invalid",
                ErrorKind::Refused,
            ),
            (
                "-NOAUTH HELLO must be called\r\n",
                "NOAUTH",
                ErrorKind::Refused,
            ),
            (
                "-DENIED Redis is running in protected mode because\r\n",
                "protected mode",
                ErrorKind::Refused,
            ),
            (
                "-ERR max number of clients reached\r\n",
                "maxclients",
                ErrorKind::Unavailable,
            ),
        ] {
            let error = answered(text);
            assert!(error.to_string().contains(code), "{error}");
            assert_eq!(error.kind(), kind, "{error}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn what_tls_says_is_no_matter_of_a_server_that_is_down() {
        use rustls::{AlertDescription, CertificateError, Error as Tls, InvalidMessage};
        for (failed, said) in [
            (
                Tls::InvalidCertificate(CertificateError::UnknownIssuer),
                "not trusted",
            ),
            (
                Tls::AlertReceived(AlertDescription::CertificateRequired),
                "refuses the TLS",
            ),
            (
                Tls::InvalidMessage(InvalidMessage::InvalidContentType),
                "does not speak TLS",
            ),
        ] {
            let error = io::Error::new(io::ErrorKind::InvalidData, failed);
            let error = of_opening(error.into(), Duration::from_secs(5));
            assert!(error.to_string().contains(said), "{error}");
            assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        }
    }

    /// It may be an impostor, or a proxy with much to say.
    #[test]
    fn what_a_server_says_is_shown_in_one_line() {
        for code in ["ODD", "NOPERM", "LHTYPE", "BUSY"] {
            let detail = format!("\u{1b}[2Jno\r\n{}", "x".repeat(10_000));
            let said = refusal(code, &detail).to_string();
            assert!(said.contains("[2Jnox") && said.len() < 500, "{said}");
            assert!(!said.chars().any(char::is_control), "{said:?}");
        }
    }
}
