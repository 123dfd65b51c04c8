//! What `hold` is bound to: it ends with its parent, or when a descriptor is at its end.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::{FileType, fstat};
use rustix::process::{Pid, Signal, getppid};
use tokio::sync::oneshot;

use crate::cli::HoldArgs;
use crate::exit;
use crate::failure::Failure;
use crate::sys;

/// A descriptor that we were started with, by its number.
#[derive(Debug, Clone)]
pub(crate) struct Inherited(Arc<OwnedFd>);

impl Inherited {
    /// Takes the descriptor, while only those are open that we were started with.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let number: u16 = text
            .parse()
            .map_err(|_| "name it by its number, e.g. 0 for standard input".to_owned())?;
        let fd = sys::duplicate(number.into());
        let fd = fd.map_err(|_| "it is not open; open it with exec N< or a pipe".to_owned())?;
        let kind = fstat(&fd).map(|seen| FileType::from_raw_mode(seen.st_mode));
        match kind {
            Ok(FileType::Fifo | FileType::Socket) => Ok(Self(Arc::new(fd))),
            Ok(FileType::CharacterDevice) if rustix::termios::isatty(&fd) => Ok(Self(Arc::new(fd))),
            _ => Err(
                "it does not stay open; use a pipe, whose other end the script keeps".to_owned(),
            ),
        }
    }

    /// Completes at the end of what can be read from it.
    async fn end(&self) {
        let (tell, ended) = oneshot::channel::<()>();
        let fd = self.0.try_clone();
        // A thread of its own: others may have set the descriptor to block.
        let reading = std::thread::Builder::new().spawn(move || {
            let Ok(mut file) = fd.map(File::from) else {
                return;
            };
            let mut bytes = [0; 4096];
            while file.read(&mut bytes).is_ok_and(|read| read > 0) {}
            drop(tell);
        });
        // Without a thread it is at its end, too: what cannot be seen is not relied on.
        if reading.is_ok() {
            let _ = ended.await;
        }
    }
}

/// The process that has started us.
#[derive(Debug)]
struct Parent {
    pid: Option<Pid>,
    #[cfg(target_os = "linux")]
    handle: Option<OwnedFd>,
}

impl Parent {
    fn now() -> Self {
        let pid = getppid();
        Self {
            #[cfg(target_os = "linux")]
            handle: pid.and_then(|pid| {
                let flags = rustix::process::PidfdFlags::empty();
                rustix::process::pidfd_open(pid, flags).ok()
            }),
            pid,
        }
    }

    /// Completes when it has ended.
    async fn end(&self) {
        #[cfg(target_os = "linux")]
        if let Some(ended) = self.handle.as_ref().and_then(sys::readable)
            && getppid() == self.pid
        {
            return ended.await;
        }
        // Others tell nothing: it is another one's child then.
        while getppid() == self.pid {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
    }
}

impl Parent {
    /// Asks it to end, unless it has ended.
    fn terminate(&self) {
        if getppid() != self.pid {
            return;
        }
        // An error says that it ends just now, or is another user's: it learns of it by our end.
        #[cfg(target_os = "linux")]
        if let Some(handle) = &self.handle {
            let _ = rustix::process::pidfd_send_signal(handle, Signal::TERM);
            return;
        }
        if let Some(pid) = self.pid {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
    }
}

/// What ends us beside signals and the loss of the lock.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    parent: Option<Parent>,
    descriptor: Option<Inherited>,
}

impl Bound {
    /// As the arguments say, from now on.
    pub(crate) fn of(args: &HoldArgs) -> Result<Rc<Self>, Failure> {
        let parent = args.while_parent.then(Parent::now);
        if parent.as_ref().is_some_and(|parent| parent.pid.is_none()) {
            return Err(Failure::new(
                exit::SYSTEM,
                "cannot tell when the parent ends: it is in another PID namespace",
            )
            .hint("use --fd with a pipe"));
        }
        Ok(Rc::new(Self {
            parent,
            descriptor: args.fd.clone(),
        }))
    }

    /// The lock is lost: a parent that relies on it is asked to end.
    pub(crate) fn lost(&self) {
        if let Some(parent) = &self.parent {
            parent.terminate();
        }
    }

    /// Completes when one of them has ended; never if there are none.
    pub(crate) async fn end(self: Rc<Self>) {
        let parent = async {
            match &self.parent {
                Some(parent) => parent.end().await,
                None => std::future::pending().await,
            }
        };
        let descriptor = async {
            match &self.descriptor {
                Some(descriptor) => descriptor.end().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = parent => {}
            () = descriptor => {}
        }
    }
}
