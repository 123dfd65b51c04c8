//! Reads texts and lists from answers of a server.

use redis::Value;

/// An answer that is text.
pub(crate) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text.clone()),
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// One field of an answer that names its fields.
pub(crate) fn field(value: &Value, name: &str) -> Option<String> {
    let is_it = |(field, _): &(&Value, &Value)| text_of(field).as_deref() == Some(name);
    let (_, value) = value.as_map_iter()?.find(is_it)?;
    text_of(value)
}

/// The parts of an answer that is a list.
pub(crate) fn items(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}
