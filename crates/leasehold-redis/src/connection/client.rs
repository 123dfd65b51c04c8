//! The settings of a connection to one address: login, protocol, sockets and TLS.

#[cfg(feature = "tls")]
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[cfg(feature = "tls")]
use leasehold_store::access::read_file;
use leasehold_store::access::read_password;
use leasehold_store::{ErrorKind, StoreError};
use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion};

use super::address::Address;
use super::rights::ReportedMissing;
use crate::errors;
use crate::errors::Dialling;
use crate::options::RedisOptions;

/// What the connections of one client share.
#[derive(Debug, Default)]
pub(crate) struct Common {
    pub(super) reported: ReportedMissing,
    /// Whether a connection was opened with these settings before.
    pub(super) worked: AtomicBool,
    /// Whether a server has understood `HELLO`.
    pub(super) greets: AtomicBool,
}

impl Common {
    /// A client for one connection to this address: password and certificates are read from
    /// their files each time, so that they can be renewed.
    pub(crate) fn client(
        &self,
        address: ConnectionAddr,
        options: &RedisOptions,
    ) -> Result<Client, StoreError> {
        client(address, options).map_err(|error| match self.has_worked() {
            // The files may be about to be replaced.
            true => errors::unavailable(error.to_string())
                .with_hint_of(&error)
                .with_source(error),
            false => error,
        })
    }

    /// The same for a host and port.
    pub(crate) fn client_at(
        &self,
        node: &Address,
        options: &RedisOptions,
    ) -> Result<Client, StoreError> {
        self.client(node.reached(options)?, options)
    }

    fn has_worked(&self) -> bool {
        self.worked.load(Ordering::Relaxed)
    }

    /// An attempt to open a connection with this client.
    pub(crate) fn dialling(&self, client: &Client, limit: Duration) -> Dialling {
        let address = client.get_connection_info().addr();
        Dialling {
            limit,
            encrypted: matches!(address, ConnectionAddr::TcpTls { .. }),
            worked: self.has_worked(),
        }
    }
}

fn client(address: ConnectionAddr, options: &RedisOptions) -> Result<Client, StoreError> {
    let info = address.into_connection_info().map_err(unusable)?;
    let mut login = info.redis_settings().clone().set_db(options.db);
    if let Some(username) = &options.username {
        login = login.set_username(username);
    }
    let from_file = options.password_file.as_deref().map(read_password);
    match from_file.transpose()?.or_else(|| options.password.clone()) {
        Some(password) => login = login.set_password(password),
        // Without a password nobody logs in, and the user would be ignored. Its name is not
        // repeated: it may be the password.
        None if options.username.is_some() => {
            let why = "there is a user name without a password, so nobody can log in";
            return Err(StoreError::new(ErrorKind::Invalid, why).with_hint(
                "a password alone stands behind a colon: redis://:password@host; for a user write \
                 redis://user:password@host, or set a password file",
            ));
        }
        None => {}
    }
    let info = info.set_redis_settings(login);
    build_client(ours(&info, options.response_timeout), options)
}

/// The client's settings of a connection, wherever the address comes from: it answers at once, and
/// notices within moments when the other side is gone.
pub(super) fn ours(
    info: &redis::ConnectionInfo,
    response_timeout: Duration,
) -> redis::ConnectionInfo {
    let keepalive = redis::io::tcp::socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5));
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let tcp = tcp.set_user_timeout(2 * response_timeout);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = response_timeout;
    let login = info.redis_settings().clone();
    let login = login
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name();
    info.clone().set_redis_settings(login).set_tcp_settings(tcp)
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
        read_file(path).map_err(|error| {
            let why = format!("cannot read the file {}: {error}", path.display());
            StoreError::new(ErrorKind::Invalid, why).with_source(error)
        })
    };
    let root_cert = options.ca_file.as_deref().map(read).transpose()?;
    let pair = options.client_certificate.as_ref();
    let client_tls = pair.map(|(certificate, key)| {
        Ok::<_, StoreError>(redis::ClientTlsConfig {
            client_cert: read(certificate)?,
            client_key: read(key)?,
        })
    });
    let certificates = redis::TlsCertificates {
        client_tls: client_tls.transpose()?,
        root_cert,
    };
    Client::build_with_tls(info, certificates).map_err(|error| {
        let why = format!("the certificates (ca, cert, key) cannot be used: {error}");
        StoreError::new(ErrorKind::Invalid, why).with_source(error)
    })
}
