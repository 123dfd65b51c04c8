//! The settings that were not typed: from the environment, and from `leasehold.toml`.
//!
//! What is typed goes before the environment, and that before the files. Profiles go before what
//! stands outside of profiles, and the user's file before the system's. A file or a profile that
//! was named on the command line counts as typed.

mod file;
mod parse;
mod settings;
mod table;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueHint;
use clap::builder::NonEmptyStringValueParser;
use serde::Serialize;

use crate::env;
use crate::failure::Failure;

use parse::{Sections, Source};
use table::unusable;

pub(crate) use file::{LookedFor, Whose};
pub(crate) use settings::{CommandSettings, Layer};
pub(crate) use table::{Key, Origin, Row, Setting, TABLE, Value, nearest, parse_store, parse_wait};

/// What is set in the environment and in files.
pub(crate) struct Config {
    pub(crate) profile: Option<Setting<String>>,
    pub(crate) files: Vec<LookedFor>,
    /// With their ranks; the first goes before the others.
    layers: Vec<(u8, Layer)>,
}

/// The rank of the environment: all others are of files.
const ENVIRONMENT: u8 = 2;

/// Which files are read beside the options.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct FileArgs {
    /// Read this leasehold.toml, instead of the user's and the system's [env: LEASEHOLD_CONFIG]
    ///
    /// Without it, settings that are neither typed nor in the environment come from
    /// $XDG_CONFIG_HOME/leasehold/leasehold.toml, else ~/.config/leasehold/leasehold.toml, and
    /// from /etc/leasehold/leasehold.toml. `leasehold config` shows which are in force.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    config: Option<PathBuf>,
    /// Use the settings of [profile.NAME] of leasehold.toml first [env: LEASEHOLD_PROFILE]
    #[arg(
        long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(),
        hide_short_help = true
    )]
    profile: Option<String>,
}

/// A setting that is not used.
#[derive(Serialize)]
pub(crate) struct Unused {
    pub(crate) key: &'static str,
    pub(crate) from: Origin,
}

impl Config {
    /// Reads the environment and the files.
    pub(crate) fn load(settings: &CommandSettings, typed: &FileArgs) -> Result<Self, Failure> {
        let environment = of_environment(&settings.layer)?;
        let named = match &typed.config {
            Some(path) => Some(Setting::new(path.clone(), Origin::option("--config"))),
            None => variable(env::CONFIG, |path| Some(PathBuf::from(path)))?,
        };
        let profile = match &typed.profile {
            Some(name) => Some(Setting::new(name.clone(), Origin::option("--profile"))),
            None => variable(env::PROFILE, |name| name.into_string().ok())?,
        };
        let (mut files, mut read) = (file::files(named.as_ref()), Vec::new());
        for file in &mut files {
            if let Some((text, is_public)) = file.read()? {
                let source = Source {
                    path: Arc::clone(&file.path),
                    text: &text,
                    is_public,
                    named: typed.config.is_some(),
                    profile_named: typed.profile.is_some(),
                };
                read.push(source.parse()?);
            }
        }
        if let Some(profile) = &profile {
            check_profile(profile, &read, &files)?;
        }
        let name = profile.as_ref().map(|profile| &*profile.value);
        Ok(Self {
            layers: in_order(environment, read, name, typed),
            profile,
            files,
        })
    }

    /// Fills in what was not typed. Answers what is set for another store.
    pub(crate) fn fill(&self, into: &mut CommandSettings) -> Vec<Unused> {
        let typed = std::mem::take(&mut into.layer);
        let (settled, unused) = self.settled(typed.get(&Key::Store));
        let is_variable = |it: &Unused| matches!(it.from, Origin::Variable { .. });
        into.without_environment |= unused.iter().any(is_variable);
        into.layer = settled;
        into.layer.extend(typed);
        unused
    }

