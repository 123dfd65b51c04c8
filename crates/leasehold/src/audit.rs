//! The audit log of a store: who held what, and when.

pub use leasehold_core::{AuditEntry, AuditEvent, AuditedHold};

use crate::client::Client;
use crate::error::{Error, Operation};
use crate::store::AuditLog as Pages;
pub use crate::store::AuditRecord;

/// An audit log that is being read: see [`Client::audit_log`].
pub struct AuditLog<'a> {
    client: &'a Client,
    pages: Box<dyn Pages + 'a>,
}

impl<'a> AuditLog<'a> {
    pub(crate) fn new(client: &'a Client, pages: Box<dyn Pages + 'a>) -> Self {
        Self { client, pages }
    }

    /// The entries that follow, a bounded number of them. Empty: there are no more now, and the
    /// next call says whether there are some by then. The entries of one key come in their
    /// order; those of several keys come in the order in which each server notes them.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`: see [`crate::ErrorKind`]. The next call asks for the same
    /// entries again.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the next call asks for the same entries again.
    ///
    /// # Examples
    /// See [`Client::audit_log`].
    pub async fn next(&mut self) -> Result<Vec<AuditRecord>, Error> {
        let page = self.client.within(self.pages.next_page()).await;
        page.map_err(|error| Error::new(Operation::Audit, None, error))
    }
}

impl std::fmt::Debug for AuditLog<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLog").finish_non_exhaustive()
    }
}
