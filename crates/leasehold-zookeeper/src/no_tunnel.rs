//! No TLS: without the feature `tls` there is no tunnel.

use leasehold_store::{StoreError, unsupported};

use super::options::{Route, ZooKeeperOptions};

#[allow(clippy::unused_async, reason = "with the feature it waits")]
pub(crate) async fn open(
    _: &ZooKeeperOptions,
    _: Vec<(String, String)>,
    _: bool,
) -> Result<Route, StoreError> {
    let why = "this build of leasehold has no TLS";
    Err(unsupported(why, "build it with the feature `tls-ring`"))
}
