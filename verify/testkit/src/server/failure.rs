//! Why a server did not start.

use std::fmt;
use std::path::{Path, PathBuf};

use super::Program;

/// Why a server did not start.
#[derive(Debug)]
pub struct StartError {
    program: PathBuf,
    what: String,
    log: String,
}

impl StartError {
    pub(super) fn new(program: &Path, what: String, log: String) -> Self {
        Self {
            program: program.to_owned(),
            what,
            log,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, what, log } = self;
        let program = program.display();
        let variable = Program::Default.variable().unwrap_or_default();
        writeln!(out, "`{program}` {what}")?;
        writeln!(
            out,
            "hint: install Redis, or name its server in {variable}; \
             `scripts/test --install` gets every server that the tests need"
        )?;
        if log.contains("tls-") && log.contains("Bad directive") {
            writeln!(out, "hint: this server was built without TLS")?;
        }
        write!(out, "--- its log\n{log}")
    }
}

impl std::error::Error for StartError {}
