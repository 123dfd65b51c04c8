//! Leasehold started anew, to be a process of its own kind: the shim, or the probe.

#[cfg(target_os = "linux")]
use std::path::Path;
use std::process::Command;

use super::shim;

/// The first argument of a leasehold that is to be a shim.
pub(super) const SHIM: &str = "__shim";
/// The first argument of a leasehold that is to be a probe.
#[cfg(target_os = "linux")]
pub(super) const PROBE: &str = "__probe";

/// Is what this process was started as, if that is no command of a user; answers the exit status.
pub(crate) fn run_if_started_anew() -> Option<u8> {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next()?.to_str()? {
        SHIM => Some(shim::run(arguments)),
        #[cfg(target_os = "linux")]
        PROBE => Some(super::probe::run(arguments)),
        _ => None,
    }
}

/// The program that runs here, whatever stands at its path by now.
#[cfg(target_os = "linux")]
pub(super) fn this_program(role: &str) -> Command {
    use std::os::unix::ffi::OsStrExt;

    let running = Path::new("/proc/self/exe");
    let mut program = match running.exists() {
        true => Command::new(running),
        // Nobody has mounted it. The kernel told us the path at the start.
        false => {
            let path = rustix::param::linux_execfn().to_bytes();
            Command::new(std::ffi::OsStr::from_bytes(path))
        }
    };
    program.arg(role);
    program
}

#[cfg(not(target_os = "linux"))]
pub(super) fn this_program(role: &str) -> Command {
    let path = std::env::current_exe();
    let mut program = Command::new(path.unwrap_or_else(|_| "leasehold".into()));
    program.arg(role);
    program
}
