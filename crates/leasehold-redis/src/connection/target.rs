//! Where a connection leads, and how it logs in.

#[cfg(feature = "tls")]
use std::io;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_store::access::read_password;
#[cfg(feature = "tls")]
use leasehold_store::tls::{Trust, client_config};
use leasehold_store::{ErrorKind, StoreError};
use redis::{ConnectionAddr, RedisConnectionInfo};
#[cfg(feature = "tls")]
use rustls::ClientConfig;

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
    /// The target of one connection to this address: password and certificates are read from
    /// their files each time, so that they can be renewed.
    pub(crate) fn target(
        &self,
        address: ConnectionAddr,
        options: &RedisOptions,
    ) -> Result<Target, StoreError> {
        Target::new(address, options).map_err(|error| match self.has_worked() {
            // The files may be about to be replaced.
            true => errors::unavailable(error.to_string())
                .with_hint_of(&error)
                .with_source(error),
            false => error,
        })
    }

    /// The same for a host and port.
    pub(crate) fn target_at(
        &self,
        node: &Address,
        options: &RedisOptions,
    ) -> Result<Target, StoreError> {
        self.target(node.reached(options)?, options)
    }

    fn has_worked(&self) -> bool {
        self.worked.load(Ordering::Relaxed)
    }

    /// An attempt to open a connection to this target.
    pub(crate) fn dialling(&self, target: &Target, limit: Duration) -> Dialling {
        Dialling {
            limit,
            encrypted: target.is_encrypted(),
            worked: self.has_worked(),
        }
    }
}

/// Where a connection leads, and how it logs in.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: ConnectionAddr,
    pub(super) login: RedisConnectionInfo,
    #[cfg(feature = "tls")]
    tls: Option<Arc<ClientConfig>>,
}

impl Target {
    fn new(address: ConnectionAddr, options: &RedisOptions) -> Result<Self, StoreError> {
        let mut login = RedisConnectionInfo::default().set_db(options.db);
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
                    "a password alone stands behind a colon: redis://:password@host; for a user \
                     write redis://user:password@host, or set a password file",
                ));
            }
            None => {}
        }
        Self::with_login(address, login, options)
    }

    /// The address and the login of an existing client; certificates are those of the options.
    pub(super) fn of_client(
        client: &redis::Client,
        options: &RedisOptions,
    ) -> Result<Self, StoreError> {
        let info = client.get_connection_info();
        if let ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } = info.addr()
            && (*insecure || tls_params.is_some())
        {
            return Err(errors::unsupported(
                "the certificates of an existing client cannot be read",
                "set ca, cert and key in the options of the store",
            ));
        }
        Self::with_login(info.addr().clone(), info.redis_settings().clone(), options)
    }

    fn with_login(
        address: ConnectionAddr,
        login: RedisConnectionInfo,
        #[cfg_attr(
            not(feature = "tls"),
            expect(unused_variables, reason = "certificates")
        )]
        options: &RedisOptions,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            #[cfg(feature = "tls")]
            tls: match address {
                ConnectionAddr::TcpTls { .. } => Some(Arc::new(tls(options)?)),
                _ => None,
            },
            address,
            login,
        })
    }

    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self.address, ConnectionAddr::TcpTls { .. })
    }

    #[cfg(feature = "tls")]
    pub(super) fn tls(&self) -> io::Result<Arc<ClientConfig>> {
        self.tls
            .clone()
            .ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

#[cfg(feature = "tls")]
fn tls(options: &RedisOptions) -> Result<ClientConfig, StoreError> {
    let certificate = options.client_certificate.as_ref();
    let certificate = certificate.map(|(certificate, key)| (&**certificate, &**key));
    client_config(Trust::Authorities(options.ca_file.as_deref()), certificate)
}
