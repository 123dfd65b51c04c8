//! The directory of one user: what is checked of it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use leasehold_store::StoreError;
use rustix::fs::{AtFlags, Dir, Mode, Stat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{FILES, MARK, PART, PARTS, RECORDS, UNFINISHED, open_at};
use crate::errors::{below, command, failed, is_of_system, refused};

/// Refuses a directory in which another user could do something.
pub(super) fn check_owner(path: &Path, found: &OwnedFd, stat: &Stat) -> Result<(), StoreError> {
    let shown = path.display();
    let me = geteuid().as_raw();
    if stat.st_uid != me {
        let owner = stat.st_uid;
        let hint = match is_sticky(stat) || is_of_system(path) {
            true => below(path),
            false => "run as that user, use a directory of a group (leasehold init), or name \
                      another: local:/some/dir"
                .to_owned(),
        };
        let message = format!("the directory {shown} belongs to user {owner}, not to {me}");
        return Err(refused(message, hint));
    }
    check_rights(path, found, stat)
}

/// Refuses a directory of this user that others can write to, and one of the system.
pub(super) fn check_rights(path: &Path, found: &OwnedFd, stat: &Stat) -> Result<(), StoreError> {
    let (shown, sticky) = (path.display(), is_sticky(stat));
    let ours = || is_ours(found).map_err(|errno| failed(path, "look at", errno));
    if is_open_to_others(stat) {
        // Whoever else uses it must be able to go on.
        let hint = match sticky || is_of_system(path) || !ours()? {
            true => below(path),
            false => format!(
                "{}, or name another directory with local:/some/dir",
                command("chmod go-w", &[&path.to_string_lossy()])
            ),
        };
        let message = format!("other users can write to the directory {shown}");
        return Err(refused(message, hint));
    }
    let has_store = || statat(found, RECORDS, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    if is_of_system(path) && !has_store() && !ours()? {
        let message = format!("the directory {shown} is not empty, and no store is in it");
        return Err(refused(message, below(path)));
    }
    Ok(())
}

fn is_sticky(stat: &Stat) -> bool {
    stat.st_mode & 0o1000 != 0
}

/// Whether others than the owner may write to it.
pub(super) fn is_open_to_others(stat: &Stat) -> bool {
    Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH)
}

/// Whether there is nothing in it that is not this store's.
fn is_ours(directory: &OwnedFd) -> Result<bool, Errno> {
    let known = PARTS.iter().chain(&FILES).chain(&[MARK]);
    only_has(directory, |name| known.clone().any(|one| *one == name))
}

/// Whether a directory has only such entries, beside those that nobody has finished.
pub(super) fn only_has(
    directory: &OwnedFd,
    is_known: impl Fn(&str) -> bool,
) -> Result<bool, Errno> {
    // What was found cannot be read.
    for entry in Dir::new(open_at(directory.as_fd(), ".", PART, Mode::empty())?)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if !matches!(&*name, "." | "..") && !name.starts_with(UNFINISHED) && !is_known(&name) {
            return Ok(false);
        }
    }
    Ok(true)
}
