//! The code under test, broken on purpose: a model that does not notice shows nothing.
//!
//! `mutants/all.txt` says what is broken, and how. A copy of the core that can be broken is built
//! once; then the models that a mutant names are run on it. One that survives is a failure.

mod sources;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use clap::ValueEnum;

use super::checker::{Counterexample, Findings};
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

/// What found a mutant, with the promise that was broken; or why it could not be tried.
pub type Found = io::Result<Option<(Findings, Counterexample)>>;

/// The properties that no mutant has broken: nothing shows that they can fail.
#[must_use]
pub fn never_broken(all: &[Found]) -> Vec<String> {
    let found = all.iter().filter_map(|found| found.as_ref().ok()?.as_ref());
    let broken: Vec<_> = found.map(|(_, broken)| &*broken.property).collect();
    let all = Promise::value_variants().iter().map(|it| it.name());
    all.filter(|name| !broken.contains(&name.as_str()))
        .collect()
}

/// All mutants, by name.
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
    /// Runs the models on it until one is broken, by a program that [`build`] has built.
    ///
    /// # Errors
    /// Why it could not be tried.
    pub fn try_out(&self, program: &Path) -> Found {
        let output = Command::new(program)
            .args(["model", "--json", "--until-broken"])
            .args(&self.models)
            .env("LEASEHOLD_MUTANT", self.name)
            .stdin(Stdio::null())
            .output()?;
        let mut last = String::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let mut found: Findings = serde_json::from_str(line).map_err(io::Error::other)?;
            if let Some(broken) = found.broken.take() {
                return Ok(Some((found, broken)));
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

    /// It, and what became of it, in one line.
    pub fn line(&self, found: &Found) -> String {
        let became = match found {
            Ok(Some((found, broken))) => {
                let (model, checker, states) = (&found.model, &found.checker, found.states);
                // The beginning is none.
                let steps = broken.trace.len().saturating_sub(1);
                let counted = match checker == "walks" {
                    true => "steps walked",
                    false => "states",
                };
                let property = &broken.property;
                format!(
                    "killed: {property}, {model}, in {steps} steps ({checker}, {states} {counted})"
                )
            }
            Ok(None) => "SURVIVED".to_owned(),
            Err(error) => format!("FAILED: {error}"),
        };
        format!("{:<22} {:<58} {became}", self.name, self.what)
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
