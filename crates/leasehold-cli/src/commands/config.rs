//! `leasehold config`: the settings in force, and where each comes from.

use leasehold::store::describe;
use serde::Serialize;

use crate::args::ConfigArgs;
use crate::config::{
    Config, Key, LookedFor, Origin, Row as TableRow, TABLE, Unused, Value, Whose, nearest,
};
use crate::connect::Opening;
use crate::failure::Failure;
use crate::output::{Column, Printer, table};
use crate::{env, exit};

/// What `--json` prints. A path that is no text is an error there.
#[derive(Serialize)]
struct View {
    settings: Vec<Row>,
    /// What is set for another store.
    unused: Vec<Unused>,
    profile: Option<ProfileRow>,
    files: Vec<LookedFor>,
}

#[derive(Serialize)]
struct Row {
    key: &'static str,
    value: Option<String>,
    from: Origin,
}

#[derive(Serialize)]
struct ProfileRow {
    name: String,
    from: Origin,
}

/// Shows the settings. No store is asked.
pub(crate) fn config(args: &ConfigArgs, printer: &Printer) -> Result<u8, Failure> {
    let mut settings = args.common.store.settings.clone();
    let config = Config::load(&settings, &args.common.store.files)?;
    let mut unused = config.fill(&mut settings);
    say_unknown_variables(printer);
    let (named, ttl, wait) = (settings.named(), settings.ttl(), settings.wait());
    let grace = settings.grace(&ttl)?;
    let url = describe(&named.value)?.url;
    let opening = Opening::of(&settings);
    let mut in_force = settings.layer;
    in_force.retain(|key, _| !key.is_credential());
    in_force.extend(opening.credentials);
    in_force.extend([
        (Key::Store, named.map(|_| Value::Text(url))),
        (Key::Ttl, ttl.map(Value::Duration)),
        (Key::Wait, wait.map(Value::Duration)),
        (Key::Grace, grace.map(Value::Duration)),
    ]);
    let row = |row: &TableRow| {
        let set = in_force.remove(&row.key);
        let set = set.map(|it| (it.value.show(), it.from));
        let (value, from) = set.unzip();
        Row {
            key: row.name,
            value,
            from: from.unwrap_or(Origin::Default),
        }
    };
    let mut settings: Vec<_> = TABLE.iter().map(row).collect();
    // Who has none is not to look for its key.
    let password = Key::Password.row().name;
    settings.retain(|row| row.key != password || row.value.is_some());
    // Those that would be in force with the store that they are for.
    let is_set = |row: &Row, key| row.key == key && row.value.is_some();
    unused.retain(|it| !settings.iter().any(|row| is_set(row, it.key)));
    let view = View {
        unused,
        settings,
        profile: config.profile.map(|profile| ProfileRow {
            name: profile.value,
            from: profile.from,
        }),
        files: config.files,
    };
    printer.show(&view, || text(&view))?;
    Ok(exit::OK)
}

/// A variable with a slip in its name sets nothing.
fn say_unknown_variables(printer: &Printer) {
    let prefix = env::PREFIX;
    let known = || env::known().filter_map(|name| name.strip_prefix(prefix));
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let names = names.filter_map(|name| Some(name.strip_prefix(prefix)?.to_owned()));
    for name in names.filter(|name| !known().any(|it| it == name)) {
        let message = format!("there is no setting {prefix}{name}: it is ignored");
        match nearest(&name, known()) {
            Some(near) => printer.warn_with_hint(message, format!("did you mean {prefix}{near}?")),
            None => printer.warn(message),
        }
    }
}

const SETTINGS: &[Column<Row>] = &[
    ("SETTING", |row| row.key.to_owned()),
    ("VALUE", |row| match &row.value {
        Some(value) if !value.is_empty() => value.clone(),
        _ => "-".to_owned(),
    }),
    ("FROM", |row| row.from.to_string()),
];

const FILES: &[Column<LookedFor>] = &[
    ("FILE", |file| file.path.display().to_string()),
    ("WHOSE", |file| match file.whose {
        Whose::User => "this user's".to_owned(),
        Whose::System => "the system's".to_owned(),
        Whose::Named => "named".to_owned(),
    }),
    ("STATE", |file| file.state.to_owned()),
];

fn text(view: &View) -> String {
    let mut text = table(SETTINGS, &view.settings) + "\n";
    for Unused { key, from } in &view.unused {
        text += &format!("not used, as it is for another store: {key} ({from})\n");
    }
    if let Some(ProfileRow { name, from }) = &view.profile {
        text += &format!("profile {name} ({from})\n");
    }
    text + &table(FILES, &view.files)
}
