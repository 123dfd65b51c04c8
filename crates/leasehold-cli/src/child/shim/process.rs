//! The shim itself: a process of one thread that waits, reports, and kills.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, kill_process_group,
    setpgid, wait, waitid,
};

use super::super::tree;
use super::command::begin;
use super::probe::Probe;
#[cfg(target_os = "linux")]
use super::reaping::{is_alone, reap_all_but};
use super::signals::Mask;
use super::{Birth, End, Report, Request, borrow, exit, last_error};

/// The longest pause between two rounds of killing: who sleeps in the kernel ends when it wakes.
const LONGEST_ROUND: Duration = Duration::from_millis(100);

/// How often the process group is looked at where no event tells that it is empty.
#[cfg(not(target_os = "linux"))]
const LOOK: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// How far the command has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Runs,
    /// It has ended. It is not reaped, so that its number is its own as long as leasehold may use it.
    Ended,
    /// It has ended, and leasehold waits for all that it has left.
    Left,
    /// All of that is gone, too.
    Alone,
}

/// What has come out of waiting.
enum News {
    /// A child may have changed.
    OfChild,
    OfLeasehold(Request),
    /// Leasehold has closed its end, or is gone.
    Closed,
}

/// Is the shim, in the copy, to its end.
pub(super) fn run(birth: &Birth<'_>) -> ! {
    // What is sent to leasehold's whole group, SIGKILL among it, is not meant for the shim.
    let _ = setpgid(None, None);
    let me = getpid();
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(me));
    let forked = begin(birth, me);
    let Some(child) = (forked > 0).then_some(forked).and_then(Pid::from_raw) else {
        Report::Failed(last_error()).write(borrow(birth.reports));
        exit(1);
    };
    Report::Started(child.as_raw_nonzero().get()).write(borrow(birth.reports));
    // Nothing of leasehold's stays open here: no pipe whose end somebody waits for, no lifeline.
    let _ = rustix::stdio::dup2_stdin(borrow(birth.reports));
    let mut probe = Probe::of(birth);
    close_from(probe.first_unused());
    let _ = rustix::process::chdir(c"/");
    name(c"leasehold-shim");
    let reports = borrow(0);
    wake_by_children();
    let mut stage = Stage::Runs;
    loop {
        if stage == Stage::Runs && look(child, &mut probe, reports) {
            stage = Stage::Ended;
        }
        match stage {
            Stage::Left if is_alone_after(child) => {
                Report::Alone.write(reports);
                stage = Stage::Alone;
            }
            Stage::Left | Stage::Alone => {}
            #[cfg(target_os = "linux")]
            Stage::Runs | Stage::Ended => reap_all_but(&[Some(child), probe.pid()]),
            #[cfg(not(target_os = "linux"))]
            Stage::Runs | Stage::Ended => {}
        }
        match wait_for_news(stage) {
            News::OfChild => {}
            News::OfLeasehold(Request::Outlast) => stage = Stage::Left,
            News::OfLeasehold(Request::Leave) => exit(0),
            News::Closed => {
                let guarded = match stage {
                    Stage::Runs | Stage::Left => true,
                    Stage::Ended => birth.plan.with_children,
                    Stage::Alone => false,
                };
                if guarded {
                    kill_everything(me, child, stage);
                }
                exit(0);
            }
        }
    }
}

/// Reports what has changed about the command, and what its terminal has sent. Answers whether it
/// has ended.
fn look(child: Pid, probe: &mut Probe, reports: BorrowedFd<'_>) -> bool {
    probe.look(reports);
    let now = WaitIdOptions::NOHANG;
    let all = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    while let Ok(Some(status)) = waitid(WaitId::Pid(child), all | now) {
        if !status.stopped() {
            let end = match status.exit_status() {
                Some(code) => End::Exited(code),
                None => End::Signalled(status.terminating_signal().unwrap_or_default()),
            };
            probe.finish(reports);
            Report::Ended(end).write(reports);
            return true;
        }
        // Taken note of, so that the next look sees what comes next.
        let _ = waitid(WaitId::Pid(child), WaitIdOptions::STOPPED | now);
        let signal = status.stopping_signal().unwrap_or_default();
        Report::Stopped(signal).write(reports);
    }
    false
}

