//! What a server keeps, and the commands on it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::reply::Reply;

type Words<'a> = &'a [Vec<u8>];
type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

/// The data of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Data {
    keys: BTreeMap<Vec<u8>, Entry>,
    /// Writes that need memory are refused.
    pub(crate) full: bool,
}

#[derive(Debug, Clone)]
struct Entry {
    value: Kept,
    /// When it vanishes, in milliseconds since 1970.
    ends: Option<u64>,
}

#[derive(Debug, Clone)]
enum Kept {
    Text(Vec<u8>),
    Hash(Fields),
}

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const SYNTAX: &str = "ERR syntax error";
const NO_NUMBER: &str = "ERR value is not an integer or out of range";

/// The answer to a command that does not exist here.
pub(super) fn unknown(words: Words<'_>) -> Reply {
    let name = words
        .first()
        .map(|name| String::from_utf8_lossy(name).into_owned());
    let name = name.unwrap_or_default();
    Reply::error(format!("ERR unknown command '{name}'"))
}

/// Whether a command changes something.
pub(super) fn writes(name: &str) -> bool {
    grows(name) || matches!(name, "DEL" | "HDEL" | "PEXPIRE" | "PERSIST")
}

/// Whether it may need memory.
fn grows(name: &str) -> bool {
    matches!(name, "SET" | "SETRANGE" | "HSET")
}

fn int<T: TryInto<i64>>(number: T) -> Reply {
    Reply::Int(number.try_into().unwrap_or(i64::MAX))
}

/// How many of them are so.
fn count(words: Words<'_>, mut is_so: impl FnMut(&[u8]) -> bool) -> Reply {
    int(words.iter().filter(|word| is_so(word)).count())
}

fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

