//! The only place that writes.

use std::io::{self, Write};

use serde::Serialize;

/// One result: `line` for people, or `value` for programs.
pub(crate) fn result(json: bool, line: &str, value: &impl Serialize) {
    let text = if json {
        serde_json::to_string(value).unwrap_or_else(|_| line.to_owned())
    } else {
        line.to_owned()
    };
    put(io::stdout(), &text);
}

/// Something that only people read.
pub(crate) fn note(line: &str) {
    put(io::stderr(), line);
}

fn put(mut to: impl Write, line: &str) {
    // Nobody reads it any more: there is nobody to tell.
    let _ = writeln!(to, "{line}").and_then(|()| to.flush());
}
