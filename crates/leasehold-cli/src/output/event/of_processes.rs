//! Events of the command's processes: those that take no signals from us, and those that it left.

use rustix::io::Errno;
use rustix::process::Signal;
use serde::Serialize;

use super::{Event, Tone};
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
        let does = match signal {
            Signal::KILL => "kill",
            Signal::TERM => "stop",
            _ => "signal",
        };
        let named: Vec<_> = processes.iter().map(NamedProcess::to_string).collect();
        let (it, ends, runs) = match named.len() {
            1 => ("it", "ends", "runs"),
            _ => ("they", "end", "run"),
        };
        let comes = match then {
            None => String::new(),
            Some(Sequel::Kept) => format!("; {key} stays locked and is renewed until {it} {ends}"),
            Some(Sequel::MayOverlap) => {
                format!("; {it} still {runs}, and the next holder of {key} may begin meanwhile")
            }
        };
        let (named, why) = (named.join(", "), Errno::PERM);
        let sentence = format!("cannot {does} {named} of the command: {why}{comes}");
        let hint =
            "run leasehold as a user who may signal them, such as root, or end them yourself";
        Self::of_key("refused", key, sentence)
            .with("signal", signal.as_raw())
            .with("processes", processes)
            .with_known("then", then)
            .hint(Some(hint))
            .tone(Tone::Urgent)
    }

    /// The command has ended so, and the lock is held until what it has left running has, too: these,
    /// as far as they are known. Names as many as fit a line.
    pub(crate) fn left_running(keys: &[String], ended: Status, processes: &[NamedProcess]) -> Self {
        const NAMED: usize = 5;
        let named = processes.iter().take(NAMED);
        let mut named: Vec<_> = named.map(NamedProcess::in_short).collect();
        if processes.len() > NAMED {
            named.push(format!("and {} more", processes.len() - NAMED));
        }
        let named = named.join(", ");
        let until = match processes.len() {
            0 => "its process group is empty".to_owned(),
            1 => format!("a process that it left is gone: {named}"),
            left => format!("{left} processes that it left are gone: {named}"),
        };
        let (status, names) = (ended.code, keys.join(", "));
        let sentence =
            format!("the command has ended with status {status}; holding {names} until {until}");
        Self::of_keys("left_running", keys, sentence)
            .with("status", status)
            .with("signal", ended.signal)
            .with("processes", processes)
            .hint(Some("SIGTERM to leasehold, or Ctrl-C, asks them to stop"))
    }
}
