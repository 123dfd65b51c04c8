//! Lists the keys that are held, page by page.

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use leasehold_core::Key;
use leasehold_store::{ErrorKind, ListPage, Listing, SeenNames, StoreError};

use super::Inner;
use super::report::Report;
use crate::routing::names::PAGE;

/// A listing: all members are gone through side by side. Some may fail, as long as a quorum
/// goes on: whatever is held lies on one of those, too.
pub(super) struct QuorumListing<'a> {
    inner: &'a Inner,
    /// That of each member; `None` once it has ended or failed.
    listings: Vec<Option<Box<dyn Listing + 'a>>>,
    failed: usize,
    report: Report,
    /// Keys that were found and not looked into yet.
    pending: Vec<Key>,
    /// Names that were found but cannot be keys.
    skipped: Vec<(String, StoreError)>,
    /// All names that were found: each lies on several servers.
    named: SeenNames,
}

impl<'a> QuorumListing<'a> {
    pub(super) fn new(inner: &'a Inner, pattern: &str) -> Self {
        let members = inner.members.iter();
        Self {
            inner,
            listings: members
                .map(|member| Some(member.store.listing(pattern)))
                .collect(),
            failed: 0,
            report: Report::new(inner.size),
            pending: Vec::new(),
            skipped: Vec::new(),
            named: SeenNames::default(),
        }
    }

    /// Goes one page further at each member; false at the end. If the future is dropped, what has come
    /// is kept. If too few members answer, those that failed are asked again by the next call.
    async fn read_on(&mut self) -> Result<bool, StoreError> {
        if self.listings.iter().all(Option::is_none) {
            return Ok(false);
        }
        let limit = self.inner.options.node_timeout;
        let members = self.inner.members.iter().zip(&mut self.listings);
        let mut pages: FuturesUnordered<_> = members
            .enumerate()
            .map(async |(number, (member, listing))| {
                let page = member.within(limit, listing.as_mut()?.next_page()).await;
                if matches!(page, Ok(None)) {
                    *listing = None;
                }
                Some((number, page))
            })
            .collect();
        let mut failing = Vec::new();
        while let Some(page) = pages.next().await {
            let Some((number, page)) = page else { continue };
            self.report.note(number, &page);
            match page {
                // The same everywhere, whatever the others say.
                Err(error) if error.kind() == ErrorKind::Invalid => return Err(error),
                Err(_) => failing.push(number),
                Ok(None) => {}
                Ok(Some(mut page)) => {
                    let named = &mut self.named;
                    let found = page.found.into_iter().map(|(key, _)| key);
                    let new = found.filter(|key| named.insert(key.as_str().as_bytes()));
                    self.pending.extend(new);
                    let skipped = &mut page.skipped;
                    skipped.retain(|(name, _)| self.named.insert(name.as_bytes()));
                    self.skipped.append(skipped);
                }
            }
        }
        drop(pages);
        let failed = self.failed + failing.len();
        if self.listings.len() - failed < self.inner.size.quorum() {
            return Err(self.report.error(self.inner, ErrorKind::Unavailable, limit));
        }
        self.failed = failed;
        for number in failing {
            self.listings[number] = None;
        }
        Ok(true)
    }
}

#[async_trait]
impl Listing for QuorumListing<'_> {
    async fn next_page(&mut self) -> Result<Option<ListPage>, StoreError> {
        if self.pending.is_empty() && !self.read_on().await? {
            return Ok(None);
        }
        let from = self.pending.len().saturating_sub(PAGE);
        let keys = &self.pending[from..];
        let looks = join_all(keys.iter().map(|key| self.inner.look(key))).await;
        let mut page = ListPage::default();
        for (key, look) in keys.iter().zip(looks) {
            match look {
                Ok(seen) if seen.capacity.is_some() => page.found.push((key.clone(), seen)),
                Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
                Err(error) if !self.inner.options.is_classic() => {
                    page.skipped.push((key.to_string(), error));
                }
                // Nobody holds it, or whatever else has such a name is no lock of this layout.
                Ok(_) | Err(_) => {}
            }
        }
        self.pending.truncate(from);
        page.skipped.append(&mut self.skipped);
        Ok(Some(page))
    }
}
