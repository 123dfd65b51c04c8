//! The URL schemes of stores: how to open, examine and initialise a store.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{Invalid, Marked};

use crate::access::Access;
use crate::error::StoreError;
use crate::port::LockStore;
use crate::report::Report;

/// A kind of store, with its URL schemes.
#[async_trait]
pub trait Scheme: Sync {
    /// Returns the URL schemes (the part before the colon).
    fn names(&self) -> &'static [&'static str];

    /// Returns examples of its URLs, for hints.
    fn examples(&self) -> &'static [&'static str];

    /// Reads the URL as [`open`](Self::open) does, without opening the store.
    ///
    /// # Errors
    /// [`Invalid`] for a URL that does not open a store.
    fn describe(&self, url: &str) -> Result<Description, Invalid>;

    /// Returns what users of the URL may not expect of the store, and what to do about it.
    fn warning(&self, url: &str) -> Option<Invalid> {
        let _ = url;
        None
    }

    /// Opens the store at `url`.
    async fn open(&self, url: &str, access: &Access) -> Result<Opened, StoreError>;

    /// Examines the store. A fault of a server is a finding and not an error.
    async fn examine(&self, url: &str, access: &Access) -> Result<Report, StoreError>;

    /// Returns what [`initialise`](Self::initialise) would send to a server that is new, for people to
    /// read and to run by other means. None if that is no text.
    fn initialisation(&self, url: &str) -> Result<Option<String>, Invalid> {
        let _ = url;
        Ok(None)
    }

    /// Marks the servers as new.
    async fn initialise(&self, url: &str, access: &Access) -> Result<Vec<Initialised>, StoreError> {
        let _ = (url, access);
        let why =
            "only servers of a redlock:// URL or with restart=quarantine can be marked as new";
        let hint = "use redlock://host1,host2,host3 or redis://host?restart=quarantine";
        Err(Invalid::new(why, hint).into())
    }
}

/// Options that open a store: they may say more than a URL does.
#[async_trait]
pub trait StoreOptions: Send + Sync {
    /// Opens the store. What `access` has overrides the options.
    async fn open(&self, access: &Access) -> Result<Opened, StoreError>;
}

/// What a URL means.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The URL as people may see it, with `***` in the place of each password.
    pub url: String,
    /// Whether the URL contains a password.
    pub has_password: bool,
    /// Whether the store has servers, to which credentials are sent.
    pub has_servers: bool,
}

impl Description {
    /// Describes a store without servers, in whose URL nothing is secret.
    #[must_use]
    pub fn without_servers(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            has_password: false,
            has_servers: false,
        }
    }

    /// Describes a store with servers. The URL must not contain a password.
    #[must_use]
    pub fn with_servers(url: String, has_password: bool) -> Self {
        Self {
            url,
            has_password,
            has_servers: true,
        }
    }
}

/// An open store.
#[derive(Debug)]
#[non_exhaustive]
pub struct Opened {
    /// The store.
    pub store: Arc<dyn LockStore>,
    /// The URL without its password, which can be handed to another process.
    pub url: String,
}

impl Opened {
    /// Makes it of a store and its URL.
    #[must_use]
    pub fn new(store: Arc<dyn LockStore>, url: impl Into<String>) -> Self {
        let url = url.into();
        Self { store, url }
    }
}

/// What a store was given to keep its locks in.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Made {
    /// What it is, with where it is.
    pub what: String,
    /// Who can use it.
    pub users: String,
}

impl Made {
    /// Makes it of what it is and who can use it.
    #[must_use]
    pub fn new(what: impl Into<String>, users: impl Into<String>) -> Self {
        let (what, users) = (what.into(), users.into());
        Self { what, users }
    }
}

/// The result of marking a server as new.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Initialised {
    /// Host and port, or a directory.
    pub server: String,
    /// What was made and who can use it, for people; `None` for a server that was marked.
    pub made: Option<Made>,
    /// The outcome; an error if the server could not be reached.
    pub outcome: Result<Marked, StoreError>,
}

impl Initialised {
    /// Makes it of a server and its outcome.
    #[must_use]
    pub fn new(server: impl Into<String>, outcome: Result<Marked, StoreError>) -> Self {
        Self {
            server: server.into(),
            made: None,
            outcome,
        }
    }

    /// With what was made.
    #[must_use]
    pub fn with_made(mut self, made: Made) -> Self {
        self.made = Some(made);
        self
    }
}

/// Declares the URL schemes of a store on servers, and that its options open it: the names and examples,
/// `with_access(?)` if the options may refuse what they are given, how a store is opened, what examines its
/// servers, and what else can be done.
#[doc(hidden)]
#[macro_export]
macro_rules! server_scheme {
    (
        $scheme:ident: $options:ident, $names:expr, $examples:expr, with_access($($try:tt)?),
        open: |$given:ident| $open:expr, examine: $examine:path, $($more:tt)*
    ) => {
        #[async_trait::async_trait]
        impl $crate::scheme::Scheme for $scheme {
            fn names(&self) -> &'static [&'static str] {
                &$names
            }

            fn examples(&self) -> &'static [&'static str] {
                &$examples
            }

            fn describe(
                &self,
                url: &str,
            ) -> Result<$crate::scheme::Description, $crate::core::Invalid> {
                let options = $options::from_url(url)?;
                let (url, has_password) = (options.redacted_url(), options.has_password());
                Ok($crate::scheme::Description::with_servers(url, has_password))
            }

            async fn open(
                &self,
                url: &str,
                access: &$crate::access::Access,
            ) -> Result<$crate::scheme::Opened, $crate::StoreError> {
                $crate::scheme::StoreOptions::open(&$options::from_url(url)?, access).await
            }

            async fn examine(
                &self,
                url: &str,
                access: &$crate::access::Access,
            ) -> Result<$crate::report::Report, $crate::StoreError> {
                $examine(&$options::from_url(url)?.with_access(access) $($try)?).await
            }

            $($more)*
        }

        #[async_trait::async_trait]
        impl $crate::scheme::StoreOptions for $options {
            async fn open(
                &self,
                access: &$crate::access::Access,
            ) -> Result<$crate::scheme::Opened, $crate::StoreError> {
                let $given = self.clone().with_access(access) $($try)?;
                let url = $given.url_for_others();
                let store: std::sync::Arc<dyn $crate::LockStore> = $open;
                Ok($crate::scheme::Opened::new(store, url))
            }
        }
    };
}
