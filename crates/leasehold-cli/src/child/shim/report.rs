//! What the shim and leasehold say to each other.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use super::late;

/// What the shim says: which of these, and with what number.
pub(in crate::child) type Report = (u8, i32);

/// The command is there, with this process id, and its program has not begun.
pub(super) const STARTED: u8 = b's';
/// Its program has begun.
pub(super) const BEGAN: u8 = b'b';
/// It did not come to that, for this reason.
pub(super) const FAILED: u8 = b'f';
/// It was stopped by this signal.
pub(in crate::child) const STOPPED: u8 = b't';
/// It has ended by itself, with this status.
pub(in crate::child) const EXITED: u8 = b'e';
/// This signal has ended it.
pub(in crate::child) const KILLED: u8 = b'k';
/// Nothing is left of what it had started.
pub(in crate::child) const ALONE: u8 = b'a';

/// How many bytes a report has.
pub(in crate::child) const LENGTH: usize = 5;

pub(super) fn to_bytes((what, number): Report) -> [u8; LENGTH] {
    let [a, b, c, d] = number.to_ne_bytes();
    [what, a, b, c, d]
}

pub(in crate::child) fn from_bytes([what, number @ ..]: [u8; LENGTH]) -> Report {
    (what, i32::from_ne_bytes(number))
}

/// Nobody there to read it is seen when the other end is closed.
pub(super) fn report(to: BorrowedFd<'_>, what: u8, number: i32) {
    let _ = rustix::io::write(to, &to_bytes((what, number)));
}

/// What the shim says next; an error if it did not come to that.
pub(super) fn reported(from: &mut impl Read) -> io::Result<Report> {
    let mut bytes = [0; LENGTH];
    from.read_exact(&mut bytes).map_err(late)?;
    match from_bytes(bytes) {
        (FAILED, error) => Err(io::Error::from_raw_os_error(error)),
        report => Ok(report),
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
