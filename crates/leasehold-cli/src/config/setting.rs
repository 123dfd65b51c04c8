//! A value of a setting, and where it comes from.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use clap::builder::TypedValueParser;
use serde::Serialize;

/// A value, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) from: Origin,
}

impl<T> Setting<T> {
    pub(crate) fn new(value: T, from: Origin) -> Self {
        Self { value, from }
    }

    /// What nobody has set.
    pub(crate) fn default(value: T) -> Self {
        Self::new(value, Origin::Default)
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Origin {
    Option {
        name: &'static str,
    },
    Variable {
        name: Cow<'static, str>,
    },
    File {
        path: Arc<Path>,
        line: usize,
        profile: Option<Arc<str>>,
        /// Whether the file, or the profile, was named on the command line.
        #[serde(skip)]
        named: bool,
    },
    Default,
}

impl Origin {
    /// A variable of that name.
    pub(crate) fn variable(name: impl Into<Cow<'static, str>>) -> Self {
        Self::Variable { name: name.into() }
    }

    /// Whether it was an option of the command line.
    pub(crate) fn is_typed(&self) -> bool {
        matches!(self, Self::Option { .. })
    }

    /// Whether this run was told so, on the command line or in the environment. Else it was found
    /// in a file.
    pub(crate) fn is_said(&self) -> bool {
        match self {
            Self::Option { .. } | Self::Variable { .. } => true,
            Self::File { named, .. } => *named,
            Self::Default => false,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option { name } => f.write_str(name),
            Self::Variable { name } => f.write_str(name),
            Self::File {
                path,
                line,
                profile,
                ..
            } => {
                if let Some(profile) = profile {
                    write!(f, "profile {profile} in ")?;
                }
                write!(f, "{}:{line}", path.display())
            }
            Self::Default => f.write_str("default"),
        }
    }
}

/// Reads the value of the option of that name.
pub(crate) fn typed<P>(
    parser: P,
    name: &'static str,
) -> impl TypedValueParser<Value = Setting<P::Value>>
where
    P: TypedValueParser,
{
    parser.map(move |value| Setting::new(value, Origin::Option { name }))
}
