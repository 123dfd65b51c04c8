//! No TLS: without the feature `tls` there is no tunnel.

use leasehold_store::{ErrorKind, StoreError};

use super::options::ZooKeeperOptions;

pub(crate) enum Tunnel {}

impl Tunnel {
    #[allow(clippy::unused_async, reason = "with the feature it waits")]
    pub(crate) async fn open(_: &ZooKeeperOptions, _: bool) -> Result<Self, StoreError> {
        let why = "this build of leasehold has no TLS";
        Err(StoreError::new(ErrorKind::Unsupported, why)
            .with_hint("build it with the feature `tls-ring`"))
    }

    pub(crate) fn hosts(&self) -> &str {
        match *self {}
    }

    pub(crate) fn login(&self) -> (&'static str, &[u8]) {
        match *self {}
    }

    pub(crate) fn failed(&self) -> Option<StoreError> {
        match *self {}
    }
}
