//! Keys as file names.

use std::fmt::Write as _;

use xxhash_rust::xxh3::xxh3_128;

/// The longest name, in bytes: file systems allow 255, with the ending.
const MAX_BYTES: usize = 200;

/// How much of a key that is too long for a name is still shown.
const SHOWN_BYTES: usize = 100;

/// The file name of a key: another one for every other key, also where names
/// are compared without regard to case. A long key's name ends in a hash; the
/// record holds the key itself.
pub(super) fn file_name(text: &str) -> String {
    let mut name = String::with_capacity(text.len() + 8);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            // Within a name only: what begins with a dot is hidden, or `..`.
            b'.' if !name.is_empty() => name.push('.'),
            _ => {
                write!(name, "%{byte:02x}").ok();
            }
        }
    }
    if name.len() > MAX_BYTES {
        name.truncate(SHOWN_BYTES);
        // `~` is escaped above, so no short key has such a name.
        write!(name, "~{:032x}", xxh3_128(text.as_bytes())).ok();
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn plain_names_stay_readable() {
        assert_eq!(file_name("nightly-backup_2.sql"), "nightly-backup_2.sql");
        assert_eq!(file_name("orders/42"), "orders%2f42");
        assert_eq!(file_name(".."), "%2e.");
        assert_eq!(file_name("K~é"), "%4b%7e%c3%a9");
    }

    #[test]
    fn every_key_has_a_name_of_its_own() {
        let long = "x".repeat(512);
        let keys = [
            "a",
            "A",
            "%61",
            "a/b",
            "a%2fb",
            "a.json",
            "",
            ".",
            "..",
            "~",
            "é",
            "e\u{301}",
            &long,
            &long[1..],
            &"é".repeat(256),
            &format!("{}y", &long[1..]),
            &"x".repeat(200),
            &"x".repeat(201),
            "{a}",
            "{a} b",
        ];
        let names: HashSet<_> = keys
            .iter()
            .map(|key| file_name(key).to_lowercase())
            .collect();
        assert_eq!(names.len(), keys.len());
        for name in names {
            assert!(
                name.len() < 240 && name.is_ascii() && !name.contains('/'),
                "{name}"
            );
            assert!(!name.starts_with('.'), "{name}");
        }
    }
}
