//! Listing of keys, page by page.

use leasehold_store::debug;

use crate::error::{Error, Operation, StoreError};
use crate::inspection::Inspection;
use crate::session::Session;
use crate::store::Listing as Pages;

/// A listing in progress: see [`crate::Client::listing`].
pub struct Listing<'a> {
    session: &'a Session,
    pattern: String,
    pages: Option<Box<dyn Pages + 'a>>,
}

/// One page of a [`Listing`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Listed {
    /// Keys that are held or waited for, unordered.
    pub keys: Vec<Inspection>,
    /// Entries that were skipped.
    pub skipped: Vec<Skipped>,
}

/// An entry with the name of a key that cannot be read: data that is not leasehold's, a damaged
/// record, or a record of a later version.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// Why it was skipped.
    pub error: StoreError,
}

impl<'a> Listing<'a> {
    pub(crate) fn new(session: &'a Session, pattern: &str) -> Self {
        Self {
            session,
            pattern: pattern.to_owned(),
            pages: None,
        }
    }

    /// Returns the next page, which may be empty; `None` at the end. Each page takes at most one
    /// operation time-out, however many keys there are.
    ///
    /// # Errors
    /// Same as [`Client::inspect`](crate::Client::inspect). The next call asks for the same page
    /// again.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the next call asks for the same page again.
    ///
    /// # Examples
    /// See [`crate::Client::listing`].
    pub async fn next(&mut self) -> Result<Option<Listed>, Error> {
        let (session, pattern, pages) = (self.session, &self.pattern, &mut self.pages);
        let page = session.ask(async {
            let pages = pages.get_or_insert_with(|| session.store.listing(pattern));
            pages.next_page().await
        });
        let page = page.await;
        let page = page.map_err(|error| Error::new(Operation::Inspect, None, error))?;
        Ok(page.map(|page| {
            let found = page.found.into_iter();
            let keys = found.map(|(key, look)| Inspection::new(key, look));
            let skipped = page.skipped.into_iter();
            let skipped = skipped.map(|(name, error)| Skipped { name, error });
            let (keys, skipped) = (keys.collect(), skipped.collect());
            Listed { keys, skipped }
        }))
    }
}

debug!(Listing<'_>);
