//! The records that this client has open: a step on one of them opens no file, and reads only what
//! other processes have written since.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Mutex as AsyncMutex;

use super::record::Record;

/// How many stay open at most, beside those in use. Each takes a descriptor, of which a process has
/// 1,024 by default.
const MOST: usize = 256;

/// A record of which this client has or had the file open.
#[derive(Debug, Default)]
pub(super) struct OpenRecord {
    pub(super) file: Option<OwnedFd>,
    /// What was last read or written there.
    pub(super) known: Option<Record>,
}

/// The open records by the names of their files. The steps of this client on one key take turns by
/// its mutex; the lock of the file is for other clients.
#[derive(Debug, Default)]
pub(super) struct OpenRecords(Mutex<HashMap<String, Arc<AsyncMutex<OpenRecord>>>>);

impl OpenRecords {
    pub(super) fn get(&self, name: &str) -> Arc<AsyncMutex<OpenRecord>> {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = records.get(name) {
            return record.clone();
        }
        if records.len() >= MOST {
            let idle = records.iter().find(|(_, one)| Arc::strong_count(one) == 1);
            let idle = idle.map(|(name, _)| name.clone());
            idle.and_then(|name| records.remove(&name));
        }
        records.entry(name.to_owned()).or_default().clone()
    }
}
