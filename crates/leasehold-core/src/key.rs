use std::fmt;

use crate::Invalid;
use crate::text::text;

text! {
    /// The key of a lock: 1 to 512 bytes of UTF-8 without control characters. Braces, spaces, slashes
    /// and emoji are allowed.
    ///
    /// Cheap to clone. Control characters are refused because keys appear in environment variables,
    /// log lines and line-based messages.
    ///
    /// ```
    /// use leasehold_core::Key;
    /// assert!(Key::new("orders/42").is_ok());
    /// assert!(Key::new("").is_err());
    /// ```
    Key = new
}

impl Key {
    /// The longest key, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// Makes a key from a name.
    ///
    /// # Errors
    /// [`Invalid`] if it is empty, longer than [`Key::MAX_BYTES`], or contains a control
    /// character.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Invalid> {
        let name = name.as_ref();
        if name.is_empty() {
            let hint = "name what the lock protects, e.g. orders/42";
            return Err(Invalid::new("the key is empty", hint));
        }
        let (bytes, most) = (name.len(), Self::MAX_BYTES);
        if bytes > most {
            let why = format!("the key has {bytes} bytes; at most {most} are allowed");
            return Err(Invalid::new(why, "hash the long part of the name"));
        }
        if let Some(bad) = name.chars().find(|c| c.is_control()).map(u32::from) {
            let why = format!("the key contains the control character U+{bad:04X}");
            return Err(Invalid::plain(why));
        }
        Ok(Self(name.into()))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_type_is_a_key() {
        let longest = "é".repeat(Key::MAX_BYTES / 2);
        for name in ["a", " ", "{a}{b}", "a:b/c*?[]\\", "🔒", longest.as_str()] {
            let key = Key::new(name).unwrap();
            assert_eq!(key.as_str(), name);
            assert_eq!(Key::try_from(String::from(key.clone())), Ok(key));
        }
    }

    #[test]
    fn too_long_empty_and_control_characters_are_refused() {
        let too_long = "x".repeat(Key::MAX_BYTES + 1);
        let refused = |name: &str| Key::new(name).unwrap_err().message;
        assert!(refused(&too_long).contains("513"));
        assert!(refused("").contains("empty"));
        for bad in ["a\nb", "\0", "\u{7f}", "\u{85}"] {
            assert!(refused(bad).contains("U+"), "{bad:?}");
        }
        assert!(refused("a\nb").contains("U+000A"));
    }
}
