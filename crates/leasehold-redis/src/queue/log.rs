//! Reads the audit log, page by page.

use async_trait::async_trait;
use leasehold_core::{Key, StoreTime};
use leasehold_store::{AuditLog, AuditRecord, StoreError};
use tokio::time::Instant;

use super::RedisStore;
use crate::codec::audit::{self, PAGE, read_entries};
use crate::codec::script::{LOG, Request};
use crate::routing::Route;
use crate::routing::names::Names;

/// The logs of a cluster are looked for again after so many times the time that it took: whoever
/// follows all of them has the nodes go through their keys, for a twentieth of the time at most.
const PAUSES: u32 = 19;

/// A log, which is one stream, or in a cluster one for each slot that is in use.
pub(crate) struct StreamLog<'a> {
    store: &'a RedisStore,
    key: Option<Key>,
    since: StoreTime,
    streams: Vec<Stream>,
    /// Which of them is read next, of those that have not been read to their end.
    next: usize,
    /// When they are looked for again.
    look_again: Option<Instant>,
}

struct Stream {
    name: String,
    /// From which entry on it is to be read.
    from: String,
}

impl<'a> StreamLog<'a> {
    pub(crate) fn new(store: &'a RedisStore, key: Option<&Key>, since: StoreTime) -> Self {
        Self {
            store,
            key: key.cloned(),
            since,
            streams: Vec::new(),
            next: 0,
            look_again: None,
        }
    }

    /// Looks for the streams.
    async fn find(&mut self) -> Result<(), StoreError> {
        let begun = Instant::now();
        if self.look_again.is_some_and(|at| begun < at) {
            return Ok(());
        }
        let log = audit::log_of(self.store.route.prefix());
        let names = match (&self.store.route, &self.key) {
            (Route::One(_), _) => vec![log],
            (Route::Cluster(_), Some(key)) => {
                let key = self.store.redis_key(key.as_str());
                vec![audit::log_beside(&log, &key)]
            }
            (Route::Cluster(_), None) => self.scan(&log).await?,
        };
        for name in names {
            if !self.streams.iter().any(|stream| stream.name == name) {
                let from = format!("{}-0", self.since.0 / 1_000);
                self.streams.push(Stream { name, from });
            }
        }
        self.look_again = Some(Instant::now() + begun.elapsed() * PAUSES);
        Ok(())
    }

    async fn scan(&self, log: &str) -> Result<Vec<String>, StoreError> {
        let beside = format!("{log}:");
        let mut names = Names::new(self.store.route.clone(), beside.clone(), "*");
        let mut found = Vec::new();
        while let Some(page) = names.next().await? {
            let page = page
                .into_iter()
                .filter_map(|name| String::from_utf8(name).ok());
            found.extend(page.map(|name| format!("{beside}{name}")));
        }
        Ok(found)
    }
}

#[async_trait]
impl AuditLog for StreamLog<'_> {
    async fn next_page(&mut self) -> Result<Vec<AuditRecord>, StoreError> {
        self.find().await?;
        let (prefix, page) = (self.store.route.prefix(), PAGE.to_string());
        while let Some(Stream { name, from }) = self.streams.get_mut(self.next) {
            let arguments = [&**from, &page].map(str::as_bytes);
            let call = Request::call(&LOG, name, &arguments);
            let entries = read_entries(name, self.store.route.read(&call).await?)?;
            if let Some((last, _)) = entries.last() {
                *from = format!("({last}");
            }
            // One that was not full was the last, whatever others write meanwhile.
            self.next += usize::from(entries.len() < PAGE);
            let mut records = Vec::new();
            for (id, value) in &entries {
                let value = value.as_deref();
                match value.and_then(|value| audit::read(prefix, value)) {
                    Some(read) => records.extend(read),
                    None => tracing::warn!(id, "skipped an audit entry that cannot be read"),
                }
            }
            if !records.is_empty() {
                return Ok(records);
            }
        }
        self.next = 0;
        Ok(Vec::new())
    }
}
