//! Scripts: the text as the client sends it, in Lua 5.1, with the doors that Redis
//! gives it.

use std::collections::BTreeMap;
use std::sync::Arc;

use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value, Variadic};

use super::reply::Reply;
use super::{Inside, structs};
use crate::simulate::flaws::Flaw;

/// A server's Lua.
pub(super) struct Scripts {
    lua: Lua,
    known: BTreeMap<String, Function>,
    flaw: Option<Flaw>,
    #[cfg(test)]
    texts: BTreeMap<String, Vec<u8>>,
}

/// Redis protects the globals: a script that forgets a `local` fails.
const PROTECT: &str = "
setmetatable(_G, {
  __index = function(_, name) error('Script attempted to access nonexistent global variable \\'' .. tostring(name) .. '\\'', 2) end,
  __newindex = function(_, name) error('Attempt to modify a readonly table', 2) end,
})";

/// The name by which a script is known, and what scripts make of texts.
pub(super) fn hash(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

impl Scripts {
    /// `door`: what they see of the server.
    pub(super) fn new(door: &Arc<Inside>, flaw: Option<Flaw>) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let redis = lua.create_table()?;
        for (name, fails) in [("call", true), ("pcall", false)] {
            let door = Arc::clone(door);
            let call = move |lua: &Lua, words: Variadic<Value>| {
                let words = words.into_iter().map(|word| argument(lua, word));
                let words = words.collect::<mlua::Result<Vec<_>>>()?;
                match door.command(&words) {
                    Reply::Error(text) if fails => Err(mlua::Error::external(Failed(text))),
                    reply => to_lua(lua, reply),
                }
            };
            redis.set(name, lua.create_function(call)?)?;
        }
        let allowed = |_: &Lua, _: Variadic<Value>| Ok(true);
        redis.set("acl_check_cmd", lua.create_function(allowed)?)?;
        let hex = |_: &Lua, text: mlua::LuaString| Ok(hash(&text.as_bytes()));
        redis.set("sha1hex", lua.create_function(hex)?)?;
        let globals = lua.globals();
        globals.set("redis", redis)?;
        globals.set("struct", structs::library(&lua)?)?;
        globals.set("bit", bits(&lua)?)?;
        lua.load(PROTECT).exec()?;
        Ok(Self {
            lua,
            known: BTreeMap::new(),
            flaw,
            #[cfg(test)]
            texts: BTreeMap::new(),
        })
    }

    pub(super) fn forget_all(&mut self) {
        self.known.clear();
    }

    /// Keeps a script; the hash by which it is called.
    pub(super) fn load(&mut self, text: &[u8]) -> Result<String, String> {
        let hash = hash(text);
        if !self.known.contains_key(&hash) {
            let flawed = self.flaw.map(|flaw| flaw.put_into(text));
            let text = flawed.unwrap_or_else(|| text.to_vec());
            #[cfg(test)]
            self.texts.insert(hash.clone(), text.clone());
            let compiled = self.lua.load(text).set_name("@user_script").into_function();
            let compiled =
                compiled.map_err(|error| format!("ERR Error compiling script: {error}"))?;
            self.known.insert(hash.clone(), compiled);
        }
        Ok(hash)
    }

    #[cfg(test)]
    pub(super) fn text(&self, hash: &str) -> Option<Vec<u8>> {
        self.texts.get(hash).cloned()
    }

    /// Runs a script that is known.
    pub(super) fn run(&self, hash: &str, keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> Reply {
        let Some(script) = self.known.get(hash) else {
            return Reply::error("NOSCRIPT No matching script. Please use EVAL.");
        };
        let run = || {
            for (name, words) in [("KEYS", keys), ("ARGV", arguments)] {
                let words = words.iter().map(|word| self.lua.create_string(word));
                let words = words.collect::<mlua::Result<Vec<_>>>()?;
                let words = self.lua.create_sequence_from(words)?;
                self.lua.globals().raw_set(name, words)?;
            }
            to_reply(&script.call::<Value>(MultiValue::new())?)
        };
        run().unwrap_or_else(|error| Reply::Error(what_failed(&error)))
    }
}

/// A command failed, and the script with it.
#[derive(Debug)]
struct Failed(String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

fn what_failed(error: &mlua::Error) -> String {
    if let mlua::Error::CallbackError { cause, .. } = error {
        return what_failed(cause);
    }
    if let Some(Failed(text)) = error.downcast_ref::<Failed>() {
        return text.clone();
    }
    let text = error.to_string();
    format!("ERR {}", text.lines().next().unwrap_or_default())
}

/// A number becomes text as C's `%.17g` writes it.
fn argument(lua: &Lua, word: Value) -> mlua::Result<Vec<u8>> {
    match word {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "it was just seen to be whole and small"
        )]
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 1e17 => {
            Ok((number as i64).to_string().into_bytes())
        }
        Value::Number(_) => Err(mlua::Error::runtime(
            "an argument with a fraction is not simulated",
        )),
        word => match lua.coerce_string(word)? {
            Some(text) => Ok(text.as_bytes().to_vec()),
            None => Err(mlua::Error::external(Failed(
                "ERR Lua redis lib command arguments must be strings or integers".to_owned(),
            ))),
        },
    }
}

#[allow(clippy::cast_precision_loss, reason = "Lua has no other numbers")]
fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    let named = |name: &str, text: String| {
        let table = lua.create_table()?;
        table.set(name, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Status(text) => named("ok", text),
        Reply::Error(text) => named("err", text),
        Reply::Int(number) => Ok(Value::Number(number as f64)),
        Reply::Bulk(bytes) => lua.create_string(bytes).map(Value::String),
        Reply::Nil => Ok(Value::Boolean(false)),
        Reply::Array(items) | Reply::Push(items) => {
            let items = items.into_iter().map(|item| to_lua(lua, item));
            let items = items.collect::<mlua::Result<Vec<_>>>()?;
            lua.create_sequence_from(items).map(Value::Table)
        }
        // Scripts speak version 2 of the protocol unless they ask for more.
        Reply::Map(pairs) => {
            let flat = pairs.into_iter().flat_map(|(name, value)| [name, value]);
            to_lua(lua, Reply::Array(flat.collect()))
        }
    }
}

fn to_reply(value: &Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Integer(number) => Reply::Int(*number),
        #[allow(
            clippy::cast_possible_truncation,
            reason = "Redis cuts the fraction off too"
        )]
        Value::Number(number) => Reply::Int(*number as i64),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => return table_reply(table),
        _ => Reply::Nil,
    })
}

fn table_reply(table: &Table) -> mlua::Result<Reply> {
    if let Value::String(text) = table.raw_get("err")? {
        return Ok(Reply::Error(text.to_string_lossy()));
    }
    if let Value::String(text) = table.raw_get("ok")? {
        return Ok(Reply::Status(text.to_string_lossy()));
    }
    let mut items = Vec::new();
    loop {
        match table.raw_get(items.len() + 1)? {
            Value::Nil => return Ok(Reply::Array(items)),
            item => items.push(to_reply(&item)?),
        }
    }
}

/// What the scripts use of the library `bit`.
fn bits(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the library's numbers have 32 bits"
    )]
    let both = |_: &Lua, (a, b): (f64, f64)| Ok(f64::from((a as i64 as i32) & (b as i64 as i32)));
    library.set("band", lua.create_function(both)?)?;
    Ok(library)
}
