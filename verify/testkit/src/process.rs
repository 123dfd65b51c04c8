//! Child processes that never outlive the test, and what tests of whole commands need.
//!
//! A [`Process`] is a running program whose output is an event: a test waits for a line, sends a
//! signal, waits for the end, and never sleeps.
//!
//! ```no_run
//! # async fn example() {
//! use leasehold_testkit::process::{self, Process, Signal};
//!
//! let mut command = process::command("leasehold");
//! command.args(["run", "nightly-report", "--", "sleep", "60"]);
//! let holder = Process::spawn(command);
//! holder.stderr().wait_for("holding").await;
//! holder.signal(Signal::TERM);
//! assert_eq!(holder.finish().await.signal(), Some(Signal::TERM));
//! # }
//! ```

mod daemon;
mod finished;
mod lines;
mod tied;

use std::fmt;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open};
use tokio::sync::watch;

pub use daemon::Daemon;
pub use finished::Finished;
pub use lines::Lines;
use lines::{Captured, Stream, capture};
pub use rustix::process::Signal;
pub use tied::spawn_tied;
pub(crate) use tied::{forks_settled, spawn_free};

/// How long this crate waits for anything before it says that it will not come.
///
/// Long, because it only decides how soon a *failing* test fails, and machines that test are busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How many times slower than alone things are here now, by the load of the last minute: 1 to 8. It
/// only stretches a patience, as above, and how long the clients of a test wait for an answer.
#[must_use]
pub fn overload() -> u32 {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    // Whole processes that want to run are enough.
    let load = text.split('.').next().and_then(|load| load.parse().ok());
    let times = load.unwrap_or(0_usize).div_ceil(cores).clamp(1, 8);
    u32::try_from(times).unwrap_or(1)
}

/// The path of a binary that this workspace or an example has built, found beside the running test.
///
/// # Panics
///
/// When it has not been built: `cargo test` builds the binaries of the package under test only.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    // target/<profile>/deps/<test>: binaries are one level up; examples and programs, none.
    let candidates = test.ancestors().skip(1).take(2);
    candidates
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| {
            panic!(
                "no binary `{name}` beside {}: build it with `cargo build --workspace` first, \
                 or with the manifest of its example, as `scripts/test` does",
                test.display()
            )
        })
}

/// A command that runs a binary of this workspace; see [`binary`].
pub fn command(name: &str) -> Command {
    Command::new(binary(name))
}

/// A running program whose lines, signals and end a test can wait for; killed on drop.
///
/// It leads a process group of its own, so that children it may leave behind are killed with it
/// (unless they have moved to another group). Its standard input is empty, unless the test feeds it.
///
/// Lines are read as they come and kept, so that the program never blocks on its output.
pub struct Process {
    name: String,
    command: String,
    child: Child,
    pid: Pid,
    captured: watch::Sender<Captured>,
    exit: watch::Receiver<Option<ExitStatus>>,
    waiter: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts `command`, capturing its output.
    ///
    /// # Panics
    ///
    /// When the program cannot be started.
    pub fn spawn(command: Command) -> Self {
        Self::spawn_with_input(command, Vec::new())
    }

    /// Starts `command`, capturing its output, with `input` as its whole standard input.
    ///
    /// # Panics
    ///
    /// When the program cannot be started.
    pub fn spawn_with_input(command: Command, input: impl Into<Vec<u8>>) -> Self {
        let (process, mut stdin) = Self::spawn_to_feed(command);
        let input = input.into();
        // A program need not read its input: a broken pipe is no failure of the test.
        thread::spawn(move || drop(stdin.write_all(&input)));
        process
    }

