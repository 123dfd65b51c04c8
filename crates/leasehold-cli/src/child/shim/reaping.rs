//! Reaping: of all children of a process, or of all but one.

use std::mem::MaybeUninit;

use rustix::io::Errno;
use rustix::process::{
    Pid, WaitId, WaitIdOptions, WaitOptions, test_kill_process_group, wait, waitid,
};

/// Reaps the children that have ended, but for that one.
///
/// The system names the oldest child that has ended. Behind the one that is kept, once that has ended,
/// no other is seen.
pub(super) fn reap_all_but(kept: Option<Pid>) {
    while let Some(pid) = ended().filter(|&pid| Some(pid) != kept) {
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
    }
}

/// Whether all that the command has started is gone. On Linux this reaps all children that have ended,
/// the command too, which would hide the others: of a subreaper without a child there is no descendant
/// either. Elsewhere the command's process group counts: whatever has left it is not known. A group that
/// is not ours to signal counts as empty, as one does that has nothing but the command's own remains.
pub(super) fn is_alone_after(command: Pid) -> bool {
    if cfg!(not(target_os = "linux")) {
        return test_kill_process_group(command).is_err();
    }
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(None) => return false,
            Err(Errno::CHILD) => return true,
            Ok(Some(_)) | Err(_) => {}
        }
    }
}

/// A child that has ended and is not reaped, if there is one.
#[allow(unsafe_code, reason = "the safe interface does not say who has ended")]
fn ended() -> Option<Pid> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is writable and of the right type; all zeroes are a valid value of it, with
    // process id 0 when nobody has ended.
    let ended = unsafe {
        match libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) {
            0 => info.assume_init().si_pid(),
            _ => 0,
        }
    };
    Pid::from_raw(ended)
}
