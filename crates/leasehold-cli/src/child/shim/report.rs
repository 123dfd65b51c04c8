//! What the shim says to leasehold.

use std::os::fd::BorrowedFd;

use super::End;

/// What the shim says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::child) enum Report {
    /// The command begins, with this process id.
    Started(i32),
    /// It did not come to that, for this reason.
    Failed(i32),
    /// It was stopped by this signal.
    Stopped(i32),
    Ended(End),
}

impl Report {
    pub(in crate::child) const LENGTH: usize = 5;

    fn to_bytes(self) -> [u8; Self::LENGTH] {
        let (tag, value) = match self {
            Self::Started(pid) => (b's', pid),
            Self::Failed(error) => (b'f', error),
            Self::Stopped(signal) => (b't', signal),
            Self::Ended(End::Exited(code)) => (b'e', code),
            Self::Ended(End::Signalled(signal)) => (b'k', signal),
        };
        let [a, b, c, d] = value.to_ne_bytes();
        [tag, a, b, c, d]
    }

    pub(in crate::child) fn from_bytes([tag, a, b, c, d]: [u8; Self::LENGTH]) -> Option<Self> {
        let value = i32::from_ne_bytes([a, b, c, d]);
        Some(match tag {
            b's' => Self::Started(value),
            b'f' => Self::Failed(value),
            b't' => Self::Stopped(value),
            b'e' => Self::Ended(End::Exited(value)),
            b'k' => Self::Ended(End::Signalled(value)),
            _ => return None,
        })
    }

    /// Nobody there to read it is seen when the other end is closed.
    pub(super) fn write(self, to: BorrowedFd<'_>) {
        let _ = rustix::io::write(to, &self.to_bytes());
    }
}
