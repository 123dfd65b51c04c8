//! The builder of a client: all options that are set before it connects.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::ClientInfo;
use leasehold_store::{debug, setters};

use super::Client;
use crate::access::{Access, CredentialsProvider, TlsOptions};
use crate::background::{drives, held_up};
use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::ids::ClaimIds;
use crate::observe::{Observer, Observers};
use crate::registry;
use crate::session::request::check_rotation;
use crate::session::shutdown::would_block;
use crate::session::{Session, unanswered};
use crate::settings::Settings;
use crate::store::LockStore;
use crate::store::scheme::{Opened, Scheme, StoreOptions};
use crate::sync::{Runtime, check_runtime, timeout};

/// Options of a client. See [`Client::builder`].
#[derive(Clone, Default)]
#[must_use = "no client exists until `connect` is called"]
pub struct ClientBuilder {
    source: Source,
    settings: Settings,
    access: Access,
    ids: ClaimIds,
    observers: Observers,
}

/// Where the store comes from.
#[derive(Clone)]
enum Source {
    Url(String),
    Options(Arc<dyn StoreOptions>),
    Open(Arc<dyn LockStore>),
}

impl Default for Source {
    fn default() -> Self {
        Self::Url("local:".to_owned())
    }
}

setters! { ClientBuilder {
    /// Sets the store's URL; see [`connect`](crate::connect). The default is `local:`.
    store(url: impl AsRef<str>): source = Source::Url(url.as_ref().trim().to_owned());
    /// Opens a store by options in place of a URL: `RedisOptions`, `PostgresOptions` and so on.
    ///
    /// ```no_run
    /// # #[cfg(feature = "redis")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Client, store::redis::RedisOptions};
    /// let existing = redis::Client::open("redis://cache/")?;
    /// let options = RedisOptions::try_from(&existing)?.prefix("jobs:");
    /// let client = Client::builder().with_options(options).connect().await?;
    /// # Ok(()) }
    /// # #[cfg(not(feature = "redis"))]
    /// # fn main() {}
    /// ```
    with_options(options: impl StoreOptions + 'static): source = Source::Options(Arc::new(options));
    /// Uses a store that is already open, or your own implementation. It is one client: another needs
    /// a value of its own, since a store value has one inbox for pushed grants.
    with_store(store: Arc<dyn LockStore>): source = Source::Open(store);
    /// Sets the defaults of the client's locks.
    settings(settings: Settings): settings = settings;
    /// Sets the label that others see beside the host and process id.
    label(label: impl AsRef<str>): settings.label = Some(label.as_ref().to_owned());
    /// Sets the TTL of the client's locks, as [`Settings::ttl`].
    ttl(ttl: Duration): settings.ttl = ttl;
    /// Sets how claim ids are made. The default is random.
    claim_ids(ids: ClaimIds): ids = ids;
    /// Sets the user to log in as; overrides the URL.
    user(user: impl Into<String>): access.user = Some(user.into());
    /// Sets the password to log in with; overrides the URL. It is never shown.
    password(password: impl Into<String>): access.password = Some(password.into());
    /// Reads the password from the first line of a file. The file is read whenever a connection
    /// is opened, so the password may change while the client runs. Overrides
    /// [`ClientBuilder::password`] and the URL.
    password_file(file: impl Into<PathBuf>): access.password_file = Some(file.into());
    /// Asks for user and password whenever a connection is opened: for credentials that do not live
    /// long. Overrides [`ClientBuilder::password_file`], [`ClientBuilder::password`] and the URL.
    credentials(provider: CredentialsProvider): access.credentials = Some(provider);
    /// Sets all credentials and certificates at once.
    access(access: Access): access = access;
    /// Sets certificates, or settings of TLS that you have made.
    tls(tls: TlsOptions): access.tls = tls;
}}

impl ClientBuilder {
    /// Adds an observer of the client's claims. Several observers are called one after the other.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.0.push(Arc::new(observer));
        self
    }

    /// Opens the store. Must be called inside a Tokio runtime with I/O and time enabled, which the
    /// client then uses.
    ///
    /// # Errors
    /// Same as [`connect`](crate::connect); `Invalid` for settings out of bounds.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is left at the store.
    ///
    /// # Examples
    /// See [`Client::builder`].
    pub async fn connect(self) -> Result<Client, Error> {
        let error = |error| Error::new(Operation::Connect, None, error);
        let runtime = check_caller().map_err(error)?;
        let checked = self.settings.check();
        checked.map_err(|invalid| error(invalid.into()))?;
        let limit = self.settings.operation_timeout;
        // By then it has told why, unless it takes longer than all the rest may.
        let opened = timeout(limit + FOR_REASONS, self.source.open(&self.access)).await;
        let opened = opened.unwrap_or_else(|_| Err(unanswered(limit)));
        let Opened { store, url, .. } = opened.map_err(error)?;
        if self.settings.rotate_every.is_some() {
            let checked = check_rotation(store.capabilities());
            checked.map_err(|refused| error(refused.with_hint("leave rotate_every out")))?;
        }
        let (host, process) = whereabouts();
        let owner = ClientInfo::new(&host, process, self.settings.label.as_deref());
        let session = Session::new(store, self.settings, self.ids, self.observers, runtime);
        Ok(Client {
            session,
            owner,
            url: url.into(),
        })
    }

    /// Returns what [`initialise`](Self::initialise) would send to a server that is new, for people to
    /// read and to run by other means: SQL for `postgres://`, and none for other stores. The same as
    /// `leasehold init --dry-run`. Nothing is asked of the server.
    ///
    /// # Errors
    /// `Invalid` for a URL that opens no store.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "postgres")]
    /// # fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Client;
    /// let sql = Client::builder().store("postgres://app@pg1/app").initialisation()?;
    /// assert!(sql.is_some_and(|sql| sql.contains("create schema")));
    /// # Ok(()) }
    /// # #[cfg(not(feature = "postgres"))]
    /// # fn main() {}
    /// ```
    pub fn initialisation(&self) -> Result<Option<String>, Error> {
        let found = self.source.scheme();
        let text = found.and_then(|(scheme, url)| Ok(scheme.initialisation(&url)?));
        text.map_err(|error| Error::new(Operation::Connect, None, error))
    }

    /// Marks servers as new before their first use: those of a `redlock://` URL, or of a URL with
    /// `restart=quarantine`. A marked server grants at once; an unmarked one first waits for its
    /// quarantine. The same as `leasehold init`.
    ///
    /// A server that is already marked is not changed: see [`Marked`](crate::Marked) for the
    /// possible outcomes.
    ///
    /// **Only for servers that never had data**: a server that has lost its data would grant keys
    /// whose forgotten leases are still valid.
    ///
    /// # Cancel safety
    /// If the future is dropped, some servers may be marked.
    ///
    /// # Errors
    /// `Invalid` for a URL whose servers have no marker; otherwise the same as
    /// [`connect`](crate::connect). An error of one server is in its
    /// [`outcome`](crate::Initialised::outcome).
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::{Client, Marked};
    /// let servers = Client::builder().store("redlock://a,b,c/").initialise().await?;
    /// for server in servers {
    ///     match server.outcome {
    ///         Ok(Marked::New | Marked::Already) => println!("{} votes", server.server),
    ///         other => println!("{}: {other:?}", server.server),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn initialise(self) -> Result<Vec<crate::Initialised>, Error> {
        let checked = check_caller().and_then(|_| self.access.check());
        let marked = match checked.and_then(|()| self.source.scheme()) {
            Ok((scheme, url)) => scheme.initialise(&url, &self.access).await,
            Err(error) => Err(error),
        };
        marked.map_err(|error| Error::new(Operation::Connect, None, error))
    }
}

