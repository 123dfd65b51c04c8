//! The audit log of the memory store.

use std::collections::VecDeque;

use async_trait::async_trait;
use leasehold_core::{AuditEntry, Key, StoreTime};

use super::{MemoryStore, lock};
use crate::audit::{AuditLimit, AuditLog, AuditRecord};
use crate::error::StoreError;

/// The entries that are kept.
#[derive(Debug)]
pub(super) struct KeptLog {
    pub(super) limit: AuditLimit,
    /// How many were there before those.
    gone: usize,
    records: VecDeque<AuditRecord>,
}

impl KeptLog {
    pub(super) fn new(limit: AuditLimit) -> Self {
        Self {
            limit,
            gone: 0,
            records: VecDeque::new(),
        }
    }

    /// Without its entries. Whoever has read some of them reads those that come later.
    pub(super) fn emptied(mut self) -> Self {
        self.gone += self.records.len();
        self.records.clear();
        self
    }

    pub(super) fn note(&mut self, key: &Key, entries: Vec<AuditEntry>) {
        for entry in entries {
            let at = entry.at;
            let key = key.clone();
            self.records.push_back(AuditRecord::new(key, entry));
            while self.has_too_much(at) {
                self.records.pop_front();
                self.gone += 1;
            }
        }
    }

    fn has_too_much(&self, now: StoreTime) -> bool {
        match self.limit {
            AuditLimit::Entries(most) => self.records.len() as u64 > most,
            AuditLimit::Age(age) => {
                let first = self.records.front();
                first.is_some_and(|first| first.entry.at + age < now)
            }
        }
    }
}

/// How many entries a page has at most: no step is taken meanwhile.
const PAGE: usize = 1000;

/// A reading of it, of all keys and times.
pub(super) struct MemoryLog<'a> {
    pub(super) store: &'a MemoryStore,
    /// How many were read.
    pub(super) read: usize,
}

#[async_trait]
impl AuditLog for MemoryLog<'_> {
    async fn next_page(&mut self) -> Result<Vec<AuditRecord>, StoreError> {
        let kept = lock(&self.store.shared.kept);
        let Some(log) = &kept.audit else {
            return Ok(Vec::new());
        };
        let from = self.read.max(log.gone);
        let page = log.records.iter().skip(from - log.gone).take(PAGE);
        let page: Vec<_> = page.cloned().collect();
        self.read = from + page.len();
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::AuditEvent;

    use super::*;
    use crate::LockStore;

    #[tokio::test]
    async fn a_page_is_bounded_and_the_next_one_goes_on() {
        let store = MemoryStore::new().audited(AuditLimit::Entries(10_000));
        let entry = AuditEntry::new(StoreTime(1), AuditEvent::Downgraded, None);
        if let Some(log) = &mut lock(&store.shared.kept).audit {
            log.note(&Key::new("k").unwrap(), vec![entry; PAGE + 1]);
        }
        let mut log = LockStore::audit_log(&store, None, StoreTime(0)).unwrap();
        for length in [PAGE, 1, 0] {
            assert_eq!(log.next_page().await.unwrap().len(), length);
        }
    }
}
