//! The settings that were not typed: from the environment, and from `leasehold.toml`.
//!
//! What is typed goes before the environment, and that before the files. Profiles go before what
//! stands outside of profiles, and the user's file before the system's. A file or a profile that
//! was named on the command line counts as typed.

mod file;
mod key;
mod layer;
mod parse;
mod setting;
mod url;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::Wait;

use crate::cli::{AccessArgs, Command, FileArgs, LeaseArgs, StoreArgs};
use crate::env;
use crate::failure::Failure;

use file::{Content, candidates};
use parse::{Sections, Source};

pub(crate) use file::Whose;
pub(crate) use key::{Key, nearest};
pub(crate) use layer::Layer;
pub(crate) use setting::{Origin, Setting, typed};
pub(crate) use url::Shown;

/// What is set in the environment and in files.
pub(crate) struct Config {
    pub(crate) profile: Option<Setting<String>>,
    pub(crate) files: Vec<LookedFor>,
    /// The first goes before the others.
    layers: Vec<Placed>,
}

/// As the password is shown, which has no key.
pub(crate) const PASSWORD: &str = "password";

/// A file that was looked for.
#[derive(Debug)]
pub(crate) struct LookedFor {
    pub(crate) path: Arc<Path>,
    pub(crate) whose: Whose,
    pub(crate) state: &'static str,
}

struct Placed {
    layer: Layer,
    is_of_file: bool,
}

/// The settings of a subcommand that can be configured, as far as it has them.
#[derive(Debug)]
pub(crate) struct Configurable<'a> {
    pub(crate) store: &'a mut StoreArgs,
    pub(crate) lease: Option<&'a mut LeaseArgs>,
    pub(crate) wait: Option<&'a mut Option<Setting<Wait>>>,
    pub(crate) retry_for: Option<&'a mut Option<Setting<Duration>>>,
    pub(crate) grace: Option<&'a mut Option<Setting<Duration>>>,
}

impl Configurable<'_> {
    /// Whether it was typed: then it does not matter what is set elsewhere.
    fn has(&self, key: Key) -> bool {
        let access = &self.store.access;
        match key {
            Key::Store => self.store.is_named(),
            Key::User => access.user.is_some(),
            Key::PasswordFile => access.password_file.is_some(),
            Key::TlsCa => access.tls_ca.is_some(),
            Key::TlsCert => access.tls_cert.is_some(),
            Key::TlsKey => access.tls_key.is_some(),
            Key::Ttl => self.lease.as_ref().is_some_and(|lease| lease.ttl.is_some()),
            Key::Wait => self.wait.as_ref().is_some_and(|wait| wait.is_some()),
            Key::RetryFor => self.retry_for.as_ref().is_some_and(|limit| limit.is_some()),
            Key::Grace => self.grace.as_ref().is_some_and(|grace| grace.is_some()),
            Key::Label => self
                .lease
                .as_ref()
                .is_some_and(|lease| lease.label.is_some()),
        }
    }
}

