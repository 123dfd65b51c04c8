//! The processes that descend from one: found in `/proc`, and signalled without hitting another.
//!
//! Nothing here allocates or takes a lock: the shim uses it in a process that was forked from one
//! with several threads.

#[cfg(target_os = "linux")]
pub(super) use linux::{each_descendant, signal};

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{each_descendant, signal};

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::CStr;
    use std::mem::MaybeUninit;

    use rustix::fs::{Mode, OFlags, RawDir, open};
    use rustix::io::{Errno, read, retry_on_intr};
    use rustix::path::DecInt;
    use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

    /// How far up parents are followed: no real tree is so deep.
    const DEEPEST: usize = 1024;

    /// Visits each process below `root` that has not ended.
    pub(in crate::child) fn each_descendant(root: Pid, visit: &mut dyn FnMut(Pid)) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(proc) = open(c"/proc", flags, Mode::empty()) else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(proc, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            let pid = number(entry.file_name().to_bytes()).and_then(Pid::from_raw);
            if let Some(pid) = pid.filter(|&pid| is_below(pid, root)) {
                visit(pid);
            }
        }
    }

    /// Sends a signal to a process below `root`.
    pub(in crate::child) fn signal(pid: Pid, root: Pid, signal: Signal) -> Result<(), Errno> {
        match pidfd_open(pid, PidfdFlags::empty()) {
            // Asked once more with the process pinned: its number may have become another's.
            Ok(_) if !is_below(pid, root) => Err(Errno::SRCH),
            Ok(process) => pidfd_send_signal(process, signal),
            Err(Errno::SRCH) => Err(Errno::SRCH),
            // An old kernel, or a filter of system calls.
            Err(_) => kill_process(pid, signal),
        }
    }

    /// Whether the process has not ended and descends from `root`.
    fn is_below(pid: Pid, root: Pid) -> bool {
        let Some(mut stat) = stat(pid).filter(|stat| stat.runs) else {
            return false;
        };
        for _ in 0..DEEPEST {
            match Pid::from_raw(stat.parent) {
                Some(parent) if parent == root => return true,
                None | Some(Pid::INIT) => return false,
                Some(parent) => match self::stat(parent) {
                    Some(next) => stat = next,
                    None => return false,
                },
            }
        }
        false
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Stat {
        /// It has not ended: a zombie has.
        runs: bool,
        parent: i32,
    }

    fn stat(pid: Pid) -> Option<Stat> {
        let mut path = [0_u8; 32];
        let digits = DecInt::new(pid.as_raw_nonzero().get());
        let parts = b"/proc/".iter().chain(digits.as_bytes()).chain(b"/stat");
        for (byte, part) in path.iter_mut().zip(parts) {
            *byte = *part;
        }
        let path = CStr::from_bytes_until_nul(&path).ok()?;
        let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        // The fields that count come first.
        let mut line = [0_u8; 256];
        let length = retry_on_intr(|| read(&file, &mut line)).ok()?;
        parse(line.get(..length)?)
    }

    /// "PID (NAME) STATE PARENT …"; the name may hold anything.
    fn parse(line: &[u8]) -> Option<Stat> {
        let name = line.iter().rposition(|&byte| byte == b')')?;
        let mut fields = line.get(name + 1..)?.split(|&byte| byte == b' ').skip(1);
        let state = fields.next()?.first()?;
        Some(Stat {
            runs: !matches!(state, b'Z' | b'X' | b'x'),
            parent: number(fields.next()?)?,
        })
    }

    fn number(digits: &[u8]) -> Option<i32> {
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn reads_what_the_kernel_says_of_a_process() {
            let running = Stat {
                runs: true,
                parent: 7,
            };
            assert_eq!(parse(b"12 (sh) S 7 12 12 0 -1"), Some(running));
            assert_eq!(parse(b"12 (a) R 1 (b) c) D 7 12"), Some(running));
            let ended = Stat {
                runs: false,
                ..running
            };
            assert_eq!(parse(b"12 (sh) Z 7 12"), Some(ended));
            for torn in [
                &b""[..],
                b"12 (sh",
                b"12 (sh)",
                b"12 (sh) S",
                b"12 (sh) S x",
            ] {
                assert_eq!(parse(torn), None);
            }
        }

        #[test]
        fn finds_a_child_below_its_parent_and_nobody_else_there() {
            let mut child = std::process::Command::new("sleep")
                .arg("60")
                .spawn()
                .unwrap();
            let (ours, pid) = (rustix::process::getpid(), Pid::from_child(&child));
            let mut found = Vec::new();
            each_descendant(ours, &mut |pid| found.push(pid));
            assert!(found.contains(&pid), "{found:?}");
            assert!(!found.contains(&ours), "{found:?}");
            assert_eq!(signal(ours, pid, Signal::KILL), Err(Errno::SRCH));
            assert_eq!(signal(pid, ours, Signal::KILL), Ok(()));
            child.wait().unwrap();
            assert_eq!(signal(pid, ours, Signal::KILL), Err(Errno::SRCH));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use rustix::io::Errno;
    use rustix::process::{Pid, Signal, kill_process};

    /// Only the process group is known here.
    pub(in crate::child) fn each_descendant(_root: Pid, _visit: &mut dyn FnMut(Pid)) {}

    pub(in crate::child) fn signal(pid: Pid, _root: Pid, signal: Signal) -> Result<(), Errno> {
        kill_process(pid, signal)
    }
}
