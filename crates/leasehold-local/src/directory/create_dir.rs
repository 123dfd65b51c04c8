//! Makes the directory of a group, for `leasehold init`.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use leasehold_store::StoreError;
use rustix::fs::{Gid, Mode, RawMode, Stat, fchmod, fchown, fstat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::group_dir::{Mark, OF_FILES, OF_PARTS, OF_TOP, check_way, make_file, mark};
use super::open_dir::{self, Makes};
use super::refusal::Wrong;
use super::user_dir::{check_rights, only_has};
use super::{FILES, MARK, PART, PARTS, open_at};
use crate::errors::{command, failed, refused};
use crate::group::Group;
use crate::machine::check_file_system;

/// What the owner writes for the members to read.
const OF_MARK: RawMode = 0o640;

/// Makes the directory for the group, of one that is empty if there is one. What is missing of one
/// that was made before is made again. Says whether it was made now.
pub(crate) fn make(path: &Path, group: &Group) -> Result<bool, StoreError> {
    if !group.has_us() {
        return Err(group.not_ours(path));
    }
    let failed = |errno| failed(path, "make", errno);
    let (directory, stat) = open(path)?;
    check_file_system(path, &directory)?;
    let made_for = mark(&directory).map_err(|errno| match errno {
        Errno::INVAL => Wrong::BadMark.at(path),
        errno => failed(errno),
    })?;
    match made_for {
        Some(Mark { owner, .. }) if owner != stat.st_uid => {
            return Err(Wrong::OfStranger(stat.st_uid, group).at(path));
        }
        Some(Mark { gid, .. }) if gid == group.gid => {}
        Some(Mark { gid, .. }) => return Err(Wrong::OfAnother(&Group::of(gid), group).at(path)),
        None if only_has(&directory, |_| false).map_err(failed)? => {}
        None => {
            let shown = path.display();
            let message =
                format!("the directory {shown} is not empty, and was not made for a group");
            let hint = "name another, or remove what is in it when nobody uses it";
            return Err(refused(message, hint));
        }
    }
    fill(&directory, group).map_err(failed)?;
    Ok(made_for.is_none())
}

/// Opens the directory, made if need be, for this user alone as yet.
fn open(path: &Path) -> Result<(OwnedFd, Stat), StoreError> {
    let failed = |errno| failed(path, "make", errno);
    let shown = path.display();
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        let message = format!("{shown} cannot be made");
        let hint = "name a directory in it with local:/some/dir?group=NAME";
        return Err(refused(message, hint));
    };
    let found =
        open_dir::find(parent, Makes::Nothing).map_err(|error| match rustix::fs::stat(parent) {
            Err(Errno::NOENT) => refused(
                format!("there is no directory {}", parent.display()),
                format!(
                    "{}, so that the members of the group may pass it",
                    command("mkdir -p", &[&parent.to_string_lossy()])
                ),
            ),
            _ => error,
        })?;
    open_dir::make(&found.fd, name).map_err(failed)?;
    let directory = open_at(found.fd.as_fd(), name, PART, Mode::empty());
    let directory = directory.map_err(|errno| match errno {
        Errno::LOOP | Errno::NOTDIR => refused(
            format!("{shown} is not a directory"),
            "name the directory itself and not a link to it, with local:/some/dir?group=NAME",
        ),
        errno => failed(errno),
    })?;
    let stat = fstat(&directory).map_err(failed)?;
    if stat.st_uid != geteuid().as_raw() {
        let hint = match geteuid().is_root() {
            // Its owner can replace all that is in it.
            true => "name a directory that is not there yet, or run this as that user",
            false => "run this as root, where it is root's, or as that user",
        };
        let message = format!("the directory {shown} belongs to user {}", stat.st_uid);
        return Err(refused(message, hint));
    }
    check_way(path, &open_dir::find(path, Makes::Nothing)?, &stat)?;
    check_rights(path, &directory, &stat)?;
    Ok((directory, stat))
}

/// Makes what belongs into it. The mark is the first, so that who was killed in between can go
/// on; that members may enter is the last. Only the owner can make the files beside the parts; the
/// clock is empty until somebody has set it.
fn fill(directory: &OwnedFd, group: &Group) -> Result<(), Errno> {
    let at = directory.as_fd();
    let number = format!("{}\n", group.gid);
    make_file(at, MARK, OF_MARK, group, number.as_bytes())?;
    for name in PARTS {
        open_dir::make(directory, name)?;
        let part = open_at(at, name, PART, Mode::empty())?;
        // Else it is refused when the directory is opened.
        if fstat(&part)?.st_uid == geteuid().as_raw() {
            share(&part, group, OF_PARTS)?;
        }
    }
    for name in FILES {
        make_file(at, name, OF_FILES, group, b"")?;
    }
    share(directory, group, OF_TOP)
}

/// Gives an open directory to the group.
fn share(directory: &OwnedFd, group: &Group, mode: RawMode) -> Result<(), Errno> {
    fchown(directory, None, Some(Gid::from_raw(group.gid)))?;
    // Changing the group takes the bit away that files inherit it by.
    fchmod(directory, Mode::from_raw_mode(mode))
}
