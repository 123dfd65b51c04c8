//! The URL schemes of PostgreSQL.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::Invalid;
use leasehold_store::StoreError;
use leasehold_store::access::Access;
use leasehold_store::report::Report;
use leasehold_store::scheme::{Description, Initialised, Made, Opened, Scheme, StoreOptions};

use super::options::PostgresOptions;
use super::pool::Pool;
use super::{doctor, init, journal};

/// The URL schemes of a PostgreSQL server: `postgres://`, `postgresql://`.
#[derive(Debug)]
pub struct Postgres;

#[async_trait]
impl Scheme for Postgres {
    fn names(&self) -> &'static [&'static str] {
        &["postgres", "postgresql"]
    }

    fn examples(&self) -> &'static [&'static str] {
        &["postgres://user@host/database"]
    }

    fn describe(&self, url: &str) -> Result<Description, Invalid> {
        let options = PostgresOptions::from_url(url)?;
        let url = options.redacted_url();
        Ok(Description::with_servers(url, options.has_password()))
    }

    async fn open(&self, url: &str, access: &Access) -> Result<Opened, StoreError> {
        PostgresOptions::from_url(url)?.open(access).await
    }

    async fn examine(&self, url: &str, access: &Access) -> Result<Report, StoreError> {
        doctor::examine(&PostgresOptions::from_url(url)?.with_access(access)?).await
    }

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

#[async_trait]
impl StoreOptions for PostgresOptions {
    async fn open(&self, access: &Access) -> Result<Opened, StoreError> {
        let options = self.clone().with_access(access)?;
        let url = options.url_for_others();
        let store = Arc::new(journal::open(&options).await?);
        Ok(Opened::new(store, url))
    }
}
