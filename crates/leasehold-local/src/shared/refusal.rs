//! Why a directory is not opened as one of a group, and what to do about it.

use std::path::Path;

use leasehold_store::StoreError;
use rustix::fs::Stat;

use super::{MARK, OF_TOP, check, check_way};
use crate::errors::{command, refused};
use crate::group::Group;
use crate::options;
use crate::walk::Found;

/// What to tell who cannot look into the directory, if it seems to be a group's.
pub(crate) fn outside(
    path: &Path,
    found: &Found,
    top: &Stat,
    wanted: Option<&Group>,
) -> Option<StoreError> {
    let of_group = Group::of(top.st_gid);
    let checked = check(path, top, OF_TOP, &of_group);
    match wanted {
        Some(wanted) if wanted.gid != of_group.gid => return Some(not_shared(path, wanted)),
        None if checked.is_err() => return None,
        _ => {}
    }
    Some(match checked {
        Err(error) => check_way(path, found, top).err().unwrap_or(error),
        Ok(()) if of_group.has_us() => bad_mark(path),
        Ok(()) => of_group.not_ours(path),
    })
}

pub(crate) fn not_shared(path: &Path, group: &Group) -> StoreError {
    refused(
        format!(
            "the directory {} was not made for the group {group}",
            path.display()
        ),
        format!(
            "{}, as root, shares a directory that is empty",
            init(path, group)
        ),
    )
}

pub(crate) fn of_another(path: &Path, group: &Group, wanted: &Group) -> StoreError {
    refused(
        format!(
            "the directory {} is for the group {group}, not for {wanted}",
            path.display()
        ),
        format!("name it with ?group={}, or another directory", group.text()),
    )
}

pub(crate) fn bad_mark(path: &Path) -> StoreError {
    refused(
        format!(
            "{} does not say for which group it is, or may not be read",
            path.join(MARK).display()
        ),
        "write the number of the group into it, as the owner of the directory, with mode 640",
    )
}

/// Who owns it could have put anything there.
pub(crate) fn of_stranger(path: &Path, owner: u32, group: &Group) -> StoreError {
    let shown = path.display();
    refused(
        format!(
            "the directory {shown} is for the group {group}; its owner {owner} has not made it or is \
             no member"
        ),
        "make another one, as root, and name that with local:/some/dir?group=NAME",
    )
}

/// A part of the directory that is another user's.
pub(crate) fn foreign_part(part: &Path, owner: u32, path: &Path, group: &Group) -> StoreError {
    refused(
        format!(
            "{} belongs to user {owner}, not to the owner of the directory",
            part.display()
        ),
        format!(
            "look at it, and remove it when nobody uses the directory: {}, as the owner of the \
             directory, makes it again",
            init(path, group)
        ),
    )
}

pub(crate) fn missing(path: &Path, directory: &Path, group: &Group) -> StoreError {
    refused(
        format!("{} is missing", path.display()),
        format!(
            "{}, as the owner of the directory, makes it again",
            init(directory, group)
        ),
    )
}

/// The command that makes the directory.
fn init(path: &Path, group: &Group) -> String {
    let usual = options::LocalOptions::default();
    let url = options::url(path, usual.retention, None, Some(&group.text()));
    command("leasehold init -S", &[&url])
}

/// Nothing is at the path.
pub(crate) fn absent(path: &Path, group: &Group) -> StoreError {
    refused(
        format!("there is no directory {}", path.display()),
        format!("{} makes it, as root", init(path, group)),
    )
}
