//! The terminal, and whose turn it is to read from it.

use std::fs::File;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use crate::sys;

/// The controlling terminal of this process. The child's group is another than
/// ours, and a terminal serves one group at a time: the foreground is handed to
/// the child and taken back.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
    modes: Option<Termios>,
}

impl Terminal {
    /// The controlling terminal, if there is one.
    ///
    /// From here on this thread may write to it and take it at any time.
    pub(crate) fn open() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let tty = File::from(rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?);
        let modes = tcgetattr(&tty).ok();
        // A background process that takes the terminal, or writes to one that is set so, is stopped
        // otherwise.
        sys::block(Some(Signal::TTOU));
        Some(Self { tty, modes })
    }

    /// Whether it is that group's turn.
    pub(crate) fn is_of(&self, group: Pid) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|front| front == group)
    }

    /// Whether it is our group's turn.
    pub(crate) fn is_ours(&self) -> bool {
        sys::group().is_some_and(|ours| self.is_of(ours))
    }

    /// Whether it is our group's turn, or that of one below it, as of another leasehold's child.
    pub(crate) fn is_of_our_job(&self) -> bool {
        self.is_ours() || tcgetpgrp(&self.tty).is_ok_and(sys::is_below_our_group)
    }

    /// Hands the foreground to a group.
    pub(crate) fn give(&self, group: Pid) {
        // A terminal that has gone needs no hand-over.
        let _ = tcsetpgrp(&self.tty, group);
    }

    /// Takes the foreground back from that group, if it has it.
    pub(crate) fn take_back(&self, group: Pid) {
        if let Some(ours) = sys::group().filter(|_| self.is_of(group)) {
            self.give(ours);
        }
    }

    /// Restores the modes, after a program that had no chance to.
    pub(crate) fn restore(&self) {
        if let Some(modes) = &self.modes {
            // Waits for no output: it may be held up for ever.
            let _ = tcsetattr(&self.tty, OptionalActions::Now, modes);
        }
    }
}
