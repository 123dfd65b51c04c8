//! The settings of a connection to one address: login, protocol, sockets and TLS.

use std::path::Path;
use std::time::Duration;

use leasehold_store::access::read_password;
use leasehold_store::{ErrorKind, StoreError};
use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion};

use super::sentinel::Address;
use crate::options::RedisOptions;

/// A client for one address, with the login and the certificates of `options`.
pub(crate) fn client_at(
    (host, port): &Address,
    options: &RedisOptions,
) -> Result<Client, StoreError> {
    let address = if !options.is_encrypted() {
        ConnectionAddr::Tcp(host.clone(), *port)
    } else if cfg!(feature = "tls") {
        ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: false,
            tls_params: None,
        }
    } else {
        let why = "this build of leasehold has no TLS";
        return Err(StoreError::new(ErrorKind::Unsupported, why)
            .with_hint("build it with the feature `tls`"));
    };
    client(address, options)
}

pub(crate) fn client(
    address: ConnectionAddr,
    options: &RedisOptions,
) -> Result<Client, StoreError> {
    let info = address.into_connection_info().map_err(unusable)?;
    let mut login = info.redis_settings().clone().set_db(options.db);
    if let Some(username) = &options.username {
        login = login.set_username(username);
    }
    let from_file = options.password_file.as_deref().map(read_password);
    if let Some(password) = from_file
        .transpose()?
        .as_ref()
        .or(options.password.as_ref())
    {
        login = login.set_password(password);
    }
    let client = build_client(info.set_redis_settings(login), options)?;
    let info = ours(client.get_connection_info(), options.response_timeout);
    Client::open(info).map_err(unusable)
}

/// The same client, with the password as the file has it now.
pub(crate) fn with_password_of(client: &Client, file: &Path) -> Result<Client, StoreError> {
    let password = read_password(file).map_err(|error| {
        // It may be about to be replaced.
        StoreError::new(ErrorKind::Unavailable, error.message()).with_hint_of(&error)
    })?;
    let info = client.get_connection_info();
    let login = info.redis_settings().clone().set_password(password);
    Client::open(info.clone().set_redis_settings(login)).map_err(unusable)
}

/// The client's settings of a connection, wherever the address comes from.
pub(crate) fn ours(
    info: &redis::ConnectionInfo,
    response_timeout: Duration,
) -> redis::ConnectionInfo {
    let login = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name();
    info.clone()
        .set_redis_settings(login)
        .set_tcp_settings(tcp_settings(response_timeout))
}

/// Answers at once, and notices within moments when the other side is gone.
fn tcp_settings(response_timeout: Duration) -> TcpSettings {
    let keepalive = redis::io::tcp::socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5));
    let settings = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let settings = settings.set_user_timeout(2 * response_timeout);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = response_timeout;
    settings
}

pub(crate) fn unusable(error: redis::RedisError) -> StoreError {
    StoreError::new(
        ErrorKind::Invalid,
        "these options cannot be used to connect",
    )
    .with_source(error)
}

#[cfg(not(feature = "tls"))]
fn build_client(info: redis::ConnectionInfo, _: &RedisOptions) -> Result<Client, StoreError> {
    Client::open(info).map_err(unusable)
}

#[cfg(feature = "tls")]
fn build_client(info: redis::ConnectionInfo, options: &RedisOptions) -> Result<Client, StoreError> {
    use rustls::crypto::{CryptoProvider, ring};

    if !options.is_encrypted() {
        return Client::open(info).map_err(unusable);
    }
    // The redis crate asks for the process's provider, and panics when none can
    // be told from the features. One that the application chose stays.
    if CryptoProvider::get_default().is_none() {
        let _ = ring::default_provider().install_default();
    }
    if options.ca_file.is_none() && options.client_certificate.is_none() {
        return Client::open(info).map_err(unusable);
    }
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| {
            StoreError::new(
                ErrorKind::Invalid,
                format!("cannot read the file {}", path.display()),
            )
            .with_source(error)
        })
    };
    let root_cert = options.ca_file.as_deref().map(read).transpose()?;
    let client_tls = match &options.client_certificate {
        Some((certificate, key)) => Some(redis::ClientTlsConfig {
            client_cert: read(certificate)?,
            client_key: read(key)?,
        }),
        None => None,
    };
    let certificates = redis::TlsCertificates {
        client_tls,
        root_cert,
    };
    Client::build_with_tls(info, certificates).map_err(unusable)
}
