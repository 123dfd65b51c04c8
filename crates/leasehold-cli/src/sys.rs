//! What the system offers and Rust does not: the command's `unsafe` code, but for the shim's.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::{io, iter, ptr};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_current_process_group};
use signal_hook::low_level::raise;

/// The name of this machine, as others see it beside our claims.
pub(crate) fn host() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

/// Which start of this machine it is; nothing where the system does not say.
pub(crate) fn boot() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    boot.unwrap_or_default().trim().to_owned()
}

/// What the kernel says of a process behind its name: state, parent, group, session, and so on. Only
/// Linux says it so.
pub(crate) fn process_fields(pid: Pid) -> io::Result<Vec<String>> {
    let stat = std::fs::read(format!("/proc/{pid}/stat"))?;
    behind_name(&stat).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Of "PID (NAME) STATE PARENT …"; the name may hold anything.
fn behind_name(stat: &[u8]) -> Option<Vec<String>> {
    let stat = String::from_utf8_lossy(stat);
    let (_, behind) = stat.rsplit_once(')')?;
    Some(behind.split_whitespace().map(str::to_owned).collect())
}

/// The process group of this process; nothing where it has no number in our PID namespace, as after
/// `unshare --pid`.
#[allow(unsafe_code, reason = "rustix does not expect that there is none")]
pub(crate) fn group() -> Option<Pid> {
    // SAFETY: it takes nothing, and cannot fail.
    Pid::from_raw(unsafe { libc::getpgrp() })
}

pub(crate) fn parent_of(pid: Pid) -> Option<Pid> {
    parent(&process_fields(pid).ok()?)
}

/// Whether the process, or one above it, is of our process group.
pub(crate) fn is_below_our_group(pid: Pid) -> bool {
    let Some(ours) = group().map(|group| group.to_string()) else {
        return false;
    };
    let above = |fields: &Vec<String>| process_fields(parent(fields)?).ok();
    let mut all = iter::successors(process_fields(pid).ok(), above);
    all.any(|fields| fields.get(2) == Some(&ours))
}

fn parent(fields: &[String]) -> Option<Pid> {
    Pid::from_raw(fields.get(1)?.parse().ok()?)
}

/// Sends a signal to a process that was pinned.
#[cfg(target_os = "linux")]
pub(crate) use rustix::process::pidfd_send_signal as signal_pinned;

/// The process itself, whoever has its number later; an error where the system cannot tell.
#[cfg(target_os = "linux")]
pub(crate) fn pin(pid: Pid) -> Result<OwnedFd, Errno> {
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_pid: Pid) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn signal_pinned(_process: &OwnedFd, _signal: Signal) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// Has this process be killed when its parent ends, on Linux. Refused if that has ended, or is another
/// one.
pub(crate) fn die_with(parent: Pid) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that died before the request was made sends nothing any more.
    match rustix::process::getppid() == Some(parent) {
        true => Ok(()),
        false => Err(io::ErrorKind::Interrupted.into()),
    }
}

/// What a signal does; from now on that, if it is given. Nothing where it is no signal.
#[allow(unsafe_code, reason = "restoring the default action needs sigaction")]
fn action(signal: i32, new: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: a null new action changes nothing; else it is one of `without_code`, or was found here.
    // `before` is writable and of the right type, and all zeroes are a valid value of it.
    unsafe {
        let is_known = libc::sigaction(signal, new, before.as_mut_ptr()) == 0;
        is_known.then_some(before.assume_init())
    }
}

/// The action of a signal that runs no code of ours: the default one, or to ignore it.
#[allow(unsafe_code, reason = "an action has fields that the system knows")]
fn without_code(does: libc::sighandler_t) -> libc::sigaction {
    // SAFETY: all zeroes are a valid action, with no flags and an empty mask.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    action.sa_sigaction = does;
    action
}

/// Whether this process ignores the signal, as `nohup` arranges for SIGHUP.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    action(signal.as_raw(), None).is_some_and(|now| now.sa_sigaction == libc::SIG_IGN)
}

/// Ignores the signal from now on, as do the programs that this process becomes or starts.
pub(crate) fn ignore(signal: Signal) {
    action(signal.as_raw(), Some(&without_code(libc::SIG_IGN)));
}

/// Has writing fail where a file must not get larger: the signal would end us, and so the job. What we
/// start does not inherit that, as it would if we ignored the signal.
pub(crate) fn survive_file_size() {
    if !is_ignored(Signal::XFSZ) {
        // Without it only such a write ends us.
        let _ = signal_hook::flag::register(libc::SIGXFSZ, Arc::default());
    }
}

/// All signals, where one could be named.
pub(crate) const ALL: Option<Signal> = None;

/// Has this thread not take the signal, or [`ALL`]. What it starts inherits that.
pub(crate) fn block(signal: Option<Signal>) {
    mask(libc::SIG_BLOCK, signal);
}

/// Has this thread take the signal again, or [`ALL`].
pub(crate) fn unblock(signal: Option<Signal>) {
    mask(libc::SIG_UNBLOCK, signal);
}

