//! The contract of a store and what clients rely on, in PostgreSQL: on the server itself, through
//! PgBouncer in transaction mode, and where nobody can be rung.

use std::sync::LazyLock;

pub(crate) use leasehold::{Access, Marked};
use leasehold_store::scheme::Scheme as _;
pub(crate) use leasehold_testkit::postgres::{PgBouncer, Postgres, psql, sql_at};
pub(crate) use leasehold_testkit::process::Process;
pub(crate) use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::OnceCell;

pub(crate) use crate::steps::*;

/// A schema of its own for each case.
pub(crate) struct Fresh {
    url: String,
    made: OnceCell<()>,
}

impl Fresh {
    /// At a server, with more parameters.
    pub(crate) fn at(server: &str, params: &str) -> Self {
        static SCHEMAS: AtomicU64 = AtomicU64::new(0);
        let number = SCHEMAS.fetch_add(1, Ordering::Relaxed);
        Self {
            url: format!("{server}?schema=locks_{number}&pool=2{params}"),
            made: OnceCell::new(),
        }
    }

    pub(crate) fn direct() -> Self {
        Self::at(&Postgres::shared().url(), "")
    }

    /// The URL of the store, whether its schema is there or not.
    pub(crate) fn bare_url(&self) -> &str {
        &self.url
    }

    /// The URL of the store, whose schema is there.
    pub(crate) async fn url(&self) -> &str {
        let make = async || {
            init(&self.url).await.expect("a schema");
        };
        self.made.get_or_init(make).await;
        &self.url
    }

    pub(crate) async fn connect(&self) -> Client {
        let client = leasehold::connect(self.url().await).await;
        client.expect("a client")
    }
}

/// Makes the schema of a store.
pub(crate) async fn init(url: &str) -> Result<Marked, StoreError> {
    let access = Access::default();
    let made = leasehold_postgres::Postgres.initialise(url, &access);
    made.await?.pop().expect("one server").outcome
}

#[async_trait]
impl Fixture for Fresh {
    async fn client(&self) -> Arc<dyn LockStore> {
        let access = Access::default();
        let opened = leasehold_postgres::Postgres.open(self.url().await, &access);
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

    leasehold_store::contract!(Fresh::direct());
}

/// Some cases wait for half a second, and the disk of a busy machine takes longer.
mod without_the_disk {
    use super::{Fresh, Postgres};

    leasehold_testkit::facade!(Fresh::at(&Postgres::shared().url(), "&commit=async"));
}

static POOLER: LazyLock<PgBouncer> = LazyLock::new(|| {
    PgBouncer::start_with(
        Postgres::shared(),
        "max_client_conn = 1000\ndefault_pool_size = 8",
    )
});

mod pooled {
    use super::{Fresh, POOLER, Postgres};

    fn fresh() -> Fresh {
        Fresh::at(
            &POOLER.url(),
            &format!("&commit=async&listen={}", Postgres::shared().url()),
        )
    }

    leasehold_store::contract!(fresh());
    leasehold_testkit::facade!(fresh());
}

/// Waiters ask.
mod deaf {
    use super::{Fresh, POOLER};

    leasehold_store::contract!(Fresh::at(&POOLER.url(), "&listen=off"));
    leasehold_testkit::facade!(Fresh::at(&POOLER.url(), "&commit=async&listen=off"));
}
