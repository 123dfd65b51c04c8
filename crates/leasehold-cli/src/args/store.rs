//! Which store, and how it is opened.

use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PathBufValueParser, StringValueParser};
use clap::{Args, ValueHint};
use leasehold::store::describe;

use crate::config::{Configurable, Key, Layer, Origin, Setting, Slot, typed};

/// Where the locks live, and who we are there.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// The store: local:, local:/dir, local:/dir?group=NAME (several users), redis://, rediss://
    /// (TLS), redis+unix://, valkey://, redis-sentinel://h1,h2,h3/name, redis-cluster://h1,h2,… or
    /// redlock://h1,h2,h3; Redis with ?layout=classic shares locks with other libraries [env:
    /// LEASEHOLD_STORE] [default: local:]
    ///
    /// local: needs no server and serves the processes of one user on one machine. Machines that
    /// share locks must name the same store: `run --every` warns when no store is named, and
    /// `elect` refuses. Other users of this machine can see a password in this option in the list
    /// of processes: put the URL into LEASEHOLD_STORE or leasehold.toml, or the password into a
    /// file.
    #[arg(
        short = 'S', long = "store", value_name = "URL",
        value_parser = typed(parse_store, "--store")
    )]
    url: Option<Setting<String>>,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    #[command(flatten)]
    pub(crate) files: FileArgs,
    /// The credentials of the environment belong to another store.
    #[arg(skip)]
    without_environment: bool,
}

/// What a store is opened with, besides its URL.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct AccessArgs {
    /// The user name for the store [env: LEASEHOLD_USER]
    #[arg(
        long, value_name = "NAME",
        value_parser = typed(StringValueParser::new(), "--user"),
        hide_short_help = true
    )]
    pub(crate) user: Option<Setting<String>>,
    /// A file whose first line is the password for the store; read for each connection [env:
    /// LEASEHOLD_PASSWORD_FILE]
    #[arg(
        long, value_name = "FILE", value_hint = ValueHint::FilePath,
        value_parser = typed(PathBufValueParser::new(), "--password-file"),
        hide_short_help = true
    )]
    pub(crate) password_file: Option<Setting<PathBuf>>,
    /// PEM file of the certificates to trust, instead of the system's [env: LEASEHOLD_TLS_CA]
    #[arg(
        long, value_name = "FILE", value_hint = ValueHint::FilePath,
        value_parser = typed(PathBufValueParser::new(), "--tls-ca"),
        hide_short_help = true
    )]
    pub(crate) tls_ca: Option<Setting<PathBuf>>,
    /// PEM file of the client certificate [env: LEASEHOLD_TLS_CERT]
    #[arg(
        long, value_name = "FILE", value_hint = ValueHint::FilePath,
        value_parser = typed(PathBufValueParser::new(), "--tls-cert"),
        hide_short_help = true
    )]
    pub(crate) tls_cert: Option<Setting<PathBuf>>,
    /// PEM file of the key of the client certificate [env: LEASEHOLD_TLS_KEY]
    #[arg(
        long, value_name = "FILE", value_hint = ValueHint::FilePath,
        value_parser = typed(PathBufValueParser::new(), "--tls-key"),
        hide_short_help = true
    )]
    pub(crate) tls_key: Option<Setting<PathBuf>>,
}

/// Which settings are read beside the options.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct FileArgs {
    /// Read this leasehold.toml, instead of the user's and the system's [env: LEASEHOLD_CONFIG]
    ///
    /// Without it, settings that are neither typed nor in the environment come from
    /// $XDG_CONFIG_HOME/leasehold/leasehold.toml, else ~/.config/leasehold/leasehold.toml, and
    /// from /etc/leasehold/leasehold.toml. `leasehold config` shows which are in force.
    #[arg(
        long, value_name = "FILE", value_hint = ValueHint::FilePath,
        value_parser = typed(PathBufValueParser::new(), "--config"),
        hide_short_help = true
    )]
    pub(crate) config: Option<Setting<PathBuf>>,
    /// Use the settings of [profile.NAME] of leasehold.toml first [env: LEASEHOLD_PROFILE]
    #[arg(
        long, value_name = "NAME",
        value_parser = typed(NonEmptyStringValueParser::new(), "--profile"),
        hide_short_help = true
    )]
    pub(crate) profile: Option<Setting<String>>,
}

impl StoreArgs {
    /// The URL; `local:` unless one was named.
    pub(crate) fn url(&self) -> &str {
        self.url.as_ref().map_or("local:", |url| &url.value)
    }

    /// The URL, and where it comes from.
    pub(crate) fn named(&self) -> Setting<String> {
        let usual = || Setting::default(self.url().to_owned());
        self.url.clone().unwrap_or_else(usual)
    }

    /// The store of a saved lease, unless -S names another. Only credentials that were typed are
    /// sent to another store than this one.
    pub(crate) fn or_saved(&self, url: &str) -> Self {
        let named = self.named();
        let is_typed = matches!(named.from, Origin::Option { .. });
        if is_typed || describe(&named.value).is_ok_and(|named| named.url == url) {
            return self.clone();
        }
        Self {
            access: self.access.clone().where_from(Origin::is_typed),
            ..self.elsewhere(url)
        }
    }

    /// That store, without the credentials of this one.
    pub(crate) fn elsewhere(&self, url: &str) -> Self {
        Self {
            url: Some(Setting::default(url.to_owned())),
            access: AccessArgs::default(),
            files: self.files.clone(),
            without_environment: true,
        }
    }

    /// Whether the credentials of the environment are for this store.
    pub(crate) fn uses_environment(&self) -> bool {
        !self.without_environment
    }

    /// Whether a store was named.
    pub(crate) fn is_named(&self) -> bool {
        self.url.is_some()
    }

    /// What can be configured.
    pub(crate) fn configurable(&mut self) -> Configurable<'_> {
        Configurable {
            files: &self.files,
            without_environment: &mut self.without_environment,
            slots: vec![(Key::Store, Slot::Text(&mut self.url))],
        }
        .and(self.access.slots())
    }
}

impl AccessArgs {
    fn slots(&mut self) -> [(Key, Slot<'_>); 5] {
        [
            (Key::User, Slot::Text(&mut self.user)),
            (Key::PasswordFile, Slot::Path(&mut self.password_file)),
            (Key::TlsCa, Slot::Path(&mut self.tls_ca)),
            (Key::TlsCert, Slot::Path(&mut self.tls_cert)),
            (Key::TlsKey, Slot::Path(&mut self.tls_key)),
        ]
    }

    /// These, and those of `below` that are missing here.
    pub(crate) fn over(mut self, mut below: Self) -> Self {
        for ((_, mut slot), (_, other)) in self.slots().into_iter().zip(below.slots()) {
            slot.set(slot.get().or_else(|| other.get()));
        }
        self
    }

    /// Those of which that is true.
    pub(crate) fn where_from(mut self, is_so: impl Fn(&Origin) -> bool) -> Self {
        for (_, mut slot) in self.slots() {
            slot.set(slot.get().filter(|setting| is_so(&setting.from)));
        }
        self
    }

    /// As settings.
    pub(crate) fn layer(mut self) -> Layer {
        let slots = self.slots().into_iter();
        slots
            .filter_map(|(key, slot)| Some((key, slot.get()?)))
            .collect()
    }
}

/// A store that is set to nothing is a mistake, and not the wish for another one.
pub(crate) fn parse_store(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the store is empty: name one, e.g. redis://host/ or local:".to_owned()),
        url => Ok(url.to_owned()),
    }
}
