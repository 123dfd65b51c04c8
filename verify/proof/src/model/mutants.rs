//! The code under test, broken on purpose: a model that does not notice shows nothing.
//!
//! `mutants/all.txt` says what is broken, and how. A copy of the core that can be broken is built
//! once; then the models that a mutant names are run on it. One that survives is a failure.

mod sources;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::{Deserialize, Serialize};

use super::clock::Stopwatch;
use super::promise::Promise;

/// One way to break the code.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// Its name, by which the core asks.
    pub name: &'static str,
    /// What is broken.
    pub what: &'static str,
    /// The models to run, in this order.
    pub models: Vec<&'static str>,
    patches: Vec<Patch>,
}

/// An expression in a file of the core, and what the mutant has in its place.
#[derive(Debug, Clone)]
struct Patch {
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

/// What became of a mutant.
#[derive(Debug, Clone, Serialize)]
pub struct Fate {
    /// Which mutant.
    pub mutant: &'static str,
    /// What it breaks.
    pub what: &'static str,
    /// What found it.
    pub killed: Option<Killed>,
    /// Why it could not be tried.
    pub failed: Option<String>,
    /// How long it took, with its building.
    pub seconds: f64,
}

/// What found a mutant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Killed {
    /// In which model.
    pub model: String,
    /// By which checker.
    pub checker: String,
    /// Which promise was broken.
    pub property: String,
    /// After how many states, or steps of walks.
    pub states: u64,
    /// How many steps lead there.
    pub steps: usize,
}

/// The part of a model's findings that counts here.
#[derive(Deserialize)]
struct Found {
    model: String,
    checker: String,
    states: u64,
    broken: Option<Broke>,
}

#[derive(Deserialize)]
struct Broke {
    property: String,
    /// The beginning, and each step.
    trace: Vec<String>,
}

impl Fate {
    /// In one line.
    #[must_use]
    pub fn line(&self) -> String {
        let became = match (&self.killed, &self.failed) {
            (Some(killed), _) => format!(
                "killed: {}, {}, in {} steps ({}, {} {})",
                killed.property,
                killed.model,
                killed.steps,
                killed.checker,
                killed.states,
                if killed.checker == "walks" {
                    "steps walked"
                } else {
                    "states"
                },
            ),
            (None, Some(failed)) => format!("FAILED: {failed}"),
            (None, None) => "SURVIVED".to_owned(),
        };
        format!("{:<22} {:<58} {became}", self.mutant, self.what)
    }
}

/// The properties that no mutant has broken: nothing shows that they can fail.
#[must_use]
pub fn never_broken(fates: &[Fate]) -> Vec<&'static str> {
    let killed = || fates.iter().filter_map(|fate| fate.killed.as_ref());
    let all = Promise::ALL.into_iter().map(|(_, name)| name);
    all.filter(|name| !killed().any(|killed| killed.property == *name))
        .collect()
}

/// All mutants, by name.
#[must_use]
pub fn all() -> Vec<Mutant> {
    let entries = include_str!("mutants/all.txt").split("\n* ").skip(1);
    entries.filter_map(read).collect()
}

/// Reads an entry: `name [model, model] what`, and a line `file: from => to` for each patch.
fn read(entry: &'static str) -> Option<Mutant> {
    let mut lines = entry.lines();
    let (name, rest) = lines.next()?.split_once(" [")?;
    let (models, what) = rest.split_once("] ")?;
    let patch = |line: &'static str| {
        let (file, patch) = line.trim().split_once(": ")?;
        let (from, to) = patch.split_once(" => ")?;
        Some(Patch { file, from, to })
    };
    Some(Mutant {
        name,
        what,
        models: models.split(", ").collect(),
        patches: lines.map(patch).collect::<Option<_>>()?,
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Builds the models on a copy of the core that can be broken.
///
/// # Errors
/// If that fails.
pub fn build() -> io::Result<PathBuf> {
    let root = root();
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), PathBuf::from)
        .join("models");
    let core = target.join("core");
    sources::write(&core)?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(&root)
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTC_WORKSPACE_WRAPPER", root.join("scripts/with-mutants"))
        .env("LEASEHOLD_BROKEN_CORE", &core)
        .args(["build", "--quiet", "--locked", "--no-default-features"])
        .arg("--config")
        .arg("profile.dev.package.leasehold-proof.opt-level=3")
        .args(["--package", "leasehold-proof", "--bin", "leasehold-proof"]);
    let Output { status, stderr, .. } = cargo.stdin(Stdio::null()).output()?;
    match status.success() {
        true => Ok(target.join("debug/leasehold-proof")),
        false => Err(io::Error::other(tail(&stderr))),
    }
}

impl Mutant {
    /// Runs the models on it, by a program that [`build`] has built.
    #[must_use]
    pub fn try_out(&self, program: &Path) -> Fate {
        let watch = Stopwatch::start();
        let (killed, failed) = match run(program, self) {
            Ok(killed) => (killed, None),
            Err(error) => (None, Some(error.to_string())),
        };
        Fate {
            mutant: self.name,
            what: self.what,
            killed,
            failed,
            seconds: watch.elapsed().as_secs_f64(),
        }
    }
}

/// Runs the models until one is broken.
fn run(program: &Path, mutant: &Mutant) -> io::Result<Option<Killed>> {
    let output = Command::new(program)
        .args(["model", "--json", "--until-broken"])
        .args(&mutant.models)
        .env("LEASEHOLD_MUTANT", mutant.name)
        .stdin(Stdio::null())
        .output()?;
    let mut last = String::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let found: Found = serde_json::from_str(line).map_err(io::Error::other)?;
        if let Some(broken) = found.broken {
            return Ok(Some(Killed {
                model: found.model,
                checker: found.checker,
                property: broken.property,
                states: found.states,
                steps: broken.trace.len().saturating_sub(1),
            }));
        }
        last = found.model;
    }
    match output.status.code() {
        Some(0) => Ok(None),
        // Something that must happen does not any more, or has no end.
        Some(1) => Err(io::Error::other(format!("{last} shows nothing on it"))),
        _ => Err(io::Error::other(format!(
            "after {last}: {}",
            panicked(&output.stderr)
        ))),
    }
}

fn tail(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<_> = lines.collect();
    lines[lines.len().saturating_sub(4)..].join(" / ")
}

/// What a program panicked with.
fn panicked(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().skip_while(|it| !it.contains("panicked at"));
    lines.take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mutant that cannot be read, or whose expression is not there any more, breaks nothing.
    #[test]
    fn each_can_be_read_and_has_its_place_in_the_core() {
        let entries = include_str!("mutants/all.txt").matches("\n* ").count();
        assert_eq!(all().len(), entries);
        assert!(all().is_sorted_by(|one, next| one.name < next.name));
        assert!(all().iter().all(|mutant| !mutant.patches.is_empty()));
        let broken = sources::broken(&all()).unwrap();
        assert!(broken.len() > 40, "{} files", broken.len());
    }

    #[test]
    fn each_names_models_that_there_are() {
        let models = super::super::catalogue::all();
        for name in all().iter().flat_map(|mutant| &mutant.models) {
            assert!(models.iter().any(|model| model.name == *name), "{name}");
        }
    }
}
