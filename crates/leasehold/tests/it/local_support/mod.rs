//! Helpers of the tests of the local store.

pub(crate) mod roles;

use std::env;
pub(crate) use std::fs;
pub(crate) use std::path::{Path, PathBuf};
use std::process::ChildStdin;
pub(crate) use std::process::Command;

pub(crate) use leasehold::connect;
use leasehold::store::AllAnswer;
use leasehold::store::local::LocalOptions;
pub(crate) use leasehold::store::local::LocalStore;
use leasehold_testkit::process;
pub(crate) use tempfile::TempDir;

pub(crate) use crate::steps::*;

/// How soon what a dead process held is free: far below any TTL used here.
const FREED: Duration = Duration::from_secs(15);

pub(crate) async fn released(store: &LocalStore, key: &Key, id: u128) {
    let answer = store.release(key, &release(id)).await.unwrap();
    assert_eq!(answer.reply, ReleaseReply::Released { held: true });
}

/// Claims of all these keys, in one step.
pub(crate) fn parts(store: &LocalStore, keys: &[&str], id: u128) -> Vec<(Key, Claim)> {
    let trying = but(claim(store, id), |it| it.wait = false);
    let part = |name: &&str| (key(name), trying.clone());
    keys.iter().map(part).collect()
}

pub(crate) async fn has_all(store: &LocalStore, parts: &[(Key, Claim)]) -> bool {
    match store.claim_all(parts).await.unwrap() {
        Some(AllAnswer::All(answers)) => answers.len() == parts.len(),
        other => {
            assert!(matches!(other, Some(AllAnswer::NotAll { .. })), "{other:?}");
            false
        }
    }
}

pub(crate) async fn open(url: &str) -> LocalStore {
    let options = LocalOptions::from_url(url).unwrap();
    LocalStore::open(options).await.unwrap()
}

/// A client, and its lease on `k`.
pub(crate) async fn held(url: &str) -> (Client, Lease) {
    let client = connect(url).await.unwrap();
    let lease = lock(&client, "k").await;
    (client, lease)
}

/// It is free soon, long before the TTL.
pub(crate) async fn freed(next: Waiting) -> Lease {
    let granted = timeout(FREED, next).await.expect("free in time");
    granted.unwrap().unwrap()
}

/// A moment, of up to so many microseconds.
pub(crate) async fn moment(most: u128) {
    let micros = leasehold_store::random::random_u128() % most;
    sleep(Duration::from_micros(micros as u64)).await;
}

/// The store is refused there, with a hint. The error.
pub(crate) async fn refusal(directory: &Path) -> Error {
    let url = format!("local:{}", directory.display());
    let error = fails(connect(url).await, ErrorKind::Refused, &[]);
    assert!(error.hint().is_some());
    error
}

/// Whether programs can be started so here.
pub(crate) fn is_allowed(by: &[&str]) -> bool {
    let (program, arguments) = by.split_first().unwrap();
    let ran = Command::new(program).args(arguments).arg("true").output();
    let allowed = ran.is_ok_and(|output| output.status.success());
    if !allowed {
        eprintln!("left out: {by:?} is not allowed here");
    }
    allowed
}

/// This test binary again, in a role.
pub(crate) struct Process {
    process: process::Process,
    pub(crate) stdin: Option<ChildStdin>,
}

impl Process {
    fn start(by: &[&str], role: &str, place: &Place) -> Self {
        let me = env::current_exe().unwrap();
        let mut command = match by {
            [] => Command::new(me),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).arg(me);
                command
            }
        };
        command
            .args(["--exact", "local_support::roles::role", "--nocapture"])
            .env("LEASEHOLD_TEST_ROLE", role)
            .env("LEASEHOLD_TEST_URL", &place.1)
            .env("LEASEHOLD_TEST_COUNTER", place.0.path());
        let (process, stdin) = process::Process::spawn_to_feed(command);
        let stdin = Some(stdin);
        Self { process, stdin }
    }

    /// The next line, which begins so.
    pub(crate) async fn says(&mut self, word: &str) -> String {
        let line = self.process.says("").await;
        assert!(line.starts_with(word), "{line:?} where {word:?} was due");
        line
    }

    /// Kills it, and none of its children.
    pub(crate) async fn kill(&mut self) {
        self.process.signal(process::Signal::KILL);
        self.process.wait().await;
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

    /// Starts this test binary in a role.
    pub(crate) fn start(&self, role: &str) -> Process {
        Process::start(&[], role, self)
    }

    /// The same, started by another program.
    pub(crate) fn start_under(&self, by: &[&str], role: &str) -> Process {
        Process::start(by, role, self)
    }

    /// The directory of the store, or something in it.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join("store").join(name)
    }

    pub(crate) async fn open(&self) -> LocalStore {
        open(&self.1).await
    }

    pub(crate) async fn connect(&self) -> Client {
        connect(&self.1).await.unwrap()
    }

    pub(crate) fn files(&self, sub: &str) -> usize {
        fs::read_dir(self.at(sub)).unwrap().count()
    }

    /// Waits until no client has left anything but records.
    pub(crate) async fn is_deserted(&self) {
        let empties = async || {
            while self.files("sessions") + self.files("inbox") > 0 {
                sleep(Duration::from_millis(2)).await;
            }
        };
        if timeout(LIMIT / 4, empties()).await.is_err() {
            // A program that another test was just starting may have had the descriptors of whoever
            // went, and so its life. What is left then is for those who come next.
            drop(self.connect().await);
            timeout(LIMIT, empties()).await.expect("nothing is left");
        }
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
        let options = format!("size={size},nr_inodes=100,mode=0700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]);
        let mounted = mount.arg(place.path()).output();
        if mounted.is_ok_and(|out| out.status.success()) {
            return Some(Self(place));
        }
        eprintln!("left out: mounting a small disk is not allowed here");
        None
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("local:{}", self.path().display())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Later, if a client is still about to close it.
        let umount = Command::new("umount").arg("-l").arg(self.path()).status();
        umount.ok();
    }
}
