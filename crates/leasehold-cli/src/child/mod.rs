//! The guarded command as a process: in its own group, tied to our life by a shim, reaped once.

mod loss_policy;
mod probe;
mod program;
mod shim;
mod supervise;
mod terminal;
mod tree;

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, getpgid, kill_process, kill_process_group, test_kill_process,
    test_kill_process_group,
};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use self::probe::Probe;
use self::shim::{Report, go_on};
use self::terminal::Terminal;
use crate::exit::Status;
use crate::failure::Failure;
use crate::output::Printer;
use crate::sys;

pub(crate) use loss_policy::{LossPolicy, OnLost};
pub(crate) use program::{check, failure};
pub(crate) use shim::Shim;
pub(crate) use supervise::{Ended, Supervision};

/// The first argument of a leasehold that is to be a shim.
const SHIM: &str = "__shim";
/// The first argument of a leasehold that is to be a probe.
const PROBE: &str = "__probe";

/// How long that which sleeps in the kernel is waited for after it was killed.
const LONGEST_END: Duration = Duration::from_secs(5);

/// What has become of a shim that reports no more.
const SHIM_KILLED: &str = "the process between leasehold and the command was killed";

/// What becomes of processes that the command leaves running, for the help and the manual.
pub(crate) const LEFT_RUNNING: &str = include_str!("left_running.txt").trim_ascii_end();

/// How the child is to be started.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub(crate) program: &'a OsStr,
    /// What is set for the child; without a value, what of our environment is not for it.
    pub(crate) environment: Vec<(&'static str, Option<String>)>,
    /// Open files that the child shares: while it lives, so does its hold.
    pub(crate) child_fds: Vec<BorrowedFd<'a>>,
}

/// The child, not yet reaped: its process id and group are its own as long as this lives, or until
/// [`outlast`](Self::outlast).
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    /// Its parent, and the ancestor of all that it has started.
    shim: Shim,
    reports: UnixStream,
    /// How it has ended, if it has.
    end: Option<Status>,
    /// Whether the shim has reaped it: its number may be another's.
    reaped: bool,
    /// The child itself, whatever becomes of the shim.
    handle: Option<OwnedFd>,
    /// What tells of its terminal.
    probe: Option<Probe>,
}

/// Whom a signal has reached.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// How many of the child and its descendants were there to get it.
    pub(crate) reached: usize,
    /// Who was not to get it from us.
    pub(crate) refused: Vec<Pid>,
}

impl Child {
    /// Starts the child, in front of the terminal if there is one for it. One that may not begin any
    /// more is killed before its program begins.
    pub(crate) fn start(
        mut shim: Shim,
        start: &Start<'_>,
        terminal: Option<&Terminal>,
        may_begin: impl FnOnce() -> bool,
    ) -> io::Result<Self> {
        // Before the command begins: a lack of descriptors would give its lock back while it runs.
        let reports = shim.socket.try_clone()?;
        let (mut probe, mut group) = (None, None);
        let before = |started| {
            if let Some(terminal) = terminal {
                (probe, group) = (Probe::begin(started), Some(started));
                let is_shared = !io::stdin().is_terminal() || !io::stdout().is_terminal();
                // Someone sits there, and no other program of a pipeline shares our group and its turn.
                if !is_shared && terminal.is_ours() {
                    terminal.give(started);
                }
            }
            may_begin()
        };
        let pid = match shim.start(start, before) {
            Ok(pid) => pid,
            Err(error) => {
                if let (Some(terminal), Some(group)) = (terminal, group) {
                    terminal.take_back(group);
                }
                // One that is only late would begin the command when the lock is another's.
                shim.end();
                return Err(error);
            }
        };
        reports.set_nonblocking(true)?;
        Ok(Self {
            pid,
            shim,
            reports: UnixStream::from_std(reports)?,
            end: None,
            reaped: false,
            handle: sys::pin(pid).ok(),
            probe,
        })
    }

    /// The child's process group, as long as its number is its own.
    pub(crate) fn group(&self) -> Option<Pid> {
        (!self.reaped).then_some(self.pid)
    }

    /// Waits for what the child, which has ended, has left: [`Report::Alone`] comes when nothing is.
    /// Answers who that is, as far as it is known, if there is anybody.
    pub(crate) fn outlast(&mut self) -> Option<Vec<Pid>> {
        // It is reaped there, because it would hide who else has ended.
        self.reaped = cfg!(target_os = "linux");
        go_on(&self.reports);
        let left = tree::descendants(self.shim.pid);
        let someone = match self.reaped {
            true => !left.is_empty(),
            false => test_kill_process_group(self.pid).is_ok(),
        };
        someone.then_some(left)
    }

    /// Sends a signal to the whole group, as a terminal would; after the child's end to all that it
    /// has left. Answers whom it did not reach: of the group, the child itself counts.
    pub(crate) fn signal(&self, signal: Signal) -> Vec<Pid> {
        if self.end.is_some() {
            return self.signal_all(signal).refused;
        }
        // A shim that was stopped would not report what comes of it.
        let _ = kill_process(self.shim.pid, Signal::CONT);
        // Nobody left to get it is no failure.
        let _ = kill_process_group(self.pid, signal);
        let refused = test_kill_process(self.pid) == Err(Errno::PERM);
        refused.then_some(self.pid).into_iter().collect()
    }

