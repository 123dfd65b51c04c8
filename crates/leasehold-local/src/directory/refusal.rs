//! Why a directory is not opened as one of a group, and what to do about it.

use std::path::Path;

use leasehold_store::StoreError;

use super::MARK;
use crate::errors::{command, refused};
use crate::group::Group;
use crate::options::LocalOptions;

/// What is wrong with a directory that is a group's, or should be.
pub(super) enum Wrong<'a> {
    /// Nothing is at the path.
    Absent(&'a Group),
    NotShared(&'a Group),
    /// Of which group, and which one was asked for.
    OfAnother(&'a Group, &'a Group),
    BadMark,
    /// Its owner could have put anything there.
    OfStranger(u32, &'a Group),
    /// A part of it is that other user's.
    ForeignPart(&'a Path, u32, &'a Group),
    Missing(&'a Path, &'a Group),
}

impl Wrong<'_> {
    /// What to tell a caller of the directory at that path.
    pub(super) fn at(&self, path: &Path) -> StoreError {
        let shown = path.display();
        let init = |group: &Group| {
            let options = LocalOptions::default().group(group.text());
            command("leasehold init -S", &[&options.url(path)])
        };
        match *self {
            Self::Absent(group) => refused(
                format!("there is no directory {shown}"),
                format!("{} makes it, as root", init(group)),
            ),
            Self::NotShared(group) => refused(
                format!("the directory {shown} was not made for the group {group}"),
                format!("{}, as root, shares a directory that is empty", init(group)),
            ),
            Self::OfAnother(group, wanted) => refused(
                format!("the directory {shown} is for the group {group}, not for {wanted}"),
                format!("name it with ?group={}, or another directory", group.text()),
            ),
            Self::BadMark => refused(
                format!(
                    "{} does not say for which group it is, or may not be read",
                    path.join(MARK).display()
                ),
                "write the number of the group into it, as the owner of the directory, with mode 640",
            ),
            Self::OfStranger(owner, group) => refused(
                format!(
                    "the directory {shown} is for the group {group}; its owner {owner} has not made \
                     it or is no member"
                ),
                "make another one, as root, and name that with local:/some/dir?group=NAME",
            ),
            Self::ForeignPart(part, owner, group) => refused(
                format!(
                    "{} belongs to user {owner}, not to the owner of the directory",
                    part.display()
                ),
                format!(
                    "look at it, and remove it when nobody uses the directory: {}, as the owner of \
                     the directory, makes it again",
                    init(group)
                ),
            ),
            Self::Missing(part, group) => refused(
                format!("{} is missing", part.display()),
                format!(
                    "{}, as the owner of the directory, makes it again",
                    init(group)
                ),
            ),
        }
    }
}
