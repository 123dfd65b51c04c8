//! `struct`, the library that Redis gives to scripts (Roberto Ierusalimschy's): the
//! formats that leasehold's scripts use, and an error for any other.

use mlua::{Lua, LuaString, MultiValue, Result, Table, Value, Variadic};

/// One item of a format.
enum Item {
    /// An unsigned number of so many bytes.
    Number(usize),
    Double,
    /// So many bytes; none: as many as there are, or as the number before says.
    Bytes(Option<usize>),
}

fn failed<T>(text: impl Into<String>) -> Result<T> {
    Err(mlua::Error::runtime(text.into()))
}

fn items(format: &[u8]) -> Result<Vec<Item>> {
    let Some(mut rest) = format.strip_prefix(b"<") else {
        return failed("only little-endian formats are simulated");
    };
    let mut items = Vec::new();
    while let Some((kind, tail)) = rest.split_first() {
        let digits = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let size: Option<usize> = std::str::from_utf8(&tail[..digits])
            .ok()
            .and_then(|text| text.parse().ok());
        rest = &tail[digits..];
        items.push(match (kind, size) {
            (b'B', None) => Item::Number(1),
            (b'I', Some(size @ 1..=8)) => Item::Number(size),
            (b'd', None) => Item::Double,
            (b'c', Some(0)) => Item::Bytes(None),
            (b'c', size) => Item::Bytes(Some(size.unwrap_or(1))),
            _ => {
                let kind = char::from(*kind);
                return failed(format!("the format '{kind}' is not simulated"));
            }
        });
    }
    Ok(items)
}

/// A C program's conversion: the fraction goes, and what is too high wraps.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as in C"
)]
fn unsigned(number: f64) -> u64 {
    number as i64 as u64
}

fn pack(lua: &Lua, (format, values): (LuaString, Variadic<Value>)) -> Result<LuaString> {
    let bad = |what: &str| mlua::Error::runtime(format!("bad argument to 'pack' ({what})"));
    let number = |value| {
        let number = lua.coerce_number(value)?;
        number.ok_or_else(|| bad("number expected"))
    };
    let mut out = Vec::new();
    let mut values = values.into_iter();
    for item in items(&format.as_bytes())? {
        let value = values.next().ok_or_else(|| bad("value expected"))?;
        match item {
            Item::Number(size) => {
                out.extend_from_slice(&unsigned(number(value)?).to_le_bytes()[..size]);
            }
            Item::Double => out.extend_from_slice(&number(value)?.to_le_bytes()),
            Item::Bytes(size) => {
                let text = lua.coerce_string(value)?;
                let text = text.ok_or_else(|| bad("string expected"))?;
                let bytes = text.as_bytes();
                let part = bytes.get(..size.unwrap_or(bytes.len()));
                out.extend_from_slice(part.ok_or_else(|| bad("string too short"))?);
            }
        }
    }
    lua.create_string(out)
}

#[allow(clippy::cast_precision_loss, reason = "Lua has no other numbers")]
fn unpack(
    lua: &Lua,
    (format, text, at): (LuaString, LuaString, Option<f64>),
) -> Result<MultiValue> {
    let bytes = text.as_bytes();
    let mut at =
        usize::try_from(unsigned(at.unwrap_or(1.0)).saturating_sub(1)).unwrap_or(usize::MAX);
    let mut out: Vec<Value> = Vec::new();
    for item in items(&format.as_bytes())? {
        let size = match item {
            Item::Number(size) => size,
            Item::Double => 8,
            Item::Bytes(Some(size)) => size,
            Item::Bytes(None) => match out.pop().and_then(|size| size.as_number()) {
                Some(size) => usize::try_from(unsigned(size)).unwrap_or(usize::MAX),
                None => return failed("format 'c0' needs a previous size"),
            },
        };
        let Some(part) = at.checked_add(size).and_then(|end| bytes.get(at..end)) else {
            return failed("data string too short");
        };
        at += size;
        out.push(match item {
            Item::Number(size) => {
                let mut whole = [0; 8];
                whole[..size].copy_from_slice(part);
                Value::Number(u64::from_le_bytes(whole) as f64)
            }
            Item::Double => {
                let whole = part.try_into().map_err(mlua::Error::external)?;
                Value::Number(f64::from_le_bytes(whole))
            }
            Item::Bytes(_) => Value::String(lua.create_string(part)?),
        });
    }
    out.push(Value::Number((at + 1) as f64));
    Ok(out.into_iter().collect())
}

/// The library.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    library.set("pack", lua.create_function(pack)?)?;
    library.set("unpack", lua.create_function(unpack)?)?;
    Ok(library)
}
