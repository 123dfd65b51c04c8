//! Where a connection leads, and how it logs in.

#[cfg(feature = "tls")]
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[cfg(feature = "tls")]
use leasehold_store::tls::{Trust, client_config};
use leasehold_store::{ErrorKind, StoreError};
use redis::RedisConnectionInfo;
#[cfg(feature = "tls")]
use rustls::ClientConfig;

use super::rights::{MissingPermission, Rights};
use super::sentinel::Named;
use super::socket::OnPush;
use crate::errors::Dialling;
use crate::options::{RedisAddress, RedisOptions};
use crate::std_ext::lock;

/// What the connections of one client share.
#[derive(Debug, Default)]
pub(crate) struct Common {
    /// The missing permissions that were logged.
    reported: Mutex<Vec<&'static MissingPermission>>,
    /// Whether it was logged that a server may evict locks.
    evicts: AtomicBool,
    /// Whether a connection was opened with these settings before.
    pub(super) worked: AtomicBool,
    /// Whether a server has understood `HELLO`.
    pub(super) greets: AtomicBool,
}

impl Common {
    /// The target of one connection to this address: password and certificates are got each time, so
    /// that they can be renewed.
    pub(crate) async fn target(
        &self,
        address: RedisAddress,
        options: &RedisOptions,
    ) -> Result<Target, StoreError> {
        let target = Target::new(address, options).await;
        target.map_err(|error| match self.has_worked() {
            // The files may be about to be replaced.
            true => error.into_unavailable(),
            false => error,
        })
    }

    /// Logs missing permissions, each once.
    pub(super) fn report(&self, rights: &Rights, url: &str, prefix: &str) {
        let mut reported = lock(&self.reported);
        for missing in &rights.missing {
            if !reported.contains(missing) {
                reported.push(*missing);
                let (found, cost, remedy) = (missing.found, missing.cost, missing.remedy(prefix));
                tracing::warn!(%url, "{found}, so {cost}: {remedy}");
            }
        }
    }

    /// Logs that a server may evict locks, once: a client connects often. Says whether it did.
    pub(super) fn report_eviction(&self, url: &str, maxmemory: &str, policy: &str) -> bool {
        let evicts = maxmemory != "0" && !matches!(policy, "" | "noeviction");
        let is_new = evicts && !self.evicts.swap(true, Ordering::Relaxed);
        if is_new {
            tracing::warn!(
                %url,
                maxmemory_policy = policy,
                "this server may evict locks and grant them twice; set maxmemory-policy to \
                 noeviction"
            );
        }
        is_new
    }

    pub(super) fn has_worked(&self) -> bool {
        self.worked.load(Ordering::Relaxed)
    }

    /// An attempt to open a connection to this target.
    pub(crate) fn dialling(&self, target: &Target) -> Dialling {
        Dialling {
            limit: target.opening,
            encrypted: matches!(target.address, RedisAddress::Tcp { tls: true, .. }),
            worked: self.has_worked(),
        }
    }
}

/// Where a connection leads, how it logs in, how long it may take, and who hears of it.
pub(crate) struct Target {
    /// Of one server.
    pub(crate) address: RedisAddress,
    /// What was said about that server, if it was named.
    pub(super) named: Option<Named>,
    /// Hears the pushes, and of the end of the connection.
    pub(super) push: Option<OnPush>,
    pub(super) login: RedisConnectionInfo,
    /// To be opened, with its login.
    pub(super) opening: Duration,
    /// To answer.
    pub(super) answer: Duration,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Target {
    async fn new(address: RedisAddress, options: &RedisOptions) -> Result<Self, StoreError> {
        let given = options.access.login(options.connect_timeout).await?;
        let mut login = RedisConnectionInfo::default().set_db(options.db);
        match (given.user, given.password) {
            (user, Some(password)) => {
                login = login.set_password(password);
                if let Some(user) = user {
                    login = login.set_username(user);
                }
            }
            (Some(_), None) => return Err(lone_user()),
            (None, None) => {}
        }
        Ok(Self {
            #[cfg(feature = "tls")]
            tls: options.is_encrypted().then(|| tls(options)).transpose()?,
            address,
            named: None,
            push: None,
            login,
            opening: options.connect_timeout,
            answer: options.response_timeout,
        })
    }
}

/// Refuses at once what cannot work, and not only when it is needed. No credentials are provided.
pub(crate) fn check(options: &RedisOptions) -> Result<(), StoreError> {
    let access = &options.access;
    access.check()?;
    if access.user.is_some() && !access.has_password() {
        return Err(lone_user());
    }
    if options.is_encrypted() {
        tls(options)?;
    }
    Ok(())
}

/// Without a password nobody logs in, and the user would be ignored. Its name is not repeated: it may
/// be the password.
fn lone_user() -> StoreError {
    let why = "there is a user name without a password, so nobody can log in";
    StoreError::new(ErrorKind::Invalid, why).with_hint(
        "a password alone stands behind a colon: redis://:password@host; for a user write \
         redis://user:password@host, or set a password file; beside user= write pass=, beside \
         sentinel_user= sentinel_pass=",
    )
}

#[cfg(feature = "tls")]
fn tls(options: &RedisOptions) -> Result<Arc<ClientConfig>, StoreError> {
    client_config(&options.access.tls, Trust::Authorities)
}

#[cfg(not(feature = "tls"))]
fn tls(_: &RedisOptions) -> Result<(), StoreError> {
    Err(crate::errors::unsupported(
        "this build of leasehold has no TLS",
        "build it with the feature `tls-ring`",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_may_evict_locks_is_reported_once() {
        let common = Common::default();
        for (bound, policy) in [("0", "allkeys-lru"), ("9", "noeviction"), ("", "")] {
            assert!(!common.report_eviction("u", bound, policy), "{policy}");
        }
        assert!(common.report_eviction("u", "9", "allkeys-lru"));
        assert!(!common.report_eviction("u", "9", "volatile-ttl"));
    }
}
