//! Text from others, so that a terminal shows it and does nothing else.

use std::borrow::Cow;
use std::fmt::Write;

/// The text with control and format characters as escapes (`\u{202e}`): those that move the
/// cursor or end the line, turn the direction of writing, or are not seen at all.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_by(text, |shown, c| shown.extend(c.escape_debug()))
}

/// A line of JSON with what terminals obey or do not show as escapes of JSON.
pub fn escape_json(line: &str) -> Cow<'_, str> {
    escape_by(line, |shown, c| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    })
}

fn escape_by(text: &str, escaped: impl Fn(&mut String, char)) -> Cow<'_, str> {
    if !text.chars().any(is_escaped) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_escaped(c) {
            true => escaped(&mut shown, c),
            false => shown.push(c),
        }
    }
    shown.into()
}

/// Unicode's categories of controls, formats, separators of lines and paragraphs and of what is
/// not assigned, and all spaces but one.
fn is_escaped(c: char) -> bool {
    // The standard library knows them; it would also escape accents that stand alone, and quotes.
    let mut text = [0; 8];
    text[0] = b'a';
    let end = 1 + c.encode_utf8(&mut text[1..]).len();
    let text = std::str::from_utf8(&text[..end]).unwrap_or_default();
    !matches!(c, ' '..='~') && text.escape_debug().count() > 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_or_hides_is_escaped() {
        for (c, shown) in [
            ('\u{1b}', r"\u{1b}"),
            ('\n', r"\n"),
            ('\u{7f}', r"\u{7f}"),
            ('\u{85}', r"\u{85}"),
            ('\u{ad}', r"\u{ad}"),
            ('\u{61c}', r"\u{61c}"),
            ('\u{6dd}', r"\u{6dd}"),
            ('\u{180e}', r"\u{180e}"),
            ('\u{200b}', r"\u{200b}"),
            ('\u{200f}', r"\u{200f}"),
            ('\u{2028}', r"\u{2028}"),
            ('\u{2029}', r"\u{2029}"),
            ('\u{202e}', r"\u{202e}"),
            ('\u{2066}', r"\u{2066}"),
            ('\u{feff}', r"\u{feff}"),
            ('\u{110bd}', r"\u{110bd}"),
            ('\u{e0041}', r"\u{e0041}"),
        ] {
            assert_eq!(escape(&format!("a{c}b")), format!("a{shown}b"));
            let json = serde_json::to_string(&format!("a{c}b")).unwrap();
            let line = escape_json(&json);
            assert!(line.is_ascii(), "{line}");
            let read: String = serde_json::from_str(&line).unwrap();
            assert_eq!(read, format!("a{c}b"));
        }
    }

    #[test]
    fn what_is_seen_stays() {
        for text in [
            "orders/42",
            "it's \"here\" C:\\x",
            "Zürich, Ελλάδα, 東京, עברית, عربي",
            "e\u{301}",
            "\u{1f512}",
        ] {
            assert_eq!(escape(text), text);
            assert_eq!(escape_json(text), text);
        }
    }
}
