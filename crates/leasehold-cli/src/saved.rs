//! A lease in a file: what `hold --save` writes, and `renew` and `release` read.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::{Any, LeaseParts};
use serde::{Deserialize, Serialize};

use crate::duration::millis;
use crate::exit;
use crate::failure::Failure;
use crate::user_file::{Draft, Links, UserFile};

/// Whoever writes the file decides which server is asked, and which keys are released.
const TRUSTED: Option<&str> = Some("copy it to a file of your own if you trust it");

/// What the file says. It holds the secrets of the claims.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedLease {
    /// The URL, without password.
    pub(crate) store: String,
    ttl_ms: u64,
    /// One for each key.
    pub(crate) leases: Vec<LeaseParts<Any>>,
}

/// Where a lease is to be saved.
pub(crate) struct SaveTarget {
    path: PathBuf,
    /// An empty file, or that of `lease`.
    old: Option<UserFile>,
    /// What is saved there.
    pub(crate) lease: Option<SavedLease>,
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

    pub(crate) fn read(path: &Path) -> Result<(Self, UserFile), Failure> {
        let cannot_read = |error| {
            Failure::usage(format!("cannot read {}: {error}", path.display()))
                .hint("name the file that `leasehold hold --save` has written")
        };
        let file = UserFile::open(path, Links::Refuse).map_err(cannot_read)?;
        file.check(TRUSTED)?;
        let text = file.bytes().map_err(cannot_read)?;
        let lease = serde_json::from_slice(&text).map_err(|_| {
            let message = format!("{} is damaged, or is not a saved lease", path.display());
            Failure::new(exit::CORRUPT, message)
        })?;
        Ok((lease, file))
    }
}

impl SaveTarget {
    /// Looks at it. What is not a saved lease is not replaced.
    pub(crate) fn at(path: &Path) -> Result<Self, Failure> {
        let refused = |why: &dyn std::fmt::Display| {
            let message = format!("cannot save the lease in {}: {why}", path.display());
            Failure::usage(message)
                .hint("name a new file, or one that `leasehold hold --save` has written")
        };
        let old = match UserFile::open(path, Links::Refuse) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Of its directory, without which the lock would be waited for in vain.
                let seen = path.with_file_name(".").metadata();
                seen.map_err(|error| cannot_write(path, &error))?;
                None
            }
            opened => Some(opened.map_err(|error| refused(&error))?),
        };
        let mut lease = None;
        if let Some(old) = &old {
            old.check(TRUSTED)?;
            let text = old.bytes().map_err(|error| refused(&error))?;
            if !text.is_empty() {
                let another = |_| refused(&"there is a file that is not a saved lease");
                lease = Some(serde_json::from_slice(&text).map_err(another)?);
            }
        }
        let path = path.to_owned();
        Ok(Self { path, old, lease })
    }

    /// Writes the file, whole or not at all, for this user only.
    pub(crate) fn write(self, lease: &SavedLease) -> Result<UserFile, Failure> {
        let written = self.try_write(lease);
        written.map_err(|error| cannot_write(&self.path, &error))
    }

    fn try_write(&self, lease: &SavedLease) -> io::Result<UserFile> {
        let new = Draft::new(&self.path, 0o600, &serde_json::to_vec(lease)?)?;
        new.file.sync_all()?;
        let Some(old) = &self.old else {
            return new.put();
        };
        // Some file systems have no such locks.
        let is_locked = old.try_lock().unwrap_or(true);
        match is_locked && old.is_there()? {
            true => new.replace(),
            false => Err(io::Error::other("another process has just written it")),
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot write the lease to {}: {error}", path.display());
    Failure::new(exit::OUTPUT, message)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_is_private_whole_and_known_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deploy.lease");
        let lease = SavedLease::new("local:", Duration::from_secs(30), vec![]);
        let write = || SaveTarget::at(&path).unwrap().write(&lease).unwrap();
        let first = write();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let read = SavedLease::read(&path).unwrap().0;
        assert_eq!(read.ttl(), Duration::from_secs(30));
        let (one, other) = (
            SaveTarget::at(&path).unwrap(),
            SaveTarget::at(&path).unwrap(),
        );
        let second = one.write(&lease).unwrap();
        assert!(!first.is_there().unwrap() && second.is_there().unwrap());
        let late = other.write(&lease).unwrap_err();
        assert_eq!(late.status, exit::OUTPUT, "only one replaces the first");
        first.remove().unwrap();
        assert!(second.is_there().unwrap());
        second.remove().unwrap();
        assert_eq!(SavedLease::read(&path).unwrap_err().status, exit::USAGE);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        // As `mktemp` makes one.
        fs::write(&path, "").unwrap();
        write();
        fs::write(&path, "{}").unwrap();
        assert_eq!(SavedLease::read(&path).unwrap_err().status, exit::CORRUPT);
        let kept = SaveTarget::at(&path).err().map(|refused| refused.status);
        assert_eq!(kept, Some(exit::USAGE));
    }
}
