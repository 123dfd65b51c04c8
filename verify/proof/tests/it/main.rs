//! The short form of the proofs, and that promises and the public API have tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails with the message"
)]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

#[cfg(feature = "clients")]
mod command;
#[cfg(feature = "clients")]
mod faults;
mod layers;
mod public;
mod safety;
#[cfg(feature = "clients")]
mod simulate;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files of these kinds below a directory, but what is built.
fn files(directory: &Path, kinds: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.extension().and_then(OsStr::to_str);
        if path.is_dir() && !path.ends_with("target") {
            found.extend(files(&path, kinds));
        } else if kind.is_some_and(|kind| kinds.contains(&kind)) {
            found.push(path);
        }
    }
    found
}

/// Runs the program; it ends with the test, however that ends.
#[cfg(feature = "clients")]
fn leasehold_proof(arguments: &str) -> std::process::Output {
    use std::process::{Child, Command, Stdio};

    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-proof"));
    command
        .args(arguments.split(' '))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = leasehold_testkit::process::spawn_tied(command);
    let ended = child.and_then(Child::wait_with_output);
    ended.expect("the program starts and ends")
}
