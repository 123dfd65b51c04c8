//! Keys, claim ids and the like: as text, and as JSON.

use std::fmt::Debug;

use leasehold::core::{ClaimId, ClientInfo, Inbox, Invalid, Key, Note, OwnerSecret};
use leasehold::fuzzing::local;
use serde_json::Value;
use serde_json::value::from_value;

use super::check_sentence;

pub(crate) fn run(text: &str) {
    check(text, Key::new(text), |key| key.as_str().to_owned());
    check(text, ClaimId::new(text), |id| id.expose().to_owned());
    check(text, Inbox::new(text), |inbox| inbox.as_str().to_owned());
    check(text, Note::new(text), |note| note.as_str().to_owned());
    if let Ok(secret) = OwnerSecret::parse(text) {
        assert_eq!(secret.expose(), text.to_ascii_lowercase());
        assert!(!format!("{secret:?}").contains(text));
    }
    if let Ok(id) = serde_json::from_str::<ClaimId>(text) {
        hidden(&id);
    }
    tame(&ClientInfo::new(text, 1, Some(text)));
    if let Ok(owner) = serde_json::from_str::<ClientInfo>(text) {
        tame(&owner);
    }
    let name = local::file_name(text);
    let is_file = name.is_ascii() && !name.contains('/');
    assert!(is_file && name.len() < 240, "{name}");
    assert!(!name.starts_with('.'), "{name}");
}

/// As JSON no more is let in than as text.
fn check<T>(text: &str, read: Result<T, Invalid>, shown: impl Fn(&T) -> String)
where
    T: PartialEq + Debug + for<'de> serde::Deserialize<'de>,
{
    let json: Option<T> = from_value(Value::from(text)).ok();
    match read {
        Ok(word) => {
            assert_eq!(shown(&word), text);
            assert_eq!(json, Some(word));
        }
        Err(invalid) => {
            check_sentence(&invalid.message, text.len());
            assert_eq!(json, None, "{text:?} is let in as JSON");
        }
    }
}

/// An id shows six characters, and never more than half of it.
pub(crate) fn hidden(id: &ClaimId) {
    let shown = id.to_string();
    let shown = shown.trim_end_matches('…');
    let most = (id.expose().len() / 2).min(6);
    assert!(shown.len() <= most, "{shown}");
    assert!(id.expose().starts_with(shown));
}

/// What people are shown does nothing to their terminals.
pub(crate) fn tame(owner: &ClientInfo) {
    for text in [Some(&owner.host), owner.label.as_ref()]
        .into_iter()
        .flatten()
    {
        assert!(text.len() <= ClientInfo::MAX_BYTES);
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
    let json = serde_json::to_value(owner).unwrap();
    assert_eq!(from_value::<ClientInfo>(json).unwrap(), *owner);
}
