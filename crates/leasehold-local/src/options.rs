//! Where a local store keeps its files.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::{Invalid, TOMBSTONE_LIFE, written};
use leasehold_store::params::{Field, Param, Params, USUAL_RETENTION, add_params};
use leasehold_store::{AuditLimit, setters};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

use super::group::Group;

/// What a path must not show as it stands in a URL of this store.
const RESERVED: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#');

/// The parameters of a URL.
const PARAMS: &[Param<LocalOptions>] = &[
    ("retention", |options| {
        Field::DurationOr(&mut options.retention, USUAL_RETENTION)
    }),
    ("audit", |options| Field::Audit(&mut options.audit)),
    ("group", |options| Field::Text(&mut options.group)),
];

/// How a [`LocalStore`](super::LocalStore) is opened. Plain data.
///
/// ```
/// use std::time::Duration;
/// use leasehold::store::local::LocalOptions;
/// let day = Duration::from_secs(24 * 3600);
/// let options = LocalOptions::default().directory("/var/lib/jobs").retention(2 * day);
/// assert_eq!(LocalOptions::from_url("local:/var/lib/jobs?retention=2d"), Ok(options));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "options do nothing until a store is opened with them"]
pub struct LocalOptions {
    /// The directory, absolute. `None`: `leasehold` in the user's state
    /// directory, `$XDG_STATE_HOME` or `~/.local/state`.
    pub directory: Option<PathBuf>,
    /// How long an idle key keeps its last token. Default 24 h; at least 60 s.
    pub retention: Duration,
    /// Keeps an audit log: how much of it. Default none. What a client without it does is
    /// not in the log.
    pub audit: Option<AuditLimit>,
    /// The group whose members share the directory: its name or its number. Such a directory has to
    /// be made first, by `leasehold init` or `ClientBuilder::initialise`. `None`: the directory of
    /// one user, or one that was made for a group, whichever that is.
    pub group: Option<String>,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self {
            directory: None,
            retention: USUAL_RETENTION,
            audit: None,
            group: None,
        }
    }
}

setters! { LocalOptions {
    /// Sets the directory, which is absolute.
    directory(directory: impl Into<PathBuf>): directory = Some(directory.into());
    /// Sets how long an idle key keeps its last token.
    retention(retention: Duration): retention = retention;
    /// Keeps an audit log of at least that size.
    audit(limit: AuditLimit): audit = Some(limit);
    /// Sets the group whose members share the directory.
    group(group: impl Into<String>): group = Some(group.into());
}}

impl LocalOptions {
    /// Reads `local:` or `local:/some/dir`, percent-decoded, either with
    /// `?retention=` and a duration such as `90m`, `1h30m` or `7d`, and `audit=` with an
    /// [`AuditLimit`]; a directory also with `group=` and the name or the number of a group.
    ///
    /// ```
    /// use leasehold::store::local::LocalOptions;
    /// let options = LocalOptions::from_url("local:/var/lib/jobs?retention=2d")?;
    /// assert_eq!(options.retention.as_secs(), 172_800);
    /// # Ok::<(), leasehold::core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// [`Invalid`] when it is something else, with a hint.
    pub fn from_url(url: &str) -> Result<Self, Invalid> {
        // It may be a server's, with its password.
        let why = "this is not the URL of a local store";
        let other = || Invalid::new(why, "write local: or local:/some/dir");
        let rest = url.strip_prefix("local:").ok_or_else(other)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options = Self {
            directory: directory(path)?,
            ..Self::default()
        };
        Params::of_query(query)?.read_all(PARAMS, &mut options)?;
        options.check()?;
        Ok(options)
    }

    /// Refuses options that cannot work.
    ///
    /// # Errors
    /// [`Invalid`] for a relative directory, a retention under 60 s, or what cannot be a group of
    /// a directory that is named.
    pub fn check(&self) -> Result<(), Invalid> {
        if let Some(path) = self.directory.as_deref().filter(|path| !path.is_absolute()) {
            return Err(relative(&path.display().to_string()));
        }
        if self.retention < TOMBSTONE_LIFE {
            let why = format!("a retention of {} is too short", written(self.retention));
            let hint = "use at least 60 s: released claims are remembered for that time";
            return Err(Invalid::new(why, hint));
        }
        let Some(group) = &self.group else {
            return Ok(());
        };
        // Whether a group can be called that, or have that number.
        let is_number = group.bytes().all(|byte| byte.is_ascii_digit());
        let has_odd = group.contains(|c: char| c.is_control() || matches!(c, ':' | ',' | '/'));
        if group.is_empty() || has_odd || is_number && Group::number(group).is_none() {
            let why = format!("{group:?} is no group");
            let hint = "write the name or the number of a group, e.g. local:/some/dir?group=ops";
            return Err(Invalid::new(why, hint));
        }
        if self.directory.is_none() {
            return Err(Invalid::new(
                "a group shares a directory that is named",
                format!("write local:/some/dir?group={group}"),
            ));
        }
        Ok(())
    }

