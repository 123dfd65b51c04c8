//! What an examination of a store finds out.

use std::fmt;

use serde::Serialize;

use crate::error::StoreError;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Fine,
    /// Worth knowing: it limits what is promised, and may be what was chosen.
    Note,
    /// Locks work, and something endangers them.
    Warning,
    /// Locks do not work here, or exclude nobody.
    Unsafe,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fine => "fine",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Unsafe => "unsafe",
        })
    }
}

/// Something that was found out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The server that it is about, without credentials; none: the whole store.
    pub server: Option<String>,
    /// What was looked at: one word or two, the same in every version.
    pub check: &'static str,
    /// What was found.
    pub found: String,
    /// What it means for locks; empty if all is fine.
    pub consequence: String,
    /// What to do about it, if anything.
    pub remedy: Option<String>,
}

impl Finding {
    /// What was found by a check, the whole store being meant. What is worse than
    /// [`Severity::Fine`] says what it [means](Self::meaning), and how it is
    /// [remedied](Self::remedied).
    #[must_use]
    pub fn new(severity: Severity, check: &'static str, found: impl Into<String>) -> Self {
        Self {
            severity,
            server: None,
            check,
            found: found.into(),
            consequence: String::new(),
            remedy: None,
        }
    }

    /// What does not work at all.
    #[must_use]
    pub fn of_error(check: &'static str, server: Option<&str>, error: &StoreError) -> Self {
        Self {
            server: server.map(str::to_owned),
            consequence: "locks cannot be used here".to_owned(),
            remedy: error.hint().map(str::to_owned),
            ..Self::new(Severity::Unsafe, check, error.to_string())
        }
    }

    /// The same about one server, which is named without credentials.
    #[must_use]
    pub fn at(self, server: impl Into<String>) -> Self {
        Self {
            server: Some(server.into()),
            ..self
        }
    }

    /// Adds what it means for locks.
    #[must_use]
    pub fn meaning(self, consequence: impl Into<String>) -> Self {
        Self {
            consequence: consequence.into(),
            ..self
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn remedied(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }
}

/// Everything that was found out about a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The store's URL, without a password.
    pub store: String,
    /// What is promised on such a store, as far as the findings allow.
    pub promise: String,
    /// In the order in which they were looked at.
    pub findings: Vec<Finding>,
}

impl Report {
    /// What was found out about the store at `url`, which has no password in it.
    #[must_use]
    pub fn new(url: impl Into<String>, promise: impl Into<String>, findings: Vec<Finding>) -> Self {
        Self {
            store: url.into(),
            promise: promise.into(),
            findings,
        }
    }

    /// The worst of the findings.
    #[must_use]
    pub fn worst(&self) -> Severity {
        let all = self.findings.iter().map(|finding| finding.severity);
        all.max().unwrap_or(Severity::Fine)
    }
}
