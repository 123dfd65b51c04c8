//! The keys that somebody holds or waits for, page by page.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::{Key, Snapshot};
use leasehold_store::{ListPage, Listing, SeenNames, StoreError};
use redis::Value;

use super::cluster::Cluster;
use super::link::Shared;
use super::record::Record;
use super::script::SCRIPTS;
use super::step::Way;
use super::wire::Wire;
use super::{RedisStore, Route, refusal};

/// How many keys one `SCAN` looks at, and about how many are looked into at once.
pub(super) const PAGE: usize = 256;

/// How often all nodes of a cluster are gone through while slots move.
const SCANS: usize = 3;

/// A listing of the queues of a server or a cluster.
pub(super) struct QueueListing<'a> {
    store: &'a RedisStore,
    names: Names<'a>,
    /// Names that were found and not looked into yet.
    pending: Vec<Vec<u8>>,
    named: SeenNames,
}

impl<'a> QueueListing<'a> {
    pub(super) fn new(store: &'a RedisStore, pattern: &str) -> Self {
        let source = match &store.route {
            Route::One(shared) => Source::One(shared),
            Route::Cluster(cluster) => Source::Cluster(cluster),
        };
        Self {
            store,
            names: Names::new(source, store.redis_key(""), pattern),
            pending: Vec::new(),
            named: SeenNames::default(),
        }
    }

    /// A key that is in use; `None` if it is idle. Within: why it is passed over.
    async fn look(
        &self,
        name: &[u8],
    ) -> Result<Result<Option<(Key, Snapshot)>, StoreError>, StoreError> {
        let key = match as_key(name) {
            Ok(key) => key,
            Err(error) => return Ok(Err(error)),
        };
        let redis_key = self.store.redis_key(key.as_str());
        let keys = [&*redis_key];
        let asked = self
            .store
            .ask(Way::Plain, &SCRIPTS.inspect, &keys, |_, _| {});
        let (value, _) = asked.await?;
        match &value {
            // It is about the server or the user, and not about this key.
            Value::ServerError(error) if !matches!(error.code(), "LHTYPE" | "LHVERSION") => {
                Err(refusal::of_server(error))
            }
            _ => Ok(Record::read(value).map(|(record, clock)| {
                let seen = record.look(clock);
                seen.capacity.is_some().then_some((key, seen))
            })),
        }
    }
}

#[async_trait]
impl Listing for QueueListing<'_> {
    async fn next_page(&mut self) -> Result<Option<ListPage>, StoreError> {
        if self.pending.is_empty() {
            match self.names.next().await? {
                Some(names) => self.pending = names,
                None => return Ok(None),
            }
        }
        let looks = join_all(self.pending.iter().map(|name| self.look(name))).await;
        let looks: Vec<_> = looks.into_iter().collect::<Result<_, _>>()?;
        let mut page = ListPage::default();
        for (name, look) in std::mem::take(&mut self.pending).into_iter().zip(looks) {
            match look {
                Ok(Some(found)) if self.named.insert(&name) => page.found.push(found),
                Err(error) if self.named.insert(&name) => {
                    page.skipped
                        .push((String::from_utf8_lossy(&name).into_owned(), error));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(Some(page))
    }
}

/// A name as a key, if it can be one.
pub(super) fn as_key(name: &[u8]) -> Result<Key, StoreError> {
    match std::str::from_utf8(name) {
        Ok(name) => Ok(Key::new(name)?),
        Err(_) => Err(refusal::no_key()),
    }
}

/// Where names are looked for.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    One(&'a Arc<Shared>),
    Cluster(&'a Arc<Cluster>),
}

/// The names behind a prefix that match a pattern, one `SCAN` at a time. A name may come
/// twice.
pub(super) struct Names<'a> {
    source: Source<'a>,
    prefix: String,
    glob: String,
    /// The nodes that are still to be gone through, and how far the first is.
    nodes: VecDeque<Arc<Shared>>,
    cursor: Vec<u8>,
    /// A cursor means nothing to another server, nor to one that was restarted.
    wire: Option<Arc<Wire>>,
    rounds: usize,
    /// How often the map of the cluster had changed when the round began.
    changes: u64,
}

impl<'a> Names<'a> {
    pub(super) fn new(source: Source<'a>, prefix: String, pattern: &str) -> Self {
        Self {
            source,
            glob: format!("{}{pattern}", escape(&prefix)),
            prefix,
            nodes: VecDeque::new(),
            cursor: START.to_vec(),
            wire: None,
            rounds: 0,
            changes: 0,
        }
    }

    /// The next names, perhaps none; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
        if self.nodes.is_empty() && !self.begin_round()? {
            return Ok(None);
        }
        let Some(node) = self.nodes.front() else {
            return Ok(None);
        };
        let wire = node.wire().await?;
        if self
            .wire
            .as_ref()
            .is_none_or(|last| !Arc::ptr_eq(last, &wire))
        {
            self.cursor = START.to_vec();
            self.wire = Some(Arc::clone(&wire));
        }
        let answer = wire.send(scan(&self.cursor, &self.glob)).await;
        let (cursor, names) = read_page(&answer.map_err(refusal::of_connection)?)?;
        if cursor == START {
            self.nodes.pop_front();
            self.wire = None;
        }
        self.cursor = cursor;
        let behind = |name: Vec<u8>| Some(name.strip_prefix(self.prefix.as_bytes())?.to_vec());
        Ok(Some(names.into_iter().filter_map(behind).collect()))
    }

    /// Goes through all nodes: once, and again where slots have moved meanwhile, since their
    /// keys may have been seen on neither node.
    fn begin_round(&mut self) -> Result<bool, StoreError> {
        match self.source {
            Source::One(shared) if self.rounds == 0 => self.nodes.push_back(Arc::clone(shared)),
            Source::Cluster(cluster)
                if self.rounds == 0
                    || (self.rounds < SCANS && cluster.changes() != self.changes) =>
            {
                self.changes = cluster.changes();
                self.nodes.extend(cluster.links()?);
            }
            Source::One(_) | Source::Cluster(_) => return Ok(false),
        }
        self.rounds += 1;
        Ok(true)
    }
}

/// Where a scan begins, and what tells that it has ended.
pub(super) const START: &[u8] = b"0";

/// One step of a scan.
pub(super) fn scan(cursor: &[u8], glob: &str) -> redis::Cmd {
    let mut scan = redis::cmd("SCAN");
    scan.arg(cursor)
        .arg("MATCH")
        .arg(glob)
        .arg("COUNT")
        .arg(PAGE);
    scan
}

/// One answer of `SCAN`: where to go on, and the names found.
pub(super) fn read_page(answer: &Value) -> Result<(Vec<u8>, Vec<Vec<u8>>), StoreError> {
    let items = match answer {
        Value::Array(items) => items.as_slice(),
        Value::ServerError(error) => return Err(refusal::of_server(error)),
        _ => &[],
    };
    let [Value::BulkString(cursor), Value::Array(keys), ..] = items else {
        return Err(super::script::unreadable(answer));
    };
    let name = |key: &Value| match key {
        Value::BulkString(bytes) => Some(bytes.clone()),
        _ => None,
    };
    Ok((cursor.clone(), keys.iter().filter_map(name).collect()))
}

/// Takes the special meaning from the characters of a glob.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
