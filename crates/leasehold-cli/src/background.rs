//! `hold --background`: the process that was started ends once the lock is held, and another holds it.
//!
//! Both are connected until then. The one in front ends with whatever the other one says, and if it is
//! ended before, by Ctrl-C or `timeout`, the other one leaves the queue.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::fs::{FileType, fstat};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::exit::{self, Status};
use crate::failure::Failure;
use crate::sys;

/// Goes on in two processes. In the one in front that comes back with how it ends.
#[allow(unsafe_code, reason = "no safe interface forks")]
pub(crate) fn fork() -> Result<ControlFlow<Status, Front>, Failure> {
    let (ours, theirs) = UnixStream::pair().map_err(|error| cannot(&error))?;
    // Where it is ignored, nothing would tell how the one in the background has ended.
    let _ = signal_hook::flag::register(libc::SIGCHLD, Arc::default());
    // SAFETY: this process has one thread so far, so the copy is as good as the original.
    match unsafe { libc::fork() } {
        0 => Ok(ControlFlow::Continue(Front {
            stream: theirs,
            left: Cell::new(false),
        })),
        forked => {
            let child = Pid::from_raw(forked.max(0));
            let child = child.ok_or_else(|| cannot(&io::Error::last_os_error()))?;
            drop(theirs);
            Ok(ControlFlow::Break(wait(ours, child)))
        }
    }
}

/// Why there are no two processes, or not for long.
pub(crate) fn cannot(error: &io::Error) -> Failure {
    Failure::system(format!("cannot go to the background: {error}"))
}

/// Waits until the lock is held, or will not be.
fn wait(mut stream: UnixStream, child: Pid) -> Status {
    let held = stream.read_exact(&mut [0]).is_ok() && stream.write_all(b"k").is_ok();
    if held {
        return exit::OK.into();
    }
    let ended = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(child), WaitIdOptions::EXITED));
    match ended {
        Ok(Some(ended)) => Status::of_process(&ended),
        _ => exit::SYSTEM.into(),
    }
}

/// The process in front, as the one in the background knows it.
#[derive(Debug)]
pub(crate) struct Front {
    stream: UnixStream,
    left: Cell<bool>,
}

impl Front {
    /// Completes when it has ended before the lock was held.
    pub(crate) async fn end(&self) {
        if let Some(ended) = sys::readable(&self.stream) {
            // It says nothing before it is told that the lock is held.
            ended.await;
        }
        if self.left.get() {
            std::future::pending::<()>().await;
        }
    }

    /// The lock is held, and its token was written: the process in front ends, and this one keeps
    /// nothing of it open that somebody reads to its end. Answers whether it was still there.
    pub(crate) fn leave(&self) -> io::Result<bool> {
        self.left.set(true);
        // Ctrl-C is for the script: it may go on after that.
        let _ = rustix::process::setsid();
        let null = File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        let err = fstat(rustix::stdio::stderr());
        let kind = err.map(|seen| FileType::from_raw_mode(seen.st_mode));
        if !matches!(kind, Ok(FileType::RegularFile | FileType::CharacterDevice)) {
            rustix::stdio::dup2_stderr(&null)?;
        }
        let mut stream = &self.stream;
        let told = stream.write_all(b"h");
        Ok(told.is_ok() && stream.read_exact(&mut [0]).is_ok())
    }
}
