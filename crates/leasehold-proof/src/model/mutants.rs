//! The code under test, broken on purpose: a model that does not notice shows nothing.
//!
//! Each mutant is a patch on the core. It is applied to a copy of the sources, built, and
//! the models that it names are run on it. One that survives is a failure, and so is a
//! patch that does not apply any more.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::{Deserialize, Serialize};

use super::clock::Stopwatch;
use super::promise::Promise;

/// One way to break the code.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// Its name: that of the patch.
    pub name: String,
    /// What is broken.
    pub what: String,
    /// The models to run, in this order.
    pub models: Vec<String>,
    /// Whether it belongs to the short form.
    pub short: bool,
    patch: PathBuf,
}

/// What became of a mutant.
#[derive(Debug, Clone, Serialize)]
pub struct Fate {
    /// Which mutant.
    pub mutant: String,
    /// What it breaks.
    pub what: String,
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

/// Where the mutants' sources come from, and where they are built.
#[derive(Debug)]
pub struct Workshop {
    scratch: tempfile::TempDir,
    target: PathBuf,
}

/// A mutant runs seconds: to build it faster is more than to run it faster.
const QUICKLY_BUILT: [&str; 3] = [
    "profile.dev.debug=false",
    "profile.dev.package.leasehold-core.opt-level=1",
    "profile.dev.package.leasehold-proof.opt-level=1",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All mutants, by name.
///
/// # Errors
/// If the patches cannot be read, or one does not say what it breaks.
pub fn all() -> io::Result<Vec<Mutant>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutants");
    let mut mutants = Vec::new();
    for entry in fs::read_dir(folder)? {
        let patch = entry?.path();
        if patch.extension() == Some(OsStr::new("patch")) {
            mutants.push(read(patch)?);
        }
    }
    mutants.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(mutants)
}

fn read(patch: PathBuf) -> io::Result<Mutant> {
    let text = fs::read_to_string(&patch)?;
    let mut lines = text.lines();
    let what = lines.next().unwrap_or_default().trim_start_matches("# ");
    let models = lines
        .next()
        .and_then(|line| line.strip_prefix("# models: "));
    let Some(models) = models else {
        let why = format!(
            "{} does not name its models in its second line",
            patch.display()
        );
        return Err(io::Error::other(why));
    };
    let name = patch.file_stem().unwrap_or_default().to_string_lossy();
    Ok(Mutant {
        name: name.into_owned(),
        what: what.to_owned(),
        models: models.split(", ").map(str::to_owned).collect(),
        short: lines.next() == Some("# short"),
        patch,
    })
}

impl Workshop {
    /// Copies the sources to where they can be broken.
    ///
    /// # Errors
    /// If they cannot be read, or not be written there.
    pub fn open() -> io::Result<Self> {
        let scratch = tempfile::tempdir()?;
        let root = workspace();
        for file in ["Cargo.toml", "Cargo.lock"] {
            fs::copy(root.join(file), scratch.path().join(file))?;
        }
        copy(&root.join("crates"), &scratch.path().join("crates"))?;
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), PathBuf::from)
            .join("mutants");
        Ok(Self { scratch, target })
    }

    /// Breaks the code, runs the models on it, and mends it.
    #[must_use]
    pub fn try_out(&self, mutant: &Mutant) -> Fate {
        let watch = Stopwatch::start();
        let tried = self.apply(mutant, false).and_then(|()| {
            let found = self.build().and_then(|program| run(&program, mutant));
            self.apply(mutant, true).and(found)
        });
        let (killed, failed) = match tried {
            Ok(killed) => (killed, None),
            Err(error) => (None, Some(error.to_string())),
        };
        Fate {
            mutant: mutant.name.clone(),
            what: mutant.what.clone(),
            killed,
            failed,
            seconds: watch.elapsed().as_secs_f64(),
        }
    }

    fn apply(&self, mutant: &Mutant, reverse: bool) -> io::Result<()> {
        let mut git = Command::new("git");
        // Without a repository around it: else it would look for the paths there.
        git.current_dir(self.scratch.path())
            .env("GIT_CEILING_DIRECTORIES", "/")
            .args(["apply", "--whitespace=nowarn"]);
        if reverse {
            git.arg("--reverse");
        }
        finish(git.arg(&mutant.patch), "the patch does not apply").map(drop)
    }

    fn build(&self) -> io::Result<PathBuf> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(self.scratch.path())
            .env("CARGO_TARGET_DIR", &self.target)
            // A mutant may leave something unused.
            .env("RUSTFLAGS", "-Awarnings")
            .args(["build", "--quiet", "--offline", "--no-default-features"])
            .args(
                QUICKLY_BUILT
                    .iter()
                    .flat_map(|setting| ["--config", setting]),
            )
            .args(["--package", "leasehold-proof", "--bin", "leasehold-proof"]);
        finish(&mut cargo, "it does not compile")?;
        Ok(self.target.join("debug/leasehold-proof"))
    }
}

/// Runs the models until one is broken.
fn run(program: &Path, mutant: &Mutant) -> io::Result<Option<Killed>> {
    let output = Command::new(program)
        .args(["model", "--json", "--until-broken"])
        .args(&mutant.models)
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

fn finish(command: &mut Command, what: &str) -> io::Result<Output> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(output);
    }
    let why = format!("{what}: {}", tail(&output.stderr));
    Err(io::Error::other(why))
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

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of them, whereas the short form tries a few.
    #[test]
    fn every_patch_applies() {
        let workshop = Workshop::open().unwrap();
        for mutant in all().unwrap() {
            for reverse in [false, true] {
                let applied = workshop.apply(&mutant, reverse);
                assert!(applied.is_ok(), "{}: {applied:?}", mutant.name);
            }
        }
    }
}
