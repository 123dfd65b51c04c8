//! The probe: a process of the command's group that does nothing and ends by what a terminal sends.
//!
//! While the command has the terminal, Ctrl-C reaches its group and neither leasehold nor whoever has
//! started it. What of that the command makes is not to be seen: it may end with a status of its own.

use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::Ordering;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::process::{close, close_from, name};
use super::signals::Mask;
use super::{Birth, Report, borrow, exit};

/// Where the shim keeps the probe's pipe: once it is closed, the probe ends.
const GATE: RawFd = 1;

/// What a terminal sends to a group, and what ends a program.
const SENT: [Signal; 3] = [Signal::HUP, Signal::INT, Signal::QUIT];

/// Begins the probe from within the command, which leads its group and is not its program yet, so that
/// nothing that is sent is missed. It is a child of the shim, as the command is.
#[allow(unsafe_code, reason = "no safe interface makes such a process")]
pub(super) fn begin(birth: &Birth<'_>) {
    let Some((gate, _)) = birth.gate else { return };
    let flags = libc::c_long::from(libc::CLONE_PARENT);
    let none: libc::c_long = 0;
    // SAFETY: a copy as `fork` makes it, of a process of one thread; it keeps to system calls and never
    // returns from `run`.
    let forked = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    match forked {
        0 => run(gate, birth.leasehold),
        // Without one it is not known what the terminal has sent, which is no reason not to run.
        forked => {
            let probe = i32::try_from(forked).unwrap_or_default();
            birth.probe.store(probe, Ordering::Relaxed);
        }
    }
}

/// Is the probe, with every signal blocked.
fn run(gate: RawFd, leasehold: i32) -> ! {
    let _ = rustix::stdio::dup2_stdin(borrow(gate));
    close_from(1);
    let _ = rustix::process::chdir(c"/");
    name(c"leasehold-probe");
    let sent = Mask::of(&SENT).descriptor();
    loop {
        let over = wait(sent);
        // Read behind the wait, whatever has ended it: the signal came before the shim has closed.
        while let Some((signal, sender)) = read(sent) {
            // What leasehold itself has passed on is known there.
            if sender != leasehold {
                exit(signal);
            }
        }
        if over {
            exit(0);
        }
    }
}

/// Waits for a signal or for the end. Answers whether that has come.
#[allow(unsafe_code, reason = "no safe interface that is compiled in")]
fn wait(sent: RawFd) -> bool {
    let of = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut both = [of(sent), of(0)];
    // SAFETY: both are live and writable, and the number is theirs.
    let ready = unsafe { libc::poll(both.as_mut_ptr(), 2, -1) };
    let [_, gate] = both;
    ready < 0 || gate.revents != 0
}

/// The next signal that was sent, and by whom: 0 is the kernel.
#[allow(unsafe_code, reason = "no safe interface that is compiled in")]
fn read(sent: RawFd) -> Option<(i32, i32)> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    let length = size_of::<libc::signalfd_siginfo>();
    // SAFETY: `info` is writable and as long as said; all zeroes are a valid value of it.
    let info = unsafe {
        let read = libc::read(sent, info.as_mut_ptr().cast(), length);
        (read == isize::try_from(length).unwrap_or(-1)).then(|| info.assume_init())?
    };
    let sender = i32::try_from(info.ssi_pid).unwrap_or_default();
    Some((i32::try_from(info.ssi_signo).unwrap_or_default(), sender))
}

/// The probe, as the shim knows it: as long as it is not reaped.
pub(super) struct Probe {
    pid: Option<Pid>,
    has_gate: bool,
}

impl Probe {
    /// What has begun, if it has. Keeps the pipe open, at [`GATE`].
    pub(super) fn of(birth: &Birth<'_>) -> Self {
        if let Some((_, gate)) = birth.gate {
            let _ = rustix::stdio::dup2_stdout(borrow(gate));
        }
        Self {
            pid: Pid::from_raw(birth.probe.load(Ordering::Relaxed)),
            has_gate: birth.gate.is_some(),
        }
    }

    /// The first of the shim's descriptors that nobody needs.
    pub(super) fn first_unused(&self) -> RawFd {
        match self.has_gate {
            true => GATE + 1,
            false => GATE,
        }
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        self.pid
    }

    /// Reports what it has ended by, if it has ended.
    pub(super) fn look(&mut self, reports: BorrowedFd<'_>) {
        self.hear(reports, WaitIdOptions::NOHANG);
    }

    /// Has it end, after the command: whatever was sent to both is reported before.
    pub(super) fn finish(&mut self, reports: BorrowedFd<'_>) {
        if let Some(probe) = self.pid {
            close(GATE);
            // One that is stopped ends, too.
            let _ = kill_process(probe, Signal::CONT);
            self.hear(reports, WaitIdOptions::empty());
        }
    }

    fn hear(&mut self, reports: BorrowedFd<'_>, options: WaitIdOptions) {
        let Some(probe) = self.pid else { return };
        let ended = waitid(WaitId::Pid(probe), WaitIdOptions::EXITED | options);
        let Ok(Some(status)) = ended else { return };
        self.pid = None;
        if let Some(signal @ 1..) = status.exit_status() {
            Report::Typed(signal).write(reports);
        }
    }
}
