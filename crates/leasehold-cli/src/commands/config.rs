//! `leasehold config`: the settings in force, and where each comes from.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::Wait;
use leasehold::core::written;
use serde::Serialize;

use crate::cli::ConfigArgs;
use crate::config::{
    Config, Configurable, Key, LookedFor, Origin, PASSWORD, Setting, Shown, Unused, Whose, nearest,
};
use crate::connect::Credentials;
use crate::failure::Failure;
use crate::output::{Column, Printer, table};
use crate::{env, exit};

/// What `--json` prints.
#[derive(Serialize)]
struct View {
    settings: Vec<Row>,
    /// What is set for another store.
    unused: Vec<UnusedRow>,
    profile: Option<ProfileRow>,
    files: Vec<FileRow>,
}

#[derive(Serialize)]
struct Row {
    key: &'static str,
    value: Option<String>,
    from: Origin,
}

#[derive(Serialize)]
struct UnusedRow {
    key: &'static str,
    from: Origin,
}

#[derive(Serialize)]
struct ProfileRow {
    name: String,
    from: Origin,
}

#[derive(Serialize)]
struct FileRow {
    path: String,
    whose: Whose,
    state: &'static str,
}

impl From<&LookedFor> for FileRow {
    fn from(file: &LookedFor) -> Self {
        Self {
            path: file.path.display().to_string(),
            whose: file.whose,
            state: file.state,
        }
    }
}

/// Shows the settings. No store is asked.
pub(crate) fn config(args: &ConfigArgs, printer: &Printer) -> Result<u8, Failure> {
    let mut store = args.common.store.clone();
    let mut lease = args.lease.clone();
    let mut wait = args.wait.clone();
    let mut retry = args.retry.clone();
    let mut grace = args.grace.clone();
    let mut configurable = Configurable {
        store: &mut store,
        lease: Some(&mut lease),
        wait: Some(&mut wait.wait),
        retry_for: Some(&mut retry.retry_for),
        grace: Some(&mut grace.grace),
    };
    let config = Config::load(&configurable)?;
    let unused = config.fill(&mut configurable);
    say_unknown_variables(printer);
    let named = store.named();
    let Credentials {
        access, password, ..
    } = Credentials::of(&store);
    let ttl = lease.ttl();
    let mut settings = vec![
        Row {
            key: Key::Store.name(),
            value: Some(Shown::of(&named.value)?.url),
            from: named.from,
        },
        row(Key::User, access.user, |user| user),
        row(Key::PasswordFile, access.password_file, path),
        row(Key::TlsCa, access.tls_ca, path),
        row(Key::TlsCert, access.tls_cert, path),
        row(Key::TlsKey, access.tls_key, path),
        row(Key::Ttl, Some(ttl.clone()), written),
        row(Key::Wait, Some(wait.wait()), limit),
        row(Key::RetryFor, retry.retry_for, written),
        row(Key::Grace, Some(grace.grace(&ttl)?), written),
        row(Key::Label, lease.label, |label| label),
    ];
    settings.extend(password.map(|password| Row {
        key: PASSWORD,
        value: Some("(hidden)".to_owned()),
        from: password.from,
    }));
    let view = View {
        unused: unused_rows(unused, &settings),
        settings,
        profile: config.profile.map(|profile| ProfileRow {
            name: profile.value,
            from: profile.from,
        }),
        files: config.files.iter().map(FileRow::from).collect(),
    };
    printer.show(&view, || text(&view))?;
    Ok(exit::OK)
}

/// A variable with a slip in its name sets nothing.
fn say_unknown_variables(printer: &Printer) {
    const PREFIX: &str = "LEASEHOLD_";
    let known = || env::known().filter_map(|name| name.strip_prefix(PREFIX));
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let names = names.filter_map(|name| Some(name.strip_prefix(PREFIX)?.to_owned()));
    for name in names.filter(|name| !known().any(|it| it == name)) {
        let message = format!("there is no setting {PREFIX}{name}: it is ignored");
        match nearest(&name, known()) {
            Some(near) => printer.warn_with_hint(message, format!("did you mean {PREFIX}{near}?")),
            None => printer.warn(message),
        }
    }
}

fn row<T>(key: Key, setting: Option<Setting<T>>, show: impl Fn(T) -> String) -> Row {
    let (value, from) = match setting {
        Some(setting) => (Some(show(setting.value)), setting.from),
        None => (None, Origin::Default),
    };
    let key = key.name();
    Row { key, value, from }
}

fn path(path: PathBuf) -> String {
    path.into_os_string().to_string_lossy().into_owned()
}

fn limit(wait: Wait) -> String {
    match wait {
        Wait::For(limit) => written(limit),
        Wait::Forever => "forever".to_owned(),
        _ => written(Duration::ZERO),
    }
}

/// Those that would be in force with the store that they are for.
fn unused_rows(unused: Vec<Unused>, settings: &[Row]) -> Vec<UnusedRow> {
    let is_set = |name: &str| {
        let mut named = settings.iter().filter(|row| row.key == name);
        named.any(|row| row.value.is_some())
    };
    let rows = unused
        .into_iter()
        .map(|(key, from)| UnusedRow { key, from });
    rows.filter(|row| !is_set(row.key)).collect()
}

const SETTINGS: &[Column<Row>] = &[
    ("SETTING", |row| row.key.to_owned()),
    ("VALUE", |row| match &row.value {
        Some(value) if !value.is_empty() => value.clone(),
        _ => "-".to_owned(),
    }),
    ("FROM", |row| row.from.to_string()),
];

const FILES: &[Column<FileRow>] = &[
    ("FILE", |file| file.path.clone()),
    ("WHOSE", |file| match file.whose {
        Whose::User => "this user's".to_owned(),
        Whose::System => "the system's".to_owned(),
        Whose::Named => "named".to_owned(),
    }),
    ("STATE", |file| file.state.to_owned()),
];

fn text(view: &View) -> String {
    let mut text = table(SETTINGS, &view.settings) + "\n";
    for UnusedRow { key, from } in &view.unused {
        text += &format!("not used, as it is for another store: {key} ({from})\n");
    }
    if let Some(ProfileRow { name, from }) = &view.profile {
        text += &format!("profile {name} ({from})\n");
    }
    text + &table(FILES, &view.files)
}