#[allow(
    unsafe_code,
    reason = "the signal mask of a thread needs the C library"
)]
fn mask(how: i32, signal: Option<Signal>) {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is writable, of the right type, and initialised by `sigemptyset` or
    // `sigfillset`; the calls cannot fail with these arguments.
    unsafe {
        match signal {
            None => libc::sigfillset(set.as_mut_ptr()),
            Some(signal) => {
                libc::sigemptyset(set.as_mut_ptr());
                libc::sigaddset(set.as_mut_ptr(), signal.as_raw())
            }
        };
        libc::pthread_sigmask(how, set.as_ptr(), ptr::null_mut());
    }
}

/// Waits for one of these signals, which are blocked; answers it and who has sent it, if that was a
/// process.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "no safe interface says who has sent a signal")]
pub(crate) fn next_signal(signals: &[Signal]) -> Option<(i32, Option<Pid>)> {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: both are writable and of the right type; the set is initialised by `sigemptyset`, and all
    // zeroes are a valid `info`, with process id 0 for the kernel.
    let (signal, sender) = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
        }
        let mut signal = libc::sigwaitinfo(set.as_ptr(), info.as_mut_ptr());
        // As when this process, or the machine, has been stopped and goes on.
        while signal < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            signal = libc::sigwaitinfo(set.as_ptr(), info.as_mut_ptr());
        }
        (signal, info.assume_init().si_pid())
    };
    (signal > 0).then(|| (signal, Pid::from_raw(sender)))
}

/// Only the probe, which there is on Linux, waits so.
#[cfg(not(target_os = "linux"))]
pub(crate) fn next_signal(_signals: &[Signal]) -> Option<(i32, Option<Pid>)> {
    None
}

/// Ends this process by the signal, whatever is done about it now, and without a core dump of ours.
/// Returns where that is impossible.
pub(crate) fn die_by(signal: i32) {
    #[cfg(target_os = "linux")]
    let _ = {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
    };
    let none = rustix::process::Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    unblock(ALL);
    action(signal, Some(&without_code(libc::SIG_DFL)));
    let _ = raise(signal);
}

/// Stops this process as Ctrl-Z at a terminal would, and returns when it was continued.
///
/// Returns at once where that is impossible: nobody could continue a process whose group has no
/// parent outside, so the kernel discards the signal.
pub(crate) fn stop_self() {
    stop_after(Signal::TSTP, || {});
}

/// The same for the whole group, where the terminal has not sent it that signal: else a shell would
/// wait for the script that has started this process.
pub(crate) fn stop_group(signal: Signal) {
    stop_after(signal, || _ = kill_current_process_group(signal));
}

fn stop_after(signal: Signal, others: impl FnOnce()) {
    let (number, default) = (signal.as_raw(), without_code(libc::SIG_DFL));
    if let Some(before) = action(number, Some(&default)) {
        // Pending until the others have theirs: who continues them before then discards it, too.
        block(Some(signal));
        let _ = raise(number);
        others();
        // Signals to this thread are delivered before that returns.
        unblock(Some(signal));
        action(number, Some(&before));
    }
}

/// Another descriptor for the same open file; an error if that number is not open.
#[allow(unsafe_code, reason = "the number comes from the command line")]
pub(crate) fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the number is not negative. If it is not open, the only call that uses it says so.
    unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()
}

/// Closes all descriptors from that on: those that this process was started with.
#[allow(
    unsafe_code,
    reason = "descriptors of others are known by their numbers"
)]
pub(crate) fn close_from(first: RawFd) {
    #[cfg(target_os = "linux")]
    {
        let flags: libc::c_uint = 0;
        // SAFETY: nothing in this process uses a descriptor behind those from here on.
        let closed =
            unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, flags) };
        if closed == 0 {
            return;
        }
    }
    for number in first..1024 {
        // Older systems: as many as a process has unless it asks for more.
        // SAFETY: as above.
        unsafe { libc::close(number) };
    }
}

/// Completes when the descriptor is readable; nothing where that cannot be waited for.
#[allow(
    unsafe_code,
    reason = "the runtime offers no other way to wait for a descriptor"
)]
pub(crate) fn readable(fd: &impl AsFd) -> Option<impl Future<Output = ()>> {
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    // SAFETY: the borrow keeps the descriptor open for as long as the value lives.
    let fd = unsafe { AsyncFd::register_with_interest(fd.as_fd(), Interest::READABLE) };
    let fd = fd.ok()?;
    Some(async move { drop(fd.readable().await) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_says_of_a_process() {
        let read = |stat: &[u8]| {
            let fields = behind_name(stat)?;
            Some((
                fields.first()?.clone(),
                parent(&fields)?.as_raw_nonzero().get(),
            ))
        };
        let state_and_parent = |state: &str| Some((state.to_owned(), 7));
        assert_eq!(read(b"12 (sh) S 7 12 12 0 -1"), state_and_parent("S"));
        assert_eq!(read(b"12 (a) R 1 (b) c) D 7 12"), state_and_parent("D"));
        assert_eq!(read(b"12 (\xff\n) Z 7 12"), state_and_parent("Z"));
        for torn in [
            &b""[..],
            b"12 (sh",
            b"12 (sh)",
            b"12 (sh) S",
            b"12 (sh) S x",
        ] {
            assert_eq!(read(torn), None);
        }
        assert_eq!(
            behind_name(b"12 S 7"),
            None,
            "without its name nothing is known"
        );
    }
}
