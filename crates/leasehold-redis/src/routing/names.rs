//! Lists the names with a prefix, on one server or on all nodes of a cluster, page by page.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::{Invalid, Key, Snapshot};
use leasehold_store::{ListPage, Listing, SeenNames, StoreError};
use redis::Value;

use super::Route;
use crate::codec::script::{Request, unreadable};
use crate::connection::manager::ConnectionManager;
use crate::connection::multiplexed::Connection;
use crate::connection::step::Delivery;
use crate::errors;

/// How many keys one `SCAN` looks at, and about how many are looked into at once.
pub(crate) const PAGE: usize = 256;

/// How often all nodes of a cluster are gone through while slots move.
const SCANS: usize = 3;

/// A name as a key, if it can be one.
pub(crate) fn as_key(name: &[u8]) -> Result<Key, StoreError> {
    let name = std::str::from_utf8(name).map_err(|_| errors::no_key())?;
    Ok(Key::new(name)?)
}

/// The names behind a prefix that match a pattern, one `SCAN` at a time. A name may come
/// twice.
pub(crate) struct Names {
    route: Route,
    prefix: String,
    glob: String,
    /// The nodes that are still to be gone through.
    nodes: VecDeque<Arc<ConnectionManager>>,
    /// How far the first is: a cursor means nothing to another server, nor to one that was restarted.
    cursor: Option<(Arc<Connection>, Vec<u8>)>,
    rounds: usize,
    /// How often the map of the cluster had changed when the round began.
    changes: Option<u64>,
}

impl Names {
    pub(crate) fn new(route: Route, prefix: String, pattern: &str) -> Self {
        Self {
            route,
            glob: format!("{}{pattern}", escape(&prefix)),
            prefix,
            nodes: VecDeque::new(),
            cursor: None,
            rounds: 0,
            changes: None,
        }
    }

    /// The next names, perhaps none; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
        if self.nodes.is_empty() && !self.begin_round() {
            return Ok(None);
        }
        let Some(node) = self.nodes.front() else {
            return Ok(None);
        };
        let wire = node.connection().await?;
        let from = match &self.cursor {
            Some((last, cursor)) if Arc::ptr_eq(last, &wire) => cursor.as_slice(),
            _ => START,
        };
        let mut scan = redis::cmd("SCAN");
        scan.arg(from).arg("MATCH").arg(&self.glob);
        scan.arg("COUNT").arg(PAGE);
        let answer = wire.run(Delivery::Plain, &Request::Plain(&scan)).await?;
        let page = read_page(&answer.value);
        let (cursor, names) = match node.endpoint.options.is_classic() {
            true => page.map_err(errors::in_classic)?,
            false => page?,
        };
        if cursor == START {
            self.nodes.pop_front();
            self.cursor = None;
        } else {
            self.cursor = Some((wire, cursor));
        }
        let behind = |name: Vec<u8>| Some(name.strip_prefix(self.prefix.as_bytes())?.to_vec());
        Ok(Some(names.into_iter().filter_map(behind).collect()))
    }

    /// Goes through all nodes: once, and again where slots have moved meanwhile, since their
    /// keys may have been seen on neither node.
    fn begin_round(&mut self) -> bool {
        match &self.route {
            Route::One(shared) if self.rounds == 0 => self.nodes.push_back(Arc::clone(shared)),
            Route::Cluster(it) if self.rounds < SCANS && self.changes != Some(it.changes()) => {
                let changes = it.changes();
                self.nodes.extend(it.links());
                self.changes = Some(changes);
            }
            Route::One(_) | Route::Cluster(_) => return false,
        }
        self.rounds += 1;
        true
    }
}

/// A store whose keys are found by their names.
#[async_trait]
pub(crate) trait Named: Send + Sync {
    /// What a name is, `None` if nothing that is listed. Within: why it is passed over.
    async fn look(&self, name: &[u8]) -> Result<Looked, StoreError>;
}

pub(crate) type Looked = Result<Option<(Key, Snapshot)>, StoreError>;

/// A listing of the keys behind those names.
pub(crate) struct NamedKeys<'a, S> {
    store: &'a S,
    /// Or why that pattern may not be listed.
    names: Result<Names, Invalid>,
    /// Names that were found and not looked into yet.
    pending: Vec<Vec<u8>>,
    seen: SeenNames,
}

impl<'a, S> NamedKeys<'a, S> {
    pub(crate) fn new(store: &'a S, names: Result<Names, Invalid>) -> Self {
        Self {
            store,
            names,
            pending: Vec::new(),
            seen: SeenNames::default(),
        }
    }
}

#[async_trait]
impl<S: Named> Listing for NamedKeys<'_, S> {
    async fn next_page(&mut self) -> Result<Option<ListPage>, StoreError> {
        let names = self.names.as_mut().map_err(|refused| refused.clone())?;
        if self.pending.is_empty() {
            match names.next().await? {
                Some(names) => self.pending = names,
                None => return Ok(None),
            }
        }
        let looks = join_all(self.pending.iter().map(|name| self.store.look(name))).await;
        let looks: Vec<_> = looks.into_iter().collect::<Result<_, _>>()?;
        let mut page = ListPage::default();
        for (name, look) in std::mem::take(&mut self.pending).into_iter().zip(looks) {
            match look {
                Ok(Some(found)) if self.seen.insert(&name) => page.found.push(found),
                Err(error) if self.seen.insert(&name) => {
                    page.skipped
                        .push((String::from_utf8_lossy(&name).into_owned(), error));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(Some(page))
    }
}

/// Where a scan begins, and what tells that it has ended.
const START: &[u8] = b"0";

/// One answer of `SCAN`: where to go on, and the names found.
pub(crate) fn read_page(answer: &Value) -> Result<(Vec<u8>, Vec<Vec<u8>>), StoreError> {
    redis::from_redis_value_ref(answer).map_err(|_| unreadable(answer))
}

/// Takes the special meaning from the characters of a glob.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
