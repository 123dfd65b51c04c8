//! An object of JSON, field by field in the order in which they are said.

use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// Each key with its fencing token, if the store has any.
pub(crate) type Tokens = [(String, Option<u64>)];

/// The fields of an object.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(Vec<(&'static str, Box<RawValue>)>);

impl Fields {
    pub(crate) fn with(mut self, name: &'static str, value: impl Serialize) -> Self {
        // What is said is made of texts, numbers and lists, which can always be written.
        self.0
            .extend(to_raw_value(&value).map(|value| (name, value)));
        self
    }

    /// Leaves out what is not known.
    pub(crate) fn with_known(self, name: &'static str, value: Option<impl Serialize>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// `token`, and of several keys `tokens` by key; neither where the store has none.
    pub(crate) fn with_tokens(self, tokens: &Tokens) -> Self {
        let first = tokens.first().and_then(|(_, first)| *first);
        let several = tokens.len() > 1 && first.is_some();
        self.with_known("token", first)
            .with_known("tokens", several.then_some(ByKey(tokens)))
    }

    pub(super) fn followed_by(mut self, others: &Self) -> Self {
        self.0.extend_from_slice(&others.0);
        self
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Tokens as an object, in the order of their keys as they were named.
pub(crate) struct ByKey<'a>(pub(crate) &'a Tokens);

impl Serialize for ByKey<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, token)| (key, token)))
    }
}
