//! What a store brings: its URLs, what they open, and its examination.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::Marked;

use crate::access::Access;
use crate::error::{ErrorKind, StoreError};
use crate::port::LockStore;
use crate::report::Report;

/// One way to keep locks: what its URLs begin with, and what they open.
#[async_trait]
pub trait Scheme: Sync {
    /// The parts of its URLs before the colon.
    fn names(&self) -> &'static [&'static str];

    /// How its URLs begin, for hints.
    fn examples(&self) -> &'static [&'static str];

    /// Opens the store at `url`.
    async fn open(&self, url: &str, access: &Access) -> Result<Opened, StoreError>;

    /// What can be promised there. What is wrong with a server is a finding and no error.
    async fn examine(&self, url: &str, access: &Access) -> Result<Report, StoreError>;

    /// Marks its servers as new.
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
    /// The URL without its password, fit to be handed to another process.
    pub url: String,
}

/// A server, and whether it was marked as new.
#[derive(Debug, Clone)]
pub struct Initialised {
    /// Host and port.
    pub server: String,
    /// What became of it; an error if it could not be asked.
    pub outcome: Result<Marked, StoreError>,
}
