//! Whole files, read and replaced.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, OFlags, Stat, fstat, renameat, statat, unlinkat};
#[cfg(any(target_os = "linux", target_os = "android"))]
use rustix::fs::{RenameFlags, renameat_with};
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
    write(directory, temporary, bytes)?;
    renameat(directory, temporary, directory, name).inspect_err(|_| remove(directory, temporary))
}

/// Writes `bytes` and nothing else to a file, in the room that it has already. One that
/// was made for that is removed if it fails.
pub(super) fn write(directory: &Directory, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    let file = File::from(directory.file(name, OFlags::WRONLY | OFlags::CREATE)?);
    let before = size(&file)?;
    let written = file.write_all_at(bytes, 0).and_then(|()| {
        let longer = before > bytes.len() as u64;
        longer.then(|| file.set_len(bytes.len() as u64)).transpose()
    });
    if written.is_err() && before == 0 {
        remove(directory, name);
    }
    written.map_err(|error| errno(&error)).map(drop)
}

/// Gives a file the size `wanted` by zeroes at its end, or a size of `least` if there is
/// no more room. Opens it for writing, and says its size.
pub(super) fn grow(
    directory: &Directory,
    name: &str,
    flags: OFlags,
    [least, wanted]: [u64; 2],
) -> Result<(File, u64), Errno> {
    let file = File::from(directory.file(name, OFlags::WRONLY | flags)?);
    let before = size(&file)?;
    if before < wanted {
        let zeroes = vec![0; usize::try_from(wanted - before).unwrap_or(0)];
        if let Err(error) = file.write_all_at(&zeroes, before)
            && before < least
        {
            return Err(errno(&error));
        }
    }
    let after = size(&file)?;
    Ok((file, after))
}

/// Writes `bytes` over a file of that size, and zeroes up to its end.
pub(super) fn overwrite(file: &File, size: u64, mut bytes: Vec<u8>) -> Result<(), Errno> {
    let size = usize::try_from(size).unwrap_or(0);
    bytes.resize(size.max(bytes.len()), 0);
    file.write_all_at(&bytes, 0).map_err(|error| errno(&error))
}

/// Lets two files change places. Where the file system cannot, the second is replaced
/// by the first.
pub(super) fn exchange(directory: &Directory, name: &str, with: &str) -> Result<(), Errno> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if renameat_with(directory, name, directory, with, RenameFlags::EXCHANGE).is_ok() {
        return Ok(());
    }
    renameat(directory, name, directory, with)
}

/// Whether there is something of that name.
pub(super) fn exists(directory: &Directory, name: &str) -> Result<bool, Errno> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
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

fn size(file: &File) -> Result<u64, Errno> {
    file.metadata()
        .map(|metadata| metadata.len())
        .map_err(|error| errno(&error))
}

fn errno(error: &std::io::Error) -> Errno {
    error
        .raw_os_error()
        .map_or(Errno::IO, Errno::from_raw_os_error)
}
