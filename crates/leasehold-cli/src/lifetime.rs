//! What `hold` is bound to: it ends with its parent, which is known from the start and watched to its
//! end, or at the end of file of a descriptor.

use std::fs::File;
use std::future::pending;
use std::io::{ErrorKind, Read};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use clap::Args;
use futures_util::future::OptionFuture;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, test_kill_process};
use tokio::sync::oneshot;

use crate::background::{self, Front};
use crate::exit::Status;
use crate::failure::Failure;
use crate::sys::{self, parent_of, process_fields};

/// What the lock is bound to.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Scripts")]
pub(crate) struct LifetimeArgs {
    /// Release the lock when the parent process ends
    ///
    /// The parent is the shell that runs the script. When the lock is lost, the parent gets
    /// SIGTERM, so that the script does not continue without the lock. If sudo starts leasehold,
    /// the parent is sudo and not the script: name the script with =$$. That PID must be the parent
    /// or one of its parents.
    #[arg(
        long, value_name = "PID", num_args = 0..=1, require_equals = true,
        value_parser = clap::value_parser!(i32).range(1..)
    )]
    while_parent: Option<Option<i32>>,
    /// Go to the background once the lock is held: for TOKEN=$(leasehold hold --background ...)
    ///
    /// leasehold prints the token and ends with status 0, while another process holds the lock. Needs
    /// --while-parent, --fd or --save, so that the lock is released.
    #[arg(long, conflicts_with = "detach")]
    background: bool,
    /// With --background: what the process in front has found out.
    #[arg(skip)]
    parent: Option<Rc<Parent>>,
    #[arg(skip)]
    pub(crate) front: Option<Rc<Front>>,
    /// Release the lock at the end of file on descriptor N
    ///
    /// For a pipe whose other end the script keeps open.
    #[arg(long, value_name = "N", value_parser = InheritedFd::parse)]
    fd: Option<InheritedFd>,
}

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
        // A thread of its own: others may have set the descriptor to block, or not to.
        let reading = std::thread::Builder::new().spawn(move || {
            let Ok(mut file) = fd.map(File::from) else {
                return;
            };
            let mut bytes = [0; 4096];
            loop {
                let _ = poll(&mut [PollFd::new(&file, PollFlags::IN)], None);
                match file.read(&mut bytes) {
                    Ok(1..) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    _ => break,
                }
            }
            drop(tell);
        });
        // Without a thread it is at its end, too: what cannot be seen is not relied on.
        if reading.is_ok() {
            let _ = ended.await;
        }
    }
}

impl LifetimeArgs {
    /// What ends us beside signals and the loss of the lock, from now on.
    pub(crate) fn watch(&self) -> Result<Rc<Self>, Failure> {
        let mut watched = self.clone();
        if let (None, Some(asked)) = (&self.parent, self.while_parent) {
            watched.parent = Some(Rc::new(parent(asked, false)?));
        }
        Ok(Rc::new(watched))
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
            Some(()) = OptionFuture::from(self.parent.as_ref().map(|it| it.end())) => {}
            Some(()) = OptionFuture::from(self.fd.as_ref().map(InheritedFd::end)) => {}
            Some(()) = OptionFuture::from(self.front.as_ref().map(|it| it.end())) => {}
            else => pending().await,
        }
    }

    /// Goes on in another process where that is asked for. In this one that comes back with how it
    /// ends. `is_saved`: others can release the lock.
    pub(crate) fn go_to_background(&mut self, is_saved: bool) -> Result<Option<Status>, Failure> {
        if !self.background {
            return Ok(None);
        }
        if self.while_parent.is_none() && self.fd.is_none() && !is_saved {
            let message = "--background needs an end: the lock would be held for ever";
            return Err(Failure::usage(message).hint("add --while-parent, --fd or --save"));
        }
        if let Some(asked) = self.while_parent {
            // While this is the process that it has started: another will hold the lock.
            self.parent = Some(Rc::new(parent(asked, true)?));
        }
        Ok(match background::fork()? {
            ControlFlow::Break(status) => Some(status),
            ControlFlow::Continue(front) => {
                self.front = Some(Rc::new(front));
                None
            }
        })
    }
}

