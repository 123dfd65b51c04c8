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
