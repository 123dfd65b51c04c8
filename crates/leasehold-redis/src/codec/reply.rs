//! Decodes the answers of the scripts.

use leasehold_core::{Arrival, Reply, Standing, StoreTime, Token};
use leasehold_store::StoreError;
use redis::Value;

use super::bytes::Bytes;
use crate::errors;

/// Reads what a verb answered: the reply, and when the step was taken.
pub(crate) fn read_reply(value: &Value) -> Result<(Reply, StoreTime), StoreError> {
    match value {
        Value::BulkString(bytes) => parse_reply(bytes).ok_or_else(|| unreadable(value)),
        other => Err(unreadable(other)),
    }
}

/// The answers of steps that were sent together, one by one, each as if it had been sent alone.
///
/// # Errors
/// With an answer that counts for all of them.
pub(crate) fn each_reply(value: Value) -> Result<Vec<Value>, Value> {
    match value {
        Value::Array(values) => Ok(values),
        Value::BulkString(bytes) => {
            let (mut values, mut rest) = (Vec::with_capacity(16), Bytes(&bytes));
            while let Some(kind) = rest.0.first()
                && let Some(reply) = rest.take(size_of_reply(*kind))
            {
                values.push(Value::BulkString(reply.to_vec()));
            }
            Ok(values)
        }
        other => Err(other),
    }
}

/// How long a reply of this kind is.
fn size_of_reply(kind: u8) -> usize {
    let numbers = match kind {
        1 => 6,
        7 | 13 => 3,
        2 | 4 | 6 | 12 => 2,
        _ => 1,
    };
    1 + numbers * size_of::<f64>()
}

/// What `claim_all` answered: every reply, or the first part that was not granted.
pub(crate) type AllReplies = Result<Vec<(Reply, StoreTime)>, (usize, (Reply, StoreTime))>;

/// Reads it, of so many parts.
pub(crate) fn read_replies(value: &Value, parts: usize) -> Result<AllReplies, StoreError> {
    match value {
        Value::Array(items) => match items.as_slice() {
            [Value::Int(part), answer] => {
                let part = usize::try_from(*part).ok().filter(|part| *part < parts);
                let part = part.ok_or_else(|| unreadable(value))?;
                Ok(Err((part, read_reply(answer)?)))
            }
            answers => {
                let replies: Vec<_> = answers.iter().map(read_reply).collect::<Result<_, _>>()?;
                let granted = replies.iter().filter(|(reply, _)| reply.is_grant()).count();
                // One key less would be held by nobody.
                if granted != parts || replies.len() != parts {
                    return Err(unreadable(value));
                }
                Ok(Ok(replies))
            }
        },
        other => Err(unreadable(other)),
    }
}

fn parse_reply(bytes: &[u8]) -> Option<(Reply, StoreTime)> {
    let mut bytes = Bytes(bytes);
    let (kind, at) = (bytes.u8()?, bytes.time()?);
    let reply = match kind {
        1 => {
            let arrival = Arrival(bytes.number()?);
            let token = Some(Token::from(bytes.number()?)).filter(|token| token.get() > 0);
            let (position, deadline) = (bytes.number()?, bytes.time()?);
            let last = Some(bytes.number()?).filter(|last| *last > 0);
            Reply::Standing(Standing {
                arrival,
                token,
                behind: last.filter(|_| token.is_some()).map(Arrival),
                position,
                deadline,
                blocked_until: last.filter(|_| token.is_none()).map(StoreTime),
            })
        }
        2 => Reply::Busy {
            blocked_until: bytes.time()?,
        },
        12 => Reply::Quarantined {
            until: bytes.time()?,
        },
        13 => Reply::Outbid {
            highest: Token::from(bytes.number()?),
            most: Token::from(bytes.number()?),
        },
        3 => Reply::Gone,
        4 => Reply::Released {
            held: bytes.number()? == 1,
        },
        5 => Reply::Absent,
        6 => Reply::Mismatch {
            in_use: bytes.capacity()?,
        },
        7 => Reply::Broken {
            holders: bytes.number()?,
            token: Token::from(bytes.number()?),
        },
        8 => Reply::Superseded,
        9 => Reply::Taken,
        10 => Reply::Resized,
        11 => Reply::Done,
        _ => return None,
    };
    bytes.0.is_empty().then_some((reply, at))
}

/// Why an answer cannot be read: it is an error of the server, or something unknown.
pub(crate) fn unreadable(value: &Value) -> StoreError {
    if let Value::ServerError(error) = value {
        return errors::of_server(error);
    }
    let found = shape(value);
    let why = format!("the server sent an answer that leasehold does not understand: {found}");
    let hint = "check whether a proxy between this client and the server changes its answers";
    errors::corrupt(why, hint)
}

/// What sort of answer it is. What is in it is not repeated: it can be long, and hold
/// the ids of claims.
fn shape(value: &Value) -> String {
    match value {
        Value::Nil => "nothing".to_owned(),
        Value::Int(number) => format!("the number {number}"),
        Value::Okay => "OK".to_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
            format!("a text of {} bytes", text.len())
        }
        Value::BulkString(bytes) => format!("{} bytes", bytes.len()),
        Value::Array(items) | Value::Set(items) => format!("a list of {}", items.len()),
        Value::Map(fields) => format!("a map of {}", fields.len()),
        _ => "another type".to_owned(),
    }
}
