use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Invalid;

/// Who asks, for people to read: it decides nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct ClientInfo {
    /// The machine's name.
    #[serde(rename = "h")]
    pub host: String,
    /// The process id on that machine.
    #[serde(rename = "p")]
    pub pid: u32,
    /// What the caller calls this claim.
    #[serde(rename = "l", skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// An owner as it is read: anybody may have written it.
#[derive(Deserialize)]
struct Written {
    h: String,
    p: u32,
    #[serde(default)]
    l: Option<String>,
}

impl From<Written> for ClientInfo {
    fn from(written: Written) -> Self {
        Self::new(&written.h, written.p, written.l.as_deref())
    }
}

impl ClientInfo {
    /// Nobody that is known: some records do not say who made them.
    #[must_use]
    pub fn unknown() -> Self {
        Self::default()
    }

    /// Whether it is not known who it is.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// The longest host name or label, in bytes; longer ones are cut.
    pub const MAX_BYTES: usize = 255;

    /// An owner whose texts are cut to [`ClientInfo::MAX_BYTES`] and freed of
    /// control characters, so that they can be shown on any terminal.
    #[must_use]
    pub fn new(host: &str, pid: u32, label: Option<&str>) -> Self {
        Self {
            host: tame(host),
            pid,
            label: label.map(tame).filter(|l| !l.is_empty()),
        }
    }
}

/// What makes several claims one owner's: 128 random bits. Whoever knows it
/// enters where that owner is, so `Debug` does not show it.
///
/// Serialised as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OwnerSecret(u128);

impl OwnerSecret {
    /// The secret made of 128 random bits.
    #[must_use]
    pub fn from_random(bits: u128) -> Self {
        Self(bits)
    }

    /// Reads what [`OwnerSecret::expose`] wrote.
    ///
    /// # Errors
    /// [`Invalid`] unless it is 32 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let hex = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        hex.then(|| u128::from_str_radix(text, 16).ok().map(Self))
            .flatten()
            .ok_or_else(|| Invalid::plain("an owner's secret is 32 hexadecimal digits"))
    }

    /// The whole secret, for the wire.
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

fn tame(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if out.len() + c.len_utf8() > ClientInfo::MAX_BYTES {
            break;
        }
        out.push(c);
    }
    out
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
