//! The server without locks: plain statements, by as many connections as there are tasks.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_store::StoreError;
use leasehold_store::access::Access;
use leasehold_store::bare::{BareServer, BareWork};
use leasehold_store::random::random_u64;

use super::options::PostgresOptions;
use super::pool::{Pool, get};

/// The server of a URL without a store, to measure it. None where there is nothing to compare with.
pub async fn bare(url: &str, access: &Access) -> Result<Option<Box<dyn BareServer>>, StoreError> {
    let options = PostgresOptions::from_url(url)?.with_access(access)?;
    Ok(Some(Box::new(Bare::open(options).await?)))
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

/// More tasks than that share connections. So many others are left free.
const CONNECTIONS: u32 = 64;
const FOR_OTHERS: i64 = 20;

#[derive(Debug)]
pub(crate) struct Bare {
    pool: Arc<Pool>,
    table: String,
}

impl Bare {
    /// With a table of its own.
    pub(crate) async fn open(options: PostgresOptions) -> Result<Self, StoreError> {
        let free = "select current_setting('max_connections')::bigint - count(*) \
                    from pg_stat_activity";
        let free = Pool::new(&options).ask(free, &[]).await?;
        let free: i64 = free.first().map_or(Ok(0), |row| get(row, 0))?;
        let count = u32::try_from(free - FOR_OTHERS).unwrap_or(0);
        let pool = Pool::new(&options.pool(count.clamp(1, CONNECTIONS)));
        let table = format!("{}.bench_{:016x}", pool.schema, random_u64());
        let make =
            format!("create table {table} (row int primary key, n int) with (fillfactor = 50)");
        let fill = format!("insert into {table} select row, 0 from generate_series(0, 1023) row");
        // Sent at once they are one transaction.
        pool.run(&[format!("{make}; {fill}")]).await?;
        Ok(Self { pool, table })
    }
}

#[async_trait]
impl BareServer for Bare {
    fn works(&self) -> &'static [BareWork] {
        &WORKS
    }

    async fn work(&self, place: usize, task: usize) -> Result<(), StoreError> {
        let (table, row) = (&self.table, if place == 2 { 0 } else { task });
        let lock = |call| format!("select pg_advisory_{call}(hashtext('{table}'), {row})");
        let statements = match place {
            0 => vec!["select 1".to_owned()],
            1 | 2 => vec![format!(
                "update {table} set n = n + 1 where row = {row} returning n"
            )],
            // In one transaction, or a pooler gives the two to different sessions.
            _ => vec![
                format!("begin; {}", lock("lock")),
                format!("{}; commit", lock("unlock")),
            ],
        };
        self.pool.run(&statements).await
    }

    async fn clear(&self) -> Result<(), StoreError> {
        let statement = format!("drop table {}", self.table);
        self.pool.run(&[statement]).await
    }
}
