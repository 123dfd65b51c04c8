//! What tests expect of a text.

use std::fmt::Display;

/// Expects that a text contains all of these parts.
///
/// # Panics
/// If one is missing, with the part and the text.
#[track_caller]
pub fn says(text: impl Display, parts: impl IntoIterator<Item: AsRef<str>>) {
    let text = text.to_string();
    for part in parts {
        let part = part.as_ref();
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}