    /// Starts `command`, capturing its output. The caller has its standard input, which ends when it
    /// is dropped.
    ///
    /// # Panics
    ///
    /// When the program cannot be started.
    pub fn spawn_to_feed(mut command: Command) -> (Self, ChildStdin) {
        let program = Path::new(command.get_program()).file_name();
        let name = program.map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let shown = format!("{command:?}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).process_group(0);
        let mut child =
            spawn_tied(command).unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let pid = Pid::from_child(&child);

        let captured = watch::Sender::new(Captured::default());
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        let stdin = child.stdin.take().expect("stdin is piped");
        capture(stdout, Stream::Stdout, captured.clone());
        capture(stderr, Stream::Stderr, captured.clone());

        let (exited, exit) = watch::channel(None);
        let waiter = thread::spawn(move || {
            exited.send_replace(Some(wait_without_reaping(pid)));
        });
        let process = Self {
            name,
            command: shown,
            child,
            pid,
            captured,
            exit,
            waiter: Some(waiter),
        };
        (process, stdin)
    }

    /// Runs `command` to its end and returns all that it said.
    ///
    /// # Panics
    ///
    /// When the program cannot be started, or has not ended within [`PATIENCE`].
    pub async fn run(command: Command) -> Finished {
        Self::spawn(command).finish().await
    }

    /// The process id. It stays this process's until the value is dropped, even after its end.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it writes to standard output.
    pub fn stdout(&self) -> Lines<'_> {
        Lines {
            process: self,
            stream: Stream::Stdout,
        }
    }

