//! `--metrics-file`: metrics of a job, as a file for the textfile collector of `node_exporter`.
//!
//! Each write replaces the file atomically. A separate thread writes while the job runs: a slow
//! disk must not delay the renewals of the lease.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use jiff::Timestamp;
use leasehold_console::prometheus::{Metric, add, series};
use tokio::time::Instant;

use crate::output::{Event, Listener, Printer};
use crate::user_file::{Draft, Links, UserFile};

/// How often the file is written while nothing changes: at least once per scrape, which is every
/// 15 s to 60 s in most set-ups.
const REFRESH: Duration = Duration::from_secs(10);

type OfJob = (Metric, fn(&Job) -> Option<f64>);

/// The metrics of the file, with their values. A test compares them with `docs/metrics.md`.
const METRICS: [OfJob; 8] = [
    (
        ("leasehold_job_held", "gauge", "1 while the lock is held"),
        |job| Some(f64::from(job.granted.is_some())),
    ),
    (
        (
            "leasehold_job_acquired",
            "gauge",
            "1 if the last start has obtained the lock",
        ),
        |job| Some(f64::from(job.acquired)),
    ),
    (
        (
            "leasehold_job_wait_seconds",
            "gauge",
            "how long the last start waited for the lock, or has waited until now",
        ),
        |job| Some(job.waited()),
    ),
    (
        (
            HELD,
            "gauge",
            "how long the lock was held the last time, or has been held until now",
        ),
        |job| job.granted.map(since).or(job.held),
    ),
    (
        (
            STATUS,
            "gauge",
            "the exit status of the last start that has ended",
        ),
        |job| job.status,
    ),
    (
        (
            LAST_RUN,
            "gauge",
            "when the lock was obtained the last time",
        ),
        |job| job.last_run,
    ),
    (
        (
            LAST_SUCCESS,
            "gauge",
            "when a start that had obtained the lock ended with status 0 the last time",
        ),
        |job| job.last_success,
    ),
    ((LOSSES, "counter", "leases that were lost"), |job| {
        Some(job.losses)
    }),
];
// What is taken over from earlier starts.
const HELD: &str = "leasehold_job_hold_seconds";
const STATUS: &str = "leasehold_job_exit_status";
const LAST_RUN: &str = "leasehold_job_last_run_timestamp_seconds";
const LAST_SUCCESS: &str = "leasehold_job_last_success_timestamp_seconds";
const LOSSES: &str = "leasehold_job_losses_total";

/// The file, and the thread that writes it.
#[derive(Debug)]
pub(crate) struct MetricsFile {
    target: Arc<Target>,
    changed: Sender<()>,
    warned: AtomicBool,
}

#[derive(Debug)]
struct Target {
    path: PathBuf,
    key: String,
    job: Mutex<Job>,
    /// Locked during a write: the newest state is written last.
    writing: Mutex<Writing>,
}

#[derive(Debug, Default)]
struct Writing {
    /// Why the last write failed.
    failure: Option<io::Error>,
    /// The job has ended, and nothing is written any more.
    over: bool,
}

/// The state of a job.
#[derive(Debug)]
struct Job {
    /// When the waiting began.
    asked: Instant,
    /// When the lock was granted; `None` unless it is held.
    granted: Option<Instant>,
    acquired: bool,
    waited: Option<f64>,
    held: Option<f64>,
    status: Option<f64>,
    last_run: Option<f64>,
    last_success: Option<f64>,
    losses: f64,
}

impl MetricsFile {
    /// Begins to write what becomes of the lock on `key`, as the events of the printer tell.
    pub(crate) fn begin(path: &Path, key: &str, printer: &Printer) -> Arc<Self> {
        let target = Arc::new(Target {
            path: path.to_owned(),
            key: key.to_owned(),
            job: Mutex::new(Job::new()),
            writing: Mutex::default(),
        });
        target.write(None);
        let (changed, changes) = channel();
        let writing = target.clone();
        let writer = thread::Builder::new().spawn(move || {
            while !matches!(
                changes.recv_timeout(REFRESH),
                Err(RecvTimeoutError::Disconnected)
            ) {
                writing.write(None);
            }
        });
        if let Err(error) = writer {
            lock(&target.writing).failure = Some(error);
        }
        let file = Arc::new(Self {
            target,
            changed,
            warned: AtomicBool::new(false),
        });
        file.warn_if_unwritten(printer);
        printer.tell_events(file.clone());
        file
    }

    /// The job has ended with this status: writes the file for the last time.
    pub(crate) fn finish(&self, status: u8, printer: &Printer) {
        self.target.write(Some(status));
        self.warn_if_unwritten(printer);
    }

