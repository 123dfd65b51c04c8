//! Listings in pages.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use async_trait::async_trait;
use leasehold_core::{Key, Queue, Snapshot, StoreTime};

use crate::error::StoreError;
use crate::glob;

/// A listing in progress: see [`LockStore::listing`](crate::LockStore::listing).
#[async_trait]
pub trait Listing: Send {
    /// Returns the next page, which may be empty; `None` at the end. Each page is a bounded
    /// amount of work, however many keys there are.
    ///
    /// After an error, or if the future is dropped, the next call repeats the same page.
    async fn next_page(&mut self) -> Result<Option<ListPage>, StoreError>;
}

/// One page of a [`Listing`], unordered.
#[derive(Debug, Clone, Default)]
pub struct ListPage {
    /// Keys that are held or waited for.
    pub found: Vec<(Key, Snapshot)>,
    /// Entries with the name of a key that are not keys or cannot be read: the name, and why.
    pub skipped: Vec<(String, StoreError)>,
}

/// All pages as one list, sorted by name.
pub(crate) async fn drain(
    mut listing: Box<dyn Listing + '_>,
) -> Result<Vec<(Key, Snapshot)>, StoreError> {
    let mut all = Vec::new();
    while let Some(page) = listing.next_page().await? {
        all.extend(page.found);
        for (name, error) in page.skipped {
            tracing::warn!(name, %error, "skipped a key that cannot be read");
        }
    }
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(all)
}

/// A listing of a store that has all its queues in memory.
#[derive(Debug)]
pub struct OnePage(Option<ListPage>);

impl OnePage {
    /// Lists the queues whose keys match the glob `pattern` and that are held or waited for at
    /// that time. Queues that cannot be read are skipped.
    pub fn new<'a, Q: Borrow<Queue>>(
        queues: impl IntoIterator<Item = (&'a Key, Result<Q, StoreError>)>,
        pattern: &str,
        now: StoreTime,
    ) -> Self {
        let mut page = ListPage::default();
        for (key, queue) in queues {
            if !glob::matches(pattern, key.as_str()) {
                continue;
            }
            match queue.map(|queue| queue.borrow().look(now)) {
                Ok(look) if look.holders.is_empty() && look.waiters.is_empty() => {}
                Ok(look) => page.found.push((key.clone(), look)),
                Err(error) => page.skipped.push((key.to_string(), error)),
            }
        }
        Self(Some(page))
    }
}

#[async_trait]
impl Listing for OnePage {
    async fn next_page(&mut self) -> Result<Option<ListPage>, StoreError> {
        Ok(self.0.take())
    }
}

/// The names that a listing has returned, to find duplicates. It needs 16 bytes per name.
#[derive(Debug, Default)]
pub struct SeenNames {
    seen: HashSet<(u64, u64)>,
    hashers: (RandomState, RandomState),
}

impl SeenNames {
    /// Adds a name; returns false if it was added before.
    pub fn insert(&mut self, name: &[u8]) -> bool {
        let (one, other) = &self.hashers;
        self.seen.insert((one.hash_one(name), other.hash_one(name)))
    }
}
