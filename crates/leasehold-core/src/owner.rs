use serde::{Deserialize, Serialize};

/// Who asks, for people to read: it decides nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Owner {
    /// The machine's name.
    #[serde(rename = "h")]
    pub host: String,
    /// The process id on that machine.
    #[serde(rename = "p")]
    pub pid: u32,
    /// What the caller calls this claim.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl Owner {
    /// The longest host name or label, in bytes; longer ones are cut.
    pub const MAX_BYTES: usize = 255;

    /// An owner whose texts are cut to [`Owner::MAX_BYTES`] and freed of
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

fn tame(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if out.len() + c.len_utf8() > Owner::MAX_BYTES {
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
        let long = "é".repeat(Owner::MAX_BYTES);
        let owner = Owner::new(&long, 1, Some("\u{1b}[31mred\r\n"));
        assert_eq!(owner.host.len(), Owner::MAX_BYTES - 1);
        assert!(owner.host.chars().all(|c| c == 'é'));
        assert_eq!(owner.label.as_deref(), Some("[31mred"));
    }

    #[test]
    fn an_empty_label_is_none() {
        for label in [None, Some(""), Some("\n")] {
            assert_eq!(Owner::new("h", 1, label).label, None);
        }
    }
}
