use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ClaimContext, Invalid};

/// The client of a claim, for display only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(from = "Written")]
#[non_exhaustive]
pub struct ClientInfo {
    /// The name of the machine.
    #[serde(rename = "h")]
    pub host: String,
    /// The process id on that machine.
    #[serde(rename = "p")]
    pub pid: u32,
    /// The label that the caller gave to the claim.
    #[serde(rename = "l", skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The context of the claim, if its caller set one.
    #[serde(rename = "c", skip_serializing_if = "Option::is_none")]
    pub context: Option<ClaimContext>,
}

/// As it is read: anybody may have written it.
#[derive(Deserialize)]
struct Written {
    h: String,
    p: u32,
    l: Option<String>,
    c: Option<String>,
}

impl From<Written> for ClientInfo {
    fn from(written: Written) -> Self {
        let context = written.c.and_then(|c| ClaimContext::parse(&c).ok());
        Self::new(&written.h, written.p, written.l.as_deref()).within(context)
    }
}

/// Between label and context where they are one text. No label contains it.
const CONTEXT_FOLLOWS: char = '\0';

impl ClientInfo {
    /// An unknown client, for records that do not contain one.
    #[must_use]
    pub fn unknown() -> Self {
        Self::default()
    }

    /// Returns whether the client is unknown.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// The maximum length in bytes of the host name, and of label and context together with a
    /// byte between them. Longer names and labels are cut.
    pub const MAX_BYTES: usize = 255;

    /// Makes a client whose texts are cut to [`ClientInfo::MAX_BYTES`] and contain no control
    /// characters, so that they can be shown on any terminal.
    #[must_use]
    pub fn new(host: &str, pid: u32, label: Option<&str>) -> Self {
        let label = label.map(|l| tame(l, Self::MAX_BYTES));
        Self {
            host: tame(host, Self::MAX_BYTES),
            pid,
            label: label.filter(|l| !l.is_empty()),
            context: None,
        }
    }

    /// Sets the context.
    #[must_use]
    pub fn within(mut self, context: Option<ClaimContext>) -> Self {
        let taken = context.as_ref().map_or(0, |c| 1 + c.as_str().len());
        let label = self.label.map(|l| tame(&l, Self::MAX_BYTES - taken));
        (self.label, self.context) = (label, context);
        self
    }

    /// Returns label and context as one text, for stores that keep only a label.
    #[must_use]
    pub fn label_and_context(&self) -> Cow<'_, str> {
        let label = self.label.as_deref().unwrap_or_default();
        match &self.context {
            None => label.into(),
            Some(context) => format!("{label}{CONTEXT_FOLLOWS}{context}").into(),
        }
    }

    /// Same as [`ClientInfo::new`], from the output of [`ClientInfo::label_and_context`]. An
    /// invalid context is left out.
    #[must_use]
    pub fn of_texts(host: &str, pid: u32, label_and_context: &str) -> Self {
        let parts = label_and_context.split_once(CONTEXT_FOLLOWS);
        let (label, context) = parts.unwrap_or((label_and_context, ""));
        Self::new(host, pid, Some(label)).within(ClaimContext::parse(context).ok())
    }
}

/// The secret of an owner, by which several claims belong together: 128 random bits. Anyone who
/// knows it can acquire the keys that the owner holds, so `Debug` does not show it.
///
/// Serialised as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OwnerSecret(u128);

impl OwnerSecret {
    /// Makes a secret from 128 random bits.
    #[must_use]
    pub fn from_random(bits: u128) -> Self {
        Self(bits)
    }

    /// Parses the output of [`OwnerSecret::expose`].
    ///
    /// # Errors
    /// [`Invalid`] unless it is 32 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let hex = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let bits = u128::from_str_radix(text, 16).ok().filter(|_| hex);
        let invalid = || Invalid::plain("an owner's secret must be 32 hexadecimal digits");
        bits.map(Self).ok_or_else(invalid)
    }

    /// Returns the whole secret, to send it.
    #[must_use]
    pub fn expose(self) -> String {
        format!("{:032x}", self.0)
    }
}

impl TryFrom<String> for OwnerSecret {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        Self::parse(&text)
    }
}

impl From<OwnerSecret> for String {
    fn from(secret: OwnerSecret) -> Self {
        secret.expose()
    }
}

impl fmt::Debug for OwnerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerSecret(…)")
    }
}

fn tame(text: &str, max: usize) -> String {
    let mut tame: String = text.chars().filter(|c| !c.is_control()).collect();
    tame.truncate(tame.floor_char_boundary(max));
    tame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_a_character_and_freed_of_control_characters() {
        let long = "é".repeat(ClientInfo::MAX_BYTES);
        let owner = ClientInfo::new(&long, 1, Some("\u{1b}[31mred\r\n"));
        assert_eq!(owner.host.len(), ClientInfo::MAX_BYTES - 1);
        assert!(owner.host.chars().all(|c| c == 'é'));
        assert_eq!(owner.label.as_deref(), Some("[31mred"));
    }

    #[test]
    fn what_is_read_can_be_shown_too() {
        let owner: ClientInfo =
            serde_json::from_str(r#"{"h":"a\nb","p":1,"l":"\u001b[2J"}"#).unwrap();
        assert_eq!(owner, ClientInfo::new("ab", 1, Some("[2J")));
        let json = serde_json::to_string(&owner).unwrap();
        assert_eq!(json, r#"{"h":"ab","p":1,"l":"[2J"}"#);
    }

    #[test]
    fn a_context_travels_with_the_label() {
        let context = ClaimContext::from_random(7);
        for label in [None, Some("é b")] {
            let plain = ClientInfo::new("h", 1, label);
            let within = plain.clone().within(Some(context.clone()));
            for owner in [plain, within] {
                let text = owner.label_and_context();
                assert_eq!(ClientInfo::of_texts("h", 1, &text), owner);
                let json = serde_json::to_string(&owner).unwrap();
                assert_eq!(serde_json::from_str::<ClientInfo>(&json).unwrap(), owner);
            }
        }
        let long = "é".repeat(ClientInfo::MAX_BYTES);
        let cut = ClientInfo::new("h", 1, Some(&long)).within(Some(context));
        assert!(cut.label_and_context().len() <= ClientInfo::MAX_BYTES);
        for no_context in ["l\0", "l\0no", "l\0\0"] {
            assert_eq!(
                ClientInfo::of_texts("h", 1, no_context),
                ClientInfo::new("h", 1, Some("l"))
            );
        }
    }

    #[test]
    fn a_secret_is_read_as_it_was_written_and_not_shown() {
        for bits in [0, 1, u128::MAX] {
            let secret = OwnerSecret::from_random(bits);
            assert_eq!(OwnerSecret::parse(&secret.expose()), Ok(secret));
            assert_eq!(format!("{secret:?}"), "OwnerSecret(…)");
        }
        for bad in [
            "",
            "12",
            "+0000000000000000000000000000000",
            &"g".repeat(32),
        ] {
            assert!(OwnerSecret::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_empty_label_is_none() {
        for label in [None, Some(""), Some("\n")] {
            assert_eq!(ClientInfo::new("h", 1, label).label, None);
        }
    }
}