impl Source {
    async fn open(&self, access: &Access) -> Result<Opened, StoreError> {
        access.check()?;
        match self {
            Self::Url(url) => {
                let (scheme, url) = registry::of(url)?;
                scheme.open(&url, access).await
            }
            Self::Options(options) => options.open(access).await,
            Self::Open(store) => {
                let url = format!("{}:", store.capabilities().name);
                Ok(Opened::new(Arc::clone(store), url))
            }
        }
    }

    /// The scheme of the URL, and the URL.
    fn scheme(&self) -> Result<(&'static dyn Scheme, String), StoreError> {
        match self {
            Self::Url(url) => registry::of(url),
            Self::Options(_) | Self::Open(_) => {
                let why = "only servers that a URL names can be made ready";
                let hint = "set the URL with `store`, as `leasehold init` does";
                Err(StoreError::new(ErrorKind::Invalid, why).with_hint(hint))
            }
        }
    }
}

/// The runtime in which this is called; not in a callback of a blocking call, whose thread drives that.
fn check_caller() -> Result<Runtime, StoreError> {
    if drives() && held_up().is_some() {
        return Err(would_block().with_hint("connect before, or on another thread"));
    }
    check_runtime()
}

/// How much longer opening a store may take, to say what has kept it.
const FOR_REASONS: Duration = Duration::from_millis(500);

/// The machine's name, and the number of the process on it.
fn whereabouts() -> (String, u32) {
    #[cfg(feature = "simulation")]
    if let Some(world) = crate::simulation::world() {
        return world.whereabouts();
    }
    let machine = rustix::system::uname();
    let name = machine.nodename().to_string_lossy().into_owned();
    (name, std::process::id())
}

// The URL may hold a password.
debug!(ClientBuilder; |it| settings: it.settings);
