//! One file a family.

pub(crate) mod answers;
pub(crate) mod durations;
pub(crate) mod globs;
pub(crate) mod journals;
pub(crate) mod local_files;
pub(crate) mod parts;
pub(crate) mod pushes;
pub(crate) mod records;
pub(crate) mod server;
pub(crate) mod urls;
pub(crate) mod words;

/// Has these bytes read if they are a text.
pub(crate) fn text(data: &[u8], run: fn(&str)) {
    if let Ok(text) = std::str::from_utf8(data) {
        run(text);
    }
}

/// What stands for a secret in the corpora: no message may repeat it.
pub(crate) const SECRET: &str = "hush";

/// A refusal is one sentence on one line, not much longer than what was refused.
pub(crate) fn check_sentence(message: &str, input: usize) {
    assert!(!message.is_empty());
    assert!(!message.chars().any(char::is_control), "{message:?}");
    // Escaped, a byte is up to ten characters long.
    let most = 600 + 10 * input;
    let (length, is_brief) = (message.len(), message.chars().count() <= most);
    assert!(is_brief, "{length} bytes: {message:.200}");
}
