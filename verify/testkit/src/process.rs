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

mod finished;
mod tied;

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus};
use tokio::sync::watch;

pub use finished::Finished;
pub use rustix::process::Signal;
pub use tied::spawn_tied;
pub(crate) use tied::{forks_settled, spawn_free};

/// How long this crate waits for anything before it says that it will not come.
///
/// Long, because it only decides how soon a *failing* test fails, and machines that test are busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The path of a binary that this workspace has built, found beside the running test.
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
                "no binary `{name}` beside {}: build it with `cargo build --workspace` first",
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
/// (unless they have moved to another group). Its standard input is empty.
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
    pub fn spawn_with_input(mut command: Command, input: impl Into<Vec<u8>>) -> Self {
        let name = Path::new(command.get_program())
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let shown = format!("{command:?}");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child =
            spawn_tied(command).unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let pid = Pid::from_child(&child);

        let captured = watch::Sender::new(Captured::default());
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let input = input.into();
        // A program need not read its input: a broken pipe is no failure of the test.
        thread::spawn(move || drop(stdin.write_all(&input)));
        capture(stdout, Stream::Stdout, captured.clone());
        capture(stderr, Stream::Stderr, captured.clone());

        let (exited, exit) = watch::channel(None);
        let waiter = thread::spawn(move || {
            exited.send_replace(Some(wait_without_reaping(pid)));
        });
        Self {
            name,
            command: shown,
            child,
            pid,
            captured,
            exit,
            waiter: Some(waiter),
        }
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
        self.signal(Signal::STOP);
        let how = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let changed = wait_for_change(self.pid, how);
        assert!(changed.stopped(), "{} has ended\n{self}", self.name);
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
        let all = captured.wait_for(|captured| captured.stdout.ended && captured.stderr.ended);
        match tokio::time::timeout(PATIENCE, all).await {
            Ok(all) => {
                let all = all.expect("the sender is ours");
                Finished {
                    command: self.command.clone(),
                    status,
                    stdout: all.stdout.text(),
                    stderr: all.stderr.text(),
                }
            }
            Err(_) => panic!(
                "{} has ended, but something holds its output\n{self}",
                self.name
            ),
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
        for (name, stream) in [("stdout", &captured.stdout), ("stderr", &captured.stderr)] {
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

/// One of the output streams of a [`Process`], as lines.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    process: &'a Process,
    stream: Stream,
}

impl Lines<'_> {
    /// Waits for a line that contains `text` and returns it. The next wait on this stream looks
    /// behind that line: two waits for the same text wait for two lines.
    ///
    /// # Panics
    ///
    /// When the stream ends without such a line, or there is none within [`PATIENCE`]; the message
    /// has all that was written.
    pub async fn wait_for(&self, text: &str) -> String {
        let mut captured = self.process.captured.subscribe();
        let settled = captured.wait_for(|captured| {
            let stream = captured.of(self.stream);
            stream.ended || stream.find(text).is_some()
        });
        let in_time = tokio::time::timeout(PATIENCE, settled).await.is_ok();

        let mut line = None;
        self.process.captured.send_if_modified(|captured| {
            let stream = captured.of_mut(self.stream);
            if let Some(at) = stream.find(text) {
                line = Some(stream.lines[at].clone());
                stream.next = at + 1;
            }
            false
        });
        line.unwrap_or_else(|| {
            let Self { process, stream } = self;
            let when = if in_time {
                "before it ended".to_owned()
            } else {
                format!("in {PATIENCE:?}")
            };
            panic!(
                "{} wrote no {text:?} to {stream:?} {when}\n{process}",
                process.name
            )
        })
    }

    /// The lines written so far.
    pub fn so_far(&self) -> Vec<String> {
        self.process.captured.borrow().of(self.stream).lines.clone()
    }
}

#[derive(Clone, Copy, Debug)]
enum Stream {
    Stdout,
    Stderr,
}

#[derive(Default)]
struct Captured {
    stdout: Transcript,
    stderr: Transcript,
}

impl Captured {
    fn of(&self, stream: Stream) -> &Transcript {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }

    fn of_mut(&mut self, stream: Stream) -> &mut Transcript {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

#[derive(Default)]
struct Transcript {
    lines: Vec<String>,
    /// Where the next wait starts to look.
    next: usize,
    ended: bool,
}

impl Transcript {
    fn find(&self, text: &str) -> Option<usize> {
        (self.next..self.lines.len()).find(|&at| self.lines[at].contains(text))
    }

    fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Reads `source` line by line into `captured`, in a thread that ends with the stream.
fn capture(source: impl Read + Send + 'static, stream: Stream, captured: watch::Sender<Captured>) {
    thread::spawn(move || {
        let mut source = BufReader::new(source);
        let mut line = Vec::new();
        while source
            .read_until(b'\n', &mut line)
            .is_ok_and(|read| read > 0)
        {
            let text = String::from_utf8_lossy(&line)
                .trim_end_matches('\n')
                .to_owned();
            captured.send_modify(|captured| captured.of_mut(stream).lines.push(text));
            line.clear();
        }
        captured.send_modify(|captured| captured.of_mut(stream).ended = true);
    });
}

/// Waits for the end of a child and leaves it to be reaped, so that its pid is not given away.
fn wait_without_reaping(pid: Pid) -> ExitStatus {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let ended = wait_for_change(pid, how);
    let code = ended.exit_status().map(|code| code << 8);
    let raw = code
        .or_else(|| ended.terminating_signal())
        .expect("an end has a reason");
    ExitStatus::from_raw(raw)
}

/// Waits until a child has changed its state in one of the ways asked for.
pub(crate) fn wait_for_change(pid: Pid, how: WaitIdOptions) -> WaitIdStatus {
    loop {
        match rustix::process::waitid(WaitId::Pid(pid), how) {
            Ok(Some(status)) => return status,
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("cannot wait for child {pid}: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn lines_are_events_and_each_is_met_once() {
        let process = Process::spawn(sh("echo tick 1; echo tick 2; echo oops >&2; exec sleep 60"));
        assert_eq!(process.stdout().wait_for("tick").await, "tick 1");
        assert_eq!(process.stdout().wait_for("tick").await, "tick 2");
        assert_eq!(process.stderr().wait_for("oops").await, "oops");
        assert_eq!(process.stdout().so_far(), ["tick 1", "tick 2"]);
        assert_eq!(process.status(), None);
    }

    #[tokio::test]
    #[should_panic(expected = "wrote no \"ready\" to Stdout before it ended")]
    async fn a_line_that_cannot_come_any_more_is_not_waited_for() {
        let process = Process::spawn(sh("echo unready >&2"));
        process.stdout().wait_for("ready").await;
    }

    #[tokio::test]
    async fn a_finished_program_tells_code_and_both_streams() {
        let finished = Process::run(sh("echo out; echo err >&2; exit 7")).await;
        assert_eq!(finished.code(), Some(7));
        assert_eq!(
            (finished.stdout.as_str(), finished.stderr.as_str()),
            ("out\n", "err\n")
        );
    }

    #[tokio::test]
    async fn input_is_given_whole_and_then_ends() {
        let finished = Process::spawn_with_input(sh("cat"), "one\ntwo\n")
            .finish()
            .await;
        assert_eq!(finished.stdout, "one\ntwo\n");
    }

    #[tokio::test]
    async fn a_signal_reaches_the_process_and_not_its_children() {
        let process = Process::spawn(sh(
            "sh -c 'trap \"echo child\" TERM; echo child ready; while :; do wait; sleep 0.01; done' &
             trap 'echo parent; exit 3' TERM; echo parent ready; wait",
        ));
        process.stdout().wait_for("ready").await;
        process.stdout().wait_for("ready").await;
        process.signal(Signal::TERM);
        process.stdout().wait_for("parent").await;
        assert_eq!(process.wait().await.code(), Some(3));
        assert!(!process.stdout().so_far().contains(&"child".to_owned()));

        process.signal_group(Signal::TERM);
        process.stdout().wait_for("child").await;
    }

    #[tokio::test]
    async fn an_end_by_signal_is_told_apart_from_a_code() {
        let process = Process::spawn(sh("exec sleep 60"));
        process.signal(Signal::KILL);
        let status = process.wait().await;
        assert_eq!((status.code(), status.signal()), (None, Some(9)));
        process.signal(Signal::TERM); // To a process that has ended: nothing, and no panic.
    }

    #[test]
    fn drop_takes_the_children_along() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (process, child) = runtime.block_on(async {
            let process = Process::spawn(sh("sleep 60 & echo $!; wait"));
            let child = process.stdout().wait_for("").await.parse().unwrap();
            (process, Pid::from_raw(child).unwrap())
        });
        let gone =
            rustix::process::pidfd_open(child, rustix::process::PidfdFlags::empty()).unwrap();
        drop(process);
        let mut fds = [rustix::event::PollFd::new(
            &gone,
            rustix::event::PollFlags::IN,
        )];
        let limit = rustix::event::Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        assert_eq!(
            rustix::event::poll(&mut fds, Some(&limit)),
            Ok(1),
            "{child} is still there"
        );
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let asked = thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("60");
            spawn_tied(command).unwrap()
        });
        let mut child = asked.join().unwrap();
        // The kernel sends the death signal before the thread can be joined.
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    #[should_panic(expected = "no binary `leasehold-nonesuch`")]
    fn a_binary_that_was_not_built_is_named() {
        binary("leasehold-nonesuch");
    }
}
