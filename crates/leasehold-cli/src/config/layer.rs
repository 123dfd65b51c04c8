//! The settings of one place: of the environment, of a file, or of a profile.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::{Settings, Wait};

use super::key::Key;
use super::setting::{Origin, Setting};
use super::url::Shown;
use crate::cli::{AccessArgs, LeaseArgs, parse_store, parse_wait};
use crate::duration;
use crate::failure::Failure;

/// The settings of one place, or of several as one.
#[derive(Clone, Default)]
pub(crate) struct Layer {
    pub(crate) store: Option<Setting<String>>,
    pub(crate) access: AccessArgs,
    pub(crate) lease: LeaseArgs,
    pub(crate) wait: Option<Setting<Wait>>,
    pub(crate) retry_for: Option<Setting<Duration>>,
    pub(crate) grace: Option<Setting<Duration>>,
}

/// Why a value cannot be used.
#[derive(Debug)]
pub(super) struct Wrong {
    why: Option<String>,
    hint: Option<String>,
}

/// A value as it is written.
#[derive(Clone, Copy)]
pub(super) struct Written<'a> {
    pub(super) value: &'a OsStr,
    /// What a relative path is relative to; empty: to the working directory.
    pub(super) base: &'a Path,
}

impl Layer {
    /// What the environment sets of what was not typed.
    pub(super) fn of_environment(is_typed: impl Fn(Key) -> bool) -> Result<Self, Failure> {
        let mut layer = Self::default();
        for key in Key::ALL.into_iter().filter(|key| !is_typed(*key)) {
            let name = key.variable();
            let Some(value) = std::env::var_os(name) else {
                continue;
            };
            let written = Written {
                value: &value,
                base: Path::new(""),
            };
            let set = layer.set(key, written, Origin::Variable { name });
            set.map_err(|wrong| {
                let failure = wrong.of(name);
                let hint = failure.hint.clone().unwrap_or_default();
                failure.hint(format!("{hint}, or unset {name}"))
            })?;
        }
        Ok(layer)
    }

    /// Sets the value of a key.
    pub(super) fn set(
        &mut self,
        key: Key,
        written: Written<'_>,
        from: Origin,
    ) -> Result<(), Wrong> {
        // A label of nothing goes before one that is set elsewhere.
        if key != Key::Label && written.value.as_encoded_bytes().trim_ascii().is_empty() {
            let why = format!("the {} is empty", key.name());
            return Err(Wrong {
                why: Some(why),
                hint: Some(format!("set one, e.g. {}", key.example())),
            });
        }
        let (access, lease) = (&mut self.access, &mut self.lease);
        match key {
            Key::Store => self.store = Some(Setting::new(written.store(&from)?, from)),
            Key::User => access.user = Some(Setting::new(written.text()?.into(), from)),
            Key::PasswordFile => access.password_file = Some(Setting::new(written.path(), from)),
            Key::TlsCa => access.tls_ca = Some(Setting::new(written.path(), from)),
            Key::TlsCert => access.tls_cert = Some(Setting::new(written.path(), from)),
            Key::TlsKey => access.tls_key = Some(Setting::new(written.path(), from)),
            Key::Ttl => lease.ttl = Some(Setting::new(written.ttl()?, from)),
            Key::Wait => self.wait = Some(Setting::new(parse_wait(&written.text()?)?, from)),
            Key::RetryFor => {
                self.retry_for = Some(Setting::new(duration::parse(&written.text()?)?, from));
            }
            Key::Grace => {
                self.grace = Some(Setting::new(duration::parse(&written.text()?)?, from));
            }
            Key::Label => lease.label = Some(Setting::new(written.text()?.into(), from)),
        }
        Ok(())
    }

    /// These settings, and those of `below` that are missing here.
    pub(super) fn over(self, below: Self) -> Self {
        Self {
            store: self.store.or(below.store),
            access: self.access.over(below.access),
            lease: LeaseArgs {
                ttl: self.lease.ttl.or(below.lease.ttl),
                label: self.lease.label.or(below.lease.label),
            },
            wait: self.wait.or(below.wait),
            retry_for: self.retry_for.or(below.retry_for),
            grace: self.grace.or(below.grace),
        }
    }
}

impl Written<'_> {
    fn text(&self) -> Result<Cow<'_, str>, Wrong> {
        self.value.to_str().map(Cow::Borrowed).ok_or_else(|| Wrong {
            why: Some("it is not UTF-8".to_owned()),
            hint: Some("write it in UTF-8".to_owned()),
        })
    }

    fn path(&self) -> PathBuf {
        self.base.join(self.value)
    }

    /// One of a file is read here, so that a mistake is found in its line.
    fn store(&self, from: &Origin) -> Result<String, Wrong> {
        let url = parse_store(&self.text()?)?;
        if matches!(from, Origin::File { .. }) {
            Shown::of(&url)?;
        }
        Ok(url)
    }

    fn ttl(&self) -> Result<Duration, Wrong> {
        let ttl = duration::parse(&self.text()?)?;
        let settings = Settings::default().with_ttl(ttl);
        settings.check().map_err(Failure::from)?;
        Ok(ttl)
    }
}

impl Wrong {
    /// The failure, for the value that stands at `place`.
    pub(super) fn of(self, place: impl std::fmt::Display) -> Failure {
        let why = self.why.map_or(String::new(), |why| format!(": {why}"));
        let mut failure = Failure::usage(format!("{place} cannot be used{why}"));
        failure.hint = self.hint;
        failure
    }
}

impl From<String> for Wrong {
    /// What to write instead.
    fn from(hint: String) -> Self {
        Self {
            why: None,
            hint: Some(hint),
        }
    }
}

impl From<Failure> for Wrong {
    fn from(failure: Failure) -> Self {
        Self {
            why: Some(failure.message),
            hint: failure.hint,
        }
    }
}
