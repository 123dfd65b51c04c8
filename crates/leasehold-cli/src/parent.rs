//! The process that `hold` is bound to: known from the start, and watched to its end.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{Pid, Signal, getppid, kill_process, test_kill_process};

use crate::failure::Failure;
use crate::sys::{self, parent_of, process_fields};

/// The parent at the start of this process; 0 is one in another PID namespace.
static AT_START: AtomicI32 = AtomicI32::new(0);

/// Takes note of the parent. To be called first of all.
pub(crate) fn note() {
    AT_START.store(Pid::as_raw(getppid()), Ordering::Relaxed);
}

/// How often it is looked whether it has ended where the system does not tell.
const LOOK: std::time::Duration = std::time::Duration::from_millis(500);

/// A process, which may have ended.
#[derive(Debug)]
pub(crate) struct Parent {
    /// Nothing where it had ended before it could be watched.
    pid: Option<Pid>,
    /// Whether it is our parent, and not one further up, or of the process that we were started by.
    direct: bool,
    handle: Option<OwnedFd>,
}

impl Parent {
    /// The process that has started us. `left`: it is to be watched by a child of this process; it is the
    /// shell then that this is a subshell of.
    pub(crate) fn now(left: bool) -> Result<Self, Failure> {
        let Some(parent) = Pid::from_raw(AT_START.load(Ordering::Relaxed)) else {
            let message = "cannot tell when the parent ends: it is in another PID namespace";
            return Err(Failure::system(message).hint("use --fd with a pipe"));
        };
        let shell = if left { shell_of(parent) } else { parent };
        let watched = Self::watch(Some(shell), !left);
        // The number is certainly the one's that was there at the start, as that still is.
        match !is_only_a_reaper(parent) && getppid() == Some(parent) && is_above_us(shell) {
            true => Ok(watched),
            false => Ok(Self::watch(None, true)),
        }
    }

    /// The process of that number, if it has started us or one of those that have.
    pub(crate) fn named(pid: Pid, left: bool) -> Result<Self, Failure> {
        let watched = Self::watch(Some(pid), !left && getppid() == Some(pid));
        // Asked with the process pinned: before, its number could become another's.
        if is_above_us(pid) {
            return Ok(watched);
        }
        let message = format!("process {pid} is none of leasehold's parents, or it has ended");
        Err(Failure::usage(message).hint("name the script with --while-parent=$$"))
    }

    fn watch(pid: Option<Pid>, direct: bool) -> Self {
        Self {
            handle: pid.and_then(|pid| sys::pin(pid).ok()),
            pid,
            direct,
        }
    }

    /// Whether it has ended, as far as that shows without waiting.
    fn has_ended(&self) -> bool {
        match self.pid {
            None => true,
            // It is another one's child then, whose number does not matter.
            Some(pid) if self.direct => getppid() != Some(pid),
            Some(pid) => test_kill_process(pid) == Err(rustix::io::Errno::SRCH),
        }
    }

    /// Completes when it has ended.
    pub(crate) async fn end(&self) {
        if let Some(ended) = self.handle.as_ref().and_then(sys::readable) {
            return ended.await;
        }
        while !self.has_ended() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Asks it to end, unless it has ended.
    pub(crate) fn terminate(&self) {
        // An error says that it ends just now, or is another user's: it learns of it by our end.
        if let Some(handle) = &self.handle {
            let _ = sys::signal_pinned(handle, Signal::TERM);
            return;
        }
        if let Some(pid) = self.pid.filter(|_| !self.has_ended()) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// Whether our parent cannot be the process that has started us: that one ended before we looked, and
/// the system gave us to this one.
///
/// Who does not lead a session has that of the process that has started it. Who does not lead a group
/// is not the command of a leasehold, whose shim takes orphans.
fn is_only_a_reaper(parent: Pid) -> bool {
    let us = rustix::process::getpid();
    let (Ok(ours), Ok(theirs)) = (process_fields(us), process_fields(parent)) else {
        return cfg!(not(target_os = "linux")) && parent == Pid::INIT;
    };
    let number = us.to_string();
    let leads = |at: usize| ours.get(at) == Some(&number);
    let name = std::fs::read_to_string(format!("/proc/{parent}/comm")).unwrap_or_default();
    let is_shim = name.trim_end() == "leasehold-shim";
    (!leads(3) && ours.get(3) != theirs.get(3)) || (!leads(2) && is_shim)
}

/// The shell whose subshell the process is: a copy of it, with the memory of it where that was.
fn shell_of(mut pid: Pid) -> Pid {
    // Where the stack, the arguments and the environment are; random for each program that starts.
    let places = |pid: Pid| {
        let fields = process_fields(pid).ok()?;
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let stack = fields.get(25).filter(|stack| *stack != "0")?;
        let texts = fields.get(45..49).map(<[_]>::to_vec);
        Some((program, stack.clone(), texts))
    };
    let is_copy = |pid, of| places(pid).is_some_and(|ours| places(of) == Some(ours));
    while let Some(up) = parent_of(pid).filter(|&up| is_copy(pid, up)) {
        pid = up;
    }
    pid
}

fn is_above_us(pid: Pid) -> bool {
    let mut above = std::iter::successors(getppid(), |&above| parent_of(above));
    above.any(|above| above == pid)
}
