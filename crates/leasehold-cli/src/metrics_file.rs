//! `--metrics-file`: metrics of a job, as a file for the textfile collector of `node_exporter`.
//!
//! Each write replaces the file atomically. A separate thread writes while the job runs: a slow
//! disk must not delay the renewals of the lease.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use jiff::Timestamp;
use leasehold_console::prometheus::{Metric, add, series};
use tokio::time::Instant;

use crate::output::{Milestone, Printer};
use crate::user_file::{Draft, Links, UserFile};

/// How often the file is written while nothing changes: at least once per scrape, which is every
/// 15 s to 60 s in most set-ups.
const REFRESH: Duration = Duration::from_secs(10);

type OfJob = (Metric, fn(&Job) -> Option<f64>);

/// The metrics of the file, with their values. A test compares them with `docs/metrics.md`.
const METRICS: [OfJob; 8] = [
    gauge("leasehold_job_held", "1 while the lock is held", |job| {
        Some(f64::from(job.granted.is_some()))
    }),
    gauge(
        "leasehold_job_acquired",
        "1 if the last start has obtained the lock",
        |job| Some(f64::from(job.acquired)),
    ),
    gauge(
        "leasehold_job_wait_seconds",
        "how long the last start waited for the lock, or has waited until now",
        |job| job.waited.or_else(|| Some(since(job.asked))),
    ),
    gauge(
        HELD,
        "how long the lock was held the last time, or has been held until now",
        |job| job.granted.map(since).or(job.held),
    ),
    gauge(
        STATUS,
        "the exit status of the last start that has ended",
        |job| job.status,
    ),
    gauge(
        LAST_RUN,
        "when the lock was obtained the last time",
        |job| job.last_run,
    ),
    gauge(
        LAST_SUCCESS,
        "when a start that had obtained the lock ended with status 0 the last time",
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

const fn gauge(name: &'static str, meaning: &'static str, value: fn(&Job) -> Option<f64>) -> OfJob {
    ((name, "gauge", meaning), value)
}

/// What becomes of a job goes to the writer of its file.
#[derive(Debug)]
pub(crate) struct MetricsFile {
    news: Sender<(Milestone, Instant)>,
    /// The thread has it until the job has ended.
    job: Arc<Mutex<Job>>,
}

/// The state of a job, and what writes it.
#[derive(Debug)]
struct Job {
    path: PathBuf,
    key: String,
    heard: Receiver<(Milestone, Instant)>,
    /// With which status the job has ended, and when: nothing more is written.
    ended: Option<(u8, Instant)>,
    /// Why the last write failed.
    failure: Option<io::Error>,
    /// Whether it was said that the file cannot be written.
    warned: bool,
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
    /// Begins to write what becomes of the lock on `key`, as the printer tells.
    pub(crate) fn begin(path: &Path, key: &str, printer: &Printer) -> Self {
        let (news, heard) = channel();
        let mut job = Job {
            path: path.to_owned(),
            key: key.to_owned(),
            heard,
            ended: None,
            failure: None,
            warned: false,
            asked: Instant::now(),
            granted: None,
            acquired: false,
            waited: None,
            held: None,
            status: None,
            last_run: None,
            last_success: None,
            losses: 0.0,
        };
        job.write();
        job.warn(printer);
        let job = Arc::new(Mutex::new(job));
        let of_thread = Arc::clone(&job);
        // Without a thread the file is written at the end only.
        let _ = thread::Builder::new().spawn(move || lock(&of_thread).run());
        printer.tell_milestones(news.clone());
        Self { news, job }
    }

    /// The job has ended with this status: writes the file for the last time.
    pub(crate) fn finish(&self, status: u8, printer: &Printer) {
        // The writer has the other end.
        let _ = self.news.send((Milestone::Ended(status), Instant::now()));
        let mut job = lock(&self.job);
        job.run();
        job.warn(printer);
    }
}

impl Job {
    /// Writes until the job has ended.
    fn run(&mut self) {
        while self.ended.is_none() {
            match self.heard.recv_timeout(REFRESH) {
                Ok((milestone, at)) => self.note(milestone, at),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.write();
        }
    }

    fn write(&mut self) {
        self.failure = self.replace().err();
    }

    /// Says why the file could not be written, once.
    fn warn(&mut self, printer: &Printer) {
        if let (Some(error), false) = (&self.failure, self.warned) {
            let path = self.path.display();
            printer.warn(format!("cannot write the metrics to {path}: {error}"));
            self.warned = true;
        }
    }

    /// Puts a new file in the place of the old one.
    fn replace(&mut self) -> io::Result<()> {
        let before = self.before()?;
        self.keep(&before);
        if let Some((status, at)) = self.ended {
            self.finish(status, at);
        }
        let mut text = String::new();
        for (metric, value) in METRICS {
            if let Some(value) = value(self) {
                let series = series(metric.0, "key", &self.key);
                add(&mut text, metric, [(series, value)]);
            }
        }
        let new = Draft::new(&self.path, 0o666, text.as_bytes())?;
        new.replace().map(drop)
    }

    /// What other starts of the job have written. A file of another kind is not replaced.
    fn before(&self) -> io::Result<String> {
        let text = match UserFile::open(&self.path, Links::Refuse) {
            Ok(file) => file.text()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            Err(error) => return Err(error),
        };
        let is_ours = text.is_empty() || text.starts_with("# HELP leasehold_job_");
        let refused = || io::Error::other("there is a file that leasehold has not written");
        is_ours.then_some(text).ok_or_else(refused)
    }

    /// Takes over what other starts of the job have written: earlier ones, and those that overlap
    /// with this one. No lock guards the file: any user who can read it could hold the lock.
    fn keep(&mut self, file: &str) {
        let value = |metric: &str| {
            let series = series(metric, "key", &self.key) + " ";
            let value = file.lines().find_map(|line| line.strip_prefix(&series))?;
            value.parse::<f64>().ok()
        };
        let later = |one: Option<f64>, other| one.into_iter().chain(other).reduce(f64::max);
        if !self.acquired {
            (self.held, self.status) = (value(HELD), value(STATUS));
        }
        // A clock that was wrong once may have written a time to come, and none would be later.
        let now = time_of(Instant::now());
        let time = |metric| value(metric).map(|at| at.min(now));
        self.last_run = later(self.last_run, time(LAST_RUN));
        self.last_success = later(self.last_success, time(LAST_SUCCESS));
        self.losses = value(LOSSES).unwrap_or_default().max(self.losses);
    }

    fn note(&mut self, milestone: Milestone, at: Instant) {
        match milestone {
            Milestone::Acquired => {
                self.waited = Some((at - self.asked).as_secs_f64());
                (self.granted, self.acquired) = (Some(at), true);
                self.last_run = Some(time_of(at));
            }
            Milestone::Ended(status) => self.ended = Some((status, at)),
            Milestone::Released => self.end_hold(at),
            Milestone::Lost => {
                self.losses += f64::from(self.granted.is_some());
                self.end_hold(at);
            }
            // Waiting for the next term begins.
            Milestone::TermEnded => {
                (self.waited, self.asked) = (None, at);
                self.end_hold(at);
            }
        }
    }

    fn finish(&mut self, status: u8, at: Instant) {
        self.end_hold(at);
        let waited = || (at - self.asked).as_secs_f64();
        self.waited = Some(self.waited.unwrap_or_else(waited));
        self.status = Some(status.into());
        if self.acquired && status == 0 {
            self.last_success = Some(time_of(at));
        }
    }

    fn end_hold(&mut self, at: Instant) {
        if let Some(granted) = self.granted.take() {
            self.held = Some((at - granted).as_secs_f64());
        }
    }
}

fn since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64()
}

fn time_of(at: Instant) -> f64 {
    Timestamp::now().as_duration().as_secs_f64() - since(at)
}

fn lock(job: &Mutex<Job>) -> MutexGuard<'_, Job> {
    job.lock().unwrap_or_else(PoisonError::into_inner)
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
