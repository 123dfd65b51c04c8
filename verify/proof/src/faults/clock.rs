//! Servers and clients whose time of day is wrong.
//!
//! A small library is compiled at run time and preloaded: it answers `gettimeofday`,
//! `time` and `clock_gettime(CLOCK_REALTIME)` with an offset that stands in a file, which
//! it has mapped. Other clocks are left alone. (Debian's libfaketime hangs together with
//! the allocator of its Redis.) It also leads connections between servers to proxies.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};

use leasehold_testkit::process::spawn_tied;

const SOURCE: &str = include_str!("clock.c");

/// The compiled library.
#[derive(Debug, Clone)]
pub struct Shim(PathBuf);

impl Shim {
    /// Compiles it into a directory.
    ///
    /// # Errors
    /// That there is no `cc`, or that it fails.
    pub fn compile(directory: &Path) -> io::Result<Self> {
        let source = directory.join("clock.c");
        let library = directory.join("clock.so");
        std::fs::write(&source, SOURCE)?;
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-o"]);
        command.args([&library, &source]);
        let status = spawn_tied(command)?.wait()?;
        let failed = || io::Error::other(format!("cc: {status}"));
        status.success().then_some(Self(library)).ok_or_else(failed)
    }

    /// What has to be in the environment of a process that goes by `clock`.
    pub fn environment(&self, clock: &WrongClock) -> [(String, String); 2] {
        let text = |path: &Path| path.display().to_string();
        [
            ("LD_PRELOAD".to_owned(), text(&self.0)),
            ("LEASEHOLD_CLOCK".to_owned(), text(&clock.path)),
        ]
    }
}

/// By how much one process's time of day is off.
#[derive(Debug)]
pub struct WrongClock {
    file: File,
    path: PathBuf,
    ahead: AtomicI64,
}

impl WrongClock {
    /// A clock that is right, to begin with.
    ///
    /// # Errors
    /// Why its file cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(path)?;
        let path = path.to_owned();
        let clock = Self {
            file,
            path,
            ahead: AtomicI64::new(0),
        };
        clock.step_to(0)?;
        Ok(clock)
    }

    /// Steps it to so many microseconds ahead of the right time.
    ///
    /// # Errors
    /// Why it cannot be written.
    pub fn step_to(&self, ahead: i64) -> io::Result<()> {
        self.ahead.store(ahead, Ordering::Relaxed);
        // One aligned word, by one write: nobody sees half of it.
        self.file.write_all_at(&ahead.to_ne_bytes(), 0)
    }

    /// How many microseconds it is ahead.
    pub fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use leasehold_testkit::server::RedisServer;

    use super::*;

    #[test]
    fn a_server_goes_by_the_clock_that_it_is_given() {
        let directory = tempfile::tempdir().unwrap();
        let shim = Shim::compile(directory.path()).unwrap();
        let clock = WrongClock::create(&directory.path().join("clock")).unwrap();
        let mut builder = RedisServer::builder();
        for (name, value) in shim.environment(&clock) {
            builder = builder.environment(&name, &value);
        }
        let server = builder.start();
        let ahead = || {
            let (seconds, micros): (u64, u64) = server.query(&["TIME"]);
            let right = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            (seconds * 1_000_000 + micros) as f64 / 1e6 - right.as_secs_f64()
        };
        assert!(ahead().abs() < 10.0, "{}", ahead());
        for offset in [100, -200] {
            clock.step_to(offset * 1_000_000).unwrap();
            assert!((ahead() - offset as f64).abs() < 10.0, "{}", ahead());
        }
    }
}
