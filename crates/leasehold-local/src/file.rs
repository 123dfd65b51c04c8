//! Reads, writes and removes files.

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, fstat, statat, unlinkat};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};

use super::directory::{Directory, inode_of};

/// Reads so many bytes of an open file from there on, or as many as there are.
pub(super) fn read(file: &OwnedFd, at: usize, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let next = (at + bytes.len()) as u64;
        if retry_on_intr(|| pread(file, spare_capacity(&mut bytes), next))? == 0 {
            break;
        }
    }
    bytes.truncate(length);
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

/// Whether an open file still stands at `name`: it may have been swept and made
/// anew between opening and locking.
pub(super) fn stands_at(file: &OwnedFd, directory: &Directory, name: &str) -> Result<bool, Errno> {
    let (at, there) = directory.at(name);
    match statat(at, there, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Ok(inode_of(&fstat(file)?) == inode_of(&there)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Removes a file; one that is not there needs no removal.
pub(super) fn remove(directory: &Directory, name: &str) {
    let (at, name) = directory.at(name);
    unlinkat(at, name, AtFlags::empty()).ok();
}
