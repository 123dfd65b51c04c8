//! Signals, as a process that is about to become another has to leave them.

use std::mem::MaybeUninit;
use std::ptr;

use rustix::process::Signal;

use crate::sys;

/// What was ignored stays ignored, but for SIGPIPE, which Rust ignores by itself, and what leasehold
/// does; no handler of leasehold's runs in the command.
#[allow(unsafe_code, reason = "no safe interface changes what a signal does")]
pub(super) fn default_signals() {
    for signal in 1..=64 {
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all pointers are to live values of the right type; all zeroes are a valid
        // action, the default one. Numbers that are no signal's are refused.
        unsafe {
            let known = libc::sigaction(signal, ptr::null(), now.as_mut_ptr()) == 0;
            let action = now.assume_init().sa_sigaction;
            let stays = match action {
                libc::SIG_DFL => true,
                libc::SIG_IGN => signal != libc::SIGPIPE && !sys::ignores_itself(signal),
                _ => false,
            };
            if known && !stays {
                let default = MaybeUninit::<libc::sigaction>::zeroed();
                libc::sigaction(signal, default.as_ptr(), ptr::null_mut());
            }
        }
    }
}

/// The signals that a thread blocks.
pub(super) struct Mask(pub(super) libc::sigset_t);

#[allow(
    unsafe_code,
    reason = "the signal mask of a thread needs the C library"
)]
impl Mask {
    pub(super) fn everything() -> Self {
        let mut set = MaybeUninit::zeroed();
        // SAFETY: the set is writable, of the right type, and initialised by the call.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            Self(set.assume_init())
        }
    }

    pub(super) fn nothing() -> Self {
        let mut set = MaybeUninit::zeroed();
        // SAFETY: as for `everything`.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            Self(set.assume_init())
        }
    }

    #[cfg(target_os = "linux")]
    pub(super) fn of(signals: &[Signal]) -> Self {
        let mut mask = Self::nothing();
        for signal in signals {
            // SAFETY: the set is initialised, and the signal is one.
            unsafe { libc::sigaddset(&raw mut mask.0, signal.as_raw()) };
        }
        mask
    }

    /// A descriptor of which they can be read, if they are blocked; -1 is none.
    #[cfg(target_os = "linux")]
    pub(super) fn descriptor(&self) -> std::os::fd::RawFd {
        // SAFETY: the set is initialised, and -1 stands for a new descriptor.
        unsafe {
            libc::signalfd(
                -1,
                &raw const self.0,
                libc::SFD_NONBLOCK | libc::SFD_CLOEXEC,
            )
        }
    }

    pub(super) fn without(mut self, signal: Signal) -> Self {
        // SAFETY: the set is initialised, and the signal is one.
        unsafe { libc::sigdelset(&raw mut self.0, signal.as_raw()) };
        self
    }

    /// Blocks these and no others; answers what was blocked before.
    pub(super) fn set(&self) -> Self {
        let mut before = MaybeUninit::zeroed();
        // SAFETY: both sets are of the right type; with these arguments the call cannot fail, and
        // all zeroes are a valid set.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}
