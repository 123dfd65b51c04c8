//! Answers that no script of ours gives: a proxy, or somebody else, may.

use leasehold_store::ErrorKind;
use redis::Value;

use super::super::refusal;
use crate::codec::script;
use crate::connection::rights;

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

/// It goes to logs and terminals.
#[test]
fn what_a_server_says_of_rights_and_kinds_is_shown_in_one_line() {
    let odd = format!("\u{1b}[2J\r\n{}", "x".repeat(10_000));
    let forbidden = Value::Array(vec![bulk(odd.as_bytes())]);
    for refused in [
        rights::allowed(&forbidden, "leasehold:").unwrap_err(),
        refusal::foreign(&odd),
    ] {
        let said = refused.to_string();
        assert!(said.contains("[2Jx") && said.len() < 1_000, "{said}");
        assert!(!said.contains(char::is_control), "{said:?}");
    }
    let info = rights::fields("redis_version:\u{1b}[2J7").next();
    assert_eq!(info.unwrap().1, "[2J7");
}
