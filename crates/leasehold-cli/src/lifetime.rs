//! What `hold` is bound to: it ends with its parent, or at the end of file of a descriptor.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::process::Pid;
use tokio::sync::oneshot;

use crate::args::HoldArgs;
use crate::background::Front;
use crate::failure::Failure;
use crate::parent::Parent;
use crate::sys;

/// A descriptor that we were started with, by its number.
#[derive(Debug, Clone)]
pub(crate) struct InheritedFd(Arc<OwnedFd>);

impl InheritedFd {
    /// Takes the descriptor, while only those are open that we were started with.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let number: u16 = text
            .parse()
            .map_err(|_| "name it by its number, e.g. 0 for standard input".to_owned())?;
        let fd = sys::duplicate(number.into());
        let fd = fd.map_err(|_| "it is not open; open it with exec N< or a pipe".to_owned())?;
        let kind = fstat(&fd).map(|seen| FileType::from_raw_mode(seen.st_mode));
        match kind {
            Ok(FileType::Fifo) if is_written_by_us(&fd) => Err(
                "it never ends: leasehold has the other end of the pipe open, too; close that for \
                 leasehold with N>&-"
                    .to_owned(),
            ),
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

/// What ends us beside signals and the loss of the lock.
#[derive(Debug, Default)]
pub(crate) struct LifetimeGuard {
    parent: Option<Rc<Parent>>,
    descriptor: Option<InheritedFd>,
    front: Option<Rc<Front>>,
}

impl LifetimeGuard {
    /// As the arguments say, from now on.
    pub(crate) fn of(args: &HoldArgs) -> Result<Rc<Self>, Failure> {
        let parent = match (&args.parent, args.while_parent) {
            (Some(parent), _) => Some(parent.clone()),
            (None, Some(asked)) => Some(Rc::new(parent(asked, false)?)),
            (None, None) => None,
        };
        Ok(Rc::new(Self {
            parent,
            descriptor: args.fd.clone(),
            front: args.front.clone(),
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
        tokio::select! {
            () = end_of(self.parent.as_ref().map(|parent| parent.end())) => {}
            () = end_of(self.descriptor.as_ref().map(InheritedFd::end)) => {}
            () = end_of(self.front.as_ref().map(|front| front.end())) => {}
        }
    }
}

/// Never, if there is nothing that could end.
async fn end_of(end: Option<impl Future<Output = ()>>) {
    match end {
        Some(end) => end.await,
        None => std::future::pending().await,
    }
}

/// The process that is meant: the one of that number, or the parent.
fn parent(asked: Option<i32>, of_subshells: bool) -> Result<Parent, Failure> {
    match asked.and_then(Pid::from_raw) {
        Some(pid) => Ok(Parent::named(pid)),
        None => Parent::now(of_subshells),
    }
}

impl HoldArgs {
    /// Finds the parent while this is the process that it has started: another will hold the lock.
    pub(crate) fn bind(&mut self) -> Result<(), Failure> {
        if self.while_parent.is_none() && self.fd.is_none() && self.save.is_none() {
            let message = "--background needs an end: the lock would be held for ever";
            return Err(Failure::usage(message).hint("add --while-parent, --fd or --save"));
        }
        if let Some(asked) = self.while_parent {
            let mut parent = parent(asked, true)?;
            parent.is_left();
            self.parent = Some(Rc::new(parent));
        }
        Ok(())
    }
}

/// Whether this process can write to what the descriptor reads: it would never be at its end.
fn is_written_by_us(fd: &OwnedFd) -> bool {
    let Ok(read) = fstat(fd) else { return false };
    let is_same = |other: &OwnedFd| {
        let same =
            fstat(other).is_ok_and(|it| (it.st_dev, it.st_ino) == (read.st_dev, read.st_ino));
        let writes = fcntl_getfl(other).is_ok_and(|it| (it & OFlags::RWMODE) != OFlags::RDONLY);
        same && writes
    };
    // As many as a process has unless it asks for more.
    let mut inherited = (0..1024).filter_map(|number| sys::duplicate(number).ok());
    FileType::from_raw_mode(read.st_mode) == FileType::Fifo && inherited.any(|it| is_same(&it))
}
