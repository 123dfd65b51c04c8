//! The contract of a store, on the memory store.

use leasehold::store::AuditLimit;
use leasehold::store::memory::{ManualClock, MemoryStore};

use crate::steps::*;

struct Memory(MemoryStore, ManualClock);

#[async_trait]
impl Fixture for Memory {
    async fn client(&self) -> Arc<dyn LockStore> {
        Arc::new(self.0.client())
    }

    async fn audited(&self) -> Arc<dyn LockStore> {
        Arc::new(self.0.client().audited(AuditLimit::Entries(1_000)))
    }

    async fn pass(&self, time: Duration) {
        self.1.advance(time);
    }
}

fn fresh() -> Memory {
    let (store, clock) = MemoryStore::with_manual_clock();
    Memory(store, clock)
}

leasehold_store::contract!(fresh());
