//! The code under test, broken on purpose: a model that does not notice shows nothing.
//!
//! The core asks at 52 places whether it is broken there. It is built once so that it can
//! be; then the models that a mutant names are run on it. One that survives is a failure.

mod catalogue;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::{Deserialize, Serialize};

use super::clock::Stopwatch;
use super::promise::Promise;

/// One way to break the code.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// Its name, by which the core asks.
    pub name: &'static str,
    /// What is broken.
    pub what: &'static str,
    /// The models to run, in this order.
    pub models: &'static [&'static str],
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
    let all = Promise::ALL.into_iter().map(Promise::name);
    all.filter(|name| !killed().any(|killed| killed.property == *name))
        .collect()
}

/// All mutants, by name.
#[must_use]
pub fn all() -> Vec<Mutant> {
    catalogue::ALL.to_vec()
}

/// Builds the models so that the core can be broken.
///
/// # Errors
/// If that fails.
pub fn build() -> io::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), PathBuf::from)
        .join("models");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(&root)
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTC_WORKSPACE_WRAPPER", root.join("scripts/with-mutants"))
        .args(["build", "--quiet", "--locked", "--no-default-features"])
        .args([
            "--config",
            "profile.dev.package.leasehold-proof.opt-level=3",
        ])
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
        .args(mutant.models)
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
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(4)..].join(" / ")
}

/// What a program panicked with.
fn panicked(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines = text
        .lines()
        .skip_while(|line| !line.contains("panicked at"));
    lines.take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    /// The names by which the core asks, in all files of a directory.
    fn asked(directory: &Path, names: &mut Vec<String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                asked(&path, names);
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            let asks = text.split("mutated(\"").skip(1);
            names.extend(asks.filter_map(|ask| Some(ask.split_once('"')?.0.to_owned())));
        }
    }

    #[test]
    fn the_core_can_be_broken_in_each_of_these_ways_and_no_other() {
        let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/leasehold-core/src");
        let mut names = Vec::new();
        asked(&core, &mut names);
        let names: BTreeSet<_> = names.iter().map(String::as_str).collect();
        let known: BTreeSet<_> = all().iter().map(|mutant| mutant.name).collect();
        assert_eq!(names, known);
        assert_eq!(known.len(), all().len(), "each is there once");
        assert!(all().is_sorted_by_key(|mutant| mutant.name));
    }

    #[test]
    fn each_names_models_that_there_are() {
        let models = super::super::catalogue::all();
        for name in all().iter().flat_map(|mutant| mutant.models) {
            assert!(models.iter().any(|model| model.name == *name), "{name}");
        }
    }
}
