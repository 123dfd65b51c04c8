//! The parameters of store URLs, what stands behind the `?`: read and shown by one table.

use std::ops::RangeInclusive;
use std::time::Duration;

use leasehold_core::{Invalid, written};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::access::Pem;
use crate::audit::AuditLimit;
use crate::duration::{format_duration, parse_duration};

/// A parameter of a store's URL: its name, and what it sets in options of type `O`.
pub type Param<O> = (&'static str, fn(&mut O) -> Field<'_>);

/// What a parameter sets.
#[allow(missing_debug_implementations, reason = "it is used up at once")]
pub enum Field<'a> {
    /// A text.
    Text(&'a mut Option<String>),
    /// A text that is shown as `***`.
    Secret(&'a mut Option<String>),
    /// A text with a default.
    TextOr(&'a mut String, &'static str),
    /// What is in a PEM file. Nothing of it is shown if it is not in a file.
    Pem(&'a mut Option<Pem>),
    /// A duration with a default.
    DurationOr(&'a mut Duration, Duration),
    /// A duration.
    Duration(&'a mut Option<Duration>),
    /// The limit of an audit log.
    Audit(&'a mut Option<AuditLimit>),
    /// `yes` or `no`, with a default.
    YesNo(&'a mut bool, bool),
    /// Another value: as it is shown, unless it is the default, and how it is read.
    Custom(Option<String>, ReadValue<'a>),
    /// It cannot be set, for that reason.
    Refused(Invalid),
}

/// Reads a value, or says what is wrong with its text.
pub type ReadValue<'a> = Box<dyn FnOnce(&str) -> Result<(), Invalid> + 'a>;

impl<'a> Field<'a> {
    /// Makes a field of another value: as it is `shown`, unless it is the default, and how to
    /// `read` it.
    pub fn custom(
        shown: Option<String>,
        read: impl FnOnce(&str) -> Result<(), Invalid> + 'a,
    ) -> Self {
        Self::Custom(shown, Box::new(read))
    }

    fn read(self, name: &str, text: &str) -> Result<(), Invalid> {
        let is_not =
            |what, hint: String| Invalid::new(format!("{name} = {text:?} is not {what}"), hint);
        let duration = || parse_duration(text).map_err(|hint| is_not("a duration", hint));
        match self {
            Self::Text(field) | Self::Secret(field) => *field = Some(text.to_owned()),
            Self::TextOr(field, _) => text.clone_into(field),
            // It would be read back as none.
            Self::Pem(_) if text.is_empty() => {
                return Err(is_not("a file", "name one, or leave it out".to_owned()));
            }
            Self::Pem(field) => *field = Some(Pem::File(text.into())),
            Self::DurationOr(field, _) => *field = duration()?,
            Self::Duration(field) => *field = Some(duration()?),
            Self::Audit(field) => *field = Some(text.parse()?),
            Self::YesNo(field, _) => {
                *field = match text {
                    "yes" | "true" => true,
                    "no" | "false" => false,
                    _ => return Err(is_not("yes or no", "write yes or no".to_owned())),
                }
            }
            Self::Custom(_, read) => read(text)?,
            Self::Refused(why) => return Err(why),
        }
        Ok(())
    }

    fn show(self) -> Option<String> {
        match self {
            Self::Text(field) => field.clone(),
            Self::Secret(field) => field.as_ref().map(|_| "***".to_owned()),
            Self::TextOr(field, usual) => (field != usual).then(|| field.clone()),
            Self::Pem(Some(Pem::File(file))) => Some(file.to_string_lossy().into_owned()),
            Self::Pem(_) => None,
            Self::DurationOr(field, usual) => (*field != usual).then(|| format_duration(*field)),
            Self::Duration(field) => field.map(format_duration),
            Self::Audit(field) => field.map(|limit| limit.to_string()),
            Self::YesNo(field, usual) => {
                let shown = if *field { "yes" } else { "no" };
                (*field != usual).then(|| shown.to_owned())
            }
            Self::Custom(shown, _) => shown,
            Self::Refused(_) => None,
        }
    }
}

/// The parameters of one URL that were not read yet.
///
/// ```
/// use std::time::Duration;
/// use leasehold_store::params::{Field, Param, Params, add_params};
///
/// const USUAL: Duration = Duration::from_secs(5);
/// const TABLE: &[Param<Duration>] = &[("timeout", |it| Field::DurationOr(it, USUAL))];
/// let mut timeout = USUAL;
/// Params::of_query("timeout=1m30s")?.read_all(TABLE, &mut timeout)?;
/// let mut url = "toy:".to_owned();
/// add_params(&mut url, TABLE, &timeout);
/// assert_eq!(url, "toy:?timeout=90s");
/// # Ok::<(), leasehold_store::core::Invalid>(())
/// ```
#[derive(Debug, Clone)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// Takes names and values that are decoded.
    pub fn new<T: Into<String>>(pairs: impl IntoIterator<Item = (T, T)>) -> Self {
        let owned = |(name, value): (T, T)| (name.into(), value.into());
        Self(pairs.into_iter().map(owned).collect())
    }

    /// Takes those of a query: `name=value&name=value`, percent-encoded.
    ///
    /// # Errors
    /// [`Invalid`] if a value is not UTF-8, or a parameter is given twice.
    pub fn of_query(query: &str) -> Result<Self, Invalid> {
        let mut params = Self(Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = percent_decode_str(value).decode_utf8();
            let value = decoded.map_err(|_| match is_name(name) {
                true => Invalid::plain(format!("{name} is not UTF-8")),
                false => Invalid::plain("the URL has a value that is not UTF-8"),
            })?;
            if is_name(name) && params.get(name).is_some() {
                let why = format!("the URL has the parameter {name} twice");
                return Err(Invalid::new(why, "leave one of them out"));
            }
            params.0.push((name.to_owned(), value.into_owned()));
        }
        Ok(params)
    }

    /// The value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut all = self.0.iter();
        all.find_map(|(known, value)| (known == name).then_some(&**value))
    }

    /// Leaves out parameters that mean nothing beside another one.
    pub fn ignore(&mut self, names: &[&str]) {
        self.0.retain(|(name, _)| !names.contains(&&**name));
    }

    /// Reads those of a table, in the order of the table.
    ///
    /// # Errors
    /// [`Invalid`] for a value that cannot be used.
    pub fn read<O>(&mut self, table: &[Param<O>], options: &mut O) -> Result<(), Invalid> {
        for (name, field) in table {
            if let Some(text) = self.get(name) {
                field(options).read(name, text)?;
            }
        }
        self.ignore(&names(table).collect::<Vec<_>>());
        Ok(())
    }

    /// Reads those of a table that has all that there are.
    ///
    /// # Errors
    /// The same, and for a parameter that the table has not.
    pub fn read_all<O>(mut self, table: &[Param<O>], options: &mut O) -> Result<(), Invalid> {
        self.read(table, options)?;
        self.check_none_left(names(table))
    }

    /// Refuses parameters that are left; `known` are the names that there are.
    ///
    /// # Errors
    /// [`Invalid`] with the first of them.
    pub fn check_none_left<'a>(
        &self,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Invalid> {
        let Some((name, _)) = self.0.first() else {
            return Ok(());
        };
        let known: Vec<_> = known.into_iter().collect();
        let hint = format!("known parameters: {}", known.join(", "));
        Err(match is_name(name) {
            true => Invalid::new(format!("the URL has an unknown parameter {name:?}"), hint),
            false => Invalid::new("the URL has a parameter whose name cannot be one", hint),
        })
    }
}

/// What is no name is not shown: it may be of a password that was not percent-encoded.
fn is_name(text: &str) -> bool {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    !text.is_empty() && text.chars().all(is_of_name)
}

/// The names of the parameters of a table.
pub fn names<O>(table: &[Param<O>]) -> impl Iterator<Item = &'static str> {
    table.iter().map(|(name, _)| *name)
}

/// How long an idle key keeps its last token by default.
#[doc(hidden)]
pub const USUAL_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// How long opening a connection and an answer may take by default.
#[doc(hidden)]
pub const USUAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The table of a store on servers: its own parameters, and behind them those of all such stores.
#[doc(hidden)]
#[macro_export]
macro_rules! server_params {
    ($($own:expr),+ $(,)?) => {
        &[
            $($own,)+
            ("ca", |options| $crate::params::Field::Pem(&mut options.access.tls.ca)),
            ("cert", |options| $crate::params::Field::Pem(&mut options.access.tls.cert)),
            ("key", |options| $crate::params::Field::Pem(&mut options.access.tls.key)),
            ("retention", |options| {
                let usual = $crate::params::USUAL_RETENTION;
                $crate::params::Field::DurationOr(&mut options.retention, usual)
            }),
            ("connect_timeout", |options| {
                let usual = $crate::params::USUAL_TIMEOUT;
                $crate::params::Field::DurationOr(&mut options.connect_timeout, usual)
            }),
            ("response_timeout", |options| {
                let usual = $crate::params::USUAL_TIMEOUT;
                $crate::params::Field::DurationOr(&mut options.response_timeout, usual)
            }),
        ]
    };
}

/// Writes the parameters of a table behind a URL, except for those that have their defaults.
pub fn add_params<O: Clone>(url: &mut String, table: &[Param<O>], options: &O) {
    let mut options = options.clone();
    for (name, field) in table {
        let Some(value) = field(&mut options).show() else {
            continue;
        };
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str(name);
        url.push('=');
        encode(&value, url);
    }
}

/// Refuses a setting that is out of bounds.
///
/// # Errors
/// [`Invalid`] with the name and the value, and a hint what to `choose`.
pub fn check_bounds(
    name: &str,
    value: Duration,
    bounds: RangeInclusive<Duration>,
    choose: &str,
) -> Result<(), Invalid> {
    if bounds.contains(&value) {
        return Ok(());
    }
    let why = format!("{name} of {} is out of bounds", written(value));
    Err(Invalid::new(why, choose))
}

/// Refuses times out of bounds that the stores on servers have in common: how long an idle key keeps its
/// last token, and how long connections and answers may take.
///
/// # Errors
/// Those of [`check_bounds`].
#[doc(hidden)]
pub fn check_times(
    retention: Duration,
    connect: Duration,
    answer: Duration,
) -> Result<(), Invalid> {
    let hour = Duration::from_secs(3600);
    let bounds = hour / 60..=366 * 24 * hour;
    check_bounds("retention", retention, bounds, "choose 1m to 366d")?;
    let (bounds, hint) = (Duration::from_millis(1)..=hour, "choose 1ms to 1h");
    check_bounds("connect_timeout", connect, bounds.clone(), hint)?;
    check_bounds("response_timeout", answer, bounds, hint)
}

/// Writes a text so that it reads back the same as the value of a parameter, or as a path.
pub fn encode(text: &str, url: &mut String) {
    const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'*')
        .remove(b'/');
    url.extend(utf8_percent_encode(text, PLAIN));
}

/// The same for what a slash would end: a user, or the name of a database.
#[doc(hidden)]
pub fn encode_name(text: &str, url: &mut String) {
    let mut encoded = String::new();
    encode(text, &mut encoded);
    url.push_str(&encoded.replace('/', "%2F"));
}

/// Refuses a URL that may have a part of a password in another place, and must not be shown.
#[doc(hidden)]
pub fn not_encoded(message: impl Into<String>) -> Invalid {
    let hint = "percent-encode special characters in user and password, in the path and in \
                parameters: %2F for /, %3F for ?, %23 for #, %40 for @";
    Invalid::new(message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_and_what_is_none_is_not() {
        let said = |query: &str| {
            let read = Params::of_query(query).and_then(|it| it.check_none_left(["ttl"]));
            read.unwrap_err().to_string()
        };
        assert_eq!(said("ttl=%ff"), "ttl is not UTF-8");
        let twice = "the URL has the parameter ttl twice";
        assert_eq!(said("ttl=1s&of=2&ttl=1s"), twice);
        assert!(said("tttl=1s").contains("\"tttl\""));
        for name in ["", "\0", "secret!", "p%C3"] {
            let text = said(&format!("{name}=%ff"));
            assert_eq!(text, "the URL has a value that is not UTF-8");
            let text = said(&format!("{name}=1"));
            assert!(text.contains("whose name cannot be one"), "{text}");
        }
    }
}
