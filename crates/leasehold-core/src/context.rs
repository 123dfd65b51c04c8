use std::fmt;

use crate::Invalid;
use crate::text::{is_hex, text};

text! {
    /// The context of a claim: the piece of work that it belongs to. With it, readers of the store
    /// can find out which claims wait for each other.
    ///
    /// Claims of one context depend on each other: the context releases its keys only after the keys
    /// that it waits for were granted. A context may have children: pieces of work that it waits for,
    /// and that may run in parallel. A holder is blocked while a claim of its context or of a nested
    /// context waits, but not by a sibling context.
    ///
    /// It is not a secret, and has no influence on grants.
    ///
    /// Its text is the path from the outermost context: 16 hexadecimal digits for each, separated by
    /// dots.
    ClaimContext = parse
}

/// The digits of one part of the path.
const DIGITS: usize = 16;

impl ClaimContext {
    /// How deep contexts can be nested.
    pub const MAX_DEPTH: usize = 7;

    /// Makes an outermost context from 64 random bits.
    #[must_use]
    pub fn from_random(bits: u64) -> Self {
        Self(format!("{bits:016x}").into())
    }

    /// Makes a nested context from 64 random bits; `None` if this one is already
    /// [`MAX_DEPTH`](Self::MAX_DEPTH) deep.
    #[must_use]
    pub fn child(&self, bits: u64) -> Option<Self> {
        let fits = self.path().count() < Self::MAX_DEPTH;
        fits.then(|| Self(format!("{}.{bits:016x}", self.0).into()))
    }

    /// Parses the output of [`ClaimContext::as_str`].
    ///
    /// # Errors
    /// [`Invalid`] unless it is 1 to 7 times 16 lower-case hexadecimal digits with dots between.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let mut parts = text.split('.');
        if parts.clone().count() <= Self::MAX_DEPTH && parts.all(|part| is_hex(part, DIGITS)) {
            return Ok(Self(text.into()));
        }
        let message = format!(
            "a context must be 1 to {} groups of {DIGITS} lower-case hexadecimal digits, \
             separated by dots",
            Self::MAX_DEPTH
        );
        Err(Invalid::new(message, "make one with: openssl rand -hex 8"))
    }

    /// Returns whether the other is this context, or nested in it.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let rest = other.0.strip_prefix(&*self.0);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// Returns the parts of the path, the outermost first.
    pub fn path(&self) -> impl Iterator<Item = &str> {
        let ends = (DIGITS..=self.0.len()).step_by(DIGITS + 1);
        ends.map(|end| &self.0[..end])
    }
}

impl fmt::Display for ClaimContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClaimContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimContext({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_covers_itself_and_what_is_within() {
        let outer = ClaimContext::from_random(1);
        let inner = outer.child(2).unwrap();
        assert_eq!(inner.as_str(), "0000000000000001.0000000000000002");
        assert!(outer.covers(&outer) && outer.covers(&inner) && !inner.covers(&outer));
        assert!(!inner.covers(&outer.child(3).unwrap()));
        assert!(!ClaimContext::from_random(2).covers(&inner));
        let path: Vec<_> = inner.path().collect();
        assert_eq!(path, [outer.as_str(), inner.as_str()]);
    }

    #[test]
    fn a_context_is_so_deep_at_most() {
        let mut deepest = ClaimContext::from_random(0);
        while let Some(child) = deepest.child(7) {
            deepest = child;
        }
        assert_eq!(deepest.path().count(), ClaimContext::MAX_DEPTH);
        assert_eq!(ClaimContext::parse(deepest.as_str()), Ok(deepest.clone()));
        let deeper = format!("{deepest}.{:016x}", 1);
        assert!(ClaimContext::parse(&deeper).is_err());
    }

    #[test]
    fn what_is_no_context_is_refused() {
        for bad in [
            "",
            ".",
            "1",
            "000000000000000g",
            "000000000000000A",
            "0000000000000001.",
            ".0000000000000001",
            "0000000000000001,0000000000000002",
            "é00000000000000",
        ] {
            assert!(ClaimContext::parse(bad).is_err(), "{bad:?}");
        }
    }
}
