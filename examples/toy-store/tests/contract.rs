//! The toy keeps the contract of a store.
use std::sync::Arc;

use leasehold_store::{LockStore, contract::Fixture};

struct Toys(toy_store::Place);

#[async_trait::async_trait]
impl Fixture for Toys {
    async fn client(&self) -> Arc<dyn LockStore> {
        Arc::new(self.0.client())
    }
}

leasehold_store::contract!(Toys(toy_store::Place::default()));

mod journal {
    //! So does the toy with a journal.

    use std::sync::Arc;

    use leasehold_store::{LockStore, contract::Fixture};
    use toy_store::journal::Shelf;

    struct Toys(Shelf);

    #[async_trait::async_trait]
    impl Fixture for Toys {
        async fn client(&self) -> Arc<dyn LockStore> {
            Arc::new(self.0.client())
        }
    }

    leasehold_store::contract!(Toys(Shelf::default()));
}
