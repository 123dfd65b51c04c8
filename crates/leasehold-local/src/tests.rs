//! What the tests of this crate share: a place for a store, commands, and what is refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Claim, ClaimId, Command, Key, Mode, Queue, Release};
use leasehold_store::{ErrorKind, StoreError};
use tempfile::TempDir;

use super::directory::Directory;
use super::record_file::RecordFile;
use super::{Inner, LocalOptions, step};

pub(super) const RETENTION: Duration = Duration::from_secs(60);

/// Where a directory of a store can be made; it is removed in the end.
pub(super) struct Place {
    pub(super) above: TempDir,
    pub(super) path: PathBuf,
}

impl Place {
    pub(super) fn new() -> Self {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("d");
        Self { above, path }
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn directory(&self) -> Arc<Directory> {
        Arc::new(Directory::open(self.path.clone()).unwrap())
    }

    pub(super) fn store(&self) -> Arc<Inner> {
        open(&self.path).unwrap()
    }

    /// The names in a part of it, sorted.
    pub(super) fn names(&self, part: &str) -> Vec<String> {
        let names = fs::read_dir(self.at(part)).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }
}

pub(super) fn options(path: &Path, retention: Duration) -> LocalOptions {
    LocalOptions {
        directory: Some(path.to_owned()),
        retention,
        ..LocalOptions::default()
    }
}

/// As a client opens it.
pub(super) fn open(path: &Path) -> Result<Arc<Inner>, StoreError> {
    Inner::open(&options(path, RETENTION))
}

pub(super) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(super) fn id(number: u128) -> ClaimId {
    ClaimId::from_random(number)
}

/// An exclusive claim that lives so long, waiting or holding.
pub(super) fn claim_for(number: u128, ttl: Duration) -> Claim {
    Claim {
        waiter_ttl: ttl,
        ..Claim::new(id(number), Mode::EXCLUSIVE, ttl)
    }
}

/// It does not lapse, however long a test takes.
pub(super) fn claim(number: u128) -> Command {
    Command::Claim(claim_for(number, Duration::from_secs(3600)))
}

pub(super) fn release(number: u128) -> Command {
    leave(number, false)
}

/// A release; a settled one leaves nothing to be remembered.
pub(super) fn leave(number: u128, settled: bool) -> Command {
    Command::Release(Release {
        id: id(number),
        hand_off: true,
        settled,
        unused: false,
    })
}

/// Takes that step, and answers the queue that this client has in mind then.
pub(super) fn take(store: &Arc<Inner>, key: &Key, command: &Command) -> Queue {
    let mut guard = RecordFile::of_key(store, key).try_lock().unwrap().unwrap();
    let guards = std::slice::from_mut(&mut guard);
    let taken = step::transact(store, guards, &[key], &[Some(command)], false);
    assert!(taken.unwrap().is_ok());
    guard.read(key).unwrap().queue
}

pub(super) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

pub(super) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// What is refused for good says so, and what to do: the hint.
#[track_caller]
pub(super) fn refusal<T>(outcome: Result<T, StoreError>, said: &str) -> String {
    let error = outcome.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains(said), "{error}");
    error.hint().unwrap().to_owned()
}
