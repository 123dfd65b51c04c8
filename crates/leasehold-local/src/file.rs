//! Whole files, read and replaced.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, OFlags, fstat, renameat, statat, unlinkat};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};

use super::directory::Directory;

/// Reads so many bytes of an open file from there on, or as many as there are.
pub(super) fn read(file: &OwnedFd, at: usize, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length];
    let mut read = 0;
    while read < bytes.len() {
        match retry_on_intr(|| pread(file, &mut bytes[read..], (at + read) as u64))? {
            0 => break,
            more => read += more,
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// Writes over an open file.
pub(super) fn write(file: &OwnedFd, mut bytes: &[u8], mut offset: usize) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = retry_on_intr(|| pwrite(file, bytes, offset as u64))?;
        bytes = &bytes[written..];
        offset += written;
    }
    Ok(())
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
    let file = directory.file(temporary, flags)?;
    let written = write(&file, bytes, 0);
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
