//! A lease in a file: what `hold --save` writes, and `renew` and `release` read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::{Any, LeaseParts};
use serde::{Deserialize, Serialize};

use crate::duration::millis;
use crate::exit;
use crate::failure::Failure;

/// More than any lease has.
const LONGEST: u64 = 1024 * 1024;

/// What the file says. It holds the secrets of the claims.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedLease {
    /// The URL, without password.
    pub(crate) store: String,
    ttl_ms: u64,
    /// One for each key.
    pub(crate) leases: Vec<LeaseParts<Any>>,
}

/// A file that was written, and is ours as long as nobody has replaced it.
#[derive(Debug)]
pub(crate) struct SavedFile {
    path: PathBuf,
    file: File,
}

impl SavedLease {
    pub(crate) fn new(store: &str, ttl: Duration, leases: Vec<LeaseParts<Any>>) -> Self {
        Self {
            store: store.to_owned(),
            ttl_ms: millis(ttl),
            leases,
        }
    }

    /// The TTL that the lease was acquired with.
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let mut text = Vec::new();
        File::open(path)
            .and_then(|file| file.take(LONGEST).read_to_end(&mut text))
            .map_err(|error| {
                Failure::usage(format!("cannot read {}: {error}", path.display()))
                    .hint("name the file that `leasehold hold --save` has written")
            })?;
        serde_json::from_slice(&text).map_err(|_| {
            Failure::new(
                exit::CORRUPT,
                format!("{} is damaged, or is not a saved lease", path.display()),
            )
        })
    }

    /// Writes the file, whole or not at all, for this user only.
    pub(crate) fn write(&self, path: &Path) -> Result<SavedFile, Failure> {
        let written = serde_json::to_vec(self)
            .map_err(io::Error::from)
            .and_then(|text| replace(path, &text));
        let file = written.map_err(|error| {
            let message = format!("cannot write the lease to {}: {error}", path.display());
            Failure::new(exit::OUTPUT, message)
        })?;
        let path = path.to_owned();
        Ok(SavedFile { path, file })
    }
}

fn replace(path: &Path, text: &[u8]) -> io::Result<File> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    let written = file
        .write_all(text)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written.map(|()| file)
}

impl SavedFile {
    /// Whether the file is still there, and the one that was written.
    pub(crate) fn is_there(&self) -> bool {
        let (ours, now) = (self.file.metadata(), fs::symlink_metadata(&self.path));
        match (ours, now) {
            (Ok(ours), Ok(now)) => (ours.dev(), ours.ino()) == (now.dev(), now.ino()),
            _ => false,
        }
    }

    /// Removes the file, unless it is another's by now.
    pub(crate) fn remove(self) {
        if self.is_there() {
            // A lease that has ended is found nowhere: the file does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_private_whole_and_known_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deploy.lease");
        let lease = || SavedLease::new("local:", Duration::from_secs(30), vec![]);
        let first = lease().write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            SavedLease::read(&path).unwrap().ttl(),
            Duration::from_secs(30)
        );
        let second = lease().write(&path).unwrap();
        assert!(!first.is_there() && second.is_there());
        first.remove();
        assert!(second.is_there());
        second.remove();
        assert_eq!(SavedLease::read(&path).unwrap_err().status, exit::USAGE);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        fs::write(&path, "{}").unwrap();
        assert_eq!(SavedLease::read(&path).unwrap_err().status, exit::CORRUPT);
    }
}
