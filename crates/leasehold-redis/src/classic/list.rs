//! Lists the classic locks of a server or cluster, page by page.

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::{Invalid, Key};
use leasehold_store::{ErrorKind, ListPage, Listing, SeenNames, StoreError};

use super::{ClassicStore, check_pattern, is_listed, view, wall};
use crate::routing::names::{Names, as_key};

/// A listing of the strings that are locks.
pub(super) struct ClassicListing<'a> {
    store: &'a ClassicStore,
    /// Whether that pattern may be listed.
    allowed: Result<(), Invalid>,
    names: Names,
    /// Keys that were found and not looked into yet.
    pending: Vec<Key>,
    named: SeenNames,
}

impl<'a> ClassicListing<'a> {
    pub(super) fn new(store: &'a ClassicStore, pattern: &str) -> Self {
        let prefix = store.prefix();
        Self {
            store,
            allowed: check_pattern(prefix, pattern),
            names: Names::new(store.route.clone(), prefix.to_owned(), pattern),
            pending: Vec::new(),
            named: SeenNames::default(),
        }
    }
}

#[async_trait]
impl Listing for ClassicListing<'_> {
    async fn next_page(&mut self) -> Result<Option<ListPage>, StoreError> {
        self.allowed.clone()?;
        if self.pending.is_empty() {
            let Some(names) = self.names.next().await? else {
                return Ok(None);
            };
            self.pending = names.iter().filter_map(|name| as_key(name).ok()).collect();
        }
        let looks = join_all(self.pending.iter().map(|key| self.store.found(key))).await;
        let mut found = Vec::new();
        for (key, look) in self.pending.iter().zip(looks) {
            match look {
                Ok(look) => found.push((key.clone(), view(&look, wall()))),
                // Whatever else has such a name is no lock of this layout.
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                Err(error) => return Err(error),
            }
        }
        self.pending.clear();
        found.retain(|(key, seen)| is_listed(seen) && self.named.insert(key.as_str().as_bytes()));
        Ok(Some(ListPage {
            found,
            skipped: Vec::new(),
        }))
    }
}
