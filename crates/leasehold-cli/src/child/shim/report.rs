//! What the shim and leasehold say to each other.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use super::late;
use crate::exit::Status;

/// What the shim says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::child) enum Report {
    /// The command is there, with this process id, and its program has not begun.
    Started(i32),
    /// Its program has begun.
    Began,
    /// It did not come to that, for this reason.
    Failed(i32),
    /// It was stopped by this signal.
    Stopped(i32),
    Ended(Status),
    /// Nothing is left of what it had started.
    Alone,
}

impl Report {
    pub(in crate::child) const LENGTH: usize = 5;

    pub(super) fn to_bytes(self) -> [u8; Self::LENGTH] {
        let (tag, value) = match self {
            Self::Started(pid) => (b's', pid),
            Self::Began => (b'b', 0),
            Self::Failed(error) => (b'f', error),
            Self::Stopped(signal) => (b't', signal),
            Self::Ended(status) => match status.signal {
                Some(signal) => (b'k', signal),
                None => (b'e', status.code.into()),
            },
            Self::Alone => (b'a', 0),
        };
        let [a, b, c, d] = value.to_ne_bytes();
        [tag, a, b, c, d]
    }

    pub(in crate::child) fn from_bytes([tag, a, b, c, d]: [u8; Self::LENGTH]) -> Option<Self> {
        let value = i32::from_ne_bytes([a, b, c, d]);
        Some(match tag {
            b's' => Self::Started(value),
            b'b' => Self::Began,
            b'f' => Self::Failed(value),
            b't' => Self::Stopped(value),
            b'e' => Self::Ended(u8::try_from(value).unwrap_or(u8::MAX).into()),
            b'k' => Self::Ended(Status::of_signal(value)),
            b'a' => Self::Alone,
            _ => return None,
        })
    }

    /// What the shim says next; an error if it did not come to that.
    pub(super) fn receive(from: &mut impl Read) -> io::Result<Self> {
        let mut bytes = [0; Self::LENGTH];
        from.read_exact(&mut bytes).map_err(late)?;
        match Self::from_bytes(bytes) {
            Some(Self::Failed(error)) => Err(io::Error::from_raw_os_error(error)),
            report => report.ok_or_else(|| io::ErrorKind::InvalidData.into()),
        }
    }

    /// Nobody there to read it is seen when the other end is closed.
    pub(super) fn write(self, to: BorrowedFd<'_>) {
        let _ = rustix::io::write(to, &self.to_bytes());
    }
}

/// What leasehold says to the shim: to have the command's program begin.
pub(super) const BEGIN: u8 = b'b';

/// The command has ended: to report when nothing is left of what the command had started. The
/// command's number is not used any more.
pub(in crate::child) const OUTLAST: u8 = b'o';

/// Says that. A shim that is not there any more shows when its reports are read.
pub(in crate::child) fn request(to: impl AsFd, what: u8) {
    let _ = rustix::io::write(to, &[what]);
}

/// What leasehold says next; nothing when it has closed its end.
pub(super) fn requested(from: BorrowedFd<'_>) -> Option<u8> {
    let mut byte = [0_u8];
    let read = rustix::io::read(from, &mut byte);
    (read == Ok(1)).then_some(byte[0])
}
