//! Why a directory is not opened as one of a group, and what to do about it.

use std::path::Path;

use leasehold_store::StoreError;
use rustix::fs::Stat;

use super::{MARK, OF_TOP, check};
use crate::directory::refused;
use crate::group::Group;
use crate::options;

/// What to tell who cannot look into the directory, if it seems to be a group's.
pub(crate) fn outside(path: &Path, top: &Stat, wanted: Option<&Group>) -> Option<StoreError> {
    let of_group = Group::of(top.st_gid);
    let checked = check(path, top, OF_TOP, &of_group);
    match wanted {
        Some(wanted) if wanted.gid != of_group.gid => return Some(not_shared(path, wanted)),
        None if checked.is_err() => return None,
        _ => {}
    }
    Some(match checked {
        Err(error) => error,
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

pub(crate) fn missing(path: &Path, directory: &Path, group: &Group) -> StoreError {
    refused(
        format!("{} is missing", path.display()),
        format!(
            "{}, as root or as the owner of the directory, makes it again",
            init(directory, group)
        ),
    )
}

/// The command that makes the directory.
fn init(path: &Path, group: &Group) -> String {
    let usual = options::LocalOptions::default();
    let url = options::url(path, usual.retention, None, Some(&group.text()));
    format!("leasehold init -S '{url}'")
}

/// Nothing is at the path.
pub(crate) fn absent(path: &Path, group: &Group) -> StoreError {
    refused(
        format!("there is no directory {}", path.display()),
        format!("{} makes it, as root", init(path, group)),
    )
}
