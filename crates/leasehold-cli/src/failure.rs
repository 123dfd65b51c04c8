//! Why the command ends without having done what it was asked for.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use leasehold::{Invalid, StoreError};
use leasehold_console::lock_table::is_passing;
use rustix::process::Signal;

use crate::exit::{self, Status};

/// One sentence, a hint where there is one, and the exit status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// What lies beneath, for those who want to know.
    pub(crate) cause: Option<String>,
    /// Whether asking again later may help.
    pub(crate) passing: bool,
    /// When, if the store says so.
    pub(crate) retry_after: Option<Duration>,
    /// What has ended us, where nothing has failed.
    pub(crate) signal: Option<Signal>,
}

impl Failure {
    pub(crate) fn new(status: u8, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            ..Self::default()
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(exit::USAGE, message)
    }

    /// Of a system that refused what it should do.
    pub(crate) fn system(message: impl Into<String>) -> Self {
        Self::new(exit::SYSTEM, message)
    }

    /// Of a store that did not answer, and may the next time.
    pub(crate) fn unanswered(message: impl Into<String>) -> Self {
        Self {
            passing: true,
            ..Self::new(exit::UNAVAILABLE, message)
        }
    }

    /// A signal has ended us, and no command ran. Nothing is waited for much longer.
    pub(crate) fn ended_by(signal: Signal) -> Self {
        let status = Status::of_signal(signal.as_raw());
        status.at_the_latest();
        Self {
            signal: Some(signal),
            ..Self::new(status.code, "")
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Of the errors of the library and of a store, which say the same.
macro_rules! from_errors {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self {
                    cause: error.source().map(ToString::to_string),
                    hint: error.hint().map(str::to_owned),
                    passing: is_passing(error.kind(), error.retry_after()),
                    retry_after: error.retry_after(),
                    ..Self::new(exit::of_error(error.kind()), error.to_string())
                }
            }
        }
    )*};
}

from_errors!(leasehold::Error, StoreError);

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self {
            hint: invalid.hint,
            ..Self::usage(invalid.message)
        }
    }
}

#[cfg(feature = "console")]
impl From<leasehold_console::ConsoleError> for Failure {
    fn from(error: leasehold_console::ConsoleError) -> Self {
        use leasehold_console::ConsoleError;
        match error {
            ConsoleError::Store(error) => error.into(),
            ConsoleError::Terminal(error) => {
                Self::new(exit::OUTPUT, format!("cannot use the terminal: {error}"))
            }
            ConsoleError::Listen(address, error) => {
                let message = format!("cannot listen at {address}: {error}");
                Self::new(exit::UNAVAILABLE, message)
                    .hint("--listen names another address, port 0 any that is free")
            }
        }
    }
}
