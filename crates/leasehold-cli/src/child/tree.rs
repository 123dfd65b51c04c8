//! The processes that descend from one: found in `/proc`, and signalled without hitting another. Where
//! the system has no such directory none is known.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::sys;

/// How far up parents are followed: no real tree is so deep.
const DEEPEST: usize = 1024;

/// Each process below `root` that has not ended.
pub(super) fn descendants(root: Pid) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|it| Pid::from_raw(it.file_name().to_str()?.parse().ok()?));
    pids.filter(|&pid| is_below(pid, root)).collect()
}

/// Sends a signal to a process below `root`.
pub(super) fn signal(pid: Pid, root: Pid, signal: Signal) -> Result<(), Errno> {
    match sys::pin(pid) {
        // Asked once more with the process pinned: its number may have become another's.
        Ok(_) if !is_below(pid, root) => Err(Errno::SRCH),
        Ok(process) => sys::signal_pinned(&process, signal),
        Err(Errno::SRCH) => Err(Errno::SRCH),
        // An old kernel, or a filter of system calls.
        Err(_) => kill_process(pid, signal),
    }
}

/// Whether the process has not ended and descends from `root`.
fn is_below(pid: Pid, root: Pid) -> bool {
    let runs = sys::process_fields(pid).is_ok_and(|fields| runs(&fields));
    let above = std::iter::successors(sys::parent_of(pid), |&above| sys::parent_of(above));
    let mut above = above.take_while(|&above| above != Pid::INIT || root == Pid::INIT);
    runs && above.by_ref().take(DEEPEST).any(|above| above == root)
}

/// Whether a process of which the kernel says this has not ended: a zombie has.
fn runs(fields: &[String]) -> bool {
    let state = fields.first().map_or("", String::as_str);
    !["", "Z", "X", "x"].contains(&state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_has_ended() {
        for (state, expected) in [("S", true), ("D", true), ("Z", false), ("X", false)] {
            assert_eq!(
                runs(&[state.to_owned(), "7".to_owned()]),
                expected,
                "{state}"
            );
        }
        assert!(!runs(&[]));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn finds_a_child_below_its_parent_and_nobody_else_there() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let (ours, pid) = (rustix::process::getpid(), Pid::from_child(&child));
        let found = descendants(ours);
        assert!(found.contains(&pid), "{found:?}");
        assert!(!found.contains(&ours), "{found:?}");
        assert_eq!(signal(ours, pid, Signal::KILL), Err(Errno::SRCH));
        assert_eq!(signal(pid, ours, Signal::KILL), Ok(()));
        child.wait().unwrap();
        assert_eq!(signal(pid, ours, Signal::KILL), Err(Errno::SRCH));
    }
}
