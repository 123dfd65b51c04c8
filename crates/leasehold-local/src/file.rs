//! Reads and writes a part of an open file.

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread, pwrite, retry_on_intr};

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
