//! How connections are encrypted.

use leasehold_store::StoreError;
use tokio_postgres::config::SslMode as Mode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Config, Connection, Error, Socket};

use super::options::{PostgresOptions, SslMode};

#[cfg(not(feature = "tls"))]
type Connect = tokio_postgres::NoTls;
#[cfg(feature = "tls")]
type Connect = tokio_postgres_rustls::MakeRustlsConnect;

/// A connection, which has to be driven.
pub(crate) type Wire = Connection<Socket, <Connect as MakeTlsConnect<Socket>>::Stream>;

/// Whether a connection to this configuration is encrypted.
pub(crate) fn apply(config: &mut Config, options: &PostgresOptions) {
    config.ssl_mode(match options.sslmode {
        SslMode::Disable => Mode::Disable,
        SslMode::Prefer => Mode::Prefer,
        SslMode::Require | SslMode::VerifyFull => Mode::Require,
    });
}

#[cfg(not(feature = "tls"))]
#[allow(clippy::unnecessary_wraps, reason = "with the feature it reads files")]
pub(crate) fn connect(_options: &PostgresOptions) -> Result<Connect, StoreError> {
    Ok(tokio_postgres::NoTls)
}

/// The files are read each time, so that they can be renewed.
#[cfg(feature = "tls")]
pub(crate) fn connect(options: &PostgresOptions) -> Result<Connect, StoreError> {
    use leasehold_store::tls::{Trust, client_config};

    let given = &options.access.tls;
    let trust = match options.sslmode {
        SslMode::VerifyFull => Trust::Authorities,
        SslMode::Require if given.ca.is_some() => Trust::Authorities,
        _ => Trust::Anybody,
    };
    let config = (*client_config(given, trust)?).clone();
    Ok(tokio_postgres_rustls::MakeRustlsConnect::new(config))
}

/// What TLS says of a connection that could not be opened, if it is the reason.
#[cfg(not(feature = "tls"))]
pub(crate) fn failure(_: &Error, _: &str) -> Option<StoreError> {
    None
}

#[cfg(feature = "tls")]
pub(crate) fn failure(error: &Error, server: &str) -> Option<StoreError> {
    use std::error::Error as _;

    let failed = error.source()?.downcast_ref()?;
    let plain = "check that the port is that of PostgreSQL";
    let said = leasehold_store::tls::failure(failed, false, plain)?;
    let message = format!("PostgreSQL at {server}: {}", said.message());
    Some(said.with_message(message))
}
