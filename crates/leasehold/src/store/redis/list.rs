//! The keys that somebody holds or waits for.

use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::{Key, Snapshot};
use redis::Value;

use super::cluster::Cluster;
use super::wire::Wire;
use super::{RedisStore, Route, refusal};
use crate::error::{ErrorKind, StoreError};
use crate::store::LockStore;

/// How many keys one `SCAN` looks at, and how many are looked into at once.
pub(super) const PAGE: usize = 256;

/// How often all nodes of a cluster are gone through while slots move.
const SCANS: usize = 3;

pub(super) async fn list(
    store: &RedisStore,
    pattern: &str,
) -> Result<Vec<(Key, Snapshot)>, StoreError> {
    let prefix = store.redis_key("");
    let mut names = match &store.route {
        Route::One(shared) => names(&prefix, &shared.wire().await?, pattern).await?,
        Route::Cluster(cluster) => names_of_all(&prefix, cluster, pattern).await?,
    };
    // SCAN may name a key twice.
    names.sort_unstable();
    names.dedup();

    let mut live = Vec::new();
    for page in names.chunks(PAGE) {
        let looks = page.iter().filter_map(|name| {
            let key = Key::new(name).ok()?;
            Some(async move {
                let look = store.inspect(&key).await?;
                Ok((key, look))
            })
        });
        for look in join_all(looks).await {
            match look {
                Ok((key, snapshot)) if snapshot.capacity.is_some() => live.push((key, snapshot)),
                Ok(_) => {}
                // One bad key must not hide the others; `inspect` names it.
                Err(error) if StoreError::kind(&error) == ErrorKind::Corrupt => {
                    tracing::warn!(%error, "passed over a key that cannot be read");
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(live)
}

/// The names behind `prefix` of all keys of a cluster. Those that change their node meanwhile may
/// be seen on neither: then once more.
pub(super) async fn names_of_all(
    prefix: &str,
    cluster: &Arc<Cluster>,
    pattern: &str,
) -> Result<Vec<String>, StoreError> {
    let mut all = Vec::new();
    for _ in 0..SCANS {
        let changes = cluster.changes();
        let links = cluster.links()?;
        let scans = links
            .iter()
            .map(async |link| names(prefix, &link.wire().await?, pattern).await);
        for found in join_all(scans).await {
            all.extend(found?);
        }
        if cluster.changes() == changes {
            break;
        }
    }
    Ok(all)
}

/// The names behind `prefix` of the keys of one server.
pub(super) async fn names(
    prefix: &str,
    wire: &Arc<Wire>,
    pattern: &str,
) -> Result<Vec<String>, StoreError> {
    let glob = format!("{}{pattern}", escape(prefix));
    let mut names: Vec<String> = Vec::new();
    let mut cursor = b"0".to_vec();
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(&cursor)
            .arg("MATCH")
            .arg(&glob)
            .arg("COUNT")
            .arg(PAGE);
        let answer = wire.send(scan).await.map_err(refusal::of_connection)?;
        let (next, keys) = read_page(&answer)?;
        let name = |key: String| key.strip_prefix(prefix).map(str::to_owned);
        names.extend(keys.into_iter().filter_map(name));
        cursor = next;
        if cursor == b"0" {
            return Ok(names);
        }
    }
}

/// One answer of `SCAN`: where to go on, and the names found.
pub(super) fn read_page(answer: &Value) -> Result<(Vec<u8>, Vec<String>), StoreError> {
    let items = match answer {
        Value::Array(items) => items.as_slice(),
        Value::ServerError(error) => return Err(refusal::of_server(error)),
        _ => &[],
    };
    let [Value::BulkString(cursor), Value::Array(keys), ..] = items else {
        return Err(super::script::unreadable(answer));
    };
    let text = |key: &Value| match key {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    };
    Ok((cursor.clone(), keys.iter().filter_map(text).collect()))
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
