//! The guarded command as a process: in its own group, tied to our life, reaped once.

mod guard;
mod program;
mod supervise;
mod terminal;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};

use self::terminal::Terminal;
use crate::sys;

pub(crate) use guard::{Guard, OnLost};
pub(crate) use program::check;
pub(crate) use supervise::{Ended, Supervision};

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
}

/// The child, not yet reaped: its process id and group are its own as long as this lives.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
}

/// What has become of the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has ended, and is still to be reaped.
    Ended,
    /// It was stopped by this signal.
    Stopped(Option<i32>),
}

/// How the child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Exited(i32),
    Signalled(i32),
}

impl Child {
    /// Starts the child, in front of the terminal if there is one for it.
    ///
    /// The thread that calls must live as long as this process: the child dies with it.
    pub(crate) fn start(start: Start<'_>, terminal: Option<&Terminal>) -> io::Result<Self> {
        let mut command = Command::new(start.program);
        command
            .args(start.arguments)
            .envs(start.given)
            .process_group(0);
        for name in start.withheld {
            command.env_remove(name);
        }
        let before = sys::BeforeExec {
            inherit: start.lifelines.iter().map(AsRawFd::as_raw_fd).collect(),
            terminal: terminal.and_then(Terminal::for_the_start),
        };
        sys::prepare(&mut command, before);
        // The handle is let go: changes are waited for here, stops among them.
        Ok(Self {
            pid: Pid::from_child(&command.spawn()?),
        })
    }

    /// The child's process group.
    pub(crate) fn group(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        // Nobody left to get it is no failure.
        let _ = kill_process_group(self.pid, signal);
    }

    /// What has changed since the last look, without waiting.
    pub(crate) fn change(&self) -> io::Result<Option<Change>> {
        let all = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
        let Some(status) = self.wait(all | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)? else {
            return Ok(None);
        };
        if !status.stopped() {
            return Ok(Some(Change::Ended));
        }
        // Taken note of, so that the next look sees what comes next.
        self.wait(WaitIdOptions::STOPPED | WaitIdOptions::NOHANG)?;
        Ok(Some(Change::Stopped(status.stopping_signal())))
    }

    /// Reaps the child that has ended.
    pub(crate) fn reap(self) -> io::Result<End> {
        let status = self.wait(WaitIdOptions::EXITED)?;
        let status = status.ok_or(Errno::CHILD)?;
        Ok(match status.exit_status() {
            Some(code) => End::Exited(code),
            None => End::Signalled(status.terminating_signal().unwrap_or_default()),
        })
    }

    fn wait(&self, options: WaitIdOptions) -> io::Result<Option<WaitIdStatus>> {
        Ok(rustix::io::retry_on_intr(|| {
            waitid(WaitId::Pid(self.pid), options)
        })?)
    }
}
