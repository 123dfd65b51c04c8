//! The audit log of a set, combined from the logs of all servers.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::quorum::{QuorumAudit, Vote};
use leasehold_core::{Key, StoreTime};
use leasehold_store::{AuditLog, AuditRecord, ErrorKind, StoreError};

use super::Inner;
use super::member::Member;
use super::report::Report;
use crate::codec::audit::{self, Entries, PAGE, read_entries};
use crate::codec::script::SCRIPTS;
use crate::connection::step::run;

/// So many entries are given at once.
const GIVEN: usize = 500;

/// A reading. All servers are read from the beginning of their logs, whatever is asked for: a hold
/// is put together from its first note on.
pub(super) struct QuorumLog<'a> {
    inner: &'a Arc<Inner>,
    key: Option<Key>,
    since: StoreTime,
    merged: QuorumAudit,
    servers: Vec<Server>,
    /// What is decided, and was not given yet.
    decided: VecDeque<AuditRecord>,
}

struct Server {
    /// From which entry on it is to be read.
    from: String,
    /// Whether it failed when it was last asked: that is said once.
    failed: bool,
}

impl<'a> QuorumLog<'a> {
    pub(super) fn new(inner: &'a Arc<Inner>, key: Option<&Key>, since: StoreTime) -> Self {
        let server = |_: &Member| Server {
            from: "-".to_owned(),
            failed: false,
        };
        Self {
            inner,
            key: key.cloned(),
            since,
            merged: QuorumAudit::new(inner.size),
            servers: inner.members.iter().map(server).collect(),
            decided: VecDeque::new(),
        }
    }

    /// Reads each server to its end. Whether all have answered.
    async fn read_round(&mut self) -> Result<bool, StoreError> {
        let limit = self.inner.options.node_timeout;
        let mut report = Report::new(self.inner.size);
        let mut open: Vec<_> = (0..self.servers.len()).collect();
        let mut failed = 0;
        while !open.is_empty() {
            let pages = open.iter().map(|server| {
                let (member, from) = (&self.inner.members[*server], &self.servers[*server].from);
                member.within(limit, read_page(member, from))
            });
            let pages = join_all(pages).await;
            for (server, page) in std::mem::take(&mut open).into_iter().zip(pages) {
                report.note(server, page.as_ref().map(|_| Vote::Done));
                match page {
                    Ok(entries) => {
                        if self.take(server, &entries) {
                            open.push(server);
                        }
                    }
                    Err(error) => {
                        failed += 1;
                        self.passed_over(server, &error);
                    }
                }
            }
        }
        if self.servers.len() - failed < self.inner.size.quorum() {
            return Err(report.error(self.inner, ErrorKind::Unavailable, limit));
        }
        Ok(failed == 0)
    }

    /// Takes a page of a server's log; whether there may be more.
    fn take(&mut self, server: usize, entries: &Entries) -> bool {
        let prefix = self.inner.members[server].prefix();
        for (id, value) in entries {
            let value = value.as_deref();
            let Some(notes) = value.and_then(|value| audit::read_votes(prefix, value)) else {
                let server = &self.inner.members[server].name;
                tracing::warn!(%server, id, "skipped an audit entry that cannot be read");
                continue;
            };
            for (key, note) in notes {
                if self.key.as_ref().is_none_or(|wanted| *wanted == key) {
                    self.merged.add(server, &key, note);
                }
            }
        }
        let reading = &mut self.servers[server];
        reading.failed = false;
        if let Some((last, _)) = entries.last() {
            reading.from = format!("({last}");
        }
        entries.len() >= PAGE as usize
    }

    fn passed_over(&mut self, server: usize, error: &StoreError) {
        if !std::mem::replace(&mut self.servers[server].failed, true) {
            let server = &self.inner.members[server].name;
            tracing::warn!(
                %server,
                %error,
                "the audit log is read without this server: grants that had a quorum only with its \
                 vote are missing"
            );
        }
    }

    fn given(&mut self) -> Vec<AuditRecord> {
        let count = self.decided.len().min(GIVEN);
        self.decided.drain(..count).collect()
    }
}

async fn read_page(member: &Member, from: &str) -> Result<Entries, StoreError> {
    let wire = member.shared.connection().await?;
    let log = audit::log_of(member.prefix());
    let arguments = |call: &mut redis::Cmd| {
        call.arg(from).arg(PAGE);
    };
    let value = run(&wire, &SCRIPTS.log, &[&log], arguments).await?;
    read_entries(&log, value)
}

#[async_trait]
impl AuditLog for QuorumLog<'_> {
    async fn next_page(&mut self) -> Result<Vec<AuditRecord>, StoreError> {
        while self.decided.is_empty() {
            let all = self.read_round().await?;
            let entries = self.merged.settle(all);
            let since = self.since;
            let meant = entries.into_iter().filter(|(_, entry)| entry.at >= since);
            self.decided
                .extend(meant.map(|(key, entry)| AuditRecord { key, entry }));
            if !self.merged.is_unsettled() {
                break;
            }
        }
        Ok(self.given())
    }
}
