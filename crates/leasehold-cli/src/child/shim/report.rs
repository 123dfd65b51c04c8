//! What the shim and leasehold say to each other.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use serde::{Deserialize, Serialize};

use super::late;

/// What the shim says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::child) enum Report {
    /// The command is there, with this process id, and its program has not begun.
    Started(i32),
    /// Its program has begun.
    Began,
    /// It did not come to that, for this reason.
    Failed(i32),
    /// It was stopped by this signal.
    Stopped(i32),
    /// It has ended by itself, with this status.
    Exited(i32),
    /// This signal has ended it.
    Killed(i32),
    /// Nothing is left of what it had started.
    Alone,
}

impl Report {
    /// All are so long, with spaces behind.
    pub(in crate::child) const LENGTH: usize = 32;

    pub(super) fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [b' '; Self::LENGTH];
        // None is longer.
        let _ = serde_json::to_writer(&mut bytes[..], &self);
        bytes
    }

    pub(in crate::child) fn from_bytes(bytes: [u8; Self::LENGTH]) -> Option<Self> {
        serde_json::from_slice(&bytes).ok()
    }

    /// What the shim says next; an error if the command's program did not begin.
    pub(super) fn receive(from: &mut impl Read) -> io::Result<Self> {
        let mut bytes = [0; Self::LENGTH];
        from.read_exact(&mut bytes).map_err(late)?;
        match Self::from_bytes(bytes).ok_or(io::ErrorKind::InvalidData)? {
            Self::Failed(error) => Err(io::Error::from_raw_os_error(error)),
            report => Ok(report),
        }
    }

    /// Nobody there to read it is seen when the other end is closed.
    pub(super) fn write(self, to: BorrowedFd<'_>) {
        let _ = rustix::io::write(to, &self.to_bytes());
    }
}

/// Has the shim go on. At first: the command's program begins. After the command's end: the shim reports
/// when nothing is left of what the command had started; the command's number is not used any more. A
/// shim that is not there any more shows when its reports are read.
pub(in crate::child) fn go_on(shim: impl AsFd) {
    let _ = rustix::io::write(shim, b"g");
}

/// Waits until leasehold says so. Answers whether it has: else it has closed its end.
pub(super) fn may_go_on(leasehold: BorrowedFd<'_>) -> bool {
    let mut byte = [0_u8];
    rustix::io::read(leasehold, &mut byte) == Ok(1)
}
