//! The only place that writes: data to standard output, all else to standard error.

mod event;
mod fields;
mod log;

use std::future::pending;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use std::{slice, thread};

use indicatif::{ProgressBar, ProgressDrawTarget};
use jiff::Timestamp;
pub(crate) use leasehold_console::escape::escape;
use leasehold_console::escape::escape_json;
pub(crate) use leasehold_console::table::{Column, cut, table};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::termios::tcgetpgrp;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::Instant;

use event::Tone;

pub(crate) use event::{Event, LeaseEnd, Measure, Milestone, Sequel};
pub(crate) use fields::{ByKey, Fields, Tokens};

use crate::exit;
use crate::failure::Failure;
use crate::sys;

/// How each line begins that is for people.
pub(crate) const PREFIX: &str = "leasehold: ";

/// How many lines can wait for the thread that writes them. What does not fit is left out.
const MOST_LINES: usize = 64;

/// How long a line is waited for, and at the end the last one.
const LINE_TIMEOUT: Duration = Duration::from_millis(250);
const LAST_LINE_TIMEOUT: Duration = Duration::from_secs(1);

/// How much is said.
#[derive(Debug, Default, Clone, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print only errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print each step
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Writes for one run of the command. Clones write to the same place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Printer(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    options: OutputArgs,
    /// Whether `--json` is about events too, and not only about data.
    json_events: bool,
    is_job: bool,
    /// Writes what is said, of a job from its first line on: see [`Printer::write_beside`].
    lines: OnceLock<Option<LineWriter>>,
    /// Stands in each event: lines of many runs can be told apart in one log.
    origin: Fields,
    live: Mutex<Option<ProgressBar>>,
    /// Hears what becomes of the lock, and when.
    milestones: OnceLock<Sender<(Milestone, Instant)>>,
}

/// Whether that takes more from us now. A terminal that was stopped (Ctrl-S) would hold up all that
/// is done beside the line that is shown there.
pub(crate) fn takes_more(out: &impl AsFd) -> bool {
    let (mut seen, at_once) = ([PollFd::new(out, PollFlags::OUT)], Timespec::default());
    !is_anothers(out) && poll(&mut seen, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Whether that is a terminal that another group has, as where this is a job in the background:
/// what is drawn again and again would stand in what is typed there.
pub(crate) fn is_anothers(out: &impl AsFd) -> bool {
    tcgetpgrp(out).is_ok_and(|front| Some(front) != sys::group())
}

/// Completes when nobody can read standard output any more: who seldom writes learns it so.
pub(crate) async fn reader_gone() {
    let (tell, told) = oneshot::channel();
    let wait = move || {
        let out = io::stdout();
        // Errors are told, whatever is waited for.
        let mut seen = [PollFd::new(&out, PollFlags::empty())];
        let gone = retry_on_intr(|| poll(&mut seen, None));
        gone.map(|_| tell.send(()))
    };
    let _ = thread::Builder::new().spawn(wait);
    // Without a thread, or a poll, it is learned at the next write.
    if told.await.is_err() {
        pending::<()>().await;
    }
}

/// Whether anybody still reads what was written.
pub(crate) fn is_read(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        // Who closes a pipe has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
            exit::OUTPUT,
            format!("cannot write the output: {error}"),
        )),
        written => Ok(written.is_ok()),
    }
}

impl Printer {
    /// A printer, and the library's log through it. Of a job, `--json` is about events too.
    pub(crate) fn new(options: &OutputArgs, is_job: bool) -> Self {
        // The standard library seeds each with random keys.
        let random = RandomState::new().build_hasher().finish();
        let printer = Self(Arc::new(Inner {
            options: options.clone(),
            json_events: options.json && is_job,
            is_job,
            origin: Fields::default()
                .with("host", sys::host())
                .with("pid", std::process::id())
                .with("run", format!("{random:016x}")),
            ..Inner::default()
        }));
        log::begin(&printer, options);
        printer
    }

