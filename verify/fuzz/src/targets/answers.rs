//! What servers answer, in RESP: each answer is read as that of every request.

use leasehold::StoreError;
use leasehold::core::StoreTime;
use leasehold::fuzzing::redis as doors;
use redis::Value;

use super::{SECRET, check_sentence};

/// The server's time of day.
const NOW: StoreTime = StoreTime(1_800_000_000_000_000);

pub(crate) fn run(data: &[u8]) {
    let Ok(value) = redis::parse_redis_value(data) else {
        return;
    };
    // A server's error is passed on, whatever it says.
    let repeats = holds_error(&value);
    let refused = |error: StoreError| check_refused(&error, repeats, data.len());
    doors::reply(&value).err().map(refused);
    doors::quarantine(&value).err().map(refused);
    for keys in 1..4 {
        match doors::replies(&value, keys) {
            Ok(Ok(granted)) => assert_eq!(granted, keys, "a key is missing"),
            Ok(Err(part)) => assert!(part < keys),
            Err(error) => refused(error),
        }
    }
    classic(&value, refused);
    // What commands are forbidden is told.
    if let Err(error) = doors::allowed(&value) {
        check_refused(&error, true, data.len());
    }
    for finding in doors::sentinel(&value, &value) {
        super::server::check(&finding);
    }
    match doors::look(value.clone()) {
        Ok(look) => super::records::check(&look, data.len()),
        Err(error) => refused(error),
    }
    match doors::page(&value) {
        Ok((_, names)) => assert!(names.len() <= data.len()),
        Err(error) => refused(error),
    }
    for disk in [false, true] {
        match doors::acknowledged(disk, &value) {
            Ok(acknowledged) => assert_eq!(acknowledged.wanted, 1),
            Err(error) => refused(error),
        }
    }
    if let Some((host, _)) = doors::primary(&value) {
        assert!(host.len() <= data.len());
    }
    doors::field(&value, "config-epoch");
    if let Some(map) = doors::slots(&value) {
        let [primaries, nodes] = map.nodes;
        assert!(primaries <= nodes && nodes <= data.len());
        assert!(primaries > 0 || map.owners == [None, None]);
    }
    if let Value::ServerError(error) = &value {
        doors::redirect(error);
    }
}

/// A lock that other libraries share: the answer of the script, and those of commands.
fn classic(value: &Value, refused: impl Fn(StoreError)) {
    match doors::step(value, NOW) {
        Ok(until) => assert!(until.is_none_or(|until| until >= NOW)),
        Err(error) => refused(error),
    }
    let Value::Array(answers) = value else {
        return;
    };
    let wrong = holds_error(value);
    let kind = matches!(answers.first(), Some(Value::Nil | Value::Int(_)));
    match doors::seen(value, NOW) {
        Ok((id, snapshot)) => {
            assert!(snapshot.waiters.is_empty() && snapshot.holders.len() <= 1);
            for holder in &snapshot.holders {
                let claim = &holder.claim;
                assert!(claim.deadline >= NOW);
                assert!(claim.id_hint.len() <= id.len().min(6), "{}", claim.id_hint);
                assert!(claim.id_hint.is_empty() || claim.id_hint.as_bytes() != id);
            }
        }
        Err(error) if !wrong && kind => refused(error),
        // It names what stands there.
        Err(error) => check_refused(&error, true, 0),
    }
    match doors::info(answers) {
        Ok(fields) => assert!(fields <= answers.iter().map(size).sum()),
        Err(error) => check_refused(&error, wrong, 0),
    }
}

fn holds_error(value: &Value) -> bool {
    match value {
        Value::ServerError(_) => true,
        Value::Array(items) | Value::Set(items) => items.iter().any(holds_error),
        _ => false,
    }
}

fn size(answer: &Value) -> usize {
    match answer {
        Value::BulkString(bytes) => bytes.len(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.len(),
        _ => 0,
    }
}

/// What a server says may be a claim's id: it is not repeated.
pub(crate) fn check_refused(error: &StoreError, repeats: bool, input: usize) {
    let message = error.to_string();
    check_sentence(&message, input);
    assert!(repeats || !message.contains(SECRET), "{message}");
    assert!(repeats || message.len() < 300, "{message:.400}");
}
