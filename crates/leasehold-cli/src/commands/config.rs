//! `leasehold config`: the settings in force, and where each comes from.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::Wait;
use serde::Serialize;

use crate::cli::ConfigArgs;
use crate::config::{Config, Configurable, Key, Origin, PASSWORD, Setting, Shown, Unused, Whose};
use crate::connect::Credentials;
use crate::exit;
use crate::failure::Failure;
use crate::output::{Column, Printer, table};

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

/// Shows the settings. No store is asked.
pub(crate) fn config(args: &ConfigArgs, printer: &Printer) -> Result<u8, Failure> {
    let mut store = args.common.store.clone();
    let mut lease = args.lease.clone();
    let mut wait = args.wait.clone();
    let mut retry = args.retry.clone();
    let mut grace = args.grace.clone();
    let config = Config::load(&store.files)?;
    let unused = config.fill(&mut Configurable {
        store: &mut store,
        lease: Some(&mut lease),
        wait: Some(&mut wait.wait),
        retry_for: Some(&mut retry.retry_for),
        grace: Some(&mut grace.grace),
    });
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
        row(Key::Ttl, Some(ttl.clone()), duration),
        row(Key::Wait, Some(wait.wait()), limit),
        row(Key::RetryFor, retry.retry_for, duration),
        row(Key::Grace, Some(grace.grace(&ttl)?), duration),
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
        files: config
            .files
            .iter()
            .map(|file| FileRow {
                path: file.path.display().to_string(),
                whose: file.whose,
                state: file.state,
            })
            .collect(),
    };
    printer.show(&view, || text(&view))?;
    Ok(exit::OK)
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

/// As it is written in a file.
fn duration(duration: Duration) -> String {
    humantime::format_duration(duration)
        .to_string()
        .replace(' ', "")
}

fn limit(wait: Wait) -> String {
    match wait {
        Wait::For(limit) => duration(limit),
        Wait::Forever => "forever".to_owned(),
        _ => duration(Duration::ZERO),
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
