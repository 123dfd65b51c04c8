//! Whether there is such a program, asked before the lock is.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Access, access};

use super::SHIM_KILLED;
use crate::exit;
use crate::failure::Failure;

/// Refuses a program that cannot be run, with the statuses that shells use: to wait in a queue
/// for it would be in vain.
pub(crate) fn check(program: &OsStr) -> Result<(), Failure> {
    if program.as_bytes().contains(&b'/') {
        return runnable(Path::new(program)).map_err(|error| failure(program, &error));
    }
    // Without PATH the C library has a default of its own.
    let Some(path) = std::env::var_os("PATH") else {
        return Ok(());
    };
    let mut denied = None;
    for directory in std::env::split_paths(&path) {
        match runnable(&directory.join(program)) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied = Some(error),
            Err(_) => {}
        }
    }
    let error = denied.unwrap_or_else(|| io::ErrorKind::NotFound.into());
    Err(failure(program, &error))
}

fn runnable(path: &Path) -> io::Result<()> {
    if path.metadata()?.is_dir() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(access(path, Access::EXEC_OK)?)
}

/// Why the program was not started.
pub(crate) fn failure(program: &OsStr, error: &io::Error) -> Failure {
    let name = program.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            let failure = Failure::new(exit::NOT_FOUND, format!("no such command: {name}"));
            match name.contains(char::is_whitespace) {
                true => {
                    failure.hint("to run a line of a shell, use -c 'LINE' in place of -- COMMAND")
                }
                false => failure,
            }
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Failure::new(
            exit::SYSTEM,
            format!("the system cannot start another process for {name}: {error}"),
        ),
        _ if [Some(libc::EMFILE), Some(libc::ENFILE)].contains(&error.raw_os_error()) => {
            Failure::new(exit::SYSTEM, format!("cannot start {name}: {error}"))
                .hint("raise the limit of open files (ulimit -n)")
        }
        // Of the pipe on which the shim reports.
        io::ErrorKind::UnexpectedEof => {
            Failure::new(exit::SYSTEM, format!("cannot start {name}: {SHIM_KILLED}"))
        }
        _ => Failure::new(exit::CANNOT_RUN, format!("cannot run {name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(program: impl AsRef<OsStr>) -> Option<u8> {
        check(program.as_ref()).err().map(|failure| failure.status)
    }

    #[test]
    fn a_shim_that_is_killed_at_once_is_the_systems_doing() {
        let failure = failure("sh".as_ref(), &io::ErrorKind::UnexpectedEof.into());
        assert_eq!(failure.status, 71);
        assert!(failure.message.ends_with("the command was killed"));
    }

    #[test]
    fn finds_what_a_shell_would() {
        assert_eq!(status("sh"), None);
        assert_eq!(status("/bin/sh"), None);
        assert_eq!(status("no-such-command-anywhere"), Some(127));
        assert_eq!(status("/no/such/command"), Some(127));
        assert_eq!(status("/etc/passwd/sh"), Some(127));
        assert_eq!(status("/"), Some(126));
        assert_eq!(status("/etc/passwd"), Some(126));
    }
}
