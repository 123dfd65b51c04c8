//! From a URL to an open store.

use std::sync::Arc;

use super::{LockStore, memory::MemoryStore};
use crate::client::Credentials;
use crate::error::{ErrorKind, StoreError};

/// What a URL may begin with, for hints.
const SCHEMES: &str = "memory:, local:, redis://, rediss://, redis+unix:// or valkey://";

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
        "redis" | "rediss" | "redis+unix" | "valkey" | "valkeys" => redis(url, credentials).await,
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
    use super::local::{LocalOptions, LocalStore};
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

fn not_built(url: &str, feature: &str) -> StoreError {
    let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
    StoreError::new(
        ErrorKind::Unsupported,
        format!("this build has no support for {scheme}: stores"),
    )
    .with_hint(format!("build leasehold with the feature {feature:?}"))
}
