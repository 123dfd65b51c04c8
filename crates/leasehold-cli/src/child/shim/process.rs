//! The shim itself: a process of one thread that waits, reports, and kills.

use std::ffi::OsString;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, kill_process_group,
    wait, waitid,
};
use rustix::stdio;
use serde::Deserialize;

use super::super::tree;
use super::reaping::{is_alone_after, reap_all_but};
use super::report::may_go_on;
use super::{Environment, MOST_DESCRIPTORS, Report};
use crate::env;
use crate::exit;
use crate::sys;

/// The longest pause between two rounds of killing: who sleeps in the kernel ends when it wakes.
const LONGEST_ROUND: Duration = Duration::from_millis(100);

/// How often the process group is looked at where no event tells that it is empty.
const GROUP_CHECK_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Scripts use lower numbers for files of their own.
const ABOVE_THOSE_OF_SCRIPTS: RawFd = 64;

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

/// Is the shim, to its end. Answers the exit status, which nobody reads; nothing where it was not
/// leasehold that has started it.
pub(in crate::child) fn run(mut arguments: impl Iterator<Item = OsString>) -> Option<u8> {
    sys::block(sys::ALL);
    let with_children = arguments.next()? == "true";
    let program = arguments.next()?;
    if !is_from_leasehold() {
        return None;
    }
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::process::set_child_subreaper(Some(getpid()));
        let _ = rustix::thread::set_name(c"leasehold-shim");
    }
    let Ok((descriptors, environment)) = receive() else {
        // Leasehold ends without a command where it does not get the lock.
        return Some(exit::OK);
    };
    Some(
        match start(program, arguments.collect(), descriptors, environment) {
            Ok(child) => match stay_alone() {
                Ok(woken) => watch(child, with_children, woken),
                // The command dies with this process.
                Err(_) => exit::SYSTEM,
            },
            Err(error) => {
                let error = error.raw_os_error().unwrap_or(libc::EIO);
                Report::Failed(error).write(stdio::stdin());
                exit::CANNOT_RUN
            }
        },
    )
}

/// Whether standard input is one of a pair of sockets: no connection of a stranger's.
fn is_from_leasehold() -> bool {
    let stdin = stdio::stdin().try_clone_to_owned().map(UnixStream::from);
    stdin.is_ok_and(|stdin| {
        let ends = [stdin.local_addr(), stdin.peer_addr()];
        let mut ends = ends.iter();
        ends.all(|end| end.as_ref().is_ok_and(SocketAddr::is_unnamed))
    })
}

/// What leasehold sends when it has the lock.
fn receive() -> io::Result<(Vec<OwnedFd>, Environment)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(
        stdio::stdin(),
        &mut [IoSliceMut::new(&mut [0])],
        &mut control,
        RecvFlags::empty(),
    )?;
    let descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    let descriptors: Vec<OwnedFd> = descriptors.collect();
    for descriptor in &descriptors {
        fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
    }
    // To the end of the text and not of what can be read: the socket stays open.
    let mut text = serde_json::Deserializer::from_reader(io::stdin().lock());
    Ok((descriptors, Environment::deserialize(&mut text)?))
}

/// Starts the command: what it arranges for itself before its program begins is done in a copy of
/// this process, which has one thread.
#[allow(
    unsafe_code,
    reason = "only here a command can have what it is to have"
)]
fn start(
    program: OsString,
    arguments: Vec<OsString>,
    descriptors: Vec<OwnedFd>,
    environment: Environment,
) -> io::Result<Pid> {
    let mut command = Command::new(&program);
    let mut descriptors = descriptors.into_iter();
    command.stdin(descriptors.next().map_or_else(Stdio::null, Stdio::from));
    let child_fds: Vec<_> = descriptors
        .map(|lifeline| fcntl_dupfd_cloexec(&lifeline, ABOVE_THOSE_OF_SCRIPTS).unwrap_or(lifeline))
        .collect();
    for lifeline in &child_fds {
        fcntl_setfd(lifeline, FdFlags::empty())?;
    }
    // Systemd has meant leasehold, and so the command.
    let of_its_pid: Vec<_> = env::of_parent().collect();
    let ignores_children = sys::is_ignored(Signal::CHILD);
    if ignores_children {
        // Else the end of a child leaves no trace.
        signal_hook::flag::register(libc::SIGCHLD, Arc::default())?;
    }
    let shim = getpid();
    let reports = stdio::stdin().try_clone_to_owned()?;
    let become_the_program = move || {
        // A shim that is killed, by the system when memory is short, say, takes the command along.
        sys::die_with(shim)?;
        let pid = getpid().as_raw_nonzero().get();
        // A leasehold that has gone has no lock either, if this process was stopped for long.
        rustix::io::write(&reports, &Report::Started(pid).to_bytes())?;
        if !may_go_on(reports.as_fd()) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if ignores_children {
            sys::ignore(Signal::CHILD);
        }
        sys::unblock(sys::ALL);
        let mut command = Command::new(&program);
        command.args(&arguments);
        for (name, value) in &environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        for name in &of_its_pid {
            command.env(name, pid.to_string());
            // Says the same of leasehold's process, in a number that nobody but that could tell.
            command.env_remove(format!("{name}FDID"));
        }
        Err(command.exec())
    };
    // SAFETY: the copy of a process of one thread may do whatever this one may.
    unsafe { command.process_group(0).pre_exec(become_the_program) };
    command.spawn().map(|child| Pid::from_child(&child))
}

