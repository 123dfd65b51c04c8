//! What checked texts have in common: keys, claim ids, inboxes, notes and contexts.

use crate::Invalid;

/// Declares a text that is cheap to clone. It is only made by a constructor that checks it, also
/// when it is deserialised: `Key = new` is made by `Key::new`.
///
/// One that is no secret has its text as [`as_str`](crate::Key::as_str) and as a `String`.
macro_rules! text {
    ($(#[$meta:meta])* secret $name:ident = $make:ident) => {
        $(#[$meta])*
        #[derive(
            Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        #[serde(try_from = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl TryFrom<String> for $name {
            type Error = $crate::Invalid;

            fn try_from(text: String) -> Result<Self, $crate::Invalid> {
                Self::$make(&text)
            }
        }
    };
    ($(#[$meta:meta])* $name:ident = $make:ident) => {
        $crate::text::text! { $(#[$meta])* secret $name = $make }

        impl $name {
            /// Returns the text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0.as_ref().to_owned()
            }
        }
    };
}
pub(crate) use text;

/// Whether a text has that many bytes, all of them lower-case hexadecimal digits.
pub(crate) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Checks that a text can stand in a line between others.
///
/// # Errors
/// [`Invalid`] unless it is 1 to `max` printable ASCII characters without spaces.
pub fn check_word(what: &str, text: &str, max: usize) -> Result<(), Invalid> {
    if !(1..=max).contains(&text.len()) || !text.bytes().all(|b| b.is_ascii_graphic()) {
        let why = format!("{what} must be 1 to {max} printable ASCII characters without spaces");
        return Err(Invalid::plain(why));
    }
    Ok(())
}
