//! The contract of a store and what clients rely on, in ZooKeeper.

use leasehold_store::access::Access;
use leasehold_store::scheme::Scheme as _;
use leasehold_testkit::zookeeper::ZooKeeper;

use crate::steps::*;

/// A chroot of its own for each case.
pub(crate) struct Fresh(pub(crate) String);

impl Fresh {
    pub(crate) fn new() -> Self {
        let server = ZooKeeper::shared();
        Self(server.url_of(&server.chroot()))
    }
}

#[async_trait]
impl Fixture for Fresh {
    async fn client(&self) -> Arc<dyn LockStore> {
        let access = Access::default();
        let opened = leasehold_zookeeper::ZooKeeper.open(&self.0, &access);
        opened.await.expect("a store").store
    }
}

impl leasehold_testkit::facade::Fixture for Fresh {
    fn cancellations(&self) -> usize {
        20
    }
}

mod direct {
    use super::Fresh;

    leasehold_store::contract!(Fresh::new());
    leasehold_testkit::facade!(Fresh::new());
}
