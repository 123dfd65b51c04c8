//! Marking servers that are known to be new.

use std::sync::Arc;

use leasehold_store::StoreError;
use leasehold_store::scheme::Initialised;

use super::member::Member;
use super::{RedlockOptions, RedlockStore};
use crate::connection::gate;
use crate::connection::multiplexed::Connection;

impl RedlockStore {
    /// Marks the servers behind `options` that have never been used as new: they
    /// vote at once, where they would wait for the end of their quarantine.
    ///
    /// A server that is marked already is not believed to be new: its quarantine
    /// takes as long as it takes. One that belongs to another set (other members,
    /// `max_ttl` or `quarantine`) joins this one, with a quarantine.
    ///
    /// **Only for servers that have no data because they never had any**: one that
    /// has lost its data would vote while claims that it has forgotten hold.
    ///
    /// # Errors
    /// `Invalid` for options that cannot work, `Unsupported` in the classic layout; what goes wrong at one server
    /// stands in its [`Initialised::outcome`].
    pub async fn initialise(options: RedlockOptions) -> Result<Vec<Initialised>, StoreError> {
        if options.is_classic() {
            return Err(crate::classic::unsupported(
                "its servers have no mark and need none",
            ));
        }
        options.check()?;
        let store = Self::start(options)?;
        let inner = &store.inner;
        let limit = inner.options.servers[0].connect_timeout;
        let mark = |member: &Member, wire: Arc<Connection>| {
            let marker = member.marker_key();
            async move { gate::mark(&wire, &marker, &wire.server.run_id, &inner.terms).await }
        };
        let outcomes = inner.each(limit, mark).await;
        let names = inner.members.iter().map(|member| member.name.clone());
        let marked = names.zip(outcomes);
        Ok(marked
            .map(|(server, outcome)| Initialised { server, outcome })
            .collect())
    }
}
