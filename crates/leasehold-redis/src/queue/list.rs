//! Lists the keys that are held or waited for, page by page.

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::{Key, Snapshot};
use leasehold_store::{ListPage, Listing, SeenNames, StoreError};
use redis::Value;

use super::RedisStore;
use crate::codec::record::Record;
use crate::codec::script::Look;
use crate::connection::step::Way;
use crate::refusal;
use crate::routing::names::{Names, as_key};

/// A listing of the queues of a server or a cluster.
pub(crate) struct QueueListing<'a> {
    store: &'a RedisStore,
    names: Names,
    /// Names that were found and not looked into yet.
    pending: Vec<Vec<u8>>,
    named: SeenNames,
}

impl<'a> QueueListing<'a> {
    pub(crate) fn new(store: &'a RedisStore, pattern: &str) -> Self {
        Self {
            store,
            names: Names::new(store.route.clone(), store.redis_key(""), pattern),
            pending: Vec::new(),
            named: SeenNames::default(),
        }
    }

    /// A key that is in use; `None` if it is idle. Within: why it is passed over.
    async fn look(
        &self,
        name: &[u8],
    ) -> Result<Result<Option<(Key, Snapshot)>, StoreError>, StoreError> {
        let key = match as_key(name) {
            Ok(key) => key,
            Err(error) => return Ok(Err(error)),
        };
        let redis_key = self.store.redis_key(key.as_str());
        let look = Look { key: &redis_key };
        let (value, _) = self.store.ask(Way::Plain, &look).await?;
        match &value {
            // It is about the server or the user, and not about this key.
            Value::ServerError(error) if !matches!(error.code(), "LHTYPE" | "LHVERSION") => {
                Err(refusal::of_server(error))
            }
            _ => Ok(Record::read(value).map(|(record, clock)| {
                let seen = record.look(clock);
                seen.capacity.is_some().then_some((key, seen))
            })),
        }
    }
}

#[async_trait]
impl Listing for QueueListing<'_> {
    async fn next_page(&mut self) -> Result<Option<ListPage>, StoreError> {
        if self.pending.is_empty() {
            match self.names.next().await? {
                Some(names) => self.pending = names,
                None => return Ok(None),
            }
        }
        let looks = join_all(self.pending.iter().map(|name| self.look(name))).await;
        let looks: Vec<_> = looks.into_iter().collect::<Result<_, _>>()?;
        let mut page = ListPage::default();
        for (name, look) in std::mem::take(&mut self.pending).into_iter().zip(looks) {
            match look {
                Ok(Some(found)) if self.named.insert(&name) => page.found.push(found),
                Err(error) if self.named.insert(&name) => {
                    page.skipped
                        .push((String::from_utf8_lossy(&name).into_owned(), error));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(Some(page))
    }
}
