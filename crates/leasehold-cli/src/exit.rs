//! Exit statuses, as `sysexits.h` and shells have them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold::ErrorKind;
use rustix::process::{Signal, WaitIdStatus, kill_current_process_group};

use crate::sys;

/// Done.
pub(crate) const OK: u8 = 0;
/// Asked, and the answer was no.
pub(crate) const DECLINED: u8 = 1;
/// `show --exit-code`: somebody holds the key.
pub(crate) const HELD: u8 = 1;
/// `deadlocks`: there are some.
pub(crate) const DEADLOCKED: u8 = 1;
/// `doctor`: locks work, and something endangers them.
pub(crate) const ENDANGERED: u8 = 1;
/// `doctor`: locks do not work, or exclude nobody.
pub(crate) const UNSAFE: u8 = 2;
/// Wrong usage (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// What stands at the key is not leasehold's, or is damaged (`EX_DATAERR`).
pub(crate) const CORRUPT: u8 = 65;
/// The store cannot be reached, or refuses (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// The operating system refused what every machine should do (`EX_OSERR`).
pub(crate) const SYSTEM: u8 = 71;
/// The output cannot be written (`EX_IOERR`).
pub(crate) const OUTPUT: u8 = 74;
/// The lock was not obtained in time (`EX_TEMPFAIL`).
pub(crate) const CONFLICT: u8 = 75;
/// The lease was lost while the command ran, or `hold` held it.
pub(crate) const LOST: u8 = 79;
/// The command was found and cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// How long what is left to do may take once it is certain how we end.
const LONGEST: Duration = Duration::from_secs(5);

/// How this process ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) code: u8,
    /// The signal that ended the command, or us.
    pub(crate) signal: Option<i32>,
    /// What the terminal has sent to the command's group, and not to that of our caller.
    pub(crate) typed: Option<Signal>,
}

impl From<u8> for Status {
    fn from(code: u8) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }
}

impl Status {
    /// Of a process that has ended.
    pub(crate) fn of_process(ended: &WaitIdStatus) -> Self {
        match ended.exit_status() {
            Some(code) => u8::try_from(code).unwrap_or(u8::MAX).into(),
            None => Self::of_signal(ended.terminating_signal().unwrap_or_default()),
        }
    }

    /// A signal ended it: the status that shells have for that.
    pub(crate) fn of_signal(signal: i32) -> Self {
        Self {
            signal: Some(signal),
            ..signalled(signal).into()
        }
    }

    /// The lease was lost under the command.
    pub(crate) fn lost(self) -> Self {
        Self { code: LOST, ..self }
    }

    /// Ends this process so at the latest in [`LONGEST`], whatever it waits for then.
    pub(crate) fn at_the_latest(self) {
        // Without a thread it ends when all is done.
        let _ = thread::Builder::new().spawn(move || {
            let (_kept, over) = mpsc::channel::<()>();
            let _ = over.recv_timeout(LONGEST);
            self.end()
        });
    }

    /// Ends this process. Our caller sees what it would see of the command without us: a shell goes
    /// on after a status, and not after a Ctrl-C that has ended its command.
    #[allow(clippy::exit, reason = "some thread may wait for something for ever")]
    pub(crate) fn end(self) -> ! {
        static ENDS: AtomicBool = AtomicBool::new(false);
        while ENDS.swap(true, Ordering::Relaxed) {
            thread::park();
        }
        if let Some(typed) = self.typed {
            let _ = kill_current_process_group(typed);
        }
        if let Some(signal) = self.signal.filter(|&signal| signalled(signal) == self.code) {
            // Comes back where signals do not end it: in the first process of a container.
            sys::die_by(signal);
        }
        std::process::exit(self.code.into())
    }
}

/// The status of a process that a signal ended.
fn signalled(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// The status for an error of the library.
pub(crate) fn of_error(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Timeout | ErrorKind::Deadlock => CONFLICT,
        ErrorKind::Lost => LOST,
        ErrorKind::Invalid => USAGE,
        ErrorKind::Corrupt => CORRUPT,
        // Unavailable, Refused, Unsupported: the store did not do it.
        _ => UNAVAILABLE,
    }
}

/// The table for the help and the manual: a status, two spaces, what it means.
pub(crate) const TABLE: &str = include_str!("exit.txt").trim_ascii_end();
