//! The keys that somebody holds or waits for.

use futures_util::future::join_all;
use leasehold_core::{Key, Snapshot};
use redis::Value;

use super::record::Record;
use super::script::SCRIPTS;
use super::{RedisStore, refusal, run};
use crate::error::{ErrorKind, StoreError};

/// How many keys one `SCAN` looks at, and how many are looked into at once.
pub(super) const PAGE: usize = 256;

pub(super) async fn list(
    store: &RedisStore,
    pattern: &str,
) -> Result<Vec<(Key, Snapshot)>, StoreError> {
    let wire = store.shared.wire().await?;
    let prefix = store.redis_key("");
    let glob = format!("{}{pattern}", escape(&prefix));
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
        let (next, keys) = read_page(answer)?;
        let name = |key: String| key.strip_prefix(&prefix).map(str::to_owned);
        names.extend(keys.into_iter().filter_map(name));
        cursor = next;
        if cursor == b"0" {
            break;
        }
    }
    // SCAN may name a key twice.
    names.sort_unstable();
    names.dedup();

    let mut live = Vec::new();
    for page in names.chunks(PAGE) {
        let looks = page.iter().filter_map(|name| {
            let key = Key::new(name).ok()?;
            let (wire, redis_key) = (&wire, store.redis_key(name));
            Some(async move {
                let value = run(wire, &SCRIPTS.inspect, &[&redis_key], |_| {}).await?;
                let (record, clock) = Record::read(value)?;
                Ok((key, record.look(clock)))
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

pub(super) fn read_page(answer: Value) -> Result<(Vec<u8>, Vec<String>), StoreError> {
    match answer {
        Value::Array(items) => {
            let mut items = items.into_iter();
            if let (Some(Value::BulkString(cursor)), Some(Value::Array(keys))) =
                (items.next(), items.next())
            {
                let text = |key| match key {
                    Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
                    _ => None,
                };
                return Ok((cursor, keys.into_iter().filter_map(text).collect()));
            }
            Err(super::script::unreadable(&Value::Nil))
        }
        Value::ServerError(error) => Err(refusal::of_server(&error)),
        other => Err(super::script::unreadable(&other)),
    }
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
