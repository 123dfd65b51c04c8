//! Whether there is such a program, asked before the lock is.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Access, access};

use super::SHIM_KILLED;
use crate::exit;
use crate::failure::Failure;
use crate::user_file::{Links, UserFile};

/// Refuses a program that cannot be run, with the statuses that shells use: to wait in a queue
/// for it would be in vain.
pub(crate) fn check(program: &OsStr) -> Result<(), Failure> {
    if program.is_empty() || program.as_bytes().contains(&b'/') {
        let path = Path::new(program);
        runnable(path).map_err(|error| failure(program, &error))?;
        return missing_interpreter(path).map_or(Ok(()), Err);
    }
    // Without PATH the C library has a default of its own.
    let Some(path) = std::env::var_os("PATH") else {
        return Ok(());
    };
    let mut denied = None;
    for directory in std::env::split_paths(&path) {
        let path = directory.join(program);
        match runnable(&path) {
            Ok(()) => return missing_interpreter(&path).map_or(Ok(()), Err),
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

/// Why the system could not start a script, as its first line says. It would say that the script
/// itself is not found.
fn missing_interpreter(path: &Path) -> Option<Failure> {
    // The system reads no more of it either.
    let start = UserFile::open(path, Links::Follow).ok()?.start(256).ok()?;
    let first_lines = start.strip_prefix(b"#!")?;
    let line = first_lines.split(|byte| *byte == b'\n').next()?;
    let ends_in_cr = line.ends_with(b"\r");
    let line = line.trim_ascii_start();
    let name = line.split(|byte| b" \t".contains(byte)).next()?;
    if name.is_empty() {
        return None;
    }
    let interpreter = Path::new(OsStr::from_bytes(name));
    let is_env = interpreter.ends_with("env");
    let is_not_found = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
    let is_missing = interpreter.metadata().is_err_and(is_not_found);
    let shown = path.display();
    if ends_in_cr && (is_missing || is_env) {
        let message =
            format!("cannot run {shown}: its first line ends in a carriage return (CRLF)");
        let failure = Failure::new(exit::CANNOT_RUN, message);
        return Some(failure.hint("save the script with the line ends of Unix (LF)"));
    }
    is_missing.then(|| {
        let name = interpreter.display();
        let message = format!("cannot run {shown}: there is no {name}, which its first line names");
        Failure::new(exit::CANNOT_RUN, message)
            .hint("install the interpreter, or name another in the line that begins with #!")
    })
}

/// Why the program was not started.
pub(crate) fn failure(program: &OsStr, error: &io::Error) -> Failure {
    let name = program.to_string_lossy();
    let cannot_start = |why: &dyn Display| Failure::system(format!("cannot start {name}: {why}"));
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            let failure = Failure::new(exit::NOT_FOUND, format!("no such command: {name}"));
            if name.is_empty() {
                failure.hint("its name is empty: is a variable not set?")
            } else if name.contains(char::is_whitespace) {
                failure.hint("to run a line of a shell, use -c 'LINE' in place of -- COMMAND")
            } else {
                failure
            }
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Failure::system(format!(
            "the system cannot start another process for {name}: {error}"
        )),
        _ if [Some(libc::EMFILE), Some(libc::ENFILE)].contains(&error.raw_os_error()) => {
            cannot_start(error).hint("raise the limit of open files (ulimit -n)")
        }
        // The shim was late. The system has a time-out of its own, as for a file on a network.
        io::ErrorKind::TimedOut if error.raw_os_error().is_none() => cannot_start(error),
        // There is no shim.
        io::ErrorKind::Unsupported => cannot_start(error),
        // Of the socket on which the shim reports.
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset => cannot_start(&SHIM_KILLED),
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
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        for seen in [UnexpectedEof, BrokenPipe, ConnectionReset] {
            let failure = failure("sh".as_ref(), &seen.into());
            assert_eq!(failure.status, 71);
            assert!(failure.message.ends_with("the command was killed"));
        }
    }

    #[test]
    fn a_start_that_takes_too_long_is_told_as_that() {
        let late = crate::child::shim::late(io::ErrorKind::WouldBlock.into());
        let failure = failure("sh".as_ref(), &late);
        let told = "cannot start sh: it has not begun within 20 s";
        assert_eq!((failure.status, &*failure.message), (71, told));
    }

    #[test]
    fn finds_what_a_shell_would() {
        assert_eq!(status("sh"), None);
        assert_eq!(status("/bin/sh"), None);
        assert_eq!(status("no-such-command-anywhere"), Some(127));
        let unset = check("".as_ref()).unwrap_err();
        assert_eq!(unset.status, 127);
        assert!(unset.hint.unwrap().contains("variable"));
        assert_eq!(status("/no/such/command"), Some(127));
        assert_eq!(status("/etc/passwd/sh"), Some(127));
        assert_eq!(status("/"), Some(126));
        assert_eq!(status("/etc/passwd"), Some(126));
    }
}
