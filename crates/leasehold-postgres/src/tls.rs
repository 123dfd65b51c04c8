//! How connections are encrypted.

use leasehold_store::StoreError;
use tokio_postgres::config::SslMode as Mode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Config, Connection, Socket};

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
    let config = client_config(given, trust)?;
    Ok(tokio_postgres_rustls::MakeRustlsConnect::new(
        (*config).clone(),
    ))
}
