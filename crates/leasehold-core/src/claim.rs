use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Invalid;
use crate::text::{check_word, text};

/// The arrival number of a claim, which orders the claims of a key.
///
/// It rises by one while the queue is not empty. A new queue starts at the store's clock in
/// microseconds, so the numbers keep rising after the record was lost.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Arrival(pub u64);

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

text! {
    /// The unguessable id of one claim. Anyone who knows it can renew and release the claim, so
    /// `Debug` and `Display` show only its first six characters.
    secret ClaimId = new
}

impl ClaimId {
    /// The longest id, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Makes an id from a text.
    ///
    /// # Errors
    /// [`Invalid`] unless it is 1 to 64 printable ASCII characters without spaces.
    pub fn new(id: impl AsRef<str>) -> Result<Self, Invalid> {
        check_word("a claim id", id.as_ref(), Self::MAX_BYTES)?;
        Ok(Self(id.as_ref().into()))
    }

    /// Makes an id from 128 random bits.
    #[must_use]
    pub fn from_random(bits: u128) -> Self {
        let mut digits = [0; 32];
        for (digit, byte) in digits.chunks_exact_mut(2).zip(bits.to_be_bytes()) {
            let hex = |four: u8| b"0123456789abcdef"[usize::from(four & 15)];
            digit.copy_from_slice(&[hex(byte >> 4), hex(byte)]);
        }
        Self(str::from_utf8(&digits).unwrap_or_default().into())
    }

    /// Returns the whole id, which is a secret, to send it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of a short one not even that much: what is left must not be guessed.
        write!(f, "{}…", &self.0[..(self.0.len() / 2).min(6)])
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimId({self})")
    }
}

text! {
    /// The name of a client's inbox, to which its grants are pushed: random, one per client.
    Inbox = new
}

impl Inbox {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Makes a name from a text.
    ///
    /// # Errors
    /// [`Invalid`] unless it is 1 to 64 printable ASCII characters without spaces.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Invalid> {
        check_word("an inbox name", name.as_ref(), Self::MAX_BYTES)?;
        Ok(Self(name.as_ref().into()))
    }

    /// Makes a name from 64 random bits.
    #[must_use]
    pub fn from_random(bits: u64) -> Self {
        Self(format!("{bits:016x}").into())
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox({})", self.0)
    }
}

text! {
    /// A note that a holder publishes, such as a leader's address: up to 1024 bytes.
    #[derive(Debug)]
    Note = new
}

impl Note {
    /// The longest note, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Makes a note from a text. An empty text is no note.
    ///
    /// # Errors
    /// [`Invalid`] if it is longer than [`Note::MAX_BYTES`].
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        let (text, most) = (text.as_ref(), Self::MAX_BYTES);
        if text.len() > most {
            return Err(Invalid::new(
                format!("a note of {} bytes is too long", text.len()),
                format!("use at most {most} bytes, for example a URL to the rest"),
            ));
        }
        Ok(Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_short_printable_and_not_empty() {
        let longest = "x".repeat(ClaimId::MAX_BYTES);
        for good in ["a", "~!", longest.as_str()] {
            assert_eq!(ClaimId::new(good).unwrap().expose(), good);
            assert_eq!(Inbox::new(good).unwrap().as_str(), good);
        }
        let too_long = "x".repeat(ClaimId::MAX_BYTES + 1);
        for bad in ["", " ", "a b", "tab\t", "line\n", "ä", too_long.as_str()] {
            assert!(ClaimId::new(bad).is_err(), "{bad:?}");
            assert!(Inbox::new(bad).is_err(), "{bad:?}");
        }
    }

    /// A lease as data comes from elsewhere, and so does a record.
    #[test]
    fn words_that_are_read_are_words_too() {
        let id = ClaimId::new("~!").unwrap();
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(
            (json.as_str(), serde_json::from_str(&json).ok()),
            ("\"~!\"", Some(id))
        );
        for bad in ["\"\"", "\"€\"", "\"a b\"", "1"] {
            assert!(serde_json::from_str::<ClaimId>(bad).is_err(), "{bad}");
            assert!(serde_json::from_str::<Inbox>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_id_does_not_show_its_secret() {
        let id = ClaimId::from_random(0x1234_5678_9abc_def0_1234_5678_9abc_def0);
        assert_eq!(id.expose().len(), 32);
        assert_eq!(id.to_string(), "123456…");
        assert_eq!(format!("{id:?}"), "ClaimId(123456…)");
        assert_eq!(ClaimId::from_random(1).expose().len(), 32);
        assert_eq!(ClaimId::new("ab").unwrap().to_string(), "a…");
    }

    #[test]
    fn a_note_is_short() {
        assert_eq!(Note::new("a b\n").unwrap().as_str(), "a b\n");
        assert!(Note::new("x".repeat(Note::MAX_BYTES)).is_ok());
        assert!(Note::new("x".repeat(Note::MAX_BYTES + 1)).is_err());
    }

    #[test]
    fn random_names_are_words() {
        for bits in [0, 1, u64::MAX] {
            let inbox = Inbox::from_random(bits);
            assert_eq!(Inbox::new(inbox.as_str()), Ok(inbox));
        }
    }
}
