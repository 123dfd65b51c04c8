//! Marks a server as new.

use std::sync::Weak;

use leasehold_core::{Invalid, Marked};
use leasehold_store::StoreError;
use leasehold_store::sync::check_runtime;

use super::RedisStore;
use crate::connection::endpoint::Endpoint;
use crate::connection::gate::mark;
use crate::connection::multiplexed::Connection;
use crate::options::RedisOptions;

impl RedisStore {
    /// Marks a server that has never granted anything as new, so that it grants at once instead
    /// of waiting for a quarantine. For options with
    /// [`Restart::Quarantine`](crate::Restart::Quarantine).
    ///
    /// A server that is already marked is not treated as new: its quarantine is not shortened. A
    /// server that belonged to clients with another `max_ttl` or `quarantine` belongs to these
    /// from now on, after the longer of both quarantines.
    ///
    /// **Only for servers that never had data**: a server that has lost its data would grant keys
    /// whose forgotten leases are still valid.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server may be marked.
    ///
    /// # Errors
    /// `Invalid` for invalid options, or options without a quarantine; otherwise the same as
    /// [`RedisStore::connect`].
    pub async fn initialise(options: RedisOptions) -> Result<Marked, StoreError> {
        check_runtime()?;
        let Some(quarantine) = options.restart.quarantine().copied() else {
            let why = "a server has a mark only with restart=quarantine";
            let hint = "add restart=quarantine to the URL, if the clients of the server use it";
            return Err(Invalid::new(why, hint).into());
        };
        let endpoint = Endpoint::new(&options)?;
        let opened = endpoint.connect(None).await?;
        let wire = Connection::start(opened, &endpoint, Weak::new());
        mark(&wire, &options.prefix, &quarantine.terms()).await
    }
}
