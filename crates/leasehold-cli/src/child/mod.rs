//! The guarded command as a process: in its own group, tied to our life by a shim, reaped once.

mod guard;
mod named;
mod orphans;
mod program;
mod shim;
mod supervise;
mod terminal;
mod tree;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, getpgid, kill_process_group, test_kill_process, test_kill_process_group,
};
use tokio::net::UnixStream;
use tokio::time::timeout;

use self::shim::{PidVariable, Plan, Report, Request, c_string};
use self::terminal::Terminal;
use crate::{env, exit, sys};

pub(crate) use guard::{Guard, OnLost};
pub(crate) use named::NamedProcess;
pub(crate) use orphans::reap_orphans;
pub(crate) use program::check;
pub(crate) use supervise::{Ended, Supervision};

/// How long that which sleeps in the kernel is waited for after it was killed.
const LONGEST_END: Duration = Duration::from_secs(5);

/// What has become of a shim that reports no more.
const SHIM_KILLED: &str = "the process between leasehold and the command was killed";

/// How the child is to be started.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    /// The program and its arguments.
    pub(crate) program: &'a OsString,
    pub(crate) arguments: &'a [OsString],
    /// Set for the child.
    pub(crate) given: Vec<(&'static str, String)>,
    /// Not for the child.
    pub(crate) withheld: Vec<&'static str>,
    /// Open files that the child shares: while it lives, so does its hold.
    pub(crate) lifelines: Vec<BorrowedFd<'a>>,
    /// Whether what it has started counts as the child does, to the end of all.
    pub(crate) with_children: bool,
}

/// The child, not yet reaped: its process id and group are its own as long as this lives, or until
/// [`outlast`](Self::outlast).
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    /// Its parent, and the ancestor of all that it has started.
    shim: Pid,
    reports: UnixStream,
    end: Option<End>,
    with_children: bool,
    /// Whether the shim has reaped it: its number may be another's.
    reaped: bool,
    /// The child itself, whatever becomes of the shim.
    handle: Option<OwnedFd>,
}

/// What has become of the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has ended, and is still to be reaped.
    Ended,
    /// It was stopped by this signal.
    Stopped(i32),
    /// The terminal has sent this signal to it.
    Typed(i32),
    /// Nothing is left of what it had started.
    Alone,
}

/// How the child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Exited(i32),
    Signalled(i32),
}

impl End {
    /// As shells have it: the status, and the signal that led to it.
    pub(crate) fn status(self) -> (u8, Option<i32>) {
        match self {
            Self::Exited(code) => (u8::try_from(code).unwrap_or(u8::MAX), None),
            Self::Signalled(signal) => (exit::signalled(signal), Some(signal)),
        }
    }
}

/// Whom a signal has reached.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// How many of the child and its descendants were there to get it.
    pub(crate) reached: usize,
    /// Who was not to get it from us.
    pub(crate) refused: Vec<Pid>,
}

impl Reach {
    fn count(&mut self, pid: Pid, sent: Result<(), Errno>) {
        match sent {
            Ok(()) => self.reached += 1,
            Err(Errno::PERM) => self.refused.push(pid),
            // It has ended meanwhile.
            Err(_) => {}
        }
    }
}

