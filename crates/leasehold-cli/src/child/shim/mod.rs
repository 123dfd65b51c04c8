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
//! Where there is a terminal, another process beside the command tells what that sends: see [`probe`].
//!
//! Everything behind `fork`, in [`process`], [`command`], [`probe`] and [`reaping`], runs in a copy of a process that may
//! have several threads: no allocation, no lock, system calls only.

mod command;
#[cfg(target_os = "linux")]
mod probe;
mod process;
#[cfg(target_os = "linux")]
mod reaping;
mod report;
mod signals;

use std::cell::Cell;
use std::ffi::{CString, OsStr};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::io::Errno;
use rustix::path::DecInt;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, waitid};

pub(super) use self::report::{Report, Request};
use self::signals::Mask;
use super::End;

/// The shim that was started last, to be reaped: nobody waits for its end, which comes by itself.
static LAST: AtomicI32 = AtomicI32::new(0);

/// Whether its number is still used.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// How much stack the command needs before it is its program.
const STACK: usize = 256 * 1024;

/// What is run, ready to be handed to the system.
#[derive(Debug)]
pub(super) struct Plan {
    /// The program and its arguments.
    pub(super) arguments: Vec<CString>,
    /// Its whole environment.
    pub(super) environment: Vec<CString>,
    /// Descriptors that the program inherits although they are closed on exec elsewhere.
    pub(super) inherit: Vec<RawFd>,
    /// Its variables that have its process id.
    pub(super) of_its_pid: Vec<PidVariable>,
    /// Whether there is a terminal, which the program's group may have.
    pub(super) at_terminal: bool,
    /// The terminal whose foreground the program's group becomes.
    pub(super) terminal: Option<RawFd>,
    /// Whether what the program leaves is ended with leasehold as the program is.
    pub(super) with_children: bool,
}

/// As C takes it.
pub(super) fn c_string(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

/// Starts a shim, and the command below it: their process ids (the command's is its group's too),
/// and where the shim reports; once that is closed, the shim ends. An error is the command's: why
/// it does not run. The number of the shim is its own until [`over`].
#[allow(unsafe_code, reason = "no safe interface forks")]
pub(super) fn start(plan: &Plan) -> io::Result<(Pid, Pid, UnixStream)> {
    // The last one has been told to end when its command had ended. One that is stopped, say, has not
    // heard it.
    if let Some(last) = Pid::from_raw(LAST.swap(0, Ordering::Relaxed)) {
        let _ = kill_process(last, Signal::KILL);
        reap(last);
    }
    let (mut reports, theirs) = UnixStream::pair()?;
    let (mut failure, fails) = io::pipe()?;
    let gate = plan.at_terminal.then(io::pipe).transpose()?;
    let arguments = pointers(plan.arguments.iter().map(|it| it.as_ptr()));
    let of_its_pid = plan.of_its_pid.iter().map(PidVariable::as_ptr);
    let environment = pointers(
        plan.environment
            .iter()
            .map(|it| it.as_ptr())
            .chain(of_its_pid),
    );
    // For what the C library keeps there to find the program, which may be a script.
    let mut stack = Vec::<u8>::with_capacity(STACK + size_of_val(&*arguments));
    let birth = Birth {
        arguments: &arguments,
        environment: &environment,
        plan,
        stack: stack.spare_capacity_mut().as_mut_ptr_range().end,
        reports: theirs.as_raw_fd(),
        fails: fails.as_raw_fd(),
        gate: gate
            .as_ref()
            .map(|(read, write)| (read.as_raw_fd(), write.as_raw_fd())),
        probe: AtomicI32::new(0),
        leasehold: getpid().as_raw_nonzero().get(),
    };
    // No handler of ours may run in the copy: it would write to pipes that both share.
    let mask = Mask::everything().set();
    // SAFETY: the copy calls `process::run`, which never returns and keeps to what is allowed there: see
    // the head of this module. All that `birth` borrows lives until after the call.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        process::run(&birth);
    }
    let error = io::Error::last_os_error();
    mask.set();
    drop((theirs, fails, gate));
    if forked < 0 {
        return Err(error);
    }
    LAST.store(forked, Ordering::Relaxed);
    let shim = Pid::from_raw(forked).ok_or(Errno::SRCH)?;
    let mut bytes = [0; Report::LENGTH];
    reports.read_exact(&mut bytes)?;
    let command = match Report::from_bytes(bytes) {
        Some(Report::Started(pid)) => Pid::from_raw(pid).ok_or(Errno::SRCH)?,
        Some(Report::Failed(error)) => return Err(io::Error::from_raw_os_error(error)),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    // Closed when the command has become its program.
    let mut error = [0; 4];
    match failure.read_exact(&mut error) {
        Ok(()) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error))),
        Err(_) => {
            IN_USE.store(true, Ordering::Relaxed);
            Ok((shim, command, reports))
        }
    }
}

