//! Tests: records on the server compared with queues of the core.

use std::collections::BTreeMap;

use leasehold_core::record::Record;
use leasehold_core::{Queue, StoreTime, Token};
use leasehold_store::ErrorKind;
use redis::Value;
use serde_json::{Value as Json, json};

use crate::codec::record::{self, Bytes};

/// Panics where they differ; `answer` is what `inspect` answered.
pub(super) fn compare(answer: &Value, queue: &Queue, last_token: Token, now: StoreTime) {
    let record = record::read(answer.clone()).unwrap().0;
    let mut expected = serde_json::to_value(queue).unwrap();
    // Outside of a cluster all keys have one.
    expected["last_token"] = json!(last_token);
    let mut found = serde_json::to_value(Queue::try_from(record.clone()).unwrap()).unwrap();
    let votes = expected.as_object_mut().unwrap().remove("votes");
    for json in [&mut expected, &mut found] {
        if record.granted.is_empty() {
            // Means nothing then.
            json["earliest"] = json!(0);
        }
        leave_out_ended(json, now);
    }
    assert_eq!(found, expected, "the record");
    let granted = record.granted.iter();
    let weights = granted.map(|(token, entry)| (*token, entry.mode.weight()));
    let weights: BTreeMap<_, _> = weights.collect();
    if let Some(mut head) = head(answer) {
        head.capacity().unwrap();
        let used = head.number().unwrap();
        assert_eq!(used, weights.values().sum::<u64>(), "what is used");
    }
    let voted = compare_fields(answer, &record);
    let (voted, votes) = (votes_as_json(voted, now), with_live_callers(votes, now));
    assert_eq!(voted, votes, "the votes");
}

/// The head of a hash, from behind the number of released ids.
fn head(answer: &Value) -> Option<Bytes<'_>> {
    match answer {
        Value::Array(items) => items.windows(2).find_map(|pair| match pair {
            [Value::BulkString(field), Value::BulkString(head)] if field == b" head" => {
                Some(Bytes(&head[3 + 6 * 8 + 1..]))
            }
            _ => None,
        }),
        other => panic!("{other:?}"),
    }
}

/// Until when the key lives, at least; zero where it lives as long as its claim.
pub(super) fn expires(answer: &Value) -> StoreTime {
    let Value::Array(items) = answer else {
        panic!("{answer:?}");
    };
    let text = items[2..].iter().find_map(|item| match item {
        // Where there is no head, the string of an earlier version begins as one.
        Value::BulkString(text) if text.starts_with(b"lh\x01") => Some(text),
        _ => None,
    });
    text.map_or(StoreTime(0), |text| {
        Bytes(&text[3 + 5 * 8..]).time().unwrap()
    })
}

/// Watches that are over mean nothing: either side may have dropped them.
fn leave_out_ended(json: &mut Json, now: StoreTime) {
    let all = json.as_object_mut().unwrap().remove("watchers");
    let all = all.iter().flat_map(|all| all.as_array().unwrap());
    let alive = all.filter(|watcher| watcher[1].as_u64().unwrap() > now.0);
    let alive: Vec<_> = alive.cloned().collect();
    json["watchers"] = json!(alive);
}

/// The fields of a hash: those that there should be and no others, and each
/// owner's waiting claims.
///
/// Answers that of a member of a set.
fn compare_fields(answer: &Value, record: &Record) -> Option<Vec<u8>> {
    let Value::Array(items) = answer else {
        panic!("{answer:?}");
    };
    let text = |item: &Value| match item {
        Value::BulkString(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    };
    let pairs = items[2..].chunks_exact(2);
    let found = pairs.map(|pair| (text(&pair[0]), text(&pair[1])));
    let found: BTreeMap<_, _> = found.collect();
    if found.is_empty() {
        return None;
    }
    let mut expected: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for entry in &record.waiting {
        if let Some(secret) = entry.secret {
            let owner = format!(" o{}", secret.expose());
            let ids = expected.entry(owner.into()).or_default();
            let id = entry.id.expose().as_bytes();
            ids.push(u8::try_from(id.len()).unwrap());
            ids.extend_from_slice(id);
        }
    }
    for (name, ids) in &expected {
        assert_eq!(found.get(name), Some(ids), "the waiting claims of an owner");
    }
    let granted = record.granted.iter().map(|(_, entry)| entry);
    let entries = granted.chain(&record.waiting);
    let ids = entries.map(|entry| entry.id.expose().as_bytes().to_vec());
    let votes = found.get(b" votes".as_slice()).cloned();
    expected.extend(votes.iter().map(|_| (b" votes".to_vec(), Vec::new())));
    let watched = (!record.watchers.is_empty()).then(|| b" watchers".to_vec());
    expected.extend(
        ids.chain([b" head".to_vec(), b" released".to_vec()])
            .chain(watched)
            .map(|name| (name, Vec::new())),
    );
    assert!(found.keys().eq(expected.keys()), "the fields of the hash");
    votes
}

/// As the core writes it down; callers whose time is over mean nothing.
fn votes_as_json(field: Option<Vec<u8>>, now: StoreTime) -> Json {
    let field = field.unwrap_or_else(|| vec![0; 8]);
    let mut bytes = Bytes(&field);
    let void = bytes.number().unwrap();
    let mut callers = Vec::new();
    while !bytes.0.is_empty() {
        let until = bytes.time().unwrap();
        callers.push((bytes.inbox().unwrap().unwrap(), until));
    }
    with_live_callers(Some(json!({"void": void, "callers": callers})), now)
}

fn with_live_callers(votes: Option<Json>, now: StoreTime) -> Json {
    let mut votes = votes.unwrap_or_else(|| json!({"void": 0, "callers": []}));
    let callers = votes["callers"].as_array_mut().unwrap();
    callers.retain(|caller| caller[1].as_u64().unwrap() > now.0);
    votes
}

/// Nobody writes such a record; whoever reads it must come to an end.
#[test]
fn links_that_lead_in_a_circle_are_damage() {
    let number = |number: f64| number.to_le_bytes().to_vec();
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let mut body = vec![0; 9];
    body[5..9].copy_from_slice(&(1_u32 << 20).to_le_bytes());
    let body = [body, text(""), vec![0; 4], text("host"), text("")].concat();
    let claim = |next: &str| {
        let numbers = [1.0, 9.0, 1e15, 1e15].map(number).concat();
        [text(next), text(""), numbers, body.clone()].concat()
    };
    let head = |granted| {
        let start = [1e15, 0.0, 9.0, 2.0, 1e15, 1e15].map(number).concat();
        let counts = [-1.0, 1_048_576.0, 1e15, granted, 0.0, 0.0, 0.0, 0.0, 0.0].map(number);
        let ends = ["a", "b", "", ""].map(text).concat();
        [b"lh\x01".to_vec(), start, vec![0], counts.concat(), ends].concat()
    };
    let read = |granted, next: [&str; 2]| {
        let fields = [
            (" head", head(granted)),
            (" released", Vec::new()),
            ("a", claim(next[0])),
            ("b", claim(next[1])),
        ];
        let bytes = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
        let fields = fields.map(|(name, value)| [bytes(name.as_bytes()), bytes(&value)]);
        record::read(Value::Array(
            [vec![Value::Int(1), Value::Int(0)], fields.concat()].concat(),
        ))
    };
    assert_eq!(read(2.0, ["b", ""]).unwrap().0.granted.len(), 2);
    for (granted, next) in [(2.0, ["a", "a"]), (9e15, ["b", "a"]), (3.0, ["b", "b"])] {
        let refused = read(granted, next).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{granted} {next:?}");
    }
}
