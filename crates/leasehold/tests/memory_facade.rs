//! What users of the library rely on, over the memory store.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::store::LockStore;
use leasehold::store::memory::MemoryStore;
use leasehold_testkit::conformance::Fixture;

struct Memory(MemoryStore);

#[async_trait]
impl Fixture for Memory {
    async fn client(&self) -> Arc<dyn LockStore> {
        Arc::new(self.0.client())
    }
}

leasehold_testkit::facade!(Memory(MemoryStore::new()));
