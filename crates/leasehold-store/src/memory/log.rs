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

/// A reading of it.
pub(super) struct MemoryLog<'a> {
    pub(super) store: &'a MemoryStore,
    pub(super) key: Option<Key>,
    pub(super) since: StoreTime,
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
        let new = log.records.iter().skip(self.read.saturating_sub(log.gone));
        let meant = new.filter(|record| record.is_for(self.key.as_ref(), self.since));
        let records = meant.cloned().collect();
        self.read = log.gone + log.records.len();
        Ok(records)
    }
}
