//! The settings that can be configured: one table of keys, variables and values; and where a value comes
//! from.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Debug, Display};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::Settings;
use leasehold::core::written;
use leasehold::store::describe;
use serde::Serialize;

use crate::failure::Failure;
use crate::{duration, env};

/// A setting, by its key in `leasehold.toml` and its profiles. The option is the same behind two
/// dashes.
#[allow(clippy::enum_variant_names, reason = "`tls-key` names a key of TLS")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Store,
    User,
    PasswordFile,
    TlsCa,
    TlsCert,
    TlsKey,
    Ttl,
    Wait,
    RetryFor,
    Grace,
    Label,
    /// Only the environment sets it.
    Password,
}

/// What there is to know about a setting.
pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) name: &'static str,
    /// A value, for hints.
    pub(crate) example: &'static str,
}

/// All settings, in the order of the keys, in which they are shown.
pub(crate) static TABLE: [Row; 12] = [
    row(Key::Store, "store", "redis://host/"),
    row(Key::User, "user", "app"),
    row(Key::PasswordFile, "password-file", "password"),
    row(Key::TlsCa, "tls-ca", "ca.pem"),
    row(Key::TlsCert, "tls-cert", "client.pem"),
    row(Key::TlsKey, "tls-key", "client.key"),
    row(Key::Ttl, "ttl", "30s"),
    row(Key::Wait, "wait", "5m"),
    row(Key::RetryFor, "retry-for", "10m"),
    row(Key::Grace, "grace", "5s"),
    row(Key::Label, "label", "billing"),
    row(Key::Password, "password", ""),
];

const fn row(key: Key, name: &'static str, example: &'static str) -> Row {
    Row { key, name, example }
}

/// The value of a setting.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Path(PathBuf),
    /// A text that is not shown.
    Secret(String),
    /// [`Duration::MAX`] is for ever.
    Duration(Duration),
}

impl Key {
    pub(crate) fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Whether it is a part of how to log in at a store.
    pub(crate) fn is_credential(self) -> bool {
        (Self::User..=Self::TlsKey).contains(&self) || self == Self::Password
    }
}

/// The settings that files can set.
pub(super) fn of_files() -> impl Iterator<Item = &'static Row> {
    TABLE.iter().filter(|row| row.key != Key::Password)
}

impl Row {
    /// The environment variable that sets the same.
    pub(crate) fn variable(&self) -> String {
        format!("{}{}", env::PREFIX, self.id().to_uppercase())
    }

    /// As clap knows the option.
    pub(crate) fn id(&self) -> String {
        self.name.replace('-', "_")
    }

    /// Reads a value. `directory`: that of the file in which it stands; a relative path is relative to
    /// it, and a mistake in a URL is found here then, in its line.
    pub(super) fn read(
        &self,
        value: &OsStr,
        directory: Option<&Path>,
        from: Origin,
    ) -> Result<Setting<Value>, Failure> {
        // A label of nothing goes before one that is set elsewhere.
        let may_be_blank = matches!(self.key, Key::Label | Key::Password);
        if !may_be_blank && value.as_encoded_bytes().trim_ascii().is_empty() {
            return Err(Failure::usage(format!("the {} is empty", self.name))
                .hint(format!("set one, e.g. {}", self.example)));
        }
        let not_utf8 = || Failure::usage("it is not UTF-8").hint("write it in UTF-8");
        let text = || value.to_str().ok_or_else(not_utf8);
        let duration = || duration::parse(text()?).map_err(hinted);
        let value = match self.key {
            Key::Store => {
                let url = parse_store(text()?).map_err(hinted)?;
                if directory.is_some() {
                    describe(&url)?;
                }
                Value::Text(url)
            }
            Key::User | Key::Label => Value::Text(text()?.to_owned()),
            Key::Password => Value::Secret(text()?.to_owned()),
            Key::PasswordFile | Key::TlsCa | Key::TlsCert | Key::TlsKey => {
                Value::Path(directory.unwrap_or_else(|| Path::new("")).join(value))
            }
            Key::Ttl => {
                let ttl = duration()?;
                Settings::default().with_ttl(ttl).check()?;
                Value::Duration(ttl)
            }
            Key::RetryFor | Key::Grace => Value::Duration(duration()?),
            Key::Wait => Value::Duration(parse_wait(text()?).map_err(hinted)?),
        };
        Ok(Setting::new(value, from))
    }
}

impl Value {
    /// As people see it.
    pub(crate) fn show(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Path(path) => path.to_string_lossy().into_owned(),
            Self::Secret(_) => "(hidden)".to_owned(),
            Self::Duration(Duration::MAX) => "forever".to_owned(),
            Self::Duration(duration) => written(*duration),
        }
    }
}

/// A secret is not shown here either.
impl Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.show(), f)
    }
}

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

impl Display for Origin {
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

/// A store that is set to nothing is a mistake, and not the wish for another one.
pub(crate) fn parse_store(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the store is empty: name one, e.g. redis://host/ or local:".to_owned()),
        url => Ok(url.to_owned()),
    }
}

/// Reads how long to wait: a duration, or `forever`, which is [`Duration::MAX`].
pub(crate) fn parse_wait(text: &str) -> Result<Duration, String> {
    match text.trim() {
        "forever" => Ok(Duration::MAX),
        text => duration::parse(text),
    }
}

