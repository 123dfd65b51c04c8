//! The scripts.
//!
//! The wire format is `call.rs`, `reply.rs`, `record.rs` and `push.rs`; the header of each script
//! says the same for those who write a client in another language.

use std::sync::LazyLock;

use redis::Cmd;

pub(crate) use super::call::{
    Site, Terms, add_break, add_claim, add_claims, add_release, add_renew, add_resize, add_watch,
    micros, push_short,
};
pub(crate) use super::reply::{read_replies, read_reply, unreadable};

/// A script and the hash by which the server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) text: String,
    pub(crate) hash: String,
    /// Whether it has to be told where it runs: see `way.lua`.
    asks_the_way: bool,
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
    Script {
        asks_the_way: text.contains("-- include way.lua\n"),
        ..Script::new(parts.iter().fold(text.to_owned(), include))
    }
}

impl Script {
    pub(crate) fn new(text: String) -> Self {
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self {
            text,
            hash,
            asks_the_way: false,
        }
    }

    /// The same in other words.
    #[cfg(test)]
    pub(crate) fn with_text(&self, text: String) -> Self {
        Self {
            asks_the_way: self.asks_the_way,
            ..Self::new(text)
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
    watch: assemble(include_str!("lua/watch.lua"), &PARTS),
    break_key: assemble(include_str!("lua/break.lua"), &PARTS),
    inspect: assemble(include_str!("lua/inspect.lua"), &PARTS),
    init: assemble(include_str!("lua/init.lua"), &PARTS),
    touch: assemble(include_str!("lua/touch.lua"), &PARTS),
});

/// What a script is told besides, where the server may have forgotten who holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gated<'a> {
    pub(crate) marker: &'a str,
    pub(crate) terms: &'a [u8],
}

/// A call of a script.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) script: &'a Script,
    pub(crate) keys: &'a [&'a str],
    pub(crate) gated: Option<Gated<'a>>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(script: &'a Script, keys: &'a [&'a str]) -> Self {
        let gated = None;
        Self {
            script,
            keys,
            gated,
        }
    }

    /// By its hash.
    pub(crate) fn by_hash(self, arguments: impl Fn(&mut Cmd)) -> Cmd {
        self.command("EVALSHA", &self.script.hash, arguments)
    }

    /// With the script itself.
    pub(crate) fn in_full(self, arguments: impl Fn(&mut Cmd)) -> Cmd {
        self.command("EVAL", &self.script.text, arguments)
    }

    fn command(self, verb: &str, script: &str, arguments: impl Fn(&mut Cmd)) -> Cmd {
        let gated = self.gated.filter(|_| self.script.asks_the_way);
        let mut call = Cmd::with_capacity(10, script.len() + 256);
        call.arg(verb)
            .arg(script)
            .arg(self.keys.len() + usize::from(gated.is_some()))
            .arg(self.keys)
            .arg(gated.map(|gated| gated.marker));
        arguments(&mut call);
        call.arg(gated.map(|gated| gated.terms));
        call
    }
}
