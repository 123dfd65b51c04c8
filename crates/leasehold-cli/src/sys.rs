//! What the system offers and Rust does not: all of the command's `unsafe` code.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::process::Command;
use std::ptr;

use rustix::process::Signal;

/// The name of this machine, as others see it beside our claims.
pub(crate) fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Which start of this machine it is; nothing where the system does not say.
pub(crate) fn boot() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    boot.unwrap_or_default().trim().to_owned()
}

/// Whether this process ignores the signal, as `nohup` arranges for SIGHUP.
#[allow(unsafe_code, reason = "no safe interface asks without changing")]
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action changes nothing, and `now` is writable and of the right type; it
    // is read only after a success that has filled it (and all zeroes are a valid value).
    unsafe {
        libc::sigaction(signal.as_raw(), ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Stops this process as Ctrl-Z at a terminal would, and returns when it was continued.
///
/// Returns at once where that is impossible: nobody could continue a process whose group has no
/// parent outside, so the kernel discards the signal.
#[allow(unsafe_code, reason = "restoring the default action needs sigaction")]
pub(crate) fn stop_self() {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeroes are a valid action: the default one, with no flags and an empty mask.
    // Both pointers are to live values of the right type; the action put back is the one that was
    // found. Signals to this thread are delivered before `raise` returns.
    unsafe {
        let default = MaybeUninit::<libc::sigaction>::zeroed();
        if libc::sigaction(libc::SIGTSTP, default.as_ptr(), before.as_mut_ptr()) == 0 {
            libc::raise(libc::SIGTSTP);
            libc::sigaction(libc::SIGTSTP, before.as_ptr(), ptr::null_mut());
        }
    }
}

/// Blocks SIGTTOU for this thread: a background process that takes the terminal, or writes to one
/// that is set so, is stopped otherwise. A spawned child begins with nothing blocked.
pub(crate) fn block_ttou() {
    mask_ttou(libc::SIG_BLOCK);
}

/// Async-signal-safe.
#[allow(
    unsafe_code,
    reason = "the signal mask of a thread needs the C library"
)]
fn mask_ttou(how: libc::c_int) {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is writable, of the right type, and initialised by `sigemptyset`. All three
    // calls are async-signal-safe, and cannot fail with these arguments.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTTOU);
        libc::pthread_sigmask(how, set.as_ptr(), ptr::null_mut());
    }
}

/// What the child arranges for itself between fork and exec.
#[derive(Debug, Default)]
pub(crate) struct BeforeExec {
    /// Descriptors that the new program inherits although they are closed on exec elsewhere.
    pub(crate) inherit: Vec<RawFd>,
    /// The terminal whose foreground the child's group becomes.
    pub(crate) terminal: Option<RawFd>,
}

/// Has the child arrange `before` for itself, and die when this thread does (on Linux).
///
/// The descriptors must stay open until the command was spawned.
#[allow(
    unsafe_code,
    reason = "only the child itself can do this, between fork and exec"
)]
pub(crate) fn prepare(command: &mut Command, before: BeforeExec) {
    use std::os::unix::process::CommandExt;

    let parent = rustix::process::getpid();
    let arrange = move || {
        die_with(parent)?;
        for &fd in &before.inherit {
            inherit(fd)?;
        }
        // At a terminal that has gone meanwhile there is nothing to be in front of.
        before
            .terminal
            .map_or(Ok(()), |fd| take_foreground(fd).or(Ok(())))
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. `arrange` makes
    // system calls and builds errors out of numbers: no lock, no allocation, nothing freed.
    unsafe { command.pre_exec(arrange) };
}

#[cfg(target_os = "linux")]
fn die_with(parent: rustix::process::Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that died before the request was made sends nothing any more.
    if rustix::process::getppid() == Some(parent) {
        Ok(())
    } else {
        Err(rustix::io::Errno::SRCH.into())
    }
}

#[cfg(not(target_os = "linux"))]
#[allow(
    clippy::unnecessary_wraps,
    reason = "the other systems' face of a fallible call"
)]
fn die_with(_parent: rustix::process::Pid) -> io::Result<()> {
    Ok(())
}

#[allow(unsafe_code, reason = "a descriptor crosses the fork as a number")]
fn inherit(fd: RawFd) -> io::Result<()> {
    // SAFETY: the caller of `prepare` keeps the descriptor open until after the fork.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    Ok(rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?)
}

#[allow(unsafe_code, reason = "a descriptor crosses the fork as a number")]
fn take_foreground(fd: RawFd) -> io::Result<()> {
    // SAFETY: as for `inherit`.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    mask_ttou(libc::SIG_BLOCK);
    let taken = rustix::termios::tcsetpgrp(fd, rustix::process::getpid());
    mask_ttou(libc::SIG_UNBLOCK);
    Ok(taken?)
}
