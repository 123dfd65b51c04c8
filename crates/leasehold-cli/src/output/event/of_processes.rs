//! Events of the command's processes: those that take no signals from us, and those that it left.

use rustix::io::Errno;
use rustix::process::Signal;
use serde::Serialize;

use super::{Event, Tone, names};
use crate::exit::Status;
use crate::named_process::NamedProcess;

/// What comes of a command that is not to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sequel {
    /// The lock is kept and renewed while it runs.
    Kept,
    /// The next holder may begin while it runs.
    MayOverlap,
}

impl Event {
    /// The system did not let us signal these processes of the command.
    pub(crate) fn refused(
        key: &str,
        signal: Signal,
        processes: &[NamedProcess],
        then: Option<Sequel>,
    ) -> Self {
        let hint =
            "run leasehold as a user who may signal them, such as root, or end them yourself";
        Self::of_key("refused", key, refused(key, signal, processes, then))
            .with("signal", signal.as_raw())
            .with("processes", processes)
            .with_known("then", then)
            .hint(Some(hint))
            .tone(Tone::Urgent)
    }

    /// The command has ended so, and the lock is held until what it has left running has, too: these,
    /// as far as they are known.
    pub(crate) fn left_running(keys: &[String], ended: Status, processes: &[NamedProcess]) -> Self {
        let sentence = left_running(&names(keys), ended.code, processes);
        Self::of_keys("left_running", keys, sentence)
            .with("status", ended.code)
            .with("signal", ended.signal)
            .with("processes", processes)
            .hint(Some("SIGTERM to leasehold, or Ctrl-C, asks them to stop"))
    }
}

/// Names as many as fit a line.
fn left_running(keys: &str, status: u8, processes: &[NamedProcess]) -> String {
    const NAMED: usize = 5;
    let named = processes.iter().take(NAMED);
    let mut names: Vec<_> = named.map(NamedProcess::in_short).collect();
    if processes.len() > NAMED {
        names.push(format!("and {} more", processes.len() - NAMED));
    }
    let names = names.join(", ");
    let until = match processes.len() {
        0 => "its process group is empty".to_owned(),
        1 => format!("a process that it left is gone: {names}"),
        left => format!("{left} processes that it left are gone: {names}"),
    };
    format!("the command has ended with status {status}; holding {keys} until {until}")
}

fn refused(key: &str, signal: Signal, processes: &[NamedProcess], then: Option<Sequel>) -> String {
    let does = match signal {
        Signal::KILL => "kill",
        Signal::TERM => "stop",
        _ => "signal",
    };
    let names: Vec<_> = processes.iter().map(NamedProcess::to_string).collect();
    let (it, ends, runs) = match names.len() {
        1 => ("it", "ends", "runs"),
        _ => ("they", "end", "run"),
    };
    let then = match then {
        None => String::new(),
        Some(Sequel::Kept) => format!("; {key} stays locked and is renewed until {it} {ends}"),
        Some(Sequel::MayOverlap) => {
            format!("; {it} still {runs}, and the next holder of {key} may begin meanwhile")
        }
    };
    format!(
        "cannot {does} {} of the command: {}{then}",
        names.join(", "),
        Errno::PERM,
    )
}
