//! The URL schemes of stores: how to open, examine and initialise a store.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::Marked;

use crate::access::Access;
use crate::error::{ErrorKind, StoreError};
use crate::port::LockStore;
use crate::report::Report;

/// A kind of store, with its URL schemes.
#[async_trait]
pub trait Scheme: Sync {
    /// Returns the URL schemes (the part before the colon).
    fn names(&self) -> &'static [&'static str];

    /// Returns examples of its URLs, for hints.
    fn examples(&self) -> &'static [&'static str];

    /// Opens the store at `url`.
    async fn open(&self, url: &str, access: &Access) -> Result<Opened, StoreError>;

    /// Examines the store. A fault of a server is a finding and not an error.
    async fn examine(&self, url: &str, access: &Access) -> Result<Report, StoreError>;

    /// Marks the servers as new.
    async fn initialise(&self, url: &str, access: &Access) -> Result<Vec<Initialised>, StoreError> {
        let _ = (url, access);
        Err(StoreError::new(
            ErrorKind::Invalid,
            "only servers of a redlock:// URL or with restart=quarantine can be marked as new",
        )
        .with_hint("use redlock://host1,host2,host3 or redis://host?restart=quarantine"))
    }
}

/// An open store.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Arc<dyn LockStore>,
    /// The URL without its password, which can be handed to another process.
    pub url: String,
}

/// The result of marking a server as new.
#[derive(Debug, Clone)]
pub struct Initialised {
    /// Host and port.
    pub server: String,
    /// The outcome; an error if the server could not be reached.
    pub outcome: Result<Marked, StoreError>,
}