/// Whether all that the command has started is gone. This reaps the command: it would hide the
/// others that have ended.
#[cfg(target_os = "linux")]
fn is_alone_after(_child: Pid) -> bool {
    is_alone()
}

/// Whether its process group is: whatever has left it is not known here. A group that is not ours to
/// signal counts as empty, as one does that has nothing but the command's own remains.
#[cfg(not(target_os = "linux"))]
fn is_alone_after(child: Pid) -> bool {
    rustix::process::test_kill_process_group(child).is_err()
}

/// Kills all that is below this process and lets itself be killed, the newest and the hidden too:
/// round by round, until a round has found nobody.
#[allow(
    clippy::disallowed_methods,
    reason = "a process of one thread; no event tells that a grandchild has ended"
)]
fn kill_everything(me: Pid, child: Pid, stage: Stage) {
    let mut reaped = cfg!(target_os = "linux") && stage == Stage::Left;
    let mut pause = Duration::from_millis(1);
    loop {
        let mut hit = false;
        if !reaped {
            let _ = kill_process_group(child, Signal::KILL);
            // Counts where `/proc` is not to be seen.
            hit |= kill_process(child, Signal::KILL).is_ok();
        }
        tree::each_descendant(me, &mut |pid| {
            hit |= tree::signal(pid, me, Signal::KILL).is_ok();
        });
        while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
            reaped |= pid == child;
        }
        if !hit {
            return;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_ROUND);
    }
}

/// Has a child that changes wake [`wait_for_news`], and nothing else.
#[allow(unsafe_code, reason = "no safe interface changes what a signal does")]
fn wake_by_children() {
    extern "C" fn woken(_signal: libc::c_int) {}
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeroes are a valid action; the handler does nothing, so it may run anywhere.
    unsafe {
        (*action.as_mut_ptr()).sa_sigaction = woken as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGCHLD, action.as_ptr(), ptr::null_mut());
    }
}

/// Waits until leasehold says something, on standard input here, or a child has changed.
#[allow(
    unsafe_code,
    reason = "only this call waits with another signal mask, and misses no signal"
)]
fn wait_for_news(stage: Stage) -> News {
    let mask = Mask::everything().without(Signal::CHILD);
    let limit = limit(stage);
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mut wanted = MaybeUninit::<libc::fd_set>::zeroed();
    // SAFETY: the set is initialised by `FD_ZERO` and has room for descriptor 0; null pointers
    // stand for sets that are not asked about, and for no limit.
    let ready = unsafe {
        libc::FD_ZERO(wanted.as_mut_ptr());
        libc::FD_SET(0, wanted.as_mut_ptr());
        libc::pselect(
            1,
            wanted.as_mut_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
            limit,
            &raw const mask.0,
        )
    };
    match ready > 0 {
        false => News::OfChild,
        true => Request::read(borrow(0)).map_or(News::Closed, News::OfLeasehold),
    }
}

/// For how long there may be no news.
#[cfg(target_os = "linux")]
fn limit(_stage: Stage) -> Option<libc::timespec> {
    None
}

#[cfg(not(target_os = "linux"))]
fn limit(stage: Stage) -> Option<libc::timespec> {
    (stage == Stage::Left).then_some(LOOK)
}

/// Shows in lists of processes what this one is.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "no safe interface that is compiled in")]
pub(super) fn name(name: &'static CStr) {
    // SAFETY: the name is a C string; what is behind its first 15 bytes is not taken.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

#[cfg(not(target_os = "linux"))]
fn name(_name: &'static CStr) {}

/// Closes all descriptors but those below the first.
#[allow(unsafe_code, reason = "descriptors cross the fork as numbers")]
pub(super) fn close_from(first: RawFd) {
    #[cfg(target_os = "linux")]
    {
        let first = first.cast_unsigned();
        let flags: libc::c_uint = 0;
        // SAFETY: nothing in this process uses a descriptor behind those from here on.
        let closed =
            unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, flags) };
        if closed == 0 {
            return;
        }
    }
    // Older systems: as many as a process has unless it asks for more.
    (first..1024).for_each(close);
}

#[allow(unsafe_code, reason = "descriptors cross the fork as numbers")]
pub(super) fn close(fd: RawFd) {
    // SAFETY: the number belongs to this process's copy, and is not used behind this.
    unsafe { libc::close(fd) };
}
