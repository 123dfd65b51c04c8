//! The Lua scripts, and how they are put together.
//!
//! The wire format is in `call.rs`, `reply.rs`, `record.rs` and `push.rs`. The header of each
//! script describes it too, for clients in other languages.

use leasehold_store::fork::Lazy;

pub(crate) use super::call::{Gate, Request, Step, Terms, micros, push_number, push_short};
pub(crate) use super::reply::{each_reply, read_replies, read_reply, unreadable};

/// A script and the hash by which the server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) text: String,
    pub(crate) hash: String,
}

/// Reads the files of these names.
macro_rules! files {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("lua/", $name, ".lua")))),*]
    };
}

/// What the scripts share, by the name in their `-- include` lines. A part comes before those
/// that it is made of.
const PARTS: [(&str, &str); 24] = files![
    "time" "env" "audit" "write_log" "take" "machine" "lean" "lean_queue" "tell" "entry" "list"
    "tombstone" "told" "run" "rule" "standing" "record" "deliver" "claim" "renew" "release" "admin"
    "vote" "marker"
];

impl Script {
    /// Puts the parts into the text.
    pub(crate) fn new(text: &str) -> Self {
        let include = |text: String, (name, part): (&str, &str)| {
            text.replace(&format!("-- include {name}.lua\n"), part)
        };
        let text = PARTS.into_iter().fold(text.to_owned(), include);
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

/// Every step of a queue.
pub(crate) static STEP: Lazy<Script> = Lazy::new(|| Script::new(include_str!("lua/step.lua")));

/// Looks at a key.
pub(crate) static INSPECT: Lazy<Script> =
    Lazy::new(|| Script::new(include_str!("lua/inspect.lua")));

/// Marks a server that is known to be new.
pub(crate) static INIT: Lazy<Script> = Lazy::new(|| Script::new(include_str!("lua/init.lua")));

/// Reads the audit log.
pub(crate) static LOG: Lazy<Script> = Lazy::new(|| Script::new(include_str!("lua/log.lua")));

/// Sees whether a server may have forgotten something.
pub(crate) static TOUCH: Lazy<Script> = Lazy::new(|| Script::new(include_str!("lua/touch.lua")));