/// Leaves nothing of leasehold's open here but the reports on standard input: no pipe whose end somebody
/// waits for, no lifeline. Answers what is readable when a child has changed.
fn stay_alone() -> io::Result<UnixStream> {
    stdio::dup2_stdout(stdio::stdin())?;
    stdio::dup2_stderr(stdio::stdin())?;
    sys::close_from(3);
    let _ = std::env::set_current_dir("/");
    let (woken, wake) = UnixStream::pair()?;
    woken.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(libc::SIGCHLD, wake)?;
    sys::unblock(Some(Signal::CHILD));
    Report::Began.write(stdio::stdin());
    Ok(woken)
}

/// Follows the command to its end, and leasehold to its own.
fn watch(child: Pid, with_children: bool, mut woken: UnixStream) -> u8 {
    let reports = stdio::stdin();
    let mut stage = Stage::Runs;
    loop {
        if stage == Stage::Runs && look(child, reports) {
            stage = Stage::Ended;
        }
        match stage {
            Stage::Left if is_alone_after(child) => {
                Report::Alone.write(reports);
                stage = Stage::Alone;
            }
            Stage::Runs | Stage::Ended if cfg!(target_os = "linux") => reap_all_but(Some(child)),
            _ => {}
        }
        let is_polled = stage == Stage::Left && cfg!(not(target_os = "linux"));
        let mut both = [
            PollFd::from_borrowed_fd(reports, PollFlags::IN),
            PollFd::new(&woken, PollFlags::IN),
        ];
        let limit = is_polled.then_some(&GROUP_CHECK_INTERVAL);
        // An error is a signal that has come.
        let is_said = poll(&mut both, limit).is_ok() && !both[0].revents().is_empty();
        while woken.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        if !is_said {
            continue;
        }
        if may_go_on(reports) {
            stage = Stage::Left;
            continue;
        }
        // Leasehold is gone.
        let guarded = match stage {
            Stage::Runs | Stage::Left => true,
            Stage::Ended => with_children,
            Stage::Alone => false,
        };
        if guarded {
            kill_everything(child, stage);
        }
        return exit::OK;
    }
}

/// Reports what has changed about the command. Answers whether it has ended.
fn look(child: Pid, reports: BorrowedFd<'_>) -> bool {
    let now = WaitIdOptions::NOHANG;
    let all = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    while let Ok(Some(status)) = waitid(WaitId::Pid(child), all | now) {
        if !status.stopped() {
            let report = match status.exit_status() {
                Some(code) => Report::Exited(code),
                None => Report::Killed(status.terminating_signal().unwrap_or_default()),
            };
            report.write(reports);
            return true;
        }
        // Taken note of, so that the next look sees what comes next.
        let _ = waitid(WaitId::Pid(child), WaitIdOptions::STOPPED | now);
        let signal = status.stopping_signal().unwrap_or_default();
        Report::Stopped(signal).write(reports);
    }
    false
}

/// Kills all that is below this process and lets itself be killed, the newest and the hidden too:
/// round by round, until a round has found nobody.
#[allow(
    clippy::disallowed_methods,
    reason = "a process of one thread; no event tells that a grandchild has ended"
)]
fn kill_everything(child: Pid, stage: Stage) {
    let mut reaped = cfg!(target_os = "linux") && stage == Stage::Left;
    let mut pause = Duration::from_millis(1);
    loop {
        let mut hit = false;
        if !reaped {
            let _ = kill_process_group(child, Signal::KILL);
            // Counts where `/proc` is not to be seen.
            hit |= kill_process(child, Signal::KILL).is_ok();
        }
        for pid in tree::descendants(getpid()) {
            hit |= tree::signal(pid, getpid(), Signal::KILL).is_ok();
        }
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
