//! What lies at a key of a server, byte by byte. The first byte says what it is: `s` the
//! string of a lock, `h` the hash (fields and values, each after two bytes of length),
//! `r` the answer of a script, `m` a boot marker, `q` what is left of a quarantine.

use leasehold::fuzzing::redis::{self as doors, Look};
use redis::Value;

use super::answers::check_refused;
use super::words::tame;

/// The server's time of day in the cases, in microseconds.
const NOW: i64 = 1_800_000_000_000_000;

pub(crate) fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else {
        return;
    };
    // The clock, and the last token of all keys.
    let start = vec![Value::Int(NOW), Value::Int(NOW - 1)];
    match kind {
        b's' => look([start, vec![bulk(rest)]].concat(), data.len()),
        b'h' => look([start, fields(rest)].concat(), data.len()),
        b'r' => {
            if let Err(error) = doors::reply(&bulk(rest)) {
                check_refused(&error, false, data.len());
            }
        }
        b'm' => doors::marker(rest, "run", NOW)
            .iter()
            .for_each(super::server::check),
        b'q' => {
            if let Err(error) = doors::quarantine(&bulk(rest)) {
                check_refused(&error, false, data.len());
            }
        }
        _ => {}
    }
}

fn look(items: Vec<Value>, input: usize) {
    match doors::look(Value::Array(items)) {
        Ok(look) => check(&look, input),
        Err(error) => check_refused(&error, false, input),
    }
}

fn bulk(bytes: &[u8]) -> Value {
    Value::BulkString(bytes.to_vec())
}

fn fields(mut bytes: &[u8]) -> Vec<Value> {
    let mut fields = Vec::new();
    while let Some((size, rest)) = bytes.split_first_chunk::<2>() {
        let size = usize::from(u16::from_le_bytes(*size)).min(rest.len());
        let (field, rest) = rest.split_at(size);
        fields.push(bulk(field));
        bytes = rest;
    }
    fields
}

/// What was read is no larger than what it was read from, and shows no id.
pub(crate) fn check(look: &Look, input: usize) {
    // All of it: what comes anew is looked at, too.
    let Look {
        snapshot,
        ids,
        watchers,
    } = look;
    assert!(ids.len() + watchers.len() <= input, "{} claims", ids.len());
    let holders = snapshot.holders.iter().map(|holder| &holder.claim);
    let waiters = snapshot.waiters.iter().map(|waiter| &waiter.claim);
    for claim in holders.chain(waiters) {
        assert!(claim.deadline > snapshot.at);
        tame(&claim.owner);
        assert!(!ids.contains(&claim.id_hint), "{}", claim.id_hint);
    }
    let empty = snapshot.holders.is_empty() && snapshot.waiters.is_empty();
    assert_eq!(snapshot.capacity.is_none(), empty);
}
