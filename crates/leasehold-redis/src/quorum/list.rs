//! The keys that somebody holds, page by page.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::Key;
use leasehold_core::quorum::Vote;
use leasehold_store::{ErrorKind, ListPage, Listing, SeenNames, StoreError};

use super::super::{classic, refusal};
use super::Inner;
use super::member::Member;
use super::report::Report;
use crate::connection::wire::Wire;
use crate::routing::names::{PAGE, START, as_key, escape, read_page, scan};

/// A listing: all servers are gone through side by side. Some may fail, as long as a quorum
/// goes on: whatever is held lies on one of those, too.
pub(super) struct QuorumListing {
    inner: Arc<Inner>,
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
    At(Vec<u8>, Option<Arc<Wire>>),
    Done,
    Failed,
}

impl QuorumListing {
    pub(super) fn new(inner: &Arc<Inner>, pattern: &str) -> Self {
        let start = || Scan::At(START.to_vec(), None);
        Self {
            inner: Arc::clone(inner),
            pattern: pattern.to_owned(),
            scans: inner.members.iter().map(|_| start()).collect(),
            report: Report::new(inner.size),
            pending: Vec::new(),
            skipped: Vec::new(),
            named: SeenNames::default(),
        }
    }

    /// Goes one step further on each server; false at the end.
    async fn scan_on(&mut self) -> Result<bool, StoreError> {
        if !self.scans.iter().any(|scan| matches!(scan, Scan::At(..))) {
            return Ok(false);
        }
        let steps = self.inner.members.iter().zip(&self.scans);
        let steps = join_all(steps.map(async |(member, at)| match at {
            Scan::At(cursor, wire) => Some(self.scan_one(member, cursor, wire.as_ref()).await),
            Scan::Done | Scan::Failed => None,
        }));
        for (server, step) in steps.await.into_iter().enumerate() {
            let Some(step) = step else { continue };
            let said = step.as_ref().map(|_| Vote::Done).map_err(Clone::clone);
            self.report.note(server, &said);
            let (scan, names) = step.unwrap_or((Scan::Failed, Vec::new()));
            if let Some(place) = self.scans.get_mut(server) {
                *place = scan;
            }
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
            let limit = self.inner.options.node_timeout;
            return Err(self
                .report
                .error(&self.inner, ErrorKind::Unavailable, limit));
        }
        Ok(true)
    }

    async fn scan_one(
        &self,
        member: &Member,
        cursor: &[u8],
        last: Option<&Arc<Wire>>,
    ) -> Result<(Scan, Vec<Vec<u8>>), StoreError> {
        let limit = self.inner.options.node_timeout;
        let (_, wire) = member.within(limit, member.wire()).await?;
        // A cursor means nothing to a server that was restarted.
        let same = last.is_some_and(|last| Arc::ptr_eq(last, &wire));
        let cursor = if same { cursor } else { START };
        let prefix = member.lock_key("");
        let glob = format!("{}{}", escape(&prefix), self.pattern);
        let answer = member.within(limit, async {
            let answer = wire.send(scan(cursor, &glob)).await;
            answer.map_err(refusal::of_connection)
        });
        let (next, names) = read_page(&answer.await?)?;
        let behind = |name: Vec<u8>| Some(name.strip_prefix(prefix.as_bytes())?.to_vec());
        let names = names.into_iter().filter_map(behind).collect();
        let scan = match next == START {
            true => Scan::Done,
            false => Scan::At(next, Some(wire)),
        };
        Ok((scan, names))
    }
}

#[async_trait]
impl Listing for QuorumListing {
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
