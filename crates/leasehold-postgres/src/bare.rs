//! The server without locks: plain statements, by as many connections as there are tasks.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_store::StoreError;
use leasehold_store::access::Access;
use leasehold_store::bare::{BareServer, BareWork};
use leasehold_store::random::random_u64;
use tokio::sync::Mutex;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::options::PostgresOptions;
use super::pool::{Failure, Param, Pool};

/// The server of a URL without a store, to measure it. None where there is nothing to compare with.
pub async fn bare(url: &str, access: &Access) -> Result<Option<Box<dyn BareServer>>, StoreError> {
    let options = PostgresOptions::from_url(url)?.with_access(access)?;
    Ok(Some(Box::new(Bare::open(&options).await?)))
}

const WORKS: [BareWork; 4] = [
    BareWork::new("round_trip", "one round trip", None),
    // Two are the least that a lock needs which is kept.
    BareWork::new("own_rows", "UPDATE, own rows", Some(("of_writes", 0.5))),
    BareWork::new("one_row", "UPDATE, one row", None),
    BareWork::new(
        "advisory",
        "advisory lock, unlock",
        Some(("of_advisory", 1.0)),
    ),
];

/// More tasks than that share connections.
const CONNECTIONS: usize = 64;

pub(crate) struct Bare {
    pool: Arc<Pool>,
    table: String,
    clients: [Mutex<Option<Client>>; CONNECTIONS],
}

impl fmt::Debug for Bare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bare").field(&self.pool).finish()
    }
}

impl Bare {
    /// With a table of its own.
    pub(crate) async fn open(options: &PostgresOptions) -> Result<Self, StoreError> {
        let pool = Pool::new(options);
        let table = format!("{}.bench_{:016x}", pool.schema, random_u64());
        let bare = Self {
            clients: [const { Mutex::const_new(None) }; CONNECTIONS],
            pool,
            table,
        };
        let table = &bare.table;
        let make =
            format!("create table {table} (row int primary key, n int) with (fillfactor = 50)");
        let fill = format!("insert into {table} select row, 0 from generate_series(0, 1023) row");
        bare.run(0, async |client| {
            client.batch_execute(&make).await?;
            client.batch_execute(&fill).await
        })
        .await?;
        Ok(bare)
    }

    async fn run(
        &self,
        task: usize,
        work: impl AsyncFnOnce(&Client) -> Result<(), tokio_postgres::Error>,
    ) -> Result<(), StoreError> {
        let mut client = self.clients[task % CONNECTIONS].lock().await;
        let client = match &mut *client {
            Some(client) => client,
            none => {
                let opened = self.pool.connect().await;
                none.insert(opened.map_err(|failure| self.pool.meaning(failure))?.0)
            }
        };
        let failed = |error| self.pool.meaning(Failure::Server(error));
        work(client).await.map_err(failed)
    }
}

#[async_trait]
impl BareServer for Bare {
    fn works(&self) -> &'static [BareWork] {
        &WORKS
    }

    async fn work(&self, place: usize, task: usize) -> Result<(), StoreError> {
        let table = &self.table;
        let update = format!("update {table} set n = n + 1 where row = $1::int returning n");
        let lock = |call| format!("select pg_advisory_{call}(hashtext('{table}'), $1::int)");
        let statements = match place {
            0 => vec!["select $1::int".to_owned()],
            1 | 2 => vec![update],
            _ => vec![lock("lock"), lock("unlock")],
        };
        let row = i32::try_from(if place == 2 { 0 } else { task }).unwrap_or(0);
        self.run(task, async |client| {
            for statement in statements {
                let row: Param<'_> = (&row, Type::INT4);
                client.query_typed(&statement, &[row]).await?;
            }
            Ok(())
        })
        .await
    }

    async fn clear(&self) -> Result<(), StoreError> {
        let drop = format!("drop table {}", self.table);
        self.run(0, async |client| client.batch_execute(&drop).await)
            .await
    }
}