/// The process that is meant: the one of that number, or the parent.
fn parent(asked: Option<i32>, left: bool) -> Result<Parent, Failure> {
    match asked.and_then(Pid::from_raw) {
        Some(pid) => Parent::named(pid, left),
        None => Parent::now(left),
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

/// The parent at the start of this process; 0 is one in another PID namespace.
static AT_START: AtomicI32 = AtomicI32::new(0);

/// Takes note of the parent. To be called first of all.
pub(crate) fn note() {
    AT_START.store(Pid::as_raw(getppid()), Ordering::Relaxed);
}

/// How often it is looked whether it has ended where the system does not tell.
const LOOK: Duration = Duration::from_millis(500);

/// A process, which may have ended.
#[derive(Debug)]
pub(crate) struct Parent {
    /// Nothing where it had ended before it could be watched.
    pid: Option<Pid>,
    /// Whether it is our parent, and not one further up, or of the process that we were started by.
    direct: bool,
    handle: Option<OwnedFd>,
}

impl Parent {
    /// The process that has started us. `left`: it is to be watched by a child of this process; it is the
    /// shell then that this is a subshell of.
    pub(crate) fn now(left: bool) -> Result<Self, Failure> {
        let Some(parent) = Pid::from_raw(AT_START.load(Ordering::Relaxed)) else {
            let message = "cannot tell when the parent ends: it is in another PID namespace";
            return Err(Failure::system(message).hint("use --fd with a pipe"));
        };
        let shell = if left { shell_of(parent) } else { parent };
        let watched = Self::watch(Some(shell), !left);
        // The number is certainly the one's that was there at the start, as that still is.
        match !is_only_a_reaper(parent) && getppid() == Some(parent) && is_above_us(shell) {
            true => Ok(watched),
            false => Ok(Self::watch(None, true)),
        }
    }

    /// The process of that number, if it has started us or one of those that have.
    pub(crate) fn named(pid: Pid, left: bool) -> Result<Self, Failure> {
        let watched = Self::watch(Some(pid), !left && getppid() == Some(pid));
        // Asked with the process pinned: before, its number could become another's.
        if is_above_us(pid) {
            return Ok(watched);
        }
        let message = format!("process {pid} is none of leasehold's parents, or it has ended");
        Err(Failure::usage(message).hint("name the script with --while-parent=$$"))
    }

    fn watch(pid: Option<Pid>, direct: bool) -> Self {
        Self {
            handle: pid.and_then(|pid| sys::pin(pid).ok()),
            pid,
            direct,
        }
    }

    /// Whether it has ended, as far as that shows without waiting.
    fn has_ended(&self) -> bool {
        match self.pid {
            None => true,
            // It is another one's child then, whose number does not matter.
            Some(pid) if self.direct => getppid() != Some(pid),
            Some(pid) => test_kill_process(pid) == Err(rustix::io::Errno::SRCH),
        }
    }

    /// Completes when it has ended.
    pub(crate) async fn end(&self) {
        if let Some(ended) = self.handle.as_ref().and_then(sys::readable) {
            return ended.await;
        }
        while !self.has_ended() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Asks it to end, unless it has ended.
    pub(crate) fn terminate(&self) {
        // An error says that it ends just now, or is another user's: it learns of it by our end.
        if let Some(handle) = &self.handle {
            let _ = sys::signal_pinned(handle, Signal::TERM);
        } else if let Some(pid) = self.pid.filter(|_| !self.has_ended()) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// Whether our parent cannot be the process that has started us: that one ended before we looked, and
/// the system gave us to this one.
///
/// Who does not lead a session has that of the process that has started it. Who does not lead a group
/// is not the command of a leasehold, whose shim takes orphans.
fn is_only_a_reaper(parent: Pid) -> bool {
    let us = getpid();
    let (Ok(ours), Ok(theirs)) = (process_fields(us), process_fields(parent)) else {
        // Elsewhere the system does not say so much of them, and the first process takes orphans.
        return cfg!(not(target_os = "linux")) && parent == Pid::INIT;
    };
    let number = us.to_string();
    let leads = |at: usize| ours.get(at) == Some(&number);
    let name = std::fs::read_to_string(format!("/proc/{parent}/comm")).unwrap_or_default();
    let is_shim = name.trim_end() == "leasehold-shim";
    (!leads(3) && ours.get(3) != theirs.get(3)) || (!leads(2) && is_shim)
}

/// The shell whose subshell the process is: a copy of it, with the memory of it where that was.
fn shell_of(mut pid: Pid) -> Pid {
    // Where the stack, the arguments and the environment are; random for each program that starts.
    let places = |pid: Pid| {
        let fields = process_fields(pid).ok()?;
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let stack = fields.get(25).filter(|stack| *stack != "0")?;
        let texts = fields.get(45..49).map(<[_]>::to_vec);
        Some((program, stack.clone(), texts))
    };
    let is_copy = |pid, of| places(pid).is_some_and(|ours| places(of) == Some(ours));
    while let Some(up) = parent_of(pid).filter(|&up| is_copy(pid, up)) {
        pid = up;
    }
    pid
}

fn is_above_us(pid: Pid) -> bool {
    let mut above = std::iter::successors(getppid(), |&above| parent_of(above));
    above.any(|above| above == pid)
}
