//! The protocol: replies as they go (RESP2 and RESP3, redis.io "Redis serialization protocol
//! specification").

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
