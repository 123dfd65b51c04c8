//! A value of a setting, and where it comes from.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

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

    /// The same as another type of value.
    pub(crate) fn map<U>(self, value: impl FnOnce(T) -> U) -> Setting<U> {
        Setting::new(value(self.value), self.from)
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
        name: Cow<'static, str>,
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
    /// An option of that name.
    pub(crate) fn option(name: impl Into<Cow<'static, str>>) -> Self {
        Self::Option { name: name.into() }
    }

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
            Self::Option { name } | Self::Variable { name } => f.write_str(name),
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
