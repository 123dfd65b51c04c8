//! The records that this client has open: a step on one of them opens no file, and reads its queue
//! only if another process has changed it.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::Queue;

use super::record::At;

/// How many stay open at most. Each takes a descriptor, of which a process has 1,024 by default.
const MOST: usize = 256;

/// An open record, not locked.
#[derive(Debug)]
pub(super) struct OpenRecord {
    pub(super) file: OwnedFd,
    /// What was last read or written there, and where.
    pub(super) known: Option<(Queue, At)>,
}

/// The open records by the names of their files. Who takes one has it alone.
#[derive(Debug, Default)]
pub(super) struct OpenRecords(Mutex<HashMap<String, OpenRecord>>);

impl OpenRecords {
    pub(super) fn take(&self, name: &str) -> Option<OpenRecord> {
        self.lock().remove(name)
    }

    pub(super) fn put(&self, name: &str, record: OpenRecord) {
        let mut records = self.lock();
        if records.len() >= MOST
            && let Some(any) = records.keys().next().cloned()
        {
            records.remove(&any);
        }
        records.insert(name.to_owned(), record);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OpenRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
