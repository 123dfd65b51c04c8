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

/// A family of texts.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name of its corpus too.
    pub name: &'static str,
    /// Reads these bytes, and panics if that comes to something that it must not.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "answers",
        run: targets::answers::run,
    },
    Target {
        name: "durations",
        run: targets::durations::run,
    },
    Target {
        name: "globs",
        run: targets::globs::run,
    },
    Target {
        name: "journals",
        run: targets::journals::run,
    },
    Target {
        name: "local_files",
        run: targets::local_files::run,
    },
    Target {
        name: "parts",
        run: targets::parts::run,
    },
    Target {
        name: "pushes",
        run: targets::pushes::run,
    },
    Target {
        name: "records",
        run: targets::records::run,
    },
    Target {
        name: "server",
        run: targets::server::run,
    },
    Target {
        name: "urls",
        run: targets::urls::run,
    },
    Target {
        name: "words",
        run: targets::words::run,
    },
];

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
