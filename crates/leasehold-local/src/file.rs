//! Whole files, read and replaced.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, OFlags, Stat, fstat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::directory::Directory;

/// Reads a file to its end, and says what kind of file it is.
pub(super) fn read(file: OwnedFd) -> Result<(Vec<u8>, Stat), Errno> {
    let stat = fstat(&file)?;
    let mut bytes = Vec::with_capacity(usize::try_from(stat.st_size).unwrap_or(0) + 1);
    File::from(file)
        .read_to_end(&mut bytes)
        .map_err(|error| errno(&error))?;
    Ok((bytes, stat))
}

/// Puts `bytes` in the place of the file `name` at once: a reader sees the old
/// ones or the new ones. The caller keeps others off `temporary`.
///
/// Nothing is forced to the disk: it matters only to the next boot, and that
/// one voids every claim.
pub(super) fn replace(
    directory: &Directory,
    temporary: &str,
    name: &str,
    bytes: &[u8],
) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let file = File::from(directory.file(temporary, flags)?);
    let written = file.write_all_at(bytes, 0).map_err(|error| errno(&error));
    let replaced = written.and_then(|()| renameat(directory, temporary, directory, name));
    replaced.inspect_err(|_| remove(directory, temporary))
}

/// Whether an open file still stands at `name`: it may have been swept and made
/// anew between opening and locking.
pub(super) fn stands_at(file: &OwnedFd, directory: &Directory, name: &str) -> Result<bool, Errno> {
    let mine = fstat(file)?;
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Ok((mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Removes a file; one that is not there needs no removal.
pub(super) fn remove(directory: &Directory, name: &str) {
    unlinkat(directory, name, AtFlags::empty()).ok();
}

pub(super) fn errno(error: &std::io::Error) -> Errno {
    error
        .raw_os_error()
        .map_or(Errno::IO, Errno::from_raw_os_error)
}
