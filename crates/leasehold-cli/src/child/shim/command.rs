//! The command, from its birth to its program.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, setpgid};

use super::signals::{Mask, default_signals};
use super::{Birth, borrow, exit, last_error};

/// Begins the command: a process that shares this one's memory, while this one is suspended, until
/// it has become its program. That spares it a copy of all that leasehold has.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "no safe interface makes such a process")]
pub(super) fn begin(birth: &Birth<'_>, shim: Pid) -> libc::pid_t {
    struct Begin<'a>(&'a Birth<'a>, Pid);

    extern "C" fn run(begin: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the pointer is to the value below, which lives while its process is suspended.
        let Begin(birth, shim) = unsafe { &*begin.cast_const().cast::<Begin<'_>>() };
        command(birth, *shim)
    }

    let mut begin = Begin(birth, shim);
    let top = birth.stack.map_addr(|end| end & !15);
    // SAFETY: `run` never returns, and its stack is memory that nobody else uses; with these flags
    // the call comes back only when the new process has become another program or has ended, so
    // that nothing is used by both at once.
    unsafe {
        libc::clone(
            run,
            top.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut begin).cast(),
        )
    }
}

#[cfg(not(target_os = "linux"))]
#[allow(unsafe_code, reason = "no safe interface forks")]
pub(super) fn begin(birth: &Birth<'_>, shim: Pid) -> libc::pid_t {
    // SAFETY: this process has one thread, and the copy keeps to what is allowed, see `command`.
    match unsafe { libc::fork() } {
        0 => command(birth, shim),
        forked => forked,
    }
}

/// Becomes the command.
#[allow(unsafe_code, reason = "no safe interface becomes another program")]
fn command(birth: &Birth<'_>, shim: Pid) -> ! {
    let prepared = prepare(birth, shim);
    let error = prepared.err().unwrap_or_else(|| {
        // SAFETY: both lists are of C strings and end with a null pointer, and live. The call is
        // async-signal-safe, and returns only when it fails.
        unsafe { execute(birth.arguments, birth.environment) };
        Errno::from_raw_os_error(last_error())
    });
    let _ = rustix::io::write(borrow(birth.fails), &error.raw_os_error().to_ne_bytes());
    exit(127);
}

#[allow(unsafe_code, reason = "as for `command`")]
unsafe fn execute(arguments: &[*const libc::c_char], environment: &[*const libc::c_char]) {
    let Some(&program) = arguments.first() else {
        return;
    };
    #[cfg(target_os = "linux")]
    // SAFETY: as the caller promises.
    unsafe {
        libc::execvpe(program, arguments.as_ptr(), environment.as_ptr());
    }
    #[cfg(not(target_os = "linux"))]
    // SAFETY: as the caller promises; this process has one thread, so nobody reads `environ` now.
    unsafe {
        unsafe extern "C" {
            static mut environ: *const *const libc::c_char;
        }
        environ = environment.as_ptr();
        libc::execvp(program, arguments.as_ptr());
    }
}

/// What the command arranges for itself before it begins.
fn prepare(birth: &Birth<'_>, shim: Pid) -> Result<(), Errno> {
    die_with(shim)?;
    setpgid(None, None)?;
    #[cfg(target_os = "linux")]
    super::probe::begin(birth);
    for variable in &birth.plan.of_its_pid {
        variable.set(getpid());
    }
    for &fd in &birth.plan.inherit {
        rustix::io::fcntl_setfd(borrow(fd), rustix::io::FdFlags::empty())?;
    }
    if let Some(terminal) = birth.plan.terminal {
        // Every signal is blocked, SIGTTOU among them. At a terminal that has gone meanwhile there
        // is nothing to be in front of.
        let _ = rustix::termios::tcsetpgrp(borrow(terminal), getpid());
    }
    default_signals();
    Mask::nothing().set();
    Ok(())
}

/// A shim that is killed, by the system when memory is short, say, takes the command along.
#[cfg(target_os = "linux")]
fn die_with(parent: Pid) -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that died before the request was made sends nothing any more.
    if rustix::process::getppid() == Some(parent) {
        Ok(())
    } else {
        Err(Errno::SRCH)
    }
}

#[cfg(not(target_os = "linux"))]
#[allow(
    clippy::unnecessary_wraps,
    reason = "the other systems' face of a fallible call"
)]
fn die_with(_parent: Pid) -> Result<(), Errno> {
    Ok(())
}