    /// Data, as it is. Answers whether anybody still reads.
    pub(crate) fn data(&self, text: &str) -> Result<bool, Failure> {
        let mut out = io::stdout().lock();
        is_read(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
    }

    /// The same, written beside all else: its reader may have stopped. Without a thread it is written
    /// here.
    pub(crate) async fn beside(&self, text: &str) -> Result<bool, Failure> {
        let (printer, data) = (self.clone(), text.to_owned());
        let (tell, told) = oneshot::channel();
        let _ = thread::Builder::new().spawn(move || tell.send(printer.data(&data)));
        told.await.unwrap_or_else(|_| self.data(text))
    }

    /// Data as a line of JSON with `--json`, else as text. Answers whether anybody still reads.
    pub(crate) fn show(
        &self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<bool, Failure> {
        self.data(&self.shown(slice::from_ref(value), text)?)
    }

    /// What was done: a line of JSON with `--json`, and a sentence unless there are to be none.
    pub(crate) fn done(&self, value: &impl Serialize, sentence: &str) -> Result<(), Failure> {
        if self.0.options.json {
            self.show(value, String::new)?;
        }
        self.notice(sentence);
        Ok(())
    }

    /// Says to a person at the terminal that there is no data.
    pub(crate) fn nothing(&self, text: &str) {
        if !self.0.options.json && io::stderr().is_terminal() {
            self.notice(text);
        }
    }

    /// Data as it is written: each as a line of JSON with `--json`, else all as text. A cell that may
    /// hold line breaks is escaped by its caller.
    pub(crate) fn shown(
        &self,
        values: &[impl Serialize],
        text: impl FnOnce() -> String,
    ) -> Result<String, Failure> {
        if !self.0.options.json {
            let text = text();
            let lines = text.split_terminator('\n');
            return Ok(lines.map(|line| escape(line) + "\n").collect());
        }
        let mut lines = String::new();
        for value in values {
            let line = serde_json::to_string(value).map_err(|error| {
                Failure::new(exit::OUTPUT, format!("cannot write JSON: {error}"))
            })?;
            lines.extend([&*escape_json(&line), "\n"]);
        }
        Ok(lines)
    }

    /// Tells what becomes of the lock from now on also there.
    pub(crate) fn tell_milestones(&self, to: Sender<(Milestone, Instant)>) {
        let _ = self.0.milestones.set(to);
    }

    /// Something that happened.
    pub(crate) fn event(&self, event: Event) {
        if let (Some(to), Some(milestone)) = (self.0.milestones.get(), event.milestone) {
            // After the end nobody counts.
            let _ = to.send((milestone, Instant::now()));
        }
        if self.0.options.quiet && event.tone != Tone::Urgent {
            return;
        }
        if self.0.json_events {
            let now = format!("{:.3}", Timestamp::now());
            let fields = event.fields.with("time", now).followed_by(&self.0.origin);
            // What is said can always be written.
            let line = serde_json::to_string(&fields).unwrap_or_default();
            self.line(&escape_json(&line));
        } else if let Some(sentence) = event.sentence(self.0.options.verbose) {
            self.sentence(sentence);
            if let Some(hint) = event.hint {
                self.sentence(&format!("hint: {hint}"));
            }
        }
    }

    /// Why it did not work. Answers the exit status.
    pub(crate) fn failure(&self, failure: &Failure) -> u8 {
        self.event(failure.into());
        let is_shown = self.0.options.verbose && !self.0.json_events;
        if let Some(cause) = failure.cause.as_ref().filter(|_| is_shown) {
            self.sentence(&format!("cause: {cause}"));
        }
        failure.status
    }

    /// Something to know.
    pub(crate) fn notice(&self, text: &str) {
        if !self.0.options.quiet && !self.0.json_events {
            self.sentence(text);
        }
    }

    /// Something to worry about.
    pub(crate) fn warn(&self, message: impl AsRef<str>) {
        self.event(Event::warning(message.as_ref(), None));
    }

    /// Something to worry about, and what to do about it.
    pub(crate) fn warn_with_hint(&self, message: impl AsRef<str>, hint: impl AsRef<str>) {
        self.event(Event::warning(message.as_ref(), Some(hint.as_ref())));
    }

    /// Whether the person at the terminal says yes; refused if nobody sits there.
    pub(crate) fn confirmed(&self, question: &str) -> Result<bool, Failure> {
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            let failure = Failure::usage("not a terminal: cannot ask for confirmation");
            return Err(failure.hint("use --yes"));
        }
        let (mut err, mut answer) = (io::stderr().lock(), Vec::new());
        write!(err, "{PREFIX}{} [y/N] ", escape(question))
            .and_then(|()| err.flush())
            .and_then(|()| io::stdin().lock().read_until(b'\n', &mut answer))
            .map_err(|error| Failure::new(exit::OUTPUT, format!("cannot ask: {error}")))?;
        let answer = String::from_utf8_lossy(&answer).to_lowercase();
        Ok(matches!(answer.trim(), "y" | "yes"))
    }

    /// Whether all that is going on is said.
    pub(crate) fn is_verbose(&self) -> bool {
        self.0.options.verbose
    }

    /// Whether a live line may be shown.
    pub(crate) fn is_live(&self) -> bool {
        let (err, silent) = (io::stderr(), self.0.options.quiet || self.0.json_events);
        !silent && err.is_terminal() && !is_anothers(&err)
    }

    /// Shows `bar` below all other lines, until the next call.
    pub(crate) fn show_live(&self, bar: Option<ProgressBar>) {
        let mut live = self.0.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = live.take() {
            if !takes_more(&io::stderr()) {
                last.set_draw_target(ProgressDrawTarget::hidden());
            }
            last.finish_and_clear();
        }
        *live = bar;
    }

    fn sentence(&self, sentence: &str) {
        self.line(&format!("{PREFIX}{}", escape(sentence)));
    }

    /// Has a thread write what is said from now on: who reads it may have stopped.
    pub(crate) fn write_beside(&self) {
        self.0.lines.get_or_init(LineWriter::begin);
    }

    /// Waits until all was written, unless nobody reads it.
    pub(crate) fn finish(&self) {
        if let Some(Some(lines)) = self.0.lines.get() {
            lines.finish();
        }
    }

    fn line(&self, line: &str) {
        if self.0.is_job {
            self.write_beside();
        }
        // Standard error that is closed or full is no reason to stop.
        let write = || match self.0.lines.get() {
            Some(Some(lines)) => lines.write(format!("{line}\n")),
            _ => drop(writeln!(io::stderr().lock(), "{line}")),
        };
        let live = self.0.live.lock().unwrap_or_else(PoisonError::into_inner);
        match &*live {
            Some(bar) if takes_more(&io::stderr()) => bar.suspend(write),
            _ => write(),
        }
    }
}

/// Writes lines to standard error, in their order. Whoever reads them may have stopped: a thread of
/// their own writes them, so that the main one still hears signals, renews the lease of a job, and ends
/// its command with it.
#[derive(Debug)]
struct LineWriter {
    lines: SyncSender<(String, Sender<()>)>,
    /// Ends when the last line is written.
    last: Mutex<Option<Receiver<()>>>,
}

impl LineWriter {
    /// Nothing where there can be no thread.
    fn begin() -> Option<Self> {
        let (lines, taken) = mpsc::sync_channel::<(String, Sender<()>)>(MOST_LINES);
        let write = move || {
            // They are for the other thread.
            sys::block(sys::ALL);
            for (line, _written) in taken {
                let _ = io::stderr().lock().write_all(line.as_bytes());
            }
        };
        thread::Builder::new().spawn(write).ok()?;
        let last = Mutex::default();
        Some(Self { lines, last })
    }

    /// Writes a line. It is waited for, unless another one is still to be written.
    fn write(&self, line: String) {
        let (written, ended) = mpsc::channel();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_behind = |last: &Receiver<()>| last.try_recv() == Err(TryRecvError::Empty);
        let waits = !last.as_ref().is_some_and(is_behind);
        if self.lines.try_send((line, written)).is_ok() {
            if waits {
                let _ = ended.recv_timeout(LINE_TIMEOUT);
            }
            *last = Some(ended);
        }
    }

    /// Waits for the last line.
    fn finish(&self) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.take() {
            let _ = last.recv_timeout(LAST_LINE_TIMEOUT);
        }
    }
}