/// The number of the shim that was started last is not used any more.
pub(super) fn over() {
    IN_USE.store(false, Ordering::Relaxed);
}

/// Reaps the children of this process that have ended, but for a shim whose number is in use.
#[cfg(target_os = "linux")]
pub(super) fn reap_others() {
    let last = LAST.load(Ordering::Relaxed);
    let used = IN_USE.load(Ordering::Relaxed).then_some(last);
    reaping::reap_all_but(&[used.and_then(Pid::from_raw)]);
}

/// Waits until a child has ended.
fn reap(pid: Pid) {
    // One that is not there any more needs no reaping.
    let _ = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), WaitIdOptions::EXITED));
}

/// A list as the system takes it.
fn pointers(all: impl Iterator<Item = *const libc::c_char>) -> Vec<*const libc::c_char> {
    all.chain([ptr::null()]).collect()
}

/// A variable of the command's environment that has the command's process id.
#[derive(Debug)]
pub(super) struct PidVariable {
    /// Name, number, and zeroes, in memory that the command writes to before it is its program.
    text: Vec<Cell<u8>>,
    number: usize,
}

impl PidVariable {
    pub(super) fn new(name: &str) -> Self {
        let number = name.len() + 1;
        let text = name.bytes().chain([b'=']).chain([0; 12]).map(Cell::new);
        Self {
            text: text.collect(),
            number,
        }
    }

    fn as_ptr(&self) -> *const libc::c_char {
        self.text.as_ptr().cast()
    }

    fn set(&self, pid: Pid) {
        let digits = DecInt::new(pid.as_raw_nonzero().get());
        let places = self.text.iter().skip(self.number);
        for (place, &digit) in places.zip(digits.as_bytes()) {
            place.set(digit);
        }
    }
}

/// Elsewhere leasehold goes by how the command has ended.
#[cfg(not(target_os = "linux"))]
mod probe {
    use std::os::fd::{BorrowedFd, RawFd};

    use super::Birth;

    pub(super) struct Probe;

    impl Probe {
        pub(super) fn of(_birth: &Birth<'_>) -> Self {
            Self
        }

        pub(super) fn first_unused(&self) -> RawFd {
            1
        }

        pub(super) fn look(&mut self, _reports: BorrowedFd<'_>) {}

        pub(super) fn finish(&mut self, _reports: BorrowedFd<'_>) {}
    }
}

/// What both processes behind the fork need: numbers and pointers.
struct Birth<'a> {
    arguments: &'a [*const libc::c_char],
    environment: &'a [*const libc::c_char],
    plan: &'a Plan,
    /// The end of the memory that the command may use as its stack.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "a copy brings its own stack")
    )]
    stack: *mut MaybeUninit<u8>,
    reports: RawFd,
    /// Where the command says why it was not started; closed by its start.
    fails: RawFd,
    /// A pipe: the probe reads from it, and ends when the shim closes it.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "there is no probe")
    )]
    gate: Option<(RawFd, RawFd)>,
    /// The probe, once it has begun: the command shares the shim's memory then.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "as for `gate`"))]
    probe: AtomicI32,
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "as for `gate`"))]
    leasehold: i32,
}

#[allow(unsafe_code, reason = "descriptors cross the fork as numbers")]
fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: `start` keeps all its descriptors open until after the fork, and the copy closes none
    // that it uses later; standard input stays open to the end.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

fn last_error() -> i32 {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// Ends this process, and runs nothing of what leasehold does at its end.
#[allow(unsafe_code, reason = "the safe exit runs handlers")]
fn exit(status: i32) -> ! {
    // SAFETY: ends the process; nothing of it is used any more.
    unsafe { libc::_exit(status) }
}
