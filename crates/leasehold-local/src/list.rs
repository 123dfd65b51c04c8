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
    pub(super) inner: Arc<Inner>,
    pub(super) pattern: Arc<str>,
    /// The records, once they are known, and how many were read.
    pub(super) names: Option<Arc<[String]>>,
    pub(super) read: usize,
}

#[async_trait]
impl Listing for RecordListing {
    async fn next_page(&mut self) -> Result<Option<ListPage>, StoreError> {
        let (inner, pattern) = (Arc::clone(&self.inner), Arc::clone(&self.pattern));
        let (known, read) = (self.names.clone(), self.read);
        let page = blocking(move || {
            let names = match known {
                Some(names) => names,
                None => {
                    inner.directory.check_stands()?;
                    let names = inner.directory.names(RECORDS, ".rec", usize::MAX);
                    let failed = |errno| inner.directory.failed("read", errno);
                    names.map_err(failed)?.into()
                }
            };
            // The key of a record and who holds it or waits, if it is meant and there is somebody.
            let look_into = |name: &str| -> Result<_, StoreError> {
                let record = RecordFile::of(&inner, name).read()?;
                let is_meant = |it: &Record| glob::matches(&pattern, it.header.key.as_str());
                let Some(Record { header, queue, .. }) = record.filter(is_meant) else {
                    return Ok(None);
                };
                let seen = look(&inner, &header.key, &queue)?;
                let somebody = !seen.holders.is_empty() || !seen.waiters.is_empty();
                Ok(somebody.then_some((header.key, seen)))
            };
            let mut page = ListPage::default();
            for name in names.iter().skip(read).take(PAGE) {
                match look_into(name) {
                    Ok(found) => page.found.extend(found),
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
            Ok((names, page))
        });
        let (names, page) = page.await?;
        let more = self.read < names.len();
        self.names = Some(names);
        self.read += PAGE;
        Ok(more.then_some(page))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};
    use std::time::Duration;

    use leasehold_core::{Claim, Command};
    use leasehold_store::Records;
    use tokio::sync::Notify;

    use crate::LocalStore;
    use crate::tests::{Place, claim, claim_for, key, take};

    struct Woken(Notify);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.notify_one();
        }
    }

    /// As on a disk that has become read-only.
    #[tokio::test]
    async fn a_key_whose_dead_cannot_be_removed_hides_no_other() {
        let place = Place::new();
        let (store, dies) = (place.store(), place.store());
        take(&store, &key("lives"), &claim(1));
        let held = Claim {
            inbox: Some(dies.session.inbox().clone()),
            ..claim_for(2, Duration::from_secs(60))
        };
        take(&dies, &key("dead"), &Command::Claim(held));
        drop(dies);
        // What is read says who holds the key, and what is written is another file.
        let (record, copy) = (place.at("records/dead.rec"), place.at("records/copy.rec"));
        fs::rename(&record, copy).unwrap();
        fs::create_dir(record).unwrap();
        let store = LocalStore::of(store);
        let page = store.listing("*").next_page().await.unwrap().unwrap();
        let found: Vec<_> = page.found.iter().map(|(key, _)| key.as_str()).collect();
        let mut skipped: Vec<_> = page.skipped.iter().map(|(name, _)| &**name).collect();
        skipped.sort_unstable();
        assert_eq!((found, skipped), (vec!["lives"], vec!["copy", "dead"]));
    }

    /// Wherever the future is dropped: after none of its waits, after the first, and so on.
    #[tokio::test]
    async fn a_page_that_was_given_up_comes_again() {
        let place = Place::new();
        let store = place.store();
        take(&store, &key("k"), &claim(1));
        let store = LocalStore::of(store);
        for waits in 0..4 {
            let mut listing = store.listing("*");
            let woken = Arc::new(Woken(Notify::new()));
            let waker = Waker::from(woken.clone());
            let mut page = listing.next_page();
            let mut context = Context::from_waker(&waker);
            let mut done = false;
            for _ in 0..waits {
                done = done || matches!(page.as_mut().poll(&mut context), Poll::Ready(_));
                if !done {
                    woken.0.notified().await;
                }
            }
            drop(page);
            if !done {
                let page = listing.next_page().await.unwrap();
                assert_eq!(page.unwrap().found.len(), 1, "after {waits} waits");
            }
            assert!(listing.next_page().await.unwrap().is_none());
        }
    }
}
