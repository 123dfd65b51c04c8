//! The state file: where it is, who may read it, and the lock on it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::user_file::{Draft, UserFile};

/// Where the files are.
pub(super) fn directory() -> Result<PathBuf, Failure> {
    let from = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let base = match from("XDG_STATE_HOME") {
        Some(base) => base,
        None if rustix::process::geteuid().is_root() => PathBuf::from("/var/lib"),
        None => from("HOME")
            .map(|home| home.join(".local/state"))
            .ok_or_else(|| {
                Failure::usage("--recover-as finds no place for its file")
                    .hint("set XDG_STATE_HOME or HOME to a directory")
            })?,
    };
    Ok(base.join("leasehold"))
}

/// Makes the directory, and refuses one that others can look into.
pub(super) fn prepare(directory: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    let seen = made.and_then(|()| fs::symlink_metadata(directory));
    private(
        &seen.map_err(|error| refused(directory, &error))?,
        directory,
    )
}

/// Refuses what others can read or write: whoever knows the claim can take the lock.
pub(super) fn private(seen: &fs::Metadata, path: &Path) -> Result<(), Failure> {
    let ours = seen.uid() == rustix::process::geteuid().as_raw() && !seen.is_symlink();
    if ours && seen.mode() & 0o077 == 0 {
        return Ok(());
    }
    let message = format!("other users can access {}", path.display());
    Err(Failure::system(message)
        .hint("it holds secrets: use chown and chmod go= to make it private"))
}

/// Why there can be no file.
pub(super) fn refused(path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot use {} for --recover-as: {error}", path.display());
    Failure::system(message).hint("set XDG_STATE_HOME to a directory that can be written to")
}

/// A name for one file of each name, store and key.
pub(super) fn name_of(name: &str, store: &str, key: &str) -> String {
    // FNV-1a, which stays the same in all versions. What collides is seen from the content.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in [name, "\0", store, "\0", key]
        .iter()
        .flat_map(|part| part.bytes())
    {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{name}.{hash:016x}.json")
}

/// Opens the file, made if need be, and locks it: then all who had it are gone. `None`: it is locked by
/// another.
pub(super) fn open(path: &Path) -> io::Result<Option<UserFile>> {
    loop {
        let file = UserFile::open_or_make(path)?;
        if !file.try_lock()? {
            return Ok(None);
        }
        // It may have been replaced before it was locked.
        if file.is_there()? {
            return Ok(Some(file));
        }
    }
}

/// Puts a new file in the place of the old one, complete and locked before anybody can open it.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<UserFile> {
    let new = Draft::new(path, 0o600, content)?;
    new.file.try_lock()?;
    new.replace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_store_and_key_has_its_file() {
        let name = name_of("billing", "local:", "k");
        assert_eq!(name, name_of("billing", "local:", "k"));
        assert!(name.starts_with("billing."), "{name}");
        assert_ne!(name, name_of("billing", "local:", "k2"));
        assert_ne!(name, name_of("billing", "local:k", ""));
        assert_ne!(name, name_of("mailing", "local:", "k"));
    }
}
