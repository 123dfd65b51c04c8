//! Converts errors of opening a connection: DNS, refused, time-out, TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::written;
use leasehold_store::StoreError;
use redis::RedisError;

use super::{is_answered, of_connection, refused, silent, tame, unavailable};

/// An attempt to open a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dialling {
    /// How long it may take.
    pub(crate) limit: Duration,
    /// Whether it uses TLS.
    pub(crate) encrypted: bool,
    /// Whether a connection with the same settings was opened before.
    #[cfg_attr(
        not(feature = "tls"),
        expect(dead_code, reason = "only TLS may mend itself")
    )]
    pub(crate) worked: bool,
}

/// Whether the other side closed the connection without an answer.
pub(crate) fn is_closed(error: &RedisError) -> bool {
    io_error(error).is_some_and(|io| CLOSED.contains(&io.kind()))
}

/// How a connection that the other side has closed fails.
const CLOSED: [io::ErrorKind; 4] = [
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::BrokenPipe,
];

/// A server at this address closed the connection on `HELLO`, and then this happened.
pub(crate) fn of_closed(address: &str, encrypted: bool, error: StoreError) -> StoreError {
    if is_answered(&error) {
        return error;
    }
    let why = "the server closes connections at the first request";
    let closed = unavailable(format!("cannot connect to {address}: {why}"));
    let closed = match encrypted {
        true => closed.with_hint(
            "a proxy that forbids HELLO, INFO or scripts (such as twemproxy) cannot be used: \
             connect to the server itself",
        ),
        false => closed.with_hint(
            "if the port expects TLS, use rediss://; a proxy that forbids HELLO, INFO or scripts \
             (such as twemproxy) cannot be used",
        ),
    };
    closed.with_source(error)
}

/// An error in opening a connection: nothing was asked yet.
pub(crate) fn of_opening(error: RedisError, dialling: &Dialling) -> StoreError {
    let io = io_error(&error);
    let said = |message: String, hint: &str| unavailable(message).with_hint(hint);
    let text = tame(&error.to_string());
    let failed = match io.map(io::Error::kind) {
        _ if text.contains(UNRESOLVED) || text.contains(NO_ADDRESS) => {
            let why = text.rsplit(": ").next().unwrap_or_default();
            said(
                format!("the name of the host cannot be resolved ({why})"),
                "check the host in the URL, and this machine's DNS",
            )
        }
        _ if error.is_timeout() && dialling.encrypted => said(
            format!("no TLS connection within {}", written(dialling.limit)),
            "is the server running? a port without TLS does not answer: use redis:// for it",
        ),
        _ if error.is_timeout() => silent(dialling.limit)
            .with_hint("is the server running, and reachable from here? does the port expect TLS?"),
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
        Some(kind) if CLOSED.contains(&kind) && dialling.encrypted => said(
            format!("the server closed the connection before TLS was set up ({text})"),
            "is it a port without TLS? then use redis://; does it have too many clients \
             (maxclients)?",
        ),
        Some(kind) if CLOSED.contains(&kind) => said(
            format!("the server closed the connection at once ({text})"),
            "does it expect TLS? then use rediss://; does it have too many clients (maxclients)?",
        ),
        None if error.kind() == redis::ErrorKind::Parse => refused(
            "it does not answer as a Redis server does".to_owned(),
            "check the port: one that expects TLS needs rediss://",
        ),
        _ => match io.and_then(|io| tls_failure(io, dialling)) {
            Some(failed) => failed,
            None if io.is_some() => said(text, "is the server running, and reachable from here?"),
            // It was answered.
            None => return of_connection(error),
        },
    };
    failed.with_source(error)
}

/// A name has no address.
pub(crate) const NO_ADDRESS: &str = "no address found";

/// How resolving a name fails, whatever the reason.
const UNRESOLVED: &str = "failed to lookup address information";

fn io_error(error: &RedisError) -> Option<&io::Error> {
    use std::error::Error as _;
    type Source = Arc<dyn std::error::Error + Send + Sync>;
    error.source()?.downcast_ref::<Source>()?.downcast_ref()
}

#[cfg(not(feature = "tls"))]
fn tls_failure(_: &io::Error, _: &Dialling) -> Option<StoreError> {
    None
}

#[cfg(feature = "tls")]
fn tls_failure(error: &io::Error, dialling: &Dialling) -> Option<StoreError> {
    let plain = "use redis:// for a connection without TLS, or the server's `tls-port`";
    leasehold_store::tls::failure(error, dialling.worked, plain)
}
