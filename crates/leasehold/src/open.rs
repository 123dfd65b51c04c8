//! From a URL to an open store.

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{ErrorKind, StoreError};
use crate::store::LockStore;
use crate::store::memory::MemoryStore;

/// Where the client's certificates are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authority that signed the server's certificate; the system's by default.
    pub ca: Option<PathBuf>,
    /// Our certificate, if the server asks for one.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

/// What opens a server besides its URL.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) tls: TlsFiles,
}

/// What a URL may begin with, for hints.
const SCHEMES: &str = "memory:, local:, redis://, rediss://, redis+unix://, valkey://, \
    redis-sentinel://, redis-cluster:// or redlock://";

/// Opens the store at `url`; says the URL without its password, fit to be
/// handed to another process.
pub(crate) async fn open(
    url: &str,
    credentials: &Credentials,
) -> Result<(Arc<dyn LockStore>, String), StoreError> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        "memory" => {
            let name = &url["memory:".len()..];
            let store = if name.is_empty() {
                MemoryStore::new()
            } else {
                MemoryStore::named(name)
            };
            Ok((Arc::new(store), url.to_owned()))
        }
        "local" => local(url).await,
        "redis" | "rediss" | "redis+unix" | "valkey" | "valkeys" | "redis-sentinel"
        | "rediss-sentinel" | "valkey-sentinel" | "valkeys-sentinel" => {
            redis(url, credentials).await
        }
        "redis-cluster" | "rediss-cluster" | "valkey-cluster" | "valkeys-cluster" => {
            cluster(url, credentials).await
        }
        "redlock" | "redlocks" => redlock(url, credentials).await,
        "" => Err(
            StoreError::new(ErrorKind::Invalid, "the store is not a URL")
                .with_hint(format!("begin it with {SCHEMES}")),
        ),
        unknown => Err(StoreError::new(
            ErrorKind::Invalid,
            format!("there is no store for {unknown:?} URLs"),
        )
        .with_hint(format!("begin it with {SCHEMES}"))),
    }
}

#[cfg(feature = "local")]
async fn local(url: &str) -> Result<(Arc<dyn LockStore>, String), StoreError> {
    use crate::store::local::{LocalOptions, LocalStore};
    let store = LocalStore::open(LocalOptions::from_url(url)?).await?;
    let url = store.url();
    Ok((Arc::new(store), url))
}

#[cfg(not(feature = "local"))]
async fn local(url: &str) -> Result<(Arc<dyn LockStore>, String), StoreError> {
    Err(not_built(url, "local"))
}

#[cfg(feature = "redis")]
async fn redis(
    url: &str,
    credentials: &Credentials,
) -> Result<(Arc<dyn LockStore>, String), StoreError> {
    use crate::store::redis::{ClassicStore, RedisLayout, RedisStore};
    let options = redis_options(url, credentials)?;
    let shown = options.clone().without_passwords();
    let store: Arc<dyn LockStore> = match options.layout {
        RedisLayout::Native => Arc::new(RedisStore::connect(options).await?),
        RedisLayout::Classic => Arc::new(ClassicStore::connect(options).await?),
    };
    Ok((store, shown.redacted_url()))
}

#[cfg(feature = "redis")]
async fn cluster(
    url: &str,
    credentials: &Credentials,
) -> Result<(Arc<dyn LockStore>, String), StoreError> {
    use crate::store::redis::{ClassicStore, RedisLayout, RedisStore};
    let options = cluster_options(url, credentials)?;
    let mut shown = options.clone();
    shown.node.password = None;
    let store: Arc<dyn LockStore> = match options.node.layout {
        RedisLayout::Native => Arc::new(RedisStore::connect_cluster(options).await?),
        RedisLayout::Classic => Arc::new(ClassicStore::connect_cluster(options).await?),
    };
    Ok((store, shown.redacted_url()))
}

/// As [`redis_options`], for a cluster.
#[cfg(feature = "redis")]
pub(crate) fn cluster_options(
    url: &str,
    credentials: &Credentials,
) -> Result<crate::store::redis::RedisClusterOptions, StoreError> {
    let mut options = crate::store::redis::RedisClusterOptions::from_url(url)?;
    log_in(&mut options.node, credentials)?;
    Ok(options)
}

/// As [`redis_options`], for each of several servers.
#[cfg(feature = "redis")]
pub(crate) fn redlock_options(
    url: &str,
    credentials: &Credentials,
) -> Result<crate::store::redis::RedlockOptions, StoreError> {
    let mut options = crate::store::redis::RedlockOptions::from_url(url)?;
    for server in &mut options.servers {
        log_in(server, credentials)?;
    }
    Ok(options)
}

/// The options of a URL, and what goes before it.
#[cfg(feature = "redis")]
pub(crate) fn redis_options(
    url: &str,
    credentials: &Credentials,
) -> Result<crate::store::redis::RedisOptions, StoreError> {
    let mut options = crate::store::redis::RedisOptions::from_url(url)?;
    log_in(&mut options, credentials)?;
    Ok(options)
}

/// What was given besides the URL goes before what stands in it.
#[cfg(feature = "redis")]
fn log_in(
    options: &mut crate::store::redis::RedisOptions,
    credentials: &Credentials,
) -> Result<(), StoreError> {
    let Credentials {
        user,
        password,
        tls,
    } = credentials.clone();
    options.username = user.or_else(|| options.username.take());
    options.password = password.or_else(|| options.password.take());
    options.ca_file = tls.ca.or_else(|| options.ca_file.take());
    options.client_certificate = match (tls.cert, tls.key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => options.client_certificate.take(),
        _ => {
            return Err(StoreError::new(
                ErrorKind::Invalid,
                "a client certificate and its key come together",
            )
            .with_hint("give both, or neither"));
        }
    };
    Ok(())
}

#[cfg(feature = "redis")]
async fn redlock(
    url: &str,
    credentials: &Credentials,
) -> Result<(Arc<dyn LockStore>, String), StoreError> {
    use crate::store::redis::RedlockStore;
    let options = redlock_options(url, credentials)?;
    let mut shown = options.clone();
    for server in &mut shown.servers {
        server.password = None;
    }
    let store = RedlockStore::connect(options).await?;
    Ok((Arc::new(store), shown.redacted_url()))
}

#[cfg(not(feature = "redis"))]
async fn redlock(
    url: &str,
    _credentials: &Credentials,
) -> Result<(Arc<dyn LockStore>, String), StoreError> {
    Err(not_built(url, "redis"))
}

#[cfg(not(feature = "redis"))]
async fn redis(
    url: &str,
    _credentials: &Credentials,
) -> Result<(Arc<dyn LockStore>, String), StoreError> {
    Err(not_built(url, "redis"))
}

#[cfg(not(feature = "redis"))]
async fn cluster(
    url: &str,
    _credentials: &Credentials,
) -> Result<(Arc<dyn LockStore>, String), StoreError> {
    Err(not_built(url, "redis"))
}

#[cfg(not(all(feature = "local", feature = "redis")))]
fn not_built(url: &str, feature: &str) -> StoreError {
    let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
    StoreError::new(
        ErrorKind::Unsupported,
        format!("this build has no support for {scheme}: stores"),
    )
    .with_hint(format!("build leasehold with the feature {feature:?}"))
}
