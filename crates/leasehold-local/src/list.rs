//! The keys that somebody holds or waits for, page by page.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_store::{ListPage, Listing, StoreError, glob};
use percent_encoding::percent_decode_str;

use super::acquire_record::blocking;
use super::directory::RECORDS;
use super::record::Record;
use super::record_file::RecordFile;
use super::{Inner, look};

/// How many records are read at once.
const PAGE: usize = 1000;

/// A listing: the names of all records, then their contents.
pub(super) struct RecordListing {
    inner: Arc<Inner>,
    pattern: Arc<str>,
    /// The records that are still to be read; none yet.
    names: Option<std::vec::IntoIter<String>>,
}

impl RecordListing {
    pub(super) fn new(inner: &Arc<Inner>, pattern: &str) -> Self {
        Self {
            inner: Arc::clone(inner),
            pattern: pattern.into(),
            names: None,
        }
    }
}

#[async_trait]
impl Listing for RecordListing {
    async fn next_page(&mut self) -> Result<Option<ListPage>, StoreError> {
        let (inner, pattern) = (Arc::clone(&self.inner), Arc::clone(&self.pattern));
        let names = match self.names.take() {
            Some(names) => names,
            None => {
                let inner = Arc::clone(&inner);
                let names = blocking(move || {
                    inner.directory.check_stands()?;
                    let names = inner.directory.names(RECORDS, ".rec", usize::MAX);
                    names.map_err(|errno| inner.directory.failed("read", errno))
                });
                names.await?.into_iter()
            }
        };
        let some: Vec<_> = self.names.insert(names).take(PAGE).collect();
        if some.is_empty() {
            return Ok(None);
        }
        let page = blocking(move || {
            let mut page = ListPage::default();
            for name in &some {
                match RecordFile::of(&inner, name).read() {
                    Ok(Some(Record { header, queue, .. })) => {
                        let is_meant = glob::matches(&pattern, header.key.as_str());
                        if is_meant && !queue.is_empty() {
                            let seen = look(&inner, &header.key, &queue)?;
                            if !seen.holders.is_empty() || !seen.waiters.is_empty() {
                                page.found.push((header.key, seen));
                            }
                        }
                    }
                    Ok(None) => {}
                    // One bad record must not hide the others.
                    Err(error) => {
                        // A long key has a part of its name there only.
                        let name = percent_decode_str(name).decode_utf8_lossy();
                        if glob::matches(&pattern, &name) {
                            page.skipped.push((name.into_owned(), error));
                        }
                    }
                }
            }
            Ok(page)
        });
        page.await.map(Some)
    }
}