/// What to write instead is all that there is to say.
fn hinted(hint: String) -> Failure {
    Failure::usage("").hint(hint)
}

/// The failure of a value that cannot be used, which stands at `place`.
pub(super) fn unusable(place: impl Display, why: Failure) -> Failure {
    let colon = if why.message.is_empty() { "" } else { ": " };
    let message = format!("{place} cannot be used{colon}{}", why.message);
    Failure {
        hint: why.hint,
        ..Failure::usage(message)
    }
}

/// What was meant by a name that is none of these, if one is near.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// As clap has it for options.
    const NEAR: f64 = 0.7;
    let name = name.to_lowercase();
    let near = known.into_iter();
    let near = near.map(|it| (strsim::jaro(&name, &it.to_lowercase()), it));
    let near = near.filter(|(nearness, _)| *nearness > NEAR);
    near.max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, it)| it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_if_one_is_near() {
        let names = || of_files().map(|row| row.name);
        for (typed, meant) in [
            ("stroe", Some("store")),
            ("password_file", Some("password-file")),
            ("tls-cret", Some("tls-cert")),
            ("TTL", Some("ttl")),
            ("", None),
            ("colour", None),
        ] {
            assert_eq!(nearest(typed, names()), meant, "{typed}");
        }
    }

    /// Whatever store the registry names, it can be named in a file.
    #[test]
    fn each_store_of_the_registry_can_be_configured() {
        let read = |url: &str| TABLE[0].read(OsStr::new(url), Some(Path::new("")), Origin::Default);
        for example in leasehold::store::examples() {
            let set = read(example).unwrap();
            assert_eq!(set.value, Value::Text(example.to_owned()));
        }
        let hint = read("orders:").unwrap_err().hint.unwrap();
        for example in leasehold::store::examples() {
            assert!(hint.contains(example), "{hint}");
        }
    }

    /// One grammar: a URL, an option, a variable and a file take the same words, and refuse the
    /// same with the same hint.
    #[test]
    fn a_duration_is_written_the_same_everywhere() {
        use leasehold::store::AuditLimit;
        use leasehold::store::local::LocalOptions;
        use leasehold::store::redis::{RedisOptions, RedlockOptions};

        let of_url = |url: String, read: fn(&str) -> Result<Duration, leasehold::Invalid>| {
            read(&url.replace(' ', "%20")).map_err(|invalid| invalid.hint.unwrap_or_default())
        };
        let of_row = |key: Key, text: &str| {
            let set = TABLE[key as usize].read(OsStr::new(text), None, Origin::Default);
            match set {
                Ok(set) => match set.value {
                    Value::Duration(it) => Ok(it),
                    other => panic!("{other:?}"),
                },
                Err(failure) => Err(failure.hint.unwrap_or_default()),
            }
        };
        type Read<'a> = &'a dyn Fn(&str) -> Result<Duration, String>;
        let places: [(&str, Read<'_>); 10] = [
            ("an option", &|text| duration::parse(text)),
            ("a period", &|text| duration::at_least("1s")(text)),
            ("ttl", &|text| of_row(Key::Ttl, text)),
            ("wait", &|text| of_row(Key::Wait, text)),
            ("grace", &|text| of_row(Key::Grace, text)),
            ("local:", &|text| {
                of_url(format!("local:?retention={text}"), |url| {
                    LocalOptions::from_url(url).map(|options| options.retention)
                })
            }),
            ("redis:", &|text| {
                of_url(format!("redis://h/?response_timeout={text}"), |url| {
                    RedisOptions::from_url(url).map(|options| options.response_timeout)
                })
            }),
            ("a cluster", &|text| {
                of_url(format!("redis-cluster://h/?retention={text}"), |url| {
                    let options = leasehold::store::redis::RedisClusterOptions::from_url(url);
                    options.map(|options| options.node.retention)
                })
            }),
            ("redlock:", &|text| {
                of_url(format!("redlock://a,b,c/?quarantine={text}"), |url| {
                    let options = RedlockOptions::from_url(url);
                    options.map(|options| options.quarantine.unwrap_or_default())
                })
            }),
            ("audit", &|text| match text.parse() {
                Ok(AuditLimit::Age(age)) => Ok(age),
                // It has a hint of its own, since a number is right there.
                _ => duration::parse(text),
            }),
        ];
        for (place, read) in places {
            for text in ["150s", "2m30s", "2m 30s", "2min30s", "150000ms"] {
                assert_eq!(read(text), Ok(Duration::from_secs(150)), "{place}: {text}");
            }
            for text in ["30", "soon", "5M", "-1s"] {
                let hint = duration::parse(text).unwrap_err();
                assert_eq!(read(text), Err(hint), "{place}: {text}");
            }
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let row = Key::Password.row();
        let set = row.read(OsStr::new("hunter2"), None, Origin::Default);
        let debug = format!("{set:?}");
        let shown = set.unwrap().value.show();
        assert!(![debug, shown].concat().contains("hunter2"));
    }

    #[test]
    fn every_setting_is_in_the_help() {
        for (at, row) in TABLE.iter().enumerate() {
            assert_eq!(row.key as usize, at);
            let variable = row.variable();
            assert!(env::known().any(|it| it == variable), "{variable}");
            let withheld = env::CREDENTIALS.contains(&&*variable);
            assert_eq!(withheld, row.key.is_credential(), "{variable}");
        }
    }
}