impl Data {
    /// Runs a command at that time of day; `None` if there is no such command.
    /// `dirty`: what runs it has written already, and may go on.
    pub(crate) fn run(
        &mut self,
        name: &str,
        words: Words<'_>,
        wall: Duration,
        dirty: bool,
    ) -> Option<Reply> {
        let millis = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        self.keys
            .retain(|_, entry| entry.ends.is_none_or(|ends| ends > millis));
        if self.full && grows(name) && !dirty {
            return Some(Reply::error(FULL));
        }
        let answer = match (name, words) {
            ("TIME", []) => {
                let time = [wall.as_secs(), wall.subsec_micros().into()];
                let time = time.map(|part| Reply::bulk(part.to_string()));
                Ok(Reply::Array(time.to_vec()))
            }
            ("GET", [key]) => self.text(key).map(bulk_or_nil),
            ("MGET", keys) => {
                let text = |key: &Vec<u8>| bulk_or_nil(self.text(key).ok().flatten());
                Ok(Reply::Array(keys.iter().map(text).collect()))
            }
            ("SET", [key, value, options @ ..]) => self.set(key, value, options, millis),
            // To see whether there is memory: nothing is written.
            ("SETRANGE", [key, _, value]) if value.is_empty() => {
                self.text(key).map(|text| int(text.map_or(0, Vec::len)))
            }
            ("DEL", keys) => Ok(count(keys, |key| self.keys.remove(key).is_some())),
            ("EXISTS", keys) => Ok(count(keys, |key| self.keys.contains_key(key))),
            ("TYPE", [key]) => Ok(Reply::Status(self.kind(key).to_owned())),
            ("HGET", [key, field]) => self
                .fields(key)
                .map(|fields| bulk_or_nil(fields.and_then(|all| all.get(field)))),
            ("HMGET", [key, names @ ..]) => self.fields(key).map(|fields| {
                let of = |name| bulk_or_nil(fields.and_then(|all| all.get(name)));
                Reply::Array(names.iter().map(of).collect())
            }),
            ("HGETALL", [key]) => self.fields(key).map(|fields| {
                let pair =
                    |(name, value): (&Vec<u8>, &Vec<u8>)| (Reply::bulk(name), Reply::bulk(value));
                Reply::Map(fields.into_iter().flatten().map(pair).collect())
            }),
            ("HSET", [key, pairs @ ..]) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
                self.set_fields(key, pairs)
            }
            ("HDEL", [key, names @ ..]) => self.delete_fields(key, names),
            ("PEXPIRE", [key, time]) => self.expire(key, time, millis),
            ("PERSIST", [key]) => {
                let ends = self.keys.get_mut(key).and_then(|entry| entry.ends.take());
                Ok(int(u8::from(ends.is_some())))
            }
            ("SCAN", [_, options @ ..]) => Ok(self.scan(options)),
            _ => return None,
        };
        Some(answer.unwrap_or_else(Reply::error))
    }

    fn kind(&self, key: &[u8]) -> &'static str {
        match self.keys.get(key).map(|entry| &entry.value) {
            None => "none",
            Some(Kept::Text(_)) => "string",
            Some(Kept::Hash(_)) => "hash",
        }
    }

    fn text(&self, key: &[u8]) -> Result<Option<&Vec<u8>>, &'static str> {
        match self.keys.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Kept::Text(text)) => Ok(Some(text)),
            Some(Kept::Hash(_)) => Err(WRONG_TYPE),
        }
    }

    fn fields(&self, key: &[u8]) -> Result<Option<&Fields>, &'static str> {
        match self.keys.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Kept::Hash(fields)) => Ok(Some(fields)),
            Some(Kept::Text(_)) => Err(WRONG_TYPE),
        }
    }

    fn set(
        &mut self,
        key: &[u8],
        value: &[u8],
        options: Words<'_>,
        millis: u64,
    ) -> Result<Reply, &'static str> {
        let there = self.keys.contains_key(key);
        let (mut ends, mut may) = (None, true);
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match option.to_ascii_uppercase().as_slice() {
                b"NX" => may = !there,
                b"PX" => ends = Some(after(millis, options.next())?),
                _ => return Err(SYNTAX),
            }
        }
        if !may {
            return Ok(Reply::Nil);
        }
        let value = Kept::Text(value.to_vec());
        self.keys.insert(key.to_vec(), Entry { value, ends });
        Ok(Reply::ok())
    }

    fn set_fields(&mut self, key: &[u8], pairs: Words<'_>) -> Result<Reply, &'static str> {
        self.fields(key)?;
        let fresh = || Entry {
            value: Kept::Hash(BTreeMap::new()),
            ends: None,
        };
        let entry = self.keys.entry(key.to_vec()).or_insert_with(fresh);
        let Kept::Hash(fields) = &mut entry.value else {
            return Err(WRONG_TYPE);
        };
        let added = |pair: Words<'_>| fields.insert(pair[0].clone(), pair[1].clone()).is_none();
        let added = pairs.chunks_exact(2).map(added);
        Ok(int(added.filter(|added| *added).count()))
    }

    fn delete_fields(&mut self, key: &[u8], names: Words<'_>) -> Result<Reply, &'static str> {
        self.fields(key)?;
        let value = self.keys.get_mut(key).map(|entry| &mut entry.value);
        let Some(Kept::Hash(fields)) = value else {
            return Ok(Reply::Int(0));
        };
        let gone = count(names, |name| fields.remove(name).is_some());
        if fields.is_empty() {
            self.keys.remove(key);
        }
        Ok(gone)
    }

    fn expire(&mut self, key: &[u8], time: &[u8], millis: u64) -> Result<Reply, &'static str> {
        let time = number(time).ok_or(NO_NUMBER)?;
        let Some(entry) = self.keys.get_mut(key) else {
            return Ok(Reply::Int(0));
        };
        let ends = millis.saturating_add_signed(time);
        entry.ends = Some(ends);
        if ends <= millis {
            self.keys.remove(key);
        }
        Ok(Reply::Int(1))
    }

    /// All at once: the cursor is zero.
    fn scan(&self, options: Words<'_>) -> Reply {
        let pattern = options
            .chunks(2)
            .find(|option| option[0].eq_ignore_ascii_case(b"MATCH"));
        let pattern = pattern.and_then(|option| option.get(1));
        let matches = |key: &&Vec<u8>| pattern.is_none_or(|pattern| glob(pattern, key));
        let keys = self.keys.keys().filter(matches).map(Reply::bulk).collect();
        Reply::Array(vec![Reply::bulk("0"), Reply::Array(keys)])
    }
}

fn bulk_or_nil(value: Option<&Vec<u8>>) -> Reply {
    value.map_or(Reply::Nil, Reply::bulk)
}

fn after(millis: u64, time: Option<&Vec<u8>>) -> Result<u64, &'static str> {
    match time.map(|time| number(time)) {
        Some(Some(time)) if time > 0 => Ok(millis.saturating_add(time.unsigned_abs())),
        Some(Some(_)) => Err("ERR invalid expire time in 'set' command"),
        Some(None) => Err(NO_NUMBER),
        None => Err(SYNTAX),
    }
}

/// `*`, `?` and escapes: what the patterns of this workload have.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=text.len()).any(|from| glob(rest, &text[from..])),
        (Some((b'?', rest)), Some((_, text))) => glob(rest, text),
        (Some((b'\\', rest)), Some((byte, text))) => rest
            .split_first()
            .is_some_and(|(same, rest)| same == byte && glob(rest, text)),
        (Some((same, rest)), Some((byte, text))) => same == byte && glob(rest, text),
        _ => false,
    }
}
