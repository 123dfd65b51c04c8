//! What the system offers and Rust does not: the command's `unsafe` code, but for the shim's.

use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// This user's home directory by the system's list of users, whatever the environment says.
#[allow(unsafe_code, reason = "no safe interface asks the list of users")]
pub(crate) fn home() -> Option<PathBuf> {
    use std::ffi::{CStr, OsStr};
    use std::os::unix::ffi::OsStrExt;

    let mut entry = MaybeUninit::<libc::passwd>::zeroed();
    let mut found = ptr::null_mut();
    // As long as entries are in practice; a longer one is not found.
    let mut texts = vec![0; 16 * 1024];
    // SAFETY: the entry, the buffer with its length, and the result are live and writable. On
    // success `found` is null or points to `entry`, which is filled then and points into `texts`.
    unsafe {
        let failed = libc::getpwuid_r(
            rustix::process::geteuid().as_raw(),
            entry.as_mut_ptr(),
            texts.as_mut_ptr(),
            texts.len(),
            &raw mut found,
        );
        if failed != 0 || found.is_null() || (*found).pw_dir.is_null() {
            return None;
        }
        let home = CStr::from_ptr((*found).pw_dir).to_bytes();
        Some(PathBuf::from(OsStr::from_bytes(home)))
    }
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

/// Whether this process ignores SIGXFSZ although its caller does not.
static IGNORES_FILE_SIZE: AtomicBool = AtomicBool::new(false);

/// Has writing fail where a file must not get larger: the signal would end us, and so the job.
#[allow(unsafe_code, reason = "no safe interface changes what a signal does")]
pub(crate) fn ignore_file_size() {
    if is_ignored(Signal::XFSZ) {
        return;
    }
    // SAFETY: ignoring a signal runs no code.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    IGNORES_FILE_SIZE.store(true, Ordering::Relaxed);
}

/// Whether we ignore the signal by ourselves, and what we start should not.
pub(crate) fn ignores_itself(signal: i32) -> bool {
    signal == libc::SIGXFSZ && IGNORES_FILE_SIZE.load(Ordering::Relaxed)
}

/// Ends this process by the signal, whatever is done about it now, and without a core dump of ours.
/// Returns where that is impossible.
#[allow(unsafe_code, reason = "restoring the default action needs sigaction")]
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
    let mut only = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: all zeroes are a valid action: the default one. The set is writable, and initialised by
    // `sigemptyset`; what is no signal is refused.
    unsafe {
        let default = MaybeUninit::<libc::sigaction>::zeroed();
        libc::sigaction(signal, default.as_ptr(), ptr::null_mut());
        libc::sigemptyset(only.as_mut_ptr());
        libc::sigaddset(only.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, only.as_ptr(), ptr::null_mut());
        libc::raise(signal);
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
/// that is set so, is stopped otherwise. A child begins with nothing blocked.
#[allow(
    unsafe_code,
    reason = "the signal mask of a thread needs the C library"
)]
pub(crate) fn block_ttou() {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is writable, of the right type, and initialised by `sigemptyset`; the calls
    // cannot fail with these arguments.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
    }
}

/// Another descriptor for the same open file; an error if that number is not open.
#[allow(unsafe_code, reason = "the number comes from the command line")]
pub(crate) fn duplicate(number: std::os::fd::RawFd) -> std::io::Result<std::os::fd::OwnedFd> {
    // SAFETY: the number is not negative. If it is not open, the only call that uses it says so.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(number) }.try_clone_to_owned()
}

/// Completes when the descriptor is readable; nothing where that cannot be waited for.
#[allow(
    unsafe_code,
    reason = "the runtime offers no other way to wait for a descriptor"
)]
#[cfg(target_os = "linux")]
pub(crate) fn readable(fd: &std::os::fd::OwnedFd) -> Option<impl Future<Output = ()>> {
    use std::os::fd::AsFd;

    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    // SAFETY: the borrow keeps the descriptor open for as long as the value lives.
    let fd = unsafe { AsyncFd::register_with_interest(fd.as_fd(), Interest::READABLE) };
    let fd = fd.ok()?;
    Some(async move { drop(fd.readable().await) })
}