    /// All layers as one. How to log in belongs to the store that the same place names, or one that
    /// gives way to it: a password must not go to another server than it is meant for.
    fn settled(&self, typed_store: Option<&Setting<Value>>) -> (Layer, Vec<Unused>) {
        let url = |layer: &Layer| Some(layer.get(&Key::Store)?.value.clone());
        let in_force = typed_store.map(|store| store.value.clone());
        let in_force = in_force.or_else(|| self.layers.iter().find_map(|(_, layer)| url(layer)));
        let (mut meant, mut unused) = (None, Vec::new());
        let mut settled = Layer::new();
        for (rank, layer) in self.layers.iter().rev() {
            let is_of_file = *rank != ENVIRONMENT;
            let is_for_it = if is_of_file {
                meant = url(layer).or(meant);
                meant.is_none() || meant == in_force
            } else {
                // The store that was typed, or its own.
                typed_store.is_some() || in_force.is_none() || url(layer) == in_force
            };
            for (key, setting) in layer {
                if is_for_it || !key.is_credential() {
                    settled.insert(*key, setting.clone());
                } else {
                    let (key, from) = (key.row().name, setting.from.clone());
                    unused.push(Unused { key, from });
                }
            }
        }
        (settled, unused)
    }
}

/// What the environment sets of what was not typed.
fn of_environment(typed: &Layer) -> Result<Layer, Failure> {
    let mut layer = Layer::new();
    let refused = |name: &str, why| {
        let failure = unusable(name, why);
        let hint = failure.hint.clone().unwrap_or_default();
        failure.hint(format!("{hint}, or unset {name}"))
    };
    for row in TABLE.iter().filter(|row| !typed.contains_key(&row.key)) {
        let name = row.variable();
        let Some(value) = std::env::var_os(&name) else {
            continue;
        };
        // A file goes before the password, and an empty password is none.
        let has_file = [typed, &layer].map(|it| it.contains_key(&Key::PasswordFile));
        if row.key == Key::Password && (value.is_empty() || has_file.contains(&true)) {
            continue;
        }
        let set = row.read(&value, None, Origin::variable(name.clone()));
        layer.insert(row.key, set.map_err(|why| refused(&name, why))?);
    }
    Ok(layer)
}

/// The value of a variable that must not be empty.
fn variable<T>(
    name: &'static str,
    read: impl FnOnce(OsString) -> Option<T>,
) -> Result<Option<Setting<T>>, Failure> {
    let Some(value) = std::env::var_os(name) else {
        return Ok(None);
    };
    let value = Some(value).filter(|value| !value.is_empty()).and_then(read);
    let value = value.ok_or_else(|| {
        Failure::usage(format!("{name} is empty or not UTF-8")).hint(format!("unset {name}"))
    })?;
    Ok(Some(Setting::new(value, Origin::variable(name))))
}

/// The layers, of which the first goes before the others.
fn in_order(
    environment: Layer,
    read: Vec<Sections>,
    profile: Option<&str>,
    typed: &FileArgs,
) -> Vec<(u8, Layer)> {
    let file_is_typed = typed.config.is_some();
    let profile_is_typed = file_is_typed || typed.profile.is_some();
    let mut ranked = vec![(ENVIRONMENT, environment)];
    for mut sections in read {
        let meant = profile.and_then(|name| sections.profiles.remove(name));
        ranked.extend(meant.map(|layer| (if profile_is_typed { 0 } else { 3 }, layer)));
        ranked.push((if file_is_typed { 1 } else { 4 }, sections.top));
    }
    // Within a rank the user's file stays before the system's.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked
}

/// Refuses a profile that no file has.
fn check_profile(
    profile: &Setting<String>,
    read: &[Sections],
    files: &[LookedFor],
) -> Result<(), Failure> {
    let all = read.iter().flat_map(|sections| sections.profiles.keys());
    let names: BTreeSet<_> = all.map(|name| &**name).collect();
    if names.contains(&&*profile.value) {
        return Ok(());
    }
    let read = files.iter().filter(|file| file.state == "read");
    let read: Vec<_> = read.map(|file| file.path.display().to_string()).collect();
    let places = match &*read {
        [] => "no leasehold.toml was found".to_owned(),
        read => format!("none in {}", read.join(" and ")),
    };
    let (name, from) = (&profile.value, &profile.from);
    let hint = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None if names.is_empty() => format!("begin one with a line [profile.{name}]"),
        None => format!("there are {}", Vec::from_iter(names).join(", ")),
    };
    Err(Failure::usage(format!("there is no profile {name:?} ({from}): {places}")).hint(hint))
}
