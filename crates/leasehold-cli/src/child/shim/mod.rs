//! The shim: a small process between leasehold and the command, so that nothing of the command
//! outlives a killed leasehold.
//!
//! It is the command's parent, and on Linux the subreaper of all that the command starts: a
//! descendant that has changed its session, its group or its user, or whose own parent has ended,
//! is still below it. It reports what becomes of the command. When leasehold is gone while the
//! command runs, it kills all of them, as far as the system lets it.
//!
//! Leasehold may wait for all that a command that has ended has left. Then the shim reaps the command
//! too, and reports when it has no child any more.
//!
//! It is leasehold started anew, before the lock is asked for: a process of one thread from its
//! beginning, which shares nothing with leasehold but a socket. When leasehold has the lock, it sends
//! what the command needs.

mod process;
mod reaping;
mod report;

use std::ffi::OsString;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

pub(super) use self::process::run;
pub(super) use self::report::{Report, go_on};
use super::{SHIM, Start, this_program};
use crate::duration::spoken;

/// The shim whose number is in use; 0 is none.
static IN_USE: AtomicI32 = AtomicI32::new(0);

/// The most descriptors that are handed over: standard input, and those that the command inherits.
const MOST_DESCRIPTORS: usize = 16;

/// How long a program may take to begin. One that is stopped meanwhile does not.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// What is set for the command, or not for it, as [`Start`] has it.
type Environment = Vec<(String, Option<String>)>;

/// A shim. Its number is its own as long as this lives.
#[derive(Debug)]
pub(crate) struct Shim {
    pub(super) pid: Pid,
    /// Once this is closed, the shim ends.
    pub(super) socket: UnixStream,
}

impl Shim {
    /// Begins a shim for this program, and does not wait for it: it gets ready while the lock is asked
    /// for. `with_children`: whether what the program leaves is ended with leasehold as the program is.
    #[allow(
        clippy::zombie_processes,
        reason = "the next one, or the system, waits for it"
    )]
    #[allow(unsafe_code, reason = "a closure has the library fork")]
    pub(crate) fn begin(
        program: &OsString,
        arguments: &[OsString],
        with_children: bool,
    ) -> io::Result<Self> {
        reap_others();
        let (socket, theirs) = UnixStream::pair()?;
        let mut shim = this_program(SHIM);
        shim.arg0("leasehold-shim")
            .arg(with_children.to_string())
            .arg(program)
            .args(arguments)
            .stdin(OwnedFd::from(theirs))
            // What is sent to leasehold's whole group, SIGKILL among it, is not meant for the shim.
            .process_group(0);
        // SAFETY: it does nothing. Without a closure the C library starts the shim by `posix_spawn`, with
        // its own two signals ignored, and the command would inherit that.
        unsafe { shim.pre_exec(|| Ok(())) };
        let shim = shim.spawn().map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => {
                    "leasehold does not find its own program: is /proc mounted?"
                }
                io::ErrorKind::PermissionDenied => {
                    "leasehold may not start its own program: is its file system mounted noexec?"
                }
                _ => return error,
            };
            io::Error::new(io::ErrorKind::Unsupported, why)
        })?;
        let pid = Pid::from_child(&shim);
        IN_USE.store(pid.as_raw_nonzero().get(), Ordering::Relaxed);
        Ok(Self { pid, socket })
    }

    /// Whether it has not ended while it was waiting.
    pub(crate) fn is_there(&self) -> bool {
        let now = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(self.pid), now), Ok(None))
    }

    /// Starts the command, and answers its process id. `before` is done when the command's group is
    /// there, and its program has not begun; it answers whether that may. An error is the command's: why
    /// it does not run.
    pub(super) fn start(
        &mut self,
        start: &Start<'_>,
        before: impl FnOnce(Pid) -> bool,
    ) -> io::Result<Pid> {
        let stdin = io::stdin();
        self.socket.set_read_timeout(Some(START_TIMEOUT))?;
        self.socket.set_write_timeout(Some(START_TIMEOUT))?;
        let descriptors = [&[stdin.as_fd()], &*start.child_fds].concat();
        self.send(&descriptors, &serde_json::to_vec(&start.environment)?)
            .map_err(late)?;
        let Report::Started(command) = Report::receive(&mut self.socket)? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let command = Pid::from_raw(command).ok_or(io::ErrorKind::InvalidData)?;
        if before(command) {
            go_on(&self.socket);
        } else {
            // The shim takes that for the end of the program.
            let _ = kill_process(command, Signal::KILL);
        }
        match Report::receive(&mut self.socket)? {
            Report::Began => Ok(command),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Sends descriptors with a first byte, then a text.
    fn send(&mut self, descriptors: &[BorrowedFd<'_>], text: &[u8]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::ArgumentListTooLong.into());
        }
        let first_byte = [IoSlice::new(&[0])];
        sendmsg(&self.socket, &first_byte, &mut control, SendFlags::empty())?;
        self.socket.write_all(text)
    }

    /// Ends a shim that has nothing to do any more, whatever it does just now: it may be stopped. What
    /// it has not killed by then stays.
    pub(super) fn end(self) {
        let _ = kill_process(self.pid, Signal::KILL);
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        IN_USE.store(0, Ordering::Relaxed);
    }
}

/// The error of a start that takes too long, of which the socket says that nothing is there yet.
pub(super) fn late(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            let why = format!("it has not begun within {}", spoken(START_TIMEOUT));
            io::Error::new(io::ErrorKind::TimedOut, why)
        }
        _ => error,
    }
}

/// Reaps the children of this process that have ended, but for a shim whose number is in use.
pub(super) fn reap_others() {
    reaping::reap_all_but(Pid::from_raw(IN_USE.load(Ordering::Relaxed)));
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    /// As of a shim that was stopped for longer than the lease: the lock is another's by now.
    #[test]
    fn a_command_that_may_not_begin_any_more_does_not() {
        let mut command = Command::new("sleep").arg("60").spawn().unwrap();
        let (pid, (socket, mut theirs)) = (Pid::from_child(&command), UnixStream::pair().unwrap());
        let started = Report::Started(pid.as_raw_nonzero().get());
        for report in [started, Report::Began] {
            theirs.write_all(&report.to_bytes()).unwrap();
        }
        let start = Start {
            program: "sleep".as_ref(),
            environment: Vec::new(),
            child_fds: Vec::new(),
        };
        let mut shim = Shim { pid, socket };
        assert_eq!(shim.start(&start, |_| false).unwrap(), pid);
        assert_eq!(command.wait().unwrap().signal(), Some(libc::SIGKILL));
        drop(shim);
        let mut told = Vec::new();
        theirs.read_to_end(&mut told).unwrap();
        assert!(told.ends_with(b"[]"), "it was told to go on: {told:?}");
    }
}
