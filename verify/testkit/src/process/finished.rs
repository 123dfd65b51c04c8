//! What a program said, how it ended, and what a test expects of both.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde_json::Value;

use super::Signal;

/// What a program said, and how it ended.
///
/// The expectations below fail with all of it, and with the command.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The command as it was started: the variables that were set, the program, its arguments.
    pub command: String,
    /// The exit code, or the signal that ended it.
    pub status: ExitStatus,
    /// All of standard output.
    pub stdout: String,
    /// All of standard error.
    pub stderr: String,
}

impl Finished {
    /// The exit code; none when a signal ended the program.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The status as a shell shows it: 128 + n for signal n.
    pub fn shown(&self) -> Option<i32> {
        self.code()
            .or_else(|| self.status.signal().map(|n| 128 + n))
    }

    /// The signal that ended the program.
    pub fn signal(&self) -> Option<Signal> {
        self.status.signal().and_then(Signal::from_named_raw)
    }

    /// Expects this exit code, or none.
    #[track_caller]
    pub fn has_code(&self, code: Option<i32>) {
        assert_eq!(self.code(), code, "{self}");
    }

    /// Expects that this signal has ended it.
    #[track_caller]
    pub fn has_signal(&self, signal: Signal) {
        assert_eq!(self.signal(), Some(signal), "{self}");
    }

    /// Expects this exit code, and nothing on standard error.
    #[track_caller]
    pub fn has_been_quiet(&self, code: Option<i32>) {
        assert_eq!((self.code(), &*self.stderr), (code, ""), "{self}");
    }

    /// Expects this exit code, and that within standard error.
    #[track_caller]
    pub fn has_ended_saying(&self, code: Option<i32>, text: impl AsRef<str>) {
        self.has_code(code);
        self.has_said(text);
    }

    /// Expects this exit code and exactly that on standard output.
    #[track_caller]
    pub fn has_printed(&self, code: Option<i32>, stdout: &str) {
        assert_eq!((self.code(), &*self.stdout), (code, stdout), "{self}");
    }

    /// Expects that within standard output.
    #[track_caller]
    pub fn has_shown(&self, text: impl AsRef<str>) {
        let text = text.as_ref();
        assert!(self.stdout.contains(text), "{text:?} is not shown: {self}");
    }

    /// Expects that within standard error.
    #[track_caller]
    pub fn has_said(&self, text: impl AsRef<str>) {
        let text = text.as_ref();
        assert!(self.stderr.contains(text), "{text:?} is not said: {self}");
    }

    /// Expects that nowhere in standard error.
    #[track_caller]
    pub fn has_not_said(&self, text: impl AsRef<str>) {
        let text = text.as_ref();
        assert!(!self.stderr.contains(text), "{text:?} is said: {self}");
    }

    /// Expects that standard error begins so.
    #[track_caller]
    pub fn has_said_first(&self, text: impl AsRef<str>) {
        let text = text.as_ref();
        assert!(self.stderr.starts_with(text), "not {text:?} first: {self}");
    }

    /// Standard output, which is one value of JSON.
    ///
    /// # Panics
    /// If it is not.
    #[track_caller]
    pub fn json(&self) -> Value {
        let value = serde_json::from_str(&self.stdout);
        value.unwrap_or_else(|error| panic!("no JSON: {error}: {self}"))
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}: {}", self.command, self.status)?;
        let (stdout, stderr) = (&self.stdout, &self.stderr);
        write!(out, "--- stdout\n{stdout}--- stderr\n{stderr}")
    }
}
