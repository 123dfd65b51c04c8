//! What the shim and leasehold say to each other.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use super::late;

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
    /// It has ended by itself, with this status.
    Exited(i32),
    /// This signal has ended it.
    Killed(i32),
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
            Self::Exited(code) => (b'e', code),
            Self::Killed(signal) => (b'k', signal),
            Self::Alone => (b'a', 0),
        };
        let [a, b, c, d] = value.to_ne_bytes();
        [tag, a, b, c, d]
    }

    pub(in crate::child) fn from_bytes([tag, value @ ..]: [u8; Self::LENGTH]) -> Option<Self> {
        let value = i32::from_ne_bytes(value);
        Some(match tag {
            b's' => Self::Started(value),
            b'b' => Self::Began,
            b'f' => Self::Failed(value),
            b't' => Self::Stopped(value),
            b'e' => Self::Exited(value),
            b'k' => Self::Killed(value),
            b'a' => Self::Alone,
            _ => return None,
        })
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

/// What leasehold says to the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::child) enum Request {
    /// Have the command's program begin.
    Begin = b'b',
    /// The command has ended: report when nothing is left of what the command had started. The
    /// command's number is not used any more.
    Outlast = b'o',
}

impl Request {
    /// A shim that is not there any more shows when its reports are read.
    pub(in crate::child) fn write(self, to: impl AsFd) {
        let _ = rustix::io::write(to, &[self as u8]);
    }

    /// What leasehold says next; nothing when it has closed its end.
    pub(super) fn read(from: BorrowedFd<'_>) -> Option<Self> {
        let mut byte = [0];
        match (rustix::io::read(from, &mut byte), byte) {
            (Ok(1), [b'b']) => Some(Self::Begin),
            (Ok(1), [b'o']) => Some(Self::Outlast),
            _ => None,
        }
    }
}
