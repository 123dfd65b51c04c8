//! The audit log of a set: each server's own, with its name.

use async_trait::async_trait;
use leasehold_core::{Key, StoreTime};
use leasehold_store::{AuditLog, AuditRecord, ErrorKind, StoreError};

use super::Inner;
use super::report::Report;

/// The logs of all members, each read to its end before the next.
pub(super) struct QuorumLog<'a> {
    inner: &'a Inner,
    /// And whether it failed when it was last asked: that is said once.
    logs: Vec<(Box<dyn AuditLog + 'a>, bool)>,
    /// Whose turn it is.
    turn: usize,
    report: Report,
}

impl<'a> QuorumLog<'a> {
    pub(super) fn new(inner: &'a Inner, key: Option<&Key>, since: StoreTime) -> Self {
        let members = inner.members.iter();
        let logs = members.filter_map(|member| member.store.audit_log(key, since));
        Self {
            inner,
            logs: logs.map(|log| (log, false)).collect(),
            turn: 0,
            report: Report::new(inner.size),
        }
    }
}

#[async_trait]
impl AuditLog for QuorumLog<'_> {
    async fn next_page(&mut self) -> Result<Vec<AuditRecord>, StoreError> {
        let limit = self.inner.options.node_timeout;
        while let Some((log, has_failed)) = self.logs.get_mut(self.turn) {
            let member = &self.inner.members[self.turn];
            let page = member.within(limit, log.next_page()).await;
            self.report.note(self.turn, &page);
            let had_failed = std::mem::replace(has_failed, page.is_err());
            match page {
                Ok(mut records) if !records.is_empty() => {
                    for record in &mut records {
                        record.server = Some(member.name.clone());
                    }
                    return Ok(records);
                }
                Err(error) if !had_failed => {
                    let server = &member.name;
                    tracing::warn!(%server, %error, "the audit log of this server cannot be read");
                }
                Ok(_) | Err(_) => {}
            }
            self.turn += 1;
        }
        self.turn = 0;
        let read = self.logs.iter().filter(|(_, has_failed)| !has_failed);
        match read.count() < self.inner.size.quorum() {
            true => Err(self.report.error(self.inner, ErrorKind::Unavailable, limit)),
            false => Ok(Vec::new()),
        }
    }
}
