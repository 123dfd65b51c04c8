//! Lists the keys that are held, page by page.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::Key;
use leasehold_core::quorum::Vote;
use leasehold_store::{ErrorKind, ListPage, Listing, SeenNames, StoreError};

use super::Inner;
use super::member::Member;
use super::report::Report;
use crate::classic;
use crate::routing::Route;
use crate::routing::names::{Names, PAGE, as_key};

/// A listing: all servers are gone through side by side. Some may fail, as long as a quorum
/// goes on: whatever is held lies on one of those, too.
pub(super) struct QuorumListing<'a> {
    inner: &'a Arc<Inner>,
    pattern: String,
    scans: Vec<Scan>,
    report: Report,
    /// Keys that were found and not looked into yet.
    pending: Vec<Key>,
    /// Names that were found but cannot be keys.
    skipped: Vec<(String, StoreError)>,
    /// All names that were found: each lies on several servers.
    named: SeenNames,
}

/// How far one server has been gone through.
enum Scan {
    At(Names),
    Done,
    Failed,
}

impl<'a> QuorumListing<'a> {
    pub(super) fn new(inner: &'a Arc<Inner>, pattern: &str) -> Self {
        let start = |member: &Member| {
            let route = Route::One(Arc::clone(&member.shared));
            Scan::At(Names::new(route, member.lock_key(""), pattern))
        };
        Self {
            inner,
            pattern: pattern.to_owned(),
            scans: inner.members.iter().map(start).collect(),
            report: Report::new(inner.size),
            pending: Vec::new(),
            skipped: Vec::new(),
            named: SeenNames::default(),
        }
    }

    /// Goes one step further on each server; false at the end.
    async fn scan_on(&mut self) -> Result<bool, StoreError> {
        if !self.scans.iter().any(|scan| matches!(scan, Scan::At(_))) {
            return Ok(false);
        }
        let limit = self.inner.options.node_timeout;
        let steps = self.inner.members.iter().zip(&mut self.scans);
        let steps = join_all(steps.map(async |(member, scan)| match scan {
            Scan::At(names) => Some(member.within(limit, names.next()).await),
            Scan::Done | Scan::Failed => None,
        }));
        for (server, step) in steps.await.into_iter().enumerate() {
            let Some(step) = step else { continue };
            self.report.note(server, step.as_ref().map(|_| Vote::Done));
            let names = match step {
                Ok(Some(names)) => names,
                Ok(None) => {
                    self.scans[server] = Scan::Done;
                    continue;
                }
                Err(_) => {
                    self.scans[server] = Scan::Failed;
                    continue;
                }
            };
            for name in names {
                if !self.named.insert(&name) {
                    continue;
                }
                match as_key(&name) {
                    Ok(key) => self.pending.push(key),
                    Err(error) => {
                        let name = String::from_utf8_lossy(&name).into_owned();
                        self.skipped.push((name, error));
                    }
                }
            }
        }
        let failed = |scan: &&Scan| matches!(scan, Scan::Failed);
        let failed = self.scans.iter().filter(failed).count();
        if self.scans.len() - failed < self.inner.size.quorum() {
            let report = &self.report;
            return Err(report.error(self.inner, ErrorKind::Unavailable, limit));
        }
        Ok(true)
    }
}

#[async_trait]
impl Listing for QuorumListing<'_> {
    async fn next_page(&mut self) -> Result<Option<ListPage>, StoreError> {
        let classic = self.inner.options.is_classic();
        if classic {
            classic::check_pattern(&self.inner.options.servers[0].prefix, &self.pattern)?;
        }
        if self.pending.is_empty() && !self.scan_on().await? {
            return Ok(None);
        }
        let from = self.pending.len().saturating_sub(PAGE);
        let keys = &self.pending[from..];
        let looks = join_all(keys.iter().map(|key| self.inner.look(key))).await;
        let mut page = ListPage::default();
        for (key, look) in keys.iter().zip(looks) {
            match look {
                Ok((seen, _)) => {
                    let shown = match classic {
                        true => classic::is_listed(&seen),
                        false => seen.capacity.is_some(),
                    };
                    if shown {
                        page.found.push((key.clone(), seen));
                    }
                }
                // Whatever else has such a name is no lock of this layout.
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    if !classic {
                        page.skipped.push((key.to_string(), error));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.pending.truncate(from);
        page.skipped.append(&mut self.skipped);
        Ok(Some(page))
    }
}
