//! A server's main process and its children, of which PostgreSQL has one for each connection.

use std::fs;
use std::process::Child;

use rustix::fd::OwnedFd;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use crate::deployment::until_blocking;
use crate::process::{self, halt, signal_child, wait_for_end_of};

/// Kills all of them, and returns when they are gone.
pub(super) fn kill(parent: &mut Child) {
    let children = children_of_stopped(parent);
    signal_all(&children, Signal::KILL);
    process::kill(parent);
    for (_, child) in &children {
        wait_for_end_of(child);
    }
}

/// Stops all of them (SIGSTOP), and returns when they stand still.
pub(super) fn pause(parent: &Child) {
    let children = children_of_stopped(parent);
    signal_all(&children, Signal::STOP);
    until_blocking("a paused server to stand still", &[], || {
        let mut states = children.iter().map(|(pid, _)| state_and_parent(*pid));
        match states.find(|stat| stat.is_some_and(|(state, _)| !"TZX".contains(state))) {
            None => Ok(()),
            Some(stat) => Err(format!("a child is in state {stat:?}")),
        }
    });
}

/// Lets all of them go on (SIGCONT).
pub(super) fn resume(parent: &Child) {
    signal_all(&children_of_stopped(parent), Signal::CONT);
    signal_child(parent, Signal::CONT);
}

/// Whether the process has ended; it is not reaped, so that its number stays its own.
pub(super) fn has_ended(process: &Child) -> bool {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(Pid::from_child(process)), how);
    status.expect("a child can be looked at").is_some()
}

/// Stops the parent, so that it makes no children and reaps none: their numbers stay their own.
fn children_of_stopped(parent: &Child) -> Vec<(i32, OwnedFd)> {
    halt(parent);
    let pid = Pid::from_child(parent);
    let processes = fs::read_dir("/proc").expect("there is a /proc").flatten();
    let numbers = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let children = numbers.filter_map(|number| {
        let (_, its_parent) = state_and_parent(number)?;
        let child = Pid::from_raw(number).filter(|_| its_parent == pid.as_raw_pid())?;
        Some((number, pidfd_open(child, PidfdFlags::empty()).ok()?))
    });
    children.collect()
}

fn signal_all(processes: &[(i32, OwnedFd)], signal: Signal) {
    for (_, process) in processes {
        // One that has just ended is signalled in vain.
        let _ = pidfd_send_signal(process, signal);
    }
}

/// Waits until the process has ended, and leaves it to be reaped.
pub(super) fn wait_for_end(process: &Child) {
    let process = pidfd_open(Pid::from_child(process), PidfdFlags::empty());
    wait_for_end_of(&process.expect("it is not reaped"));
}

/// From `/proc/PID/stat`: `pid (name) state parent …`.
fn state_and_parent(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}
