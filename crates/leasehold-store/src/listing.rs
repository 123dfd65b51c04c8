//! Listings that come in pages, so that none is too long for an answer.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use async_trait::async_trait;
use leasehold_core::{Key, Queue, Snapshot, StoreTime};

use crate::error::StoreError;
use crate::glob;

/// A listing under way: see [`LockStore::listing`](crate::LockStore::listing).
#[async_trait]
pub trait Listing: Send {
    /// The next page, which may be empty; `None` at the end. Each is a bounded piece of work,
    /// however many keys there are.
    ///
    /// After an error, or if the future is dropped, the next call does the same piece again.
    async fn next_page(&mut self) -> Result<Option<ListPage>, StoreError>;
}

/// What one piece of a [`Listing`] found, in no order.
#[derive(Debug, Clone, Default)]
pub struct ListPage {
    /// Keys that somebody holds or waits for.
    pub found: Vec<(Key, Snapshot)>,
    /// What has a name like a key and is none, or cannot be read: its name, and why.
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

/// The listing of a store that has all its queues at hand.
#[derive(Debug)]
pub struct OnePage(Option<ListPage>);

impl OnePage {
    /// A listing of those among these queues whose keys match the glob `pattern`, and that
    /// somebody holds or waits for at that time. What cannot be read is skipped.
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

/// Which names a listing has named: a store may come across a key twice. Takes 16 bytes a
/// name, so that a listing is no copy of what it lists.
#[derive(Debug, Default)]
pub struct SeenNames {
    seen: HashSet<(u64, u64)>,
    hashers: (RandomState, RandomState),
}

impl SeenNames {
    /// Notes a name; false if it was noted before.
    pub fn insert(&mut self, name: &[u8]) -> bool {
        let (one, other) = &self.hashers;
        self.seen.insert((one.hash_one(name), other.hash_one(name)))
    }
}
