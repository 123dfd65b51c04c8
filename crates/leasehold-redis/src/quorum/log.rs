//! The audit log of a set: each server's own, with its name.

use async_trait::async_trait;
use leasehold_core::{Key, StoreTime};
use leasehold_store::{AuditLog, AuditRecord, ErrorKind, StoreError};

use super::Inner;
use super::report::Report;

/// The logs of all members, read in turn.
pub(super) struct QuorumLog<'a> {
    inner: &'a Inner,
    /// And whether it failed when it was last asked: that is said once.
    logs: Vec<(Box<dyn AuditLog + 'a>, bool)>,
    /// Whose turn it is.
    turn: usize,
}

impl<'a> QuorumLog<'a> {
    pub(super) fn new(inner: &'a Inner, key: Option<&Key>, since: StoreTime) -> Self {
        let members = inner.members.iter();
        let logs = members.filter_map(|member| member.store.audit_log(key, since));
        Self {
            inner,
            logs: logs.map(|log| (log, false)).collect(),
            turn: 0,
        }
    }
}

#[async_trait]
impl AuditLog for QuorumLog<'_> {
    async fn next_page(&mut self) -> Result<Vec<AuditRecord>, StoreError> {
        let limit = self.inner.options.node_timeout;
        let mut report = Report::new(self.inner.size);
        let mut failed = 0;
        for _ in 0..self.logs.len() {
            let (member, (log, has_failed)) =
                (&self.inner.members[self.turn], &mut self.logs[self.turn]);
            let page = member.within(limit, log.next_page()).await;
            report.note(self.turn, &page);
            match page {
                Ok(mut records) => {
                    *has_failed = false;
                    if !records.is_empty() {
                        for record in &mut records {
                            record.server = Some(member.name.clone());
                        }
                        return Ok(records);
                    }
                }
                Err(error) => {
                    failed += 1;
                    if !std::mem::replace(has_failed, true) {
                        let server = &member.name;
                        tracing::warn!(%server, %error, "the audit log of this server cannot be read");
                    }
                }
            }
            self.turn = (self.turn + 1) % self.logs.len();
        }
        match self.logs.len() - failed < self.inner.size.quorum() {
            true => Err(report.error(self.inner, ErrorKind::Unavailable, limit)),
            false => Ok(Vec::new()),
        }
    }
}
