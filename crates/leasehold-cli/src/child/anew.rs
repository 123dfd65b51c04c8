//! Leasehold started anew, to be a process of its own kind: the shim, or the probe.

use std::path::PathBuf;
use std::process::Command;

use super::shim;
use crate::failure::Failure;
use crate::output::Printer;

/// The first argument of a leasehold that is to be a shim.
pub(super) const SHIM: &str = "__shim";
/// The first argument of a leasehold that is to be a probe.
pub(super) const PROBE: &str = "__probe";

/// Is what this process was started as, if that is no command of a user; answers the exit status.
pub(crate) fn run_if_started_anew() -> Option<u8> {
    let mut arguments = std::env::args_os().skip(1);
    let role = arguments.next()?;
    let role = role.to_str()?;
    let ended = match role {
        SHIM => shim::run(arguments),
        PROBE => super::probe::run(arguments),
        _ => return None,
    };
    Some(ended.unwrap_or_else(|| {
        let failure = Failure::usage(format!("only leasehold itself starts leasehold {role}"))
            .hint("leasehold run starts a command under a lock");
        Printer::default().failure(&failure)
    }))
}

/// The program that runs here, to be started in that role.
pub(super) fn this_program(role: &str) -> Command {
    let mut program = Command::new(path());
    program.arg(role);
    program
}

/// Leads to the program that runs here, whatever stands at its path by now.
#[cfg(target_os = "linux")]
fn path() -> PathBuf {
    use std::ffi::OsStr;
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
