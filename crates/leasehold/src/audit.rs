//! The audit log of a store: who held which key, and when.

pub use leasehold_core::{AuditEntry, AuditEvent, AuditedHold};

use leasehold_core::{Key, StoreTime};
use leasehold_store::debug;

use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::session::Session;
use crate::store::AuditLog as Pages;
pub use crate::store::AuditRecord;

/// Reads an audit log: see [`crate::Client::audit_log`].
pub struct AuditLog<'a> {
    session: &'a Session,
    pages: Box<dyn Pages + 'a>,
    meant: (Option<Key>, StoreTime),
}

impl<'a> AuditLog<'a> {
    /// Opens that of one key or of all, from `since` on.
    pub(crate) fn open(
        session: &'a Session,
        key: Option<Key>,
        since: StoreTime,
    ) -> Result<Self, StoreError> {
        session.check_process()?;
        let Some(pages) = session.store.audit_log(key.as_ref(), since) else {
            let name = session.store.capabilities().name;
            let message = format!("a store of the kind {name:?} keeps none");
            return Err(StoreError::new(ErrorKind::Unsupported, message));
        };
        Ok(Self {
            session,
            pages,
            meant: (key, since),
        })
    }

    /// Returns the next entries, a bounded number of them. An empty list means that there are no
    /// more entries yet; call again later. Entries of one key come in order. Entries of several
    /// keys come in the order in which each server wrote them.
    ///
    /// # Errors
    /// Same as [`Client::inspect`](crate::Client::inspect). The next call asks for the same
    /// entries again.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the next call asks for the same entries again.
    ///
    /// # Examples
    /// See [`crate::Client::audit_log`].
    pub async fn next(&mut self) -> Result<Vec<AuditRecord>, Error> {
        loop {
            // Each has its own time-out: a key's entries may be behind very many of others.
            let page = self.session.ask(self.pages.next_page()).await;
            let mut page = page.map_err(|error| Error::new(Operation::Audit, None, error))?;
            let is_end = page.is_empty();
            let (key, since) = &self.meant;
            page.retain(|record| record.is_for(key.as_ref(), *since));
            if is_end || !page.is_empty() {
                return Ok(page);
            }
        }
    }
}

debug!(AuditLog<'_>);
