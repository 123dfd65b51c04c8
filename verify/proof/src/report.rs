//! The only place that writes.

use std::io::{self, Write};

use serde::Serialize;

use crate::model::Counterexample;

/// Writes results: lines for people, or one JSON value a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    json: bool,
}

impl Printer {
    /// Lines for people, or for programs.
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// One result: `line` for people, `value` for programs.
    pub(crate) fn result(&self, line: &str, value: &impl Serialize) {
        let text = if self.json {
            serde_json::to_string(value).unwrap_or_else(|_| line.to_owned())
        } else {
            line.to_owned()
        };
        Self::put(io::stdout(), &text);
    }

    /// Something that only people read.
    pub(crate) fn note(&self, line: &str) {
        Self::put(io::stderr(), line);
    }

    /// The way to a broken promise; in JSON it is part of the result.
    pub(crate) fn counterexample(&self, found: &Counterexample) {
        if self.json {
            return;
        }
        for line in &found.trace {
            self.note(line);
        }
        if let Some(seed) = found.seed {
            self.note(&format!("found by --seed {seed}"));
        }
    }

    fn put(mut to: impl Write, line: &str) {
        // Nobody reads it any more: there is nobody to tell.
        let _ = writeln!(to, "{line}").and_then(|()| to.flush());
    }
}
