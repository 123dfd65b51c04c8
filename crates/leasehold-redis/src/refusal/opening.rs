//! Converts errors of opening a connection: DNS, refused, time-out, TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::written;
use leasehold_store::{ErrorKind, StoreError};
use redis::RedisError;

#[cfg(feature = "tls")]
use super::refused;
use super::{of_connection, tame};

/// An error in opening a connection, for which `limit` was given: nothing was asked yet.
pub(crate) fn of_opening(error: RedisError, limit: Duration) -> StoreError {
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
            format!("no answer within {}", written(limit)),
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
    type Source = Arc<dyn std::error::Error + Send + Sync>;
    error.source()?.downcast_ref::<Source>()?.downcast_ref()
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
            "set `ca` in the URL to the authority that signed it, and use a host name of the \
             certificate",
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
        .with_hint("check the server's log"),
    })
}
