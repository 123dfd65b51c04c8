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

/// What the scripts share, by the name in their `-- include` lines. A part comes before those
/// that it is made of.
const PARTS: [(&str, &str); 24] = [
    ("time", include_str!("lua/time.lua")),
    ("env", include_str!("lua/env.lua")),
    ("audit", include_str!("lua/audit.lua")),
    ("write_log", include_str!("lua/write_log.lua")),
    ("take", include_str!("lua/take.lua")),
    ("machine", include_str!("lua/machine.lua")),
    ("lean", include_str!("lua/lean.lua")),
    ("lean_queue", include_str!("lua/lean_queue.lua")),
    ("tell", include_str!("lua/tell.lua")),
    ("entry", include_str!("lua/entry.lua")),
    ("list", include_str!("lua/list.lua")),
    ("tombstone", include_str!("lua/tombstone.lua")),
    ("told", include_str!("lua/told.lua")),
    ("run", include_str!("lua/run.lua")),
    ("rule", include_str!("lua/rule.lua")),
    ("standing", include_str!("lua/standing.lua")),
    ("record", include_str!("lua/record.lua")),
    ("deliver", include_str!("lua/deliver.lua")),
    ("claim", include_str!("lua/claim.lua")),
    ("renew", include_str!("lua/renew.lua")),
    ("release", include_str!("lua/release.lua")),
    ("admin", include_str!("lua/admin.lua")),
    ("vote", include_str!("lua/vote.lua")),
    ("marker", MARKER),
];

/// What a server knows of itself.
pub(crate) const MARKER: &str = include_str!("lua/marker.lua");

/// Puts the parts into the text of a script.
pub(crate) fn assemble(text: &str, parts: &[(&str, &str)]) -> Script {
    let include = |text: String, (name, part): &(&str, &str)| {
        text.replace(&format!("-- include {name}.lua\n"), part)
    };
    Script::new(parts.iter().fold(text.to_owned(), include))
}

impl Script {
    pub(crate) fn new(text: String) -> Self {
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

/// The scripts of the queues.
#[derive(Debug)]
pub(crate) struct Scripts {
    /// Every step.
    pub(crate) step: Script,
    pub(crate) inspect: Script,
    /// Marks a server that is known to be new.
    pub(crate) init: Script,
    /// Reads the audit log.
    pub(crate) log: Script,
    /// Sees whether a server may have forgotten something.
    pub(crate) touch: Script,
}

pub(crate) static SCRIPTS: Lazy<Scripts> = Lazy::new(|| Scripts {
    step: assemble(include_str!("lua/step.lua"), &PARTS),
    inspect: assemble(include_str!("lua/inspect.lua"), &PARTS),
    init: assemble(include_str!("lua/init.lua"), &PARTS),
    log: assemble(include_str!("lua/log.lua"), &PARTS),
    touch: assemble(include_str!("lua/touch.lua"), &PARTS),
});
