//! What leasehold parses, given anything.
//!
//! A target takes bytes, has them read as one family of texts is read, and panics if
//! what comes of it is not as promised: what was accepted reads back the same, what was
//! refused is refused in one sentence that repeats no secret, and nothing grows beyond
//! its input. `tests/corpus.rs` drives the targets with the corpora and with changes of
//! them; `scripts/fuzz` drives them by coverage. See `docs/proof/fuzzing.md`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a target fails by panicking"
)]

pub mod mutate;
mod targets;

use targets::text;

/// A family of texts.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name of its corpus too.
    pub name: &'static str,
    /// Reads these bytes, and panics if that comes to something that it must not.
    pub run: fn(&[u8]),
}

impl Target {
    const fn new(name: &'static str, run: fn(&[u8])) -> Self {
        Self { name, run }
    }
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target::new("answers", targets::answers::run),
    Target::new("durations", |data| text(data, targets::durations::run)),
    Target::new("globs", |data| text(data, targets::globs::run)),
    Target::new("journals", targets::journals::run),
    Target::new("local_files", targets::local_files::run),
    Target::new("parts", targets::parts::run),
    Target::new("pushes", targets::pushes::run),
    Target::new("records", targets::records::run),
    Target::new("server", targets::server::run),
    Target::new("urls", |data| text(data, targets::urls::run)),
    Target::new("words", |data| text(data, targets::words::run)),
];

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
