//! Helpers of the tests of the local store.
#![allow(clippy::print_stderr, reason = "a test that is left out says so")]

use std::env;
use std::fs;
use std::panic::Location;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use leasehold::core::{Claim, ClaimId, Mode, Release};
use leasehold::store::LockStore;
use leasehold::store::local::LocalStore;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long anything may take on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn claim(store: &LocalStore, id: u128) -> Claim {
    Claim {
        waiter_ttl: LIMIT,
        inbox: Some(store.inbox().clone()),
        ..Claim::new(ClaimId::from_random(id), Mode::EXCLUSIVE, LIMIT)
    }
}

pub(crate) fn release(id: u128) -> Release {
    Release {
        id: ClaimId::from_random(id),
        hand_off: true,
        settled: false,
        unused: false,
    }
}

/// This test binary again, in a role: that of the `role` beside the test that starts it.
pub(crate) struct Process {
    child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Process {
    #[track_caller]
    pub(crate) fn start(role: &str, url: &str, counter: &Path) -> Self {
        Self::start_under(&[], role, url, counter)
    }

    /// The same, started by another program.
    #[track_caller]
    pub(crate) fn start_under(by: &[&str], role: &str, url: &str, counter: &Path) -> Self {
        let module = Path::new(Location::caller().file()).file_stem().unwrap();
        let roles = format!("{}::role", module.display());
        let me = env::current_exe().unwrap();
        let mut command = match by {
            [] => Command::new(me),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).arg(me);
                command
            }
        };
        let mut child = command
            .args(["--exact", &roles, "--nocapture"])
            .env("LEASEHOLD_TEST_ROLE", role)
            .env("LEASEHOLD_TEST_URL", url)
            .env("LEASEHOLD_TEST_COUNTER", counter)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::unbounded_channel();
        let stderr = child.stderr.take().unwrap();
        // Ends with the process.
        std::thread::spawn(move || {
            use std::io::BufRead;
            for line in std::io::BufReader::new(stderr)
                .lines()
                .map_while(Result::ok)
            {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self {
            child,
            stdin,
            lines,
        }
    }

    pub(crate) async fn says(&mut self, word: &str) -> String {
        let line = timeout(LIMIT, self.lines.recv())
            .await
            .expect("a line in time");
        let line = line.expect("a line");
        if !line.starts_with(word) {
            // A panic begins with an empty line; what it says comes next.
            while let Ok(Some(more)) = timeout(LIMIT / 60, self.lines.recv()).await {
                eprintln!("{more}");
            }
        }
        assert!(
            line.starts_with(word),
            "{line:?} where {word:?} was expected"
        );
        line
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A directory for a store, and the store's address.
pub(crate) struct Place(pub(crate) TempDir, pub(crate) String);

impl Place {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let url = format!("local:{}/store", directory.path().display());
        Self(directory, url)
    }

    #[track_caller]
    pub(crate) fn start(&self, role: &str) -> Process {
        Process::start(role, &self.1, self.0.path())
    }

    pub(crate) fn files(&self, sub: &str) -> usize {
        fs::read_dir(self.0.path().join("store").join(sub))
            .unwrap()
            .count()
    }

    /// Waits until no client has left anything but records.
    pub(crate) async fn is_deserted(&self) {
        if self.empties(LIMIT / 4).await {
            return;
        }
        // A program that another test was just starting may have had the descriptors of whoever
        // went, and so its life. What is left then is for those who come next.
        drop(leasehold::connect(&self.1).await.unwrap());
        assert!(self.empties(LIMIT).await, "nothing is left");
    }

    async fn empties(&self, within: Duration) -> bool {
        let empty = async {
            while self.files("sessions") + self.files("inbox") > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(within, empty).await.is_ok()
    }
}

/// A very small disk; only root can have one.
pub(crate) struct Mounted(TempDir);

impl Mounted {
    pub(crate) fn new() -> Option<Self> {
        Self::of("64k")
    }

    /// `None`, and a word about it, where mounting is not allowed.
    pub(crate) fn of(size: &str) -> Option<Self> {
        let place = TempDir::new().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={size},nr_inodes=100,mode=0700"))
            .arg("tmpfs")
            .arg(place.path())
            .output();
        if mounted.is_ok_and(|out| out.status.success()) {
            return Some(Self(place));
        }
        eprintln!("left out: mounting a small disk is not allowed here");
        None
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Later, if a client is still about to close it.
        Command::new("umount")
            .arg("-l")
            .arg(self.path())
            .status()
            .ok();
    }
}
