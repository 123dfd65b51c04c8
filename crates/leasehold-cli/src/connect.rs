//! From the arguments to a client of the store.

use std::sync::Arc;

use leasehold::observe::Observer;
use leasehold::store::describe;
use leasehold::store::redis::{RedisLayout, RedisOptions, RedisStore};
use leasehold::{Access, Client, ClientBuilder, Initialised, Settings, TlsFiles};
use redis::aio::MultiplexedConnection;

use crate::args::{AccessArgs, StoreArgs};
use crate::config::{Origin, Setting, password_of_environment};
use crate::env;
use crate::failure::Failure;
use crate::nested_store::handed_on;

/// Connects, for looking only.
pub(crate) async fn connect(store: &StoreArgs) -> Result<Client, Failure> {
    open(store, Settings::default()).await
}

/// A client, and the raw server behind it where there is one: a connection, and the prefix.
pub(crate) struct Measured {
    pub(crate) client: Client,
    /// The URL, without password.
    pub(crate) store: String,
    pub(crate) raw: Option<(MultiplexedConnection, String)>,
}

/// Connects, for measuring: the raw server by a plain connection of its own.
pub(crate) async fn connect_to_measure(store: &StoreArgs) -> Result<Measured, Failure> {
    let Opening { url, access } = Opening::of(store);
    let options = RedisOptions::from_url(&url).ok();
    let Some(options) = options.filter(|options| options.layout != RedisLayout::Classic) else {
        let client = connect(store).await?;
        return Ok(Measured {
            store: client.store_url().to_owned(),
            client,
            raw: None,
        });
    };
    let options = options.with_access(&access)?;
    let (store, prefix) = (options.redacted_url(), options.prefix.clone());
    let server = Arc::new(RedisStore::connect(options).await?);
    Ok(Measured {
        raw: Some((server.open_connection().await?, prefix)),
        client: Client::builder().with_store(server).connect().await?,
        store,
    })
}

/// Says that the servers of the URL are new.
pub(crate) async fn initialise(store: &StoreArgs) -> Result<Vec<Initialised>, Failure> {
    Ok(builder(store).initialise().await?)
}

async fn open(store: &StoreArgs, settings: Settings) -> Result<Client, Failure> {
    Ok(builder(store).settings(settings).connect().await?)
}

/// The same, and what the store answers to claims is heard.
pub(crate) async fn open_to_ask(
    store: &StoreArgs,
    settings: Settings,
    observer: impl Observer,
) -> Result<Client, Failure> {
    let builder = builder(store).settings(settings);
    Ok(builder.observer(observer).connect().await?)
}

/// What opens the store.
fn builder(store: &StoreArgs) -> ClientBuilder {
    let Opening { url, access } = Opening::of(store);
    Client::builder().store(url).access(access)
}

/// How a store is opened.
pub(crate) struct Opening {
    pub(crate) url: String,
    pub(crate) access: Access,
}

impl Opening {
    /// What was said or found, and what is missing of it from an outer leasehold that uses this
    /// store.
    pub(crate) fn of(store: &StoreArgs) -> Self {
        let Credentials {
            url,
            access,
            password,
        } = Credentials::of(store);
        fn value<T>(setting: Option<Setting<T>>) -> Option<T> {
            setting.map(|setting| setting.value)
        }
        let access = Access {
            user: value(access.user),
            password: value(password),
            password_file: value(access.password_file),
            tls: TlsFiles {
                ca: value(access.tls_ca),
                cert: value(access.tls_cert),
                key: value(access.tls_key),
            },
        };
        Self { url, access }
    }

    /// Whether one who knows the store as `shown` only could not open it the same way.
    pub(crate) fn has_more_than(&self, shown: &str) -> bool {
        describe(&self.url).is_ok_and(|described| described.has_servers)
            && (self.url != shown || self.access != Access::default())
    }
}

/// How a store is opened, and where that comes from.
pub(crate) struct Credentials {
    url: String,
    pub(crate) access: AccessArgs,
    pub(crate) password: Option<Setting<String>>,
}

impl Credentials {
    pub(crate) fn of(store: &StoreArgs) -> Self {
        let access = store.access.clone();
        let (url, access, outer, outer_password) = match handed_on(store.url()) {
            None => (store.url().to_owned(), access, AccessArgs::default(), None),
            // An outer leasehold knows better than a file how its store is opened.
            Some((url, outer)) => {
                let (outer, password) = of_outer(outer);
                (url, access.where_from(Origin::is_said), outer, password)
            }
        };
        let (file, outer_file) = (access.password_file.clone(), outer.password_file.clone());
        // A file that was said goes before the environment; both before the outer one, and that
        // before a file that was found.
        let password = password_of_environment().filter(|_| store.uses_environment());
        let (password, password_file) = match (file, password) {
            (Some(file), password) if file.from.is_said() || password.is_none() => {
                (None, Some(file))
            }
            (_, Some(password)) => (Some(password), None),
            (None, _) if outer_file.is_none() => (outer_password, None),
            _ => (None, outer_file),
        };
        Self {
            url,
            access: AccessArgs {
                password_file,
                ..access.over(outer)
            },
            password,
        }
    }
}

fn of_outer(outer: Access) -> (AccessArgs, Option<Setting<String>>) {
    fn handed<T>(value: Option<T>) -> Option<Setting<T>> {
        value.map(|value| Setting::new(value, Origin::variable(env::STORE_FILE)))
    }
    let access = AccessArgs {
        user: handed(outer.user),
        password_file: handed(outer.password_file),
        tls_ca: handed(outer.tls.ca),
        tls_cert: handed(outer.tls.cert),
        tls_key: handed(outer.tls.key),
    };
    (access, handed(outer.password))
}
