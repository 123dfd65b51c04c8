//! Which store, and how it is opened; how the options that are settings are read.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args, ValueHint};

use crate::config::{CommandSettings, Key, Origin, Setting, TABLE, Value, parse_store};

/// What was typed of all settings that the subcommand has.
pub(super) fn typed_settings(typed: &ArgMatches) -> CommandSettings {
    let mut settings = CommandSettings::default();
    for row in &TABLE {
        let id = row.id();
        // An option has one of these types. Those that the subcommand does not have are not known.
        let value = one(typed, &id)
            .map(Value::Text)
            .or_else(|| one(typed, &id).map(Value::Path))
            .or_else(|| one(typed, &id).map(Value::Duration));
        if let Some(value) = value {
            let from = Origin::option(format!("--{}", row.name));
            settings.layer.insert(row.key, Setting::new(value, from));
        }
    }
    if one::<bool>(typed, "no_wait") == Some(true) {
        let (none, from) = (Duration::ZERO, Origin::option("--no-wait"));
        let wait = Setting::new(Value::Duration(none), from);
        settings.layer.insert(Key::Wait, wait);
    }
    settings
}

/// What was typed of an option, if it has that type.
fn one<T: Clone + Send + Sync + 'static>(typed: &ArgMatches, id: &str) -> Option<T> {
    typed.try_get_one(id).ok().flatten().cloned()
}

/// The store, and what it is opened with.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(super) struct StoreOptions {
    /// The store: local:, local:/dir, local:/dir?group=NAME (several users), redis://, rediss://
    /// (TLS), redis+unix://, valkey://, redis-sentinel://h1,h2,h3/name, redis-cluster://h1,h2,…,
    /// redlock://h1,h2,h3, postgres://user@host/db or zookeeper://h1,h2,h3/path; Redis with
    /// ?layout=classic shares locks with other libraries [env: LEASEHOLD_STORE] [default: local:]
    ///
    /// local: needs no server and serves the processes of one user on one machine. Machines that
    /// share locks must name the same store: `run --every` warns when no store is named, and
    /// `elect` refuses. Other users of this machine can see a password in this option in the list
    /// of processes: put the URL into LEASEHOLD_STORE or leasehold.toml, or the password into a
    /// file.
    #[arg(short = 'S', long, value_name = "URL", value_parser = parse_store)]
    store: Option<String>,
    /// The user name for the store [env: LEASEHOLD_USER]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    user: Option<String>,
    /// A file whose first line is the password for the store; read for each connection [env:
    /// LEASEHOLD_PASSWORD_FILE]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    password_file: Option<PathBuf>,
    /// PEM file of the certificates to trust, instead of the system's [env: LEASEHOLD_TLS_CA]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    tls_ca: Option<PathBuf>,
    /// PEM file of the client certificate [env: LEASEHOLD_TLS_CERT]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    tls_cert: Option<PathBuf>,
    /// PEM file of the key of the client certificate [env: LEASEHOLD_TLS_KEY]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    tls_key: Option<PathBuf>,
}