impl Child {
    /// Starts the child, in front of the terminal if there is one for it.
    pub(crate) fn start(start: Start<'_>, terminal: Option<&Terminal>) -> io::Result<Self> {
        let arguments = [start.program].into_iter().chain(start.arguments);
        let mut environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        for name in start.withheld {
            environment.remove(&OsString::from(name));
        }
        for (name, value) in start.given {
            environment.insert(name.into(), value.into());
        }
        let of_its_pid = of_its_pid(&mut environment);
        let variable = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            c_string(&name)
        };
        let arguments = arguments.map(|it| c_string(it));
        let (shim, pid, reports) = shim::start(&Plan {
            arguments: arguments.collect::<io::Result<_>>()?,
            environment: environment
                .into_iter()
                .map(variable)
                .collect::<io::Result<_>>()?,
            of_its_pid,
            inherit: start.lifelines.iter().map(AsRawFd::as_raw_fd).collect(),
            at_terminal: terminal.is_some(),
            terminal: terminal.and_then(Terminal::for_the_start),
            with_children: start.with_children,
        })?;
        reports.set_nonblocking(true)?;
        Ok(Self {
            pid,
            shim,
            reports: UnixStream::from_std(reports)?,
            end: None,
            with_children: start.with_children,
            reaped: false,
            handle: handle(pid),
        })
    }

    /// The child's process group, as long as its number is its own.
    pub(crate) fn group(&self) -> Option<Pid> {
        (!self.reaped).then_some(self.pid)
    }

    /// How the child itself has ended, if it has.
    pub(crate) fn end(&self) -> Option<End> {
        self.end
    }

    /// Waits for what the child, which has ended, has left: [`Change::Alone`] comes when nothing is.
    /// Answers who that is, as far as it is known, if there is anybody.
    pub(crate) fn outlast(&mut self) -> Option<Vec<Pid>> {
        // It is reaped there, because it would hide who else has ended.
        self.reaped = cfg!(target_os = "linux");
        Request::Outlast.write(&self.reports);
        let mut left = Vec::new();
        tree::each_descendant(self.shim, &mut |pid| left.push(pid));
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
        // Nobody left to get it is no failure.
        let _ = kill_process_group(self.pid, signal);
        let refused = test_kill_process(self.pid) == Err(Errno::PERM);
        refused.then_some(self.pid).into_iter().collect()
    }

    /// Sends a signal to the group and to all that the child has started, wherever that is now.
    pub(crate) fn signal_all(&self, signal: Signal) -> Reach {
        let mut reach = Reach::default();
        if let Some(group) = self.group() {
            let _ = kill_process_group(group, signal);
        }
        let mut seen = self.end.is_some();
        tree::each_descendant(self.shim, &mut |pid| {
            seen |= pid == self.pid;
            let group = self.group().filter(|_| signal != Signal::KILL);
            let had_it = group.is_some_and(|group| getpgid(Some(pid)) == Ok(group));
            reach.count(
                pid,
                match had_it {
                    true => test_kill_process(pid),
                    false => tree::signal(pid, self.shim, signal),
                },
            );
        });
        if !seen {
            reach.count(self.pid, test_kill_process(self.pid));
        }
        reach
    }

    /// Kills the child after its shim has ended, and waits until it has gone: there is nobody left
    /// to report it, and its descendants are not known any more.
    pub(crate) async fn kill_without_shim(&self) {
        #[cfg(target_os = "linux")]
        if let Some(handle) = &self.handle {
            // As long as it lives, its group's number is its own.
            if rustix::process::pidfd_send_signal(handle, Signal::KILL) != Err(Errno::SRCH) {
                let _ = kill_process_group(self.pid, Signal::KILL);
            }
            if let Some(ended) = sys::readable(handle) {
                // One that sleeps in the kernel may never wake.
                let _ = timeout(LONGEST_END, ended).await;
            }
        }
    }

    /// Waits until there may be a change.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn may_have_changed(&self) {
        // A failure shows when the change is read.
        let _ = self.reports.readable().await;
    }

    /// What has changed since the last look, without waiting.
    pub(crate) fn change(&mut self) -> io::Result<Option<Change>> {
        let mut bytes = [0; Report::LENGTH];
        let read = match self.reports.try_read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            // It was killed before it had read our request.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            read => read?,
        };
        let whole = (read == Report::LENGTH).then_some(bytes);
        match whole.and_then(Report::from_bytes) {
            Some(Report::Ended(end)) => {
                self.end = Some(end);
                Ok(Some(Change::Ended))
            }
            Some(Report::Stopped(signal)) => Ok(Some(Change::Stopped(signal))),
            Some(Report::Typed(signal)) => Ok(Some(Change::Typed(signal))),
            Some(Report::Alone) => Ok(Some(Change::Alone)),
            _ => Err(io::Error::other(SHIM_KILLED)),
        }
    }

    /// Reaps the child that has ended.
    pub(crate) fn reap(self) -> io::Result<End> {
        if self.with_children && self.end.is_some() {
            // It would take the close for our death, and kill what we could not.
            Request::Leave.write(&self.reports);
        }
        // The shim ends when nobody listens to it.
        self.end.ok_or_else(|| Errno::CHILD.into())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        shim::over();
    }
}

/// Takes out what systemd has meant for us, and so for the command: whose sockets they are, and who
/// answers the watchdog.
fn of_its_pid(environment: &mut BTreeMap<OsString, OsString>) -> Vec<PidVariable> {
    let ours = std::process::id().to_string();
    let mut named = env::OF_PROCESS.to_vec();
    named.retain(|name| {
        let names_us = |value: &OsString| *value == *ours;
        environment.get(OsStr::new(name)).is_some_and(names_us)
    });
    for name in &named {
        environment.remove(OsStr::new(name));
        // Says the same of our process, in a number that nobody but we could tell.
        environment.remove(OsStr::new(&format!("{name}FDID")));
    }
    named.into_iter().map(PidVariable::new).collect()
}

#[cfg(target_os = "linux")]
fn handle(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn handle(_pid: Pid) -> Option<OwnedFd> {
    None
}
