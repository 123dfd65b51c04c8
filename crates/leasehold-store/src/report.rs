//! The report of an examination of a store.

use std::fmt;

use serde::Serialize;

use crate::error::{ErrorKind, StoreError};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// No problem.
    Fine,
    /// Information: it limits the guarantees, and may be intended.
    Note,
    /// Locks work, but something endangers them.
    Warning,
    /// Locks do not work, or do not exclude others.
    Unsafe,
}

/// Its name in lower case.
impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}").to_lowercase())
    }
}

/// A finding of an examination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The severity of a finding.
    pub severity: Severity,
    /// The server that it is about, without credentials; `None` for the whole store.
    pub server: Option<String>,
    /// The check that found it: one or two words, the same in every version.
    pub check: &'static str,
    /// What was found.
    pub found: String,
    /// What it means for locks; empty if there is no problem.
    pub consequence: String,
    /// What to do about it, if anything.
    pub remedy: Option<String>,
}

impl Finding {
    /// Makes a finding about the whole store. If it is worse than [`Severity::Fine`], add what it
    /// [means](Self::meaning) and how to [remedy](Self::remedied) it.
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

    /// Makes a finding of severity [`Severity::Unsafe`] from an error.
    #[must_use]
    pub fn of_error(check: &'static str, server: Option<&str>, error: &StoreError) -> Self {
        Self {
            server: server.map(str::to_owned),
            consequence: "locks cannot be used here".to_owned(),
            remedy: error.hint().map(str::to_owned),
            ..Self::new(Severity::Unsafe, check, error.to_string())
        }
    }
}

crate::setters! { Finding {
    /// Makes it a finding about one server, named without credentials.
    #[must_use]
    at(server: impl Into<String>): server = Some(server.into());
    /// Adds what it means for locks.
    #[must_use]
    meaning(consequence: impl Into<String>): consequence = consequence.into();
    /// Adds what to do about it.
    #[must_use]
    remedied(remedy: impl Into<String>): remedy = Some(remedy.into());
}}

/// The report about a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The store's URL, without a password.
    pub store: String,
    /// The guarantees of such a store, as far as the findings allow.
    pub promise: String,
    /// The findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Makes a report about the store at `url`, which must not contain a password.
    #[must_use]
    pub fn new(url: impl Into<String>, promise: impl Into<String>, findings: Vec<Finding>) -> Self {
        Self {
            store: url.into(),
            promise: promise.into(),
            findings,
        }
    }

    /// Returns the worst severity of the findings.
    #[must_use]
    pub fn worst(&self) -> Severity {
        let all = self.findings.iter().map(|finding| finding.severity);
        all.max().unwrap_or(Severity::Fine)
    }

    /// The report about a store that promises this, if its locks can be used.
    ///
    /// # Errors
    /// `Invalid` if the options cannot be used: nothing is known of the store then.
    #[doc(hidden)]
    pub fn of_use(
        url: &str,
        promise: &str,
        findings: Result<Vec<Finding>, StoreError>,
    ) -> Result<Self, StoreError> {
        let findings = findings.or_else(|error| match error.kind() {
            ErrorKind::Invalid => Err(error),
            _ => Ok(vec![Finding::of_error("connection", None, &error)]),
        })?;
        let is_failure = |finding: &Finding| {
            finding.severity == Severity::Unsafe && matches!(finding.check, "connection" | "locks")
        };
        let promise = match findings.iter().any(is_failure) {
            true => "Nothing: locks cannot be used here.",
            false => promise,
        };
        Ok(Self::new(url, promise, findings))
    }
}

/// The findings that apply, about the server of that name, for the stores of this repository.
#[doc(hidden)]
#[must_use]
pub fn applied<const N: usize>(server: &str, rules: [(bool, Finding); N]) -> Vec<Finding> {
    let rules = rules.into_iter().filter(|(applies, _)| *applies);
    rules.map(|(_, finding)| finding.at(server)).collect()
}
