//! From the arguments to a client of the store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::doctor::Access;
use leasehold::store::redis::{Baseline, RedisLayout, RedisOptions, RedisStore, RedlockOptions};
use leasehold::{Client, Settings, TlsFiles};

use crate::cli::{LeaseArgs, StoreArgs};
use crate::env;
use crate::failure::Failure;

/// How long giving back may take at the end.
const GOODBYE: Duration = Duration::from_secs(2);

/// Connects, for looking only.
pub(crate) async fn connect(store: &StoreArgs) -> Result<Client, Failure> {
    open(store, Settings::default()).await
}

/// Connects, for holding.
pub(crate) async fn connect_to_hold(
    store: &StoreArgs,
    lease: &LeaseArgs,
) -> Result<Client, Failure> {
    let settings = Settings {
        ttl: lease.ttl,
        label: lease.label.clone(),
        ..Settings::default()
    };
    settings.check()?;
    open(store, settings).await
}

/// A client, and the raw server behind it where there is one.
pub(crate) struct Measured {
    pub(crate) client: Client,
    pub(crate) baseline: Option<Arc<Baseline>>,
}

/// Connects, for measuring: what is compared shares one connection.
pub(crate) async fn connect_to_measure(store: &StoreArgs) -> Result<Measured, Failure> {
    if !is_one_server(store.url.trim()) {
        return Ok(Measured {
            client: connect(store).await?,
            baseline: None,
        });
    }
    let mut options = RedisOptions::from_url(store.url.trim())?;
    if options.layout == RedisLayout::Classic {
        return Ok(Measured {
            client: connect(store).await?,
            baseline: None,
        });
    }
    log_in(&mut options, store)?;
    let server = Arc::new(RedisStore::connect(options).await.map_err(Failure::from)?);
    let baseline = Baseline::new(server.clone()).await.map_err(Failure::from)?;
    let client = Client::builder().with_store(server).connect().await?;
    Ok(Measured {
        client,
        baseline: Some(Arc::new(baseline)),
    })
}

/// What can be marked as new.
pub(crate) enum Markable {
    /// One server, or the primary that Sentinels name.
    One(Box<RedisOptions>),
    Several(RedlockOptions),
}

/// The server or servers of the URL, with what was given besides it.
pub(crate) fn markable(store: &StoreArgs) -> Result<Markable, Failure> {
    let url = store.url.trim();
    if url.starts_with("redlock") {
        let mut options = RedlockOptions::from_url(url)?;
        for server in &mut options.servers {
            log_in(server, store)?;
        }
        return Ok(Markable::Several(options));
    }
    if is_one_server(url) {
        let mut options = RedisOptions::from_url(url)?;
        log_in(&mut options, store)?;
        return Ok(Markable::One(Box::new(options)));
    }
    Err(Failure::usage(
        "only servers of a redlock:// URL are marked, and those of one with restart=quarantine",
    )
    .hint("say -S redlock://host1,host2,host3 or -S 'redis://host?restart=quarantine'"))
}

/// What was given besides the URL goes before what stands in it.
fn log_in(options: &mut RedisOptions, store: &StoreArgs) -> Result<(), Failure> {
    options.username = store.user.clone().or_else(|| options.username.take());
    options.password = password(store)?.or_else(|| options.password.take());
    options.ca_file = store.tls_ca.clone().or_else(|| options.ca_file.take());
    options.client_certificate = store
        .tls_cert
        .clone()
        .zip(store.tls_key.clone())
        .or_else(|| options.client_certificate.take());
    Ok(())
}

fn is_one_server(url: &str) -> bool {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    let several = scheme.ends_with("-cluster") || scheme.starts_with("redlock");
    !several && !matches!(scheme, "" | "local" | "memory")
}

/// Leaves the store: what is still held or waited for is given back. What the store does not
/// confirm ends with its TTL.
pub(crate) async fn leave(client: &Client) {
    client.shutdown(GOODBYE).await;
}

/// The URL, and what opens the store besides it: for looking at the servers.
pub(crate) fn access(store: &StoreArgs) -> Result<(&str, Access), Failure> {
    let access = Access {
        user: store.user.clone(),
        password: password(store)?,
        tls: tls(store),
    };
    Ok((url(store), access))
}

fn url(store: &StoreArgs) -> &str {
    match store.url.trim() {
        "" => "local:",
        url => url,
    }
}

fn tls(store: &StoreArgs) -> TlsFiles {
    TlsFiles {
        ca: store.tls_ca.clone(),
        cert: store.tls_cert.clone(),
        key: store.tls_key.clone(),
    }
}

async fn open(store: &StoreArgs, settings: Settings) -> Result<Client, Failure> {
    let mut builder = Client::builder().store(url(store)).settings(settings);
    if let Some(user) = &store.user {
        builder = builder.user(user);
    }
    if let Some(password) = password(store)? {
        builder = builder.password(password);
    }
    let tls = tls(store);
    if tls.ca.is_some() || tls.cert.is_some() || tls.key.is_some() {
        builder = builder.tls(tls);
    }
    Ok(builder.connect().await?)
}

/// The file that was named goes before the environment; both before the URL.
fn password(store: &StoreArgs) -> Result<Option<String>, Failure> {
    if let Some(file) = &store.password_file {
        return read(file).map(Some);
    }
    Ok(std::env::var(env::PASSWORD)
        .ok()
        .filter(|password| !password.is_empty()))
}

fn read(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::usage(format!(
            "cannot read the password file {}: {error}",
            file.display()
        ))
    })?;
    match text.lines().next() {
        Some(password) if !password.is_empty() => Ok(password.to_owned()),
        _ => Err(
            Failure::usage(format!("the password file {} is empty", file.display()))
                .hint("write the password into its first line"),
        ),
    }
}
