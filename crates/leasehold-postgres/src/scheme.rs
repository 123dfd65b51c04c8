//! The URL schemes of PostgreSQL.

use std::sync::Arc;

use leasehold_core::Invalid;
use leasehold_store::access::Access;
use leasehold_store::scheme::{Initialised, Made};
use leasehold_store::{StoreError, server_scheme};

use super::options::PostgresOptions;
use super::pool::Pool;
use super::{doctor, init, journal};

/// The URL schemes of a PostgreSQL server: `postgres://`, `postgresql://`.
#[derive(Debug)]
pub struct Postgres;

server_scheme! { Postgres: PostgresOptions,
    ["postgres", "postgresql"],
    ["postgres://user@host/database"],
    with_access(?),
    open: |options| Arc::new(journal::open(&options).await?),
    examine: doctor::examine,

    fn initialisation(&self, url: &str) -> Result<Option<String>, Invalid> {
        let options = PostgresOptions::from_url(url)?;
        Ok(Some(init::script(&options.quoted_schema())))
    }

    async fn initialise(&self, url: &str, access: &Access) -> Result<Vec<Initialised>, StoreError> {
        let options = PostgresOptions::from_url(url)?.with_access(access)?;
        let pool = Pool::new(&options);
        let outcome = Ok(init::make(&pool).await?);
        let what = format!("the schema {} at {}", pool.schema, pool.server);
        let made = Made::new(what, "for its owner and roles with rights to it");
        let initialised = Initialised::new(&*pool.server, outcome);
        Ok(vec![initialised.with_made(made)])
    }
}
