//! The protocol: commands as they come, replies as they go (RESP2 and RESP3,
//! redis.io "Redis serialization protocol specification").

/// What a command answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Status(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Push(Vec<Self>),
}

impl Reply {
    pub(crate) fn ok() -> Self {
        Self::Status("OK".to_owned())
    }

    pub(crate) fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    pub(crate) fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    /// Writes it, in version 3 of the protocol or in version 2.
    pub(crate) fn encode(&self, resp3: bool, out: &mut Vec<u8>) {
        let mut head =
            |kind: char, rest: &str| out.extend_from_slice(format!("{kind}{rest}\r\n").as_bytes());
        let all = |items: &[Self], out: &mut Vec<u8>| {
            items.iter().for_each(|item| item.encode(resp3, out));
        };
        match self {
            Self::Status(text) => head('+', text),
            Self::Error(text) => head('-', text),
            Self::Int(number) => head(':', &number.to_string()),
            Self::Nil if resp3 => head('_', ""),
            Self::Nil => head('$', "-1"),
            Self::Bulk(bytes) => {
                head('$', &bytes.len().to_string());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Array(items) => {
                head('*', &items.len().to_string());
                all(items, out);
            }
            Self::Push(items) => {
                head(if resp3 { '>' } else { '*' }, &items.len().to_string());
                all(items, out);
            }
            Self::Map(pairs) => {
                let (kind, each) = if resp3 { ('%', 1) } else { ('*', 2) };
                head(kind, &(each * pairs.len()).to_string());
                for (name, value) in pairs {
                    name.encode(resp3, out);
                    value.encode(resp3, out);
                }
            }
        }
    }
}

/// Takes the first whole command off the bytes that have come: `Ok(None)` if there is
/// none yet.
pub(crate) fn take_command(bytes: &mut Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, String> {
    let mut at = 0;
    let Some(count) = number(bytes, &mut at, b'*')? else {
        return Ok(None);
    };
    let mut words = Vec::new();
    for _ in 0..count {
        let Some(len) = number(bytes, &mut at, b'$')? else {
            return Ok(None);
        };
        let Some(word) = bytes.get(at..at + len) else {
            return Ok(None);
        };
        words.push(word.to_vec());
        at += len + 2;
    }
    if at > bytes.len() {
        return Ok(None);
    }
    bytes.drain(..at);
    Ok(Some(words))
}

fn number(bytes: &[u8], at: &mut usize, kind: u8) -> Result<Option<usize>, String> {
    let rest = &bytes[(*at).min(bytes.len())..];
    let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let text = rest[..end]
        .strip_prefix(&[kind])
        .and_then(|text| std::str::from_utf8(text).ok());
    let number = text.and_then(|text| text.parse().ok());
    *at += end + 2;
    number
        .map(Some)
        .ok_or_else(|| format!("Protocol error: expected '{}'", char::from(kind)))
}
