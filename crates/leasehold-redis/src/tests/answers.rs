//! Tests: answers that no script gives, as from a proxy.

use leasehold_store::ErrorKind;
use redis::Value;

use crate::codec::script;

fn bulk(bytes: &[u8]) -> Value {
    Value::BulkString(bytes.to_vec())
}

/// What a verb answers of a claim that has this token; 0: it waits.
fn standing(token: f64) -> Value {
    let numbers = [1e15, 1.0, token, 0.0, 2e15, 0.0].map(f64::to_le_bytes);
    bulk(&[&[1], numbers.concat().as_slice()].concat())
}

/// Else a caller who asked for two keys would believe to hold both.
#[test]
fn a_multi_lock_lacks_no_key() {
    let read = |items: &[Value], parts| script::read_replies(&Value::Array(items.to_vec()), parts);
    let all = read(&[standing(5.0), standing(6.0)], 2).unwrap();
    assert_eq!(all.map(|all| all.len()), Ok(2));
    let first = read(&[Value::Int(1), standing(0.0)], 2).unwrap();
    assert_eq!(first.map_err(|(part, _)| part).unwrap_err(), 1);
    for (items, parts) in [
        (vec![], 2),
        (vec![standing(5.0)], 2),
        (vec![standing(5.0), standing(0.0)], 2),
        (vec![standing(5.0), standing(6.0)], 1),
        (vec![Value::Int(2), standing(0.0)], 2),
        (vec![Value::Int(-1), standing(0.0)], 2),
    ] {
        let refused = read(&items, parts).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{items:?}");
    }
}

/// Else one caller would read what another was told.
#[test]
fn each_answer_of_a_text_of_many_is_whole() {
    let reply = |kind: u8, numbers: usize| {
        let numbers = vec![1.0_f64.to_le_bytes(); numbers];
        [&[kind], numbers.concat().as_slice()].concat()
    };
    // As many numbers as the header of step.lua says.
    let numbers = [6, 2, 1, 2, 1, 2, 3, 1, 1, 1, 1, 2];
    let sent: Vec<_> = (1..).zip(numbers).map(|(kind, n)| reply(kind, n)).collect();
    let text = sent.concat();
    let read = script::each_reply(bulk(&text)).unwrap();
    let whole: Vec<_> = sent.iter().map(|reply| bulk(reply)).collect();
    assert_eq!(read, whole);
    for reply in &read {
        script::read_reply(reply).unwrap();
    }
    // One that is cut short is none, and takes nobody else's with it.
    let cut = script::each_reply(bulk(&text[..text.len() - 1])).unwrap();
    assert_eq!(cut, read[..read.len() - 1]);
    // Nor does one of two lengths pass.
    let longer = bulk(&reply(4, 3));
    let refused = script::read_reply(&longer).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert_eq!(script::each_reply(Value::Okay), Err(Value::Okay));
}
