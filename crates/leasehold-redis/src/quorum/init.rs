//! Marks the servers of a set as new.

use leasehold_store::StoreError;
use leasehold_store::scheme::Initialised;
use leasehold_store::sync::check_runtime;

use super::{RedlockOptions, RedlockStore};
use crate::classic::unsupported;
use crate::connection::gate;

impl RedlockStore {
    /// Marks servers that were never used as new, so that they vote at once instead of waiting
    /// for a quarantine.
    ///
    /// A server that is already marked is not treated as new: its quarantine is not shortened. A
    /// server of another set (other members, `max_ttl` or `quarantine`) joins this one, with a
    /// quarantine.
    ///
    /// **Only for servers that never had data**: a server that has lost its data would vote for
    /// new claims while forgotten ones still hold.
    ///
    /// # Errors
    /// `Invalid` for invalid options; `Unsupported` in the classic layout. An error of one server
    /// is in its [`Initialised::outcome`].
    pub async fn initialise(options: RedlockOptions) -> Result<Vec<Initialised>, StoreError> {
        if options.is_classic() {
            return Err(unsupported("its servers have no mark and need none"));
        }
        check_runtime()?;
        options.check()?;
        let store = Self::start(options)?;
        let inner = &store.inner;
        let limit = inner.options.servers[0].connect_timeout;
        let outcomes = inner.each(limit, |member| async move {
            let wire = member.shared.connection().await?;
            let prefix = &member.shared.endpoint.options.prefix;
            gate::mark(&wire, prefix, &inner.terms).await
        });
        let outcomes = inner.members.iter().zip(outcomes.await);
        let marked = outcomes.map(|(member, outcome)| Initialised::new(&*member.name, outcome));
        Ok(marked.collect())
    }
}