    /// What it writes to standard error.
    pub fn stderr(&self) -> Lines<'_> {
        Lines {
            process: self,
            stream: Stream::Stderr,
        }
    }

    /// Waits for a line on standard output that contains `text`; see [`Lines::wait_for`].
    pub async fn prints(&self, text: &str) -> String {
        self.stdout().wait_for(text).await
    }

    /// The same on standard error.
    pub async fn says(&self, text: &str) -> String {
        self.stderr().wait_for(text).await
    }

    /// Sends a signal to the process alone, as `kill` does; to one that has ended it does nothing.
    ///
    /// # Panics
    ///
    /// When the signal cannot be sent.
    pub fn signal(&self, signal: Signal) {
        // The process is reaped on drop only, so this pid is nobody else's.
        rustix::process::kill_process(self.pid, signal)
            .unwrap_or_else(|error| panic!("cannot signal {}: {error}", self.name));
    }

    /// Stops the process (SIGSTOP), and returns when it stands still.
    ///
    /// # Panics
    ///
    /// When it has ended.
    pub fn stop(&self) {
        assert!(halt(self.pid).stopped(), "{} has ended\n{self}", self.name);
    }

    /// Sends a signal to the process and its group, as a terminal does on Ctrl-C.
    ///
    /// # Panics
    ///
    /// When the signal cannot be sent.
    pub fn signal_group(&self, signal: Signal) {
        rustix::process::kill_process_group(self.pid, signal)
            .unwrap_or_else(|error| panic!("cannot signal the group of {}: {error}", self.name));
    }

    /// The exit status, when the process has ended.
    pub fn status(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    ///
    /// When it has not ended within [`PATIENCE`]; the message has what it wrote.
    pub async fn wait(&self) -> ExitStatus {
        let mut exit = self.exit.clone();
        let ended = tokio::time::timeout(PATIENCE, exit.wait_for(Option::is_some)).await;
        match ended {
            Ok(status) => status.expect("the waiter reports the end").expect("an end"),
            Err(_) => panic!("{} is still running after {PATIENCE:?}\n{self}", self.name),
        }
    }

    /// Waits for the end of the process and of its output, which children of it may keep open.
    ///
    /// # Panics
    ///
    /// When they have not ended within [`PATIENCE`]; the message has what it wrote.
    pub async fn finish(self) -> Finished {
        let status = self.wait().await;
        let mut captured = self.captured.subscribe();
        let all = captured.wait_for(|captured| captured.0.iter().all(|stream| stream.ended));
        match tokio::time::timeout(PATIENCE, all).await {
            Ok(all) => {
                let all = all.expect("the sender is ours");
                Finished {
                    command: self.command.clone(),
                    status,
                    stdout: all.0[0].text(),
                    stderr: all.0[1].text(),
                }
            }
            Err(_) => panic!(
                "{} has ended, but something holds its output\n{self}",
                self.name
            ),
        }
    }

    /// Sends it a signal, and waits as [`finish`](Self::finish) does.
    ///
    /// # Panics
    ///
    /// As both of them.
    pub async fn ends_by(self, signal: Signal) -> Finished {
        self.signal(signal);
        self.finish().await
    }

    /// Waits as [`finish`](Self::finish) does, and expects this exit code. One that fails says where
    /// it was called.
    ///
    /// # Panics
    ///
    /// As it does, and where the process has ended in another way.
    #[track_caller]
    pub fn ends(self, code: i32) -> impl Future<Output = Finished> {
        let at = Location::caller();
        async move {
            let ended = self.finish().await;
            assert_eq!(ended.code(), Some(code), "at {at}: {ended}");
            ended
        }
    }

    /// The same, with that within standard error.
    ///
    /// # Panics
    ///
    /// As [`ends`](Self::ends) does, and where it has not said so.
    #[track_caller]
    pub fn ends_saying(self, code: i32, text: impl AsRef<str>) -> impl Future<Output = Finished> {
        let (at, ending) = (Location::caller(), self.ends(code));
        async move {
            let (ended, text) = (ending.await, text.as_ref());
            let said = ended.stderr.contains(text);
            assert!(said, "at {at}: {text:?} is not said: {ended}");
            ended
        }
    }

    /// The same, with exactly that on standard output.
    ///
    /// # Panics
    ///
    /// As [`ends`](Self::ends) does, and where it has printed something else.
    #[track_caller]
    pub fn ends_printing(self, code: i32, stdout: &str) -> impl Future<Output = Finished> {
        let at = Location::caller();
        async move {
            let ended = self.finish().await;
            let found = (ended.code(), &*ended.stdout);
            assert_eq!(found, (Some(code), stdout), "at {at}: {ended}");
            ended
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The group first, while its number is certainly ours: the leader is not reaped yet.
        let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        if let Some(waiter) = self.waiter.take() {
            let _ = waiter.join();
        }
        let _ = self.child.wait();
    }
}

/// Everything written so far, for messages.
impl fmt::Display for Process {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let captured = self.captured.borrow();
        for (name, stream) in ["stdout", "stderr"].iter().zip(&captured.0) {
            writeln!(out, "--- {name} of {}", self.name)?;
            out.write_str(&stream.text())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Process")
            .field("name", &self.name)
            .field("pid", &self.child.id())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// Waits for the end of a child and leaves it to be reaped, so that its pid is not given away.
fn wait_without_reaping(pid: Pid) -> ExitStatus {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    exit_status(&wait_for_change(pid, how))
}

fn exit_status(ended: &WaitIdStatus) -> ExitStatus {
    let code = ended.exit_status().map(|code| code << 8);
    let raw = code.or_else(|| ended.terminating_signal());
    ExitStatus::from_raw(raw.expect("an end has a reason"))
}

/// Waits until a child has changed its state in one of the ways asked for.
fn wait_for_change(pid: Pid, how: WaitIdOptions) -> WaitIdStatus {
    loop {
        match rustix::process::waitid(WaitId::Pid(pid), how) {
            Ok(Some(status)) => return status,
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("cannot wait for child {pid}: {error}"),
        }
    }
}

/// Stops a child in its tracks (SIGSTOP), and returns when it stands still, or has ended.
fn halt(pid: Pid) -> WaitIdStatus {
    let sent = rustix::process::kill_process(pid, Signal::STOP);
    sent.expect("a child can be signalled");
    let how = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    wait_for_change(pid, how)
}

/// The end of a process, which is left to be reaped. Taken before it, since a pid can be reused.
#[derive(Debug)]
pub struct End(OwnedFd);

impl End {
    /// That of the process with this pid.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn of(pid: Pid) -> Self {
        Self(pidfd_open(pid, PidfdFlags::empty()).expect("a process that is there"))
    }

    /// Whether it comes within that time.
    pub fn comes_within(&self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).expect("it is short");
        let come = || poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit));
        retry_on_intr(come).expect("a process can be looked at") == 1
    }

    /// Waits until it has come.
    ///
    /// # Panics
    ///
    /// When it has not within [`PATIENCE`].
    pub fn has_come(&self) {
        let come = self.comes_within(PATIENCE);
        assert!(come, "a process has not ended within {PATIENCE:?}");
    }
}

#[cfg(test)]
mod tests;
