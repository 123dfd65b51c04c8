//! The scripts.
//!
//! The wire format is `call.rs`, `reply.rs`, `record.rs` and `push.rs`; the header of each script
//! says the same for those who write a client in another language.

use std::sync::LazyLock;

use redis::Cmd;

pub(crate) use super::call::{
    Terms, add_break, add_claim, add_claims, add_release, add_renew, add_resize, add_watch, micros,
    push_short,
};
pub(crate) use super::reply::{read_replies, read_reply, unreadable};

/// A script and the hash by which the server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) text: String,
    pub(crate) hash: String,
    asks: Asks,
}

/// Whether a script has to be told where it runs: see `way.lua`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// It is the same everywhere.
    Nothing,
    /// On a server that may have forgotten who holds, it may start a quarantine.
    Everything,
    /// It only looks, and starts none.
    Looks,
}

/// Where a script runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Site<'a> {
    Alone,
    /// On a node of a cluster.
    InCluster,
    /// On a server that may have forgotten who holds: its marker, and the terms.
    Gated(&'a str, &'a [u8]),
}

/// What the scripts share, by the name in their `-- include` lines. A part comes before those
/// that it is made of.
const PARTS: [(&str, &str); 14] = [
    ("time", include_str!("lua/time.lua")),
    ("way", include_str!("lua/way.lua")),
    ("open", include_str!("lua/open.lua")),
    ("state", include_str!("lua/state.lua")),
    ("queue", include_str!("lua/queue.lua")),
    ("entry", include_str!("lua/entry.lua")),
    ("list", include_str!("lua/list.lua")),
    ("tombstone", include_str!("lua/tombstone.lua")),
    ("told", include_str!("lua/told.lua")),
    ("rule", include_str!("lua/rule.lua")),
    ("record", include_str!("lua/record.lua")),
    ("deliver", include_str!("lua/deliver.lua")),
    ("join", include_str!("lua/join.lua")),
    ("marker", MARKER),
];

/// What a server knows of itself.
pub(crate) const MARKER: &str = include_str!("lua/marker.lua");

/// Puts the parts into the text of a script.
pub(crate) fn assemble(text: &str, parts: &[(&str, &str)]) -> Script {
    let include = |text: String, (name, part): &(&str, &str)| {
        text.replace(&format!("-- include {name}.lua\n"), part)
    };
    let asks = match text.contains("-- include way.lua\n") {
        true => Asks::Everything,
        false => Asks::Nothing,
    };
    Script {
        asks,
        ..Script::new(parts.iter().fold(text.to_owned(), include))
    }
}

impl Script {
    pub(crate) fn new(text: String) -> Self {
        let hash = redis::Script::new(&text).get_hash().to_owned();
        let asks = Asks::Nothing;
        Self { text, hash, asks }
    }

    /// The same in other words.
    #[cfg(test)]
    pub(crate) fn with_text(&self, text: String) -> Self {
        let asks = self.asks;
        Self {
            asks,
            ..Self::new(text)
        }
    }

    /// A script that asks for nothing starts no quarantine.
    fn looking(self) -> Self {
        let asks = Asks::Looks;
        Self { asks, ..self }
    }

    /// The keys of a call there.
    pub(crate) fn keys<'a>(&self, site: Site<'a>, keys: &[&'a str]) -> Vec<&'a str> {
        let marker = match site {
            Site::Gated(marker, _) if self.asks != Asks::Nothing => Some(marker),
            _ => None,
        };
        keys.iter().copied().chain(marker).collect()
    }

    /// The last argument of a call there.
    pub(crate) fn add_way(&self, call: &mut Cmd, site: Site<'_>) {
        match (self.asks, site) {
            (Asks::Nothing, _) => {}
            (_, Site::Alone) => {
                call.arg("");
            }
            (_, Site::InCluster) => {
                call.arg("c");
            }
            (asks, Site::Gated(_, terms)) => {
                let kind = if asks == Asks::Looks { b'l' } else { b'g' };
                call.arg([&[kind], terms].concat());
            }
        }
    }
}

/// One script a verb.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) claim: Script,
    pub(crate) claim_all: Script,
    pub(crate) renew: Script,
    pub(crate) release: Script,
    pub(crate) resize: Script,
    pub(crate) watch: Script,
    pub(crate) break_key: Script,
    pub(crate) inspect: Script,
    /// Marks a server that is known to be new.
    pub(crate) init: Script,
    /// Sees whether a server may have forgotten something.
    pub(crate) touch: Script,
}

pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    claim: assemble(include_str!("lua/claim.lua"), &PARTS),
    claim_all: assemble(include_str!("lua/claim_all.lua"), &PARTS),
    renew: assemble(include_str!("lua/renew.lua"), &PARTS),
    release: assemble(include_str!("lua/release.lua"), &PARTS),
    resize: assemble(include_str!("lua/resize.lua"), &PARTS),
    watch: assemble(include_str!("lua/watch.lua"), &PARTS).looking(),
    break_key: assemble(include_str!("lua/break.lua"), &PARTS),
    inspect: assemble(include_str!("lua/inspect.lua"), &PARTS),
    init: assemble(include_str!("lua/init.lua"), &PARTS),
    touch: assemble(include_str!("lua/touch.lua"), &PARTS),
});

/// A call of a script by its hash, so far without arguments.
pub(crate) fn call(script: &Script, keys: &[&str]) -> Cmd {
    let mut call = Cmd::with_capacity(10, 256);
    call.arg("EVALSHA")
        .arg(&script.hash)
        .arg(keys.len())
        .arg(keys);
    call
}

/// The same, with the script itself.
pub(crate) fn call_in_full(script: &Script, keys: &[&str]) -> Cmd {
    let mut call = Cmd::with_capacity(10, script.text.len() + 256);
    call.arg("EVAL").arg(&script.text).arg(keys.len()).arg(keys);
    call
}