    /// Sends a signal to the group and to all that the child has started, wherever that is now.
    pub(crate) fn signal_all(&self, signal: Signal) -> Reach {
        let _ = kill_process(self.shim.pid, Signal::CONT);
        let mut reach = Reach::default();
        if let Some(group) = self.group() {
            let _ = kill_process_group(group, signal);
        }
        let mut left = tree::descendants(self.shim.pid);
        let is_hidden = self.end.is_none() && !left.contains(&self.pid);
        left.extend(is_hidden.then_some(self.pid));
        let group = self.group().filter(|_| signal != Signal::KILL);
        let has_had_it = |pid| group.is_some_and(|group| getpgid(Some(pid)) == Ok(group));
        for pid in left {
            let sent = match (is_hidden && pid == self.pid) || has_had_it(pid) {
                true => test_kill_process(pid),
                false => tree::signal(pid, self.shim.pid, signal),
            };
            match sent {
                Ok(()) => reach.reached += 1,
                Err(Errno::PERM) => reach.refused.push(pid),
                // It has ended meanwhile.
                Err(_) => {}
            }
        }
        reach
    }

    /// Kills the child after its shim has ended, and waits until it has gone: there is nobody left
    /// to report it, and its descendants are not known any more.
    pub(crate) async fn kill_without_shim(&self) {
        if let Some(handle) = &self.handle {
            // As long as it lives, its group's number is its own.
            if sys::signal_pinned(handle, Signal::KILL) != Err(Errno::SRCH) {
                let _ = kill_process_group(self.pid, Signal::KILL);
            }
            if let Some(ended) = sys::readable(handle) {
                // One that sleeps in the kernel may never wake.
                let _ = timeout(LONGEST_END, ended).await;
            }
        }
    }

    /// What the shim has reported since the last look, without waiting.
    fn change(&mut self) -> io::Result<Option<Report>> {
        let mut bytes = [0; Report::LENGTH];
        let read = match self.reports.try_read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            // It was killed before it had read our request.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            read => read?,
        };
        let whole = (read == Report::LENGTH).then_some(bytes);
        let report = whole.and_then(Report::from_bytes);
        let report = report.ok_or_else(|| io::Error::other(SHIM_KILLED))?;
        match report {
            Report::Exited(code) => self.end = Some(u8::try_from(code).unwrap_or(u8::MAX).into()),
            Report::Killed(signal) => self.end = Some(Status::of_signal(signal)),
            _ => {}
        }
        Ok(Some(report))
    }

    /// Leaves the child that has ended: with the shim nobody uses its number any more.
    pub(crate) fn reap(self) -> io::Result<Status> {
        let end = self.end.ok_or(Errno::CHILD)?;
        // Before its socket is closed: what we could not kill it is not to kill for us.
        self.shim.end();
        Ok(end)
    }
}

/// Is what this process was started as, if that is no command of a user; answers the exit status.
pub(crate) fn run_if_started_anew() -> Option<u8> {
    let mut arguments = std::env::args_os().skip(1);
    let role = arguments.next()?;
    let role = role.to_str()?;
    let ended = match role {
        SHIM => shim::run(arguments),
        PROBE => probe::run(arguments),
        _ => return None,
    };
    Some(ended.unwrap_or_else(|| {
        let failure = Failure::usage(format!("only leasehold itself starts leasehold {role}"))
            .hint("leasehold run starts a command under a lock");
        Printer::default().failure(&failure)
    }))
}

/// The program that runs here, to be started in that role.
fn this_program(role: &str) -> Command {
    let mut program = Command::new(path());
    program.arg(role);
    program
}

/// Reaps orphans as long as the runtime runs, if the system gives them to this process, as it does to
/// the first one of a container.
///
/// What the command leaves is given to its shim. To this process go those whose parents were not
/// started by leasehold, as with `docker exec`. Each that has ended is a zombie until it is reaped.
#[cfg(target_os = "linux")]
pub(crate) fn reap_orphans(runtime: &Runtime) {
    use rustix::process::{child_subreaper, getpid};

    let inherits = getpid() == Pid::INIT || matches!(child_subreaper(), Ok(Some(_)));
    if !inherits {
        return;
    }
    runtime.spawn(async {
        // Without it zombies stay, which is no reason not to run.
        let Ok(mut ends) = crate::signals::stream(Signal::CHILD) else {
            return;
        };
        loop {
            shim::reap_others();
            if ends.recv().await.is_none() {
                return;
            }
        }
    });
}

/// The first process of such a system is not leasehold.
#[cfg(not(target_os = "linux"))]
pub(crate) fn reap_orphans(_runtime: &Runtime) {}

/// Leads to the program that runs here, whatever stands at its path by now.
#[cfg(target_os = "linux")]
fn path() -> PathBuf {
    use std::os::unix::ffi::OsStrExt;

    let running = PathBuf::from("/proc/self/exe");
    match running.exists() {
        true => running,
        // Nobody has mounted it. The kernel told us the path at the start.
        false => OsStr::from_bytes(rustix::param::linux_execfn().to_bytes()).into(),
    }
}

#[cfg(not(target_os = "linux"))]
fn path() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "leasehold".into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_shim_that_has_not_started_its_command_is_ended() {
        let mut late = Command::new("sleep").arg("60").spawn().unwrap();
        let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let pid = Pid::from_child(&late);
        let start = Start {
            program: OsStr::new("true"),
            environment: Vec::new(),
            child_fds: Vec::new(),
        };
        Child::start(Shim { pid, socket }, &start, None, || true).unwrap_err();
        assert_eq!(late.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
