//! `toy:`, the URL of the toy store in this process.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use leasehold_store::StoreError;
use leasehold_store::access::Access;
use leasehold_store::core::Invalid;
use leasehold_store::params::{Field, Param, Params};
use leasehold_store::report::{Finding, Report, Severity};
use leasehold_store::scheme::{Description, Opened, Scheme};

use crate::Place;

/// Opens `toy:`. A line in the registry of a build (`leasehold/src/registry.rs`) makes it a store
/// like any other, also in `leasehold.toml`.
#[derive(Debug)]
pub struct Toys;

static PLACE: LazyLock<Place> = LazyLock::new(Place::default);

/// The parameters of a URL: `toy:?colour=red`.
const PARAMS: &[Param<Option<String>>] = &[("colour", |colour| Field::Text(colour))];

#[async_trait]
impl Scheme for Toys {
    fn names(&self) -> &'static [&'static str] {
        &["toy"]
    }

    fn examples(&self) -> &'static [&'static str] {
        &["toy:"]
    }

    fn describe(&self, url: &str) -> Result<Description, Invalid> {
        let query = url.split_once('?').map_or("", |(_, query)| query);
        Params::of_query(query)?.read_all(PARAMS, &mut None)?;
        Ok(Description::without_servers(url))
    }

    async fn open(&self, url: &str, _access: &Access) -> Result<Opened, StoreError> {
        let url = self.describe(url)?.url;
        let store = Arc::new(PLACE.client());
        Ok(Opened::new(store, url))
    }

    async fn examine(&self, url: &str, _access: &Access) -> Result<Report, StoreError> {
        let url = self.describe(url)?.url;
        let found = "it is a toy, in the memory of this process";
        let finding = Finding::new(Severity::Note, "reach", found);
        Ok(Report::new(
            url,
            "Exclusion within this process.",
            vec![finding],
        ))
    }
}