    /// The URL of the store with these options in that directory.
    pub(crate) fn url(&self, directory: &Path) -> String {
        let path = percent_encode(directory.as_os_str().as_bytes(), RESERVED);
        let mut url = format!("local:{path}");
        add_params(&mut url, PARAMS, self);
        url
    }

    /// The directory meant, and the environment variable that names it; none where these options
    /// do.
    ///
    /// # Errors
    /// [`Invalid`] when none is named, and the environment names none either.
    pub fn place(&self) -> Result<(PathBuf, Option<&'static str>), Invalid> {
        if let Some(directory) = &self.directory {
            return Ok((directory.clone(), None));
        }
        let why = "there is no home directory to keep local locks in";
        let hint = "name a directory: local:/some/dir";
        let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let home = env::home_dir().map(|home| home.join(".local/state"));
        [(state, "XDG_STATE_HOME"), (home, "HOME")]
            .into_iter()
            .find_map(|(path, name)| Some((path.filter(|path| path.is_absolute())?, name)))
            .map(|(state, name)| (state.join("leasehold"), Some(name)))
            .ok_or_else(|| Invalid::new(why, hint))
    }
}

fn directory(path: &str) -> Result<Option<PathBuf>, Invalid> {
    if path.is_empty() {
        return Ok(None);
    }
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    if decoded.contains(&0) {
        let why = format!("the path {path:?} contains a zero byte");
        return Err(Invalid::plain(why));
    }
    let slashes = decoded.iter().take_while(|byte| **byte == b'/').count();
    let rest = &decoded[slashes..];
    if slashes == 2 {
        let why = format!("{path:?} names a host: a local store is on this machine");
        let rest = percent_encode(rest, RESERVED);
        return Err(Invalid::new(why, format!("write local:/{rest}")));
    }
    if slashes == 0 {
        return Err(relative(&String::from_utf8_lossy(rest)));
    }
    // However many slashes there are, it is one directory.
    Ok(Some(Path::new("/").join(OsStr::from_bytes(rest))))
}

fn relative(path: &str) -> Invalid {
    let why = format!("the directory {path:?} is not absolute");
    let hint = "processes in other directories must find it too: write local:/some/dir";
    Invalid::new(why, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_addresses() {
        let of = |url| LocalOptions::from_url(url).unwrap();
        assert_eq!(of("local:"), LocalOptions::default());
        assert_eq!(of("local:/a%20b").directory, Some("/a b".into()));
        for url in ["local:///a", "local:////a", "local:/%2F/a"] {
            let options = of(url);
            assert_eq!(options.directory, Some("/a".into()), "{url}");
        }
        assert_eq!(of("local:?retention=90m").retention.as_secs(), 5_400);
        assert_eq!(of("local:?retention=1h30m").retention.as_secs(), 5_400);
        assert_eq!(of("local:/a?group=ops").group.as_deref(), Some("ops"));
        let named = of("local:/a?group=AD%5Cdomain%20users&retention=2h");
        assert_eq!(named.group.as_deref(), Some("AD\\domain users"));
    }

    #[test]
    fn refuses_with_a_hint() {
        for url in [
            "local:dir",
            "local:./dir",
            "local://host/dir",
            "local:/d?ttl=3",
            "local:?retention=5",
            "local:?retention=3s",
            "local:?retention=99999999999999999999d",
            "local:?group=ops",
            "local:/d?group=",
            "local:/d?group",
            "local:/d?group=a:b",
            "local:/d?group=a%0Ab",
            "local:/d?group=4294967295",
            "local:/d?group=99999999999",
            "redis://h",
        ] {
            assert!(
                LocalOptions::from_url(url).unwrap_err().hint.is_some(),
                "{url}"
            );
        }
        let odd = LocalOptions::from_url("local://h%1B%0A/d").unwrap_err();
        assert_eq!(odd.hint.as_deref(), Some("write local:/h%1B%0A/d"));
        let server = LocalOptions::from_url("redis://u:hush@h/").unwrap_err();
        assert!(!format!("{server:?}").contains("hush"), "{server:?}");
    }

    #[test]
    fn its_own_address_leads_back() {
        let not_utf8 = OsStr::from_bytes(b"/a\xff");
        for directory in [OsStr::new("/a b/50%?#é"), not_utf8] {
            let options = LocalOptions::default()
                .directory(directory)
                .retention(Duration::from_secs(61))
                .audit(AuditLimit::Entries(1_000))
                .group("R&D 50%?=é");
            let url = options.url(Path::new(directory));
            assert_eq!(LocalOptions::from_url(&url).unwrap(), options);
        }
    }
}