    /// Says once why the file could not be written.
    fn warn_if_unwritten(&self, printer: &Printer) {
        let failure = lock(&self.target.writing).failure.take();
        if let Some(error) = failure
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            let path = self.target.path.display();
            printer.warn(format!("cannot write the metrics to {path}: {error}"));
        }
    }
}

impl Listener for MetricsFile {
    fn hear(&self, event: &Event) {
        if lock(&self.target.job).note(event) {
            // If the thread could not be started, only `finish` writes.
            let _ = self.changed.send(());
        }
    }
}

impl Target {
    /// Writes the file; `ended` with this status, for the last time.
    fn write(&self, ended: Option<u8>) {
        let mut writing = lock(&self.writing);
        if !writing.over {
            writing.over = ended.is_some();
            writing.failure = self.replace(ended).err();
        }
    }

    /// Puts a new file in the place of the old one.
    fn replace(&self, ended: Option<u8>) -> io::Result<()> {
        let before = self.before()?;
        let mut job = lock(&self.job);
        job.keep(&before, &self.key);
        if let Some(status) = ended {
            job.finish(status);
        }
        let mut text = String::new();
        for (metric, value) in METRICS {
            if let Some(value) = value(&job) {
                let series = series(metric.0, "key", &self.key);
                add(&mut text, metric, [(series, value)]);
            }
        }
        drop(job);
        let mut new = Draft::new(&self.path, 0o666)?;
        new.write(text.as_bytes())?;
        new.replace().map(drop)
    }

    /// What other starts of the job have written. A file of another kind is not replaced.
    fn before(&self) -> io::Result<String> {
        let text = match UserFile::open(&self.path, Links::Refuse) {
            Ok(file) => file.text()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            Err(error) => return Err(error),
        };
        match text.is_empty() || text.starts_with("# HELP leasehold_job_") {
            true => Ok(text),
            false => Err(io::Error::other(
                "there is a file that leasehold has not written",
            )),
        }
    }
}

impl Job {
    /// A start that begins now.
    fn new() -> Self {
        Self {
            asked: Instant::now(),
            granted: None,
            acquired: false,
            waited: None,
            held: None,
            status: None,
            last_run: None,
            last_success: None,
            losses: 0.0,
        }
    }

    /// Takes over what other starts of the job have written: earlier ones, and those that overlap
    /// with this one. No lock guards the file: any user who can read it could hold the lock.
    fn keep(&mut self, file: &str, key: &str) {
        let value = |metric: &str| {
            let series = series(metric, "key", key) + " ";
            let value = file.lines().find_map(|line| line.strip_prefix(&series))?;
            value.parse::<f64>().ok()
        };
        let later = |one: Option<f64>, other| one.into_iter().chain(other).reduce(f64::max);
        if !self.acquired {
            (self.held, self.status) = (value(HELD), value(STATUS));
        }
        self.last_run = later(self.last_run, value(LAST_RUN));
        self.last_success = later(self.last_success, value(LAST_SUCCESS));
        self.losses = value(LOSSES).unwrap_or_default().max(self.losses);
    }

    /// Returns whether the event changes a value.
    fn note(&mut self, event: &Event) -> bool {
        match event {
            Event::Acquired { .. } => {
                self.waited = Some(since(self.asked));
                self.granted = Some(Instant::now());
                self.acquired = true;
                self.last_run = Some(now());
                true
            }
            Event::Released {
                still_ours: true, ..
            } => self.end_hold(),
            Event::Lost(_) | Event::Released { .. } => {
                let held = self.end_hold();
                self.losses += f64::from(held);
                held
            }
            // Waiting for the next term begins.
            Event::TermEnded { .. } => {
                (self.waited, self.asked) = (None, Instant::now());
                self.end_hold();
                true
            }
            _ => false,
        }
    }

    fn finish(&mut self, status: u8) {
        self.end_hold();
        self.waited = Some(self.waited());
        self.status = Some(status.into());
        if self.acquired && status == 0 {
            self.last_success = Some(now());
        }
    }

    /// Returns whether the lock was held until now.
    fn end_hold(&mut self) -> bool {
        let granted = self.granted.take();
        self.held = granted.map(since).or(self.held);
        granted.is_some()
    }

    fn waited(&self) -> f64 {
        self.waited.unwrap_or_else(|| since(self.asked))
    }
}

fn since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64()
}

fn now() -> f64 {
    Timestamp::now().as_duration().as_secs_f64()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_all_metrics() {
        let page = include_str!("../../../docs/metrics.md");
        let rows = page
            .lines()
            .filter(|line| line.starts_with("| `leasehold_job"));
        let listed =
            METRICS.map(|((name, kind, meaning), _)| format!("| `{name}` | {kind} | {meaning} |"));
        assert_eq!(rows.collect::<Vec<_>>(), listed);
    }
}