/// A setting that is not used, by its name.
pub(crate) type Unused = (&'static str, Origin);

/// Fills in what was not typed.
pub(crate) fn fill(command: &mut Command) -> Result<(), Failure> {
    if let Some(mut configurable) = command.configurable() {
        Config::load(&configurable)?.fill(&mut configurable);
    }
    Ok(())
}

impl Config {
    /// Reads the environment and the files.
    pub(crate) fn load(typed: &Configurable<'_>) -> Result<Self, Failure> {
        let environment = Layer::of_environment(|key| typed.has(key))?;
        let typed = &typed.store.files;
        let named = match &typed.config {
            Some(named) => Some(named.clone()),
            None => variable(env::CONFIG, |path| Some(PathBuf::from(path)))?,
        };
        let profile = match &typed.profile {
            Some(profile) => Some(profile.clone()),
            None => variable(env::PROFILE, |name| name.into_string().ok())?,
        };
        let (mut files, mut read) = (Vec::new(), Vec::new());
        for candidate in candidates(named.as_ref()) {
            let path: Arc<Path> = candidate.path.as_path().into();
            let state = match candidate.read()? {
                Content::Text { text, is_public } => {
                    let source = Source {
                        path: Arc::clone(&path),
                        text: &text,
                        is_public,
                        named: typed.config.is_some(),
                        profile_named: typed.profile.is_some(),
                    };
                    read.push(source.parse()?);
                    "read"
                }
                Content::Absent => "absent",
                Content::Inaccessible => "inaccessible",
            };
            files.push(LookedFor {
                path,
                whose: candidate.whose,
                state,
            });
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
    pub(crate) fn fill(&self, into: &mut Configurable<'_>) -> Vec<Unused> {
        let (found, unused) = self.settled(into.store.typed_url());
        into.store.fill(found.store, found.access);
        let is_variable = |(_, from): &Unused| matches!(from, Origin::Variable { .. });
        if unused.iter().any(is_variable) {
            into.store.leave_environment_out();
        }
        if let Some(lease) = &mut into.lease {
            lease.ttl = lease.ttl.take().or(found.lease.ttl);
            lease.label = lease.label.take().or(found.lease.label);
        }
        if let Some(wait) = &mut into.wait {
            **wait = wait.take().or(found.wait);
        }
        if let Some(retry_for) = &mut into.retry_for {
            **retry_for = retry_for.take().or(found.retry_for);
        }
        if let Some(grace) = &mut into.grace {
            **grace = grace.take().or(found.grace);
        }
        unused
    }

    /// All layers as one. How to log in belongs to the store that the same place names, or one that
    /// gives way to it: a password must not go to another server than it is meant for.
    fn settled(&self, typed_store: Option<&str>) -> (Layer, Vec<Unused>) {
        let url = |placed: &Placed| Some(placed.layer.store.as_ref()?.value.clone());
        let in_force = typed_store.map(str::to_owned);
        let in_force = in_force.or_else(|| self.layers.iter().find_map(url));
        let (mut meant, mut unused) = (None, Vec::new());
        let mut settled = Layer::default();
        for placed in self.layers.iter().rev() {
            let mut layer = placed.layer.clone();
            let is_for_it = if placed.is_of_file {
                meant = url(placed).or(meant);
                meant.is_none() || meant == in_force
            } else {
                // The store that was typed, or its own.
                typed_store.is_some() || in_force.is_none() || url(placed) == in_force
            };
            if !is_for_it {
                let origins = layer.access.origins();
                unused.extend(origins.map(|(key, from)| (key.name(), from)));
                if !placed.is_of_file
                    && let Some(password) = password_of_environment()
                {
                    unused.push((PASSWORD, password.from));
                }
                layer.access = AccessArgs::default();
            }
            settled = layer.over(settled);
        }
        (settled, unused)
    }
}

/// The password of the environment; an empty one is none.
pub(crate) fn password_of_environment() -> Option<Setting<String>> {
    let name = env::PASSWORD;
    let password = std::env::var(name).ok();
    let password = password.filter(|password| !password.is_empty());
    password.map(|password| Setting::new(password, Origin::Variable { name }))
}

/// The value of a variable that must not be empty.
fn variable<T>(
    name: &'static str,
    read: impl FnOnce(std::ffi::OsString) -> Option<T>,
) -> Result<Option<Setting<T>>, Failure> {
    let Some(value) = std::env::var_os(name) else {
        return Ok(None);
    };
    let value = Some(value).filter(|value| !value.is_empty()).and_then(read);
    let value = value.ok_or_else(|| {
        Failure::usage(format!("{name} is empty or not UTF-8")).hint(format!("unset {name}"))
    })?;
    Ok(Some(Setting::new(value, Origin::Variable { name })))
}

/// The layers, of which the first goes before the others.
fn in_order(
    environment: Layer,
    read: Vec<Sections>,
    profile: Option<&str>,
    typed: &FileArgs,
) -> Vec<Placed> {
    let (mut profiles, mut tops) = (Vec::new(), Vec::new());
    for mut sections in read {
        let is_meant = |(name, _): &(Arc<str>, Layer)| Some(&**name) == profile;
        if let Some(at) = sections.profiles.iter().position(is_meant) {
            profiles.push(sections.profiles.swap_remove(at).1);
        }
        tops.push(sections.top);
    }
    let file_is_typed = typed.config.is_some();
    let profile_is_typed = file_is_typed || typed.profile.is_some();
    let ranked = profiles.into_iter().map(|layer| (profile_is_typed, layer));
    let ranked = ranked.chain(tops.into_iter().map(|layer| (file_is_typed, layer)));
    let (before, after): (Vec<_>, Vec<_>) = ranked.partition(|(is_typed, _)| *is_typed);
    let of_file = |(_, layer)| Placed {
        layer,
        is_of_file: true,
    };
    let environment = Placed {
        layer: environment,
        is_of_file: false,
    };
    let before = before.into_iter().map(of_file);
    let after = after.into_iter().map(of_file);
    before.chain([environment]).chain(after).collect()
}

/// Refuses a profile that no file has.
fn check_profile(
    profile: &Setting<String>,
    read: &[Sections],
    files: &[LookedFor],
) -> Result<(), Failure> {
    let all = read.iter().flat_map(|sections| &sections.profiles);
    let names: Vec<_> = all.map(|(name, _)| &**name).collect();
    if names.contains(&&*profile.value) {
        return Ok(());
    }
    let read = files.iter().filter(|file| file.state == "read");
    let read: Vec<_> = read.map(|file| file.path.display().to_string()).collect();
    let places = match &*read {
        [] => "no leasehold.toml was found".to_owned(),
        read => format!("none in {}", read.join(" and ")),
    };
    let hint = match nearest(&profile.value, names.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None if names.is_empty() => {
            format!("begin one with a line [profile.{}]", profile.value)
        }
        None => format!("there are {}", names.join(", ")),
    };
    let (name, from) = (&profile.value, &profile.from);
    Err(Failure::usage(format!("there is no profile {name:?} ({from}): {places}")).hint(hint))
}
