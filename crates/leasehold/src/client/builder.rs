//! What a client can be given before it is connected.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::ClientInfo;

use super::Client;
use crate::access::{Access, TlsFiles};
use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::ids::ClaimIds;
use crate::observe::{Observer, Observers};
use crate::session::{Session, unanswered};
use crate::settings::Settings;
use crate::store::LockStore;
use crate::store::scheme::Opened;
use crate::stores;
use crate::sync::{Runtime, timeout};

/// Everything a client can be given. See [`Client::builder`].
#[derive(Clone, Default)]
pub struct ClientBuilder {
    url: Option<String>,
    store: Option<Arc<dyn LockStore>>,
    settings: Settings,
    access: Access,
    ids: ClaimIds,
    observers: Observers,
}

impl ClientBuilder {
    /// The store's URL; see [`connect`](crate::connect). `local:` unless given.
    #[must_use]
    pub fn store(mut self, url: impl AsRef<str>) -> Self {
        self.url = Some(url.as_ref().to_owned());
        self
    }

    /// A store that is open already: a connection brought along, or one of your own.
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn LockStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// How the client's locks behave unless told otherwise.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// How others see this client, beside host and process id.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.settings.label = Some(label.into());
        self
    }

    /// Where the ids of claims come from: random, unless given.
    #[must_use]
    pub fn claim_ids(mut self, ids: ClaimIds) -> Self {
        self.ids = ids;
        self
    }

    /// Who hears what happens to the client's claims; several are told one after the other.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.add(observer);
        self
    }

    /// The user to log in as; wins over the URL.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.access.user = Some(user.into());
        self
    }

    /// The password to log in with; wins over the URL, and is shown nowhere.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.access.password = Some(password.into());
        self
    }

    /// A file whose first line is the password. It is read whenever a connection is
    /// opened, so that a password may change while the client lives; wins over
    /// [`ClientBuilder::password`] and the URL.
    #[must_use]
    pub fn password_file(mut self, file: impl Into<std::path::PathBuf>) -> Self {
        self.access.password_file = Some(file.into());
        self
    }

    /// All of that at once: user, password, its file and certificates.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Certificates for TLS.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.access.tls = files;
        self
    }

    /// Opens the store. Must be called inside a Tokio runtime, which the client
    /// uses from then on.
    ///
    /// # Errors
    /// As [`connect`](crate::connect); `Invalid` for settings out of bounds.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// # Examples
    /// See [`Client::builder`].
    pub async fn connect(self) -> Result<Client, Error> {
        let error = |error| Error::new(Operation::Connect, None, error);
        let Ok(runtime) = Runtime::try_current() else {
            return Err(error(
                StoreError::new(
                    ErrorKind::Invalid,
                    "connect was called outside of a Tokio runtime",
                )
                .with_hint("call it inside #[tokio::main], or Runtime::block_on"),
            ));
        };
        self.settings
            .check()
            .map_err(|invalid| error(invalid.into()))?;
        let Opened { store, url } = match self.store {
            Some(store) => {
                let url = format!("{}:", store.capabilities().name);
                Opened { store, url }
            }
            None => {
                let url = self.url.as_deref().unwrap_or("local:");
                let limit = self.settings.operation_timeout;
                let opening = open(url, &self.access);
                // By then it has told why, unless it takes longer than all the rest may.
                let opened = timeout(limit + FOR_REASONS, opening).await;
                opened
                    .unwrap_or_else(|_| Err(unanswered(limit)))
                    .map_err(error)?
            }
        };
        if self.settings.rotate_every.is_some() && store.capabilities().exclusive_only {
            let name = store.capabilities().name;
            let why = format!("{name} stores cannot replace claim ids");
            return Err(error(
                StoreError::new(ErrorKind::Unsupported, why).with_hint("leave rotate_every out"),
            ));
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

    /// Says that the servers behind the URL are new, before they are used for the first
    /// time: those of a `redlock://` URL, or one with `restart=quarantine`. They grant
    /// at once, where they would wait for the end of a quarantine. The same as
    /// `leasehold init`.
    ///
    /// A server that is marked already stays as it is: see
    /// [`Marked`](crate::Marked) for what becomes of each.
    ///
    /// **Only for servers that have no data because they never had any**: one that
    /// has lost its data would grant while leases that it has forgotten are valid.
    ///
    /// # Cancel safety
    /// Servers may be marked although the future was dropped.
    ///
    /// # Errors
    /// `Invalid` for a URL whose servers have no marker; else as [`connect`](crate::connect). What goes
    /// wrong at one of several servers stands in its
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
        let url = self.url.as_deref().unwrap_or("local:");
        let marked = match stores::of(url.trim()) {
            Ok(scheme) => scheme.initialise(url.trim(), &self.access).await,
            Err(error) => Err(error),
        };
        marked.map_err(|error| Error::new(Operation::Connect, None, error))
    }
}

/// Opens the store at `url`.
async fn open(url: &str, access: &Access) -> Result<Opened, StoreError> {
    access.check()?;
    stores::of(url)?.open(url, access).await
}

/// How much longer opening a store may take, to say what has kept it.
const FOR_REASONS: Duration = Duration::from_millis(500);

/// The machine's name, and the number of the process on it.
fn whereabouts() -> (String, u32) {
    #[cfg(feature = "simulation")]
    if let Some(whereabouts) = crate::simulation::whereabouts() {
        return whereabouts;
    }
    let machine = rustix::system::uname();
    let name = machine.nodename().to_string_lossy().into_owned();
    (name, std::process::id())
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("ClientBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
