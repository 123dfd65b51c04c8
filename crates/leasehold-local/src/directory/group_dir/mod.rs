//! A directory that the members of a group share: how it is recognised, what is checked of it, and
//! how files are made in it. `create_dir.rs` makes it.
//!
//! Only its owner can write to the directory itself, so that no member can put something else in
//! the place of its parts. Members write to the parts, and a part belongs to the owner too.
//!
//! ```text
//! .             2750  the owner, and the group
//! group         0640  the number of the group: this is what makes it a group's
//! records/ …    2770  what is made in it belongs to the group
//! records/k.rec 0660  whoever made it
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use leasehold_store::random::random_u64;
use leasehold_store::{ErrorKind, StoreError};
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RawMode, RenameFlags, Stat, fchmod, fchown, fstat, linkat, openat,
    renameat_with, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::geteuid;

use super::open_dir::Found;
use super::refusal::Wrong;
use super::{Directory, MARK, PART, PARTS, UNFINISHED, is_regular, open_at};
use crate::errors::{command, failed, refused};
use crate::file;
use crate::group::Group;

/// Modes, and what of each is looked at: what the owner may do is the owner's affair.
pub(super) const OF_TOP: RawMode = 0o2750;
pub(super) const OF_PARTS: RawMode = 0o2770;
pub(super) const OF_FILES: RawMode = 0o660;
const LOOKED_AT: RawMode = 0o2077;

/// A mark has a number and a line end.
const LONGEST_MARK: usize = 32;

/// What is known of a directory that a group shares.
#[derive(Debug)]
pub(super) struct GroupDir {
    pub(super) group: Group,
    /// Those of [`PARTS`], in that order: names on the way to a file could come to mean something
    /// else.
    parts: Vec<OwnedFd>,
}

impl GroupDir {
    /// Looks whether the directory that was found is a group's, and refuses one in which somebody
    /// else than its owner and the members could do something. `None`: it is no group's.
    pub(super) fn of(
        path: &Path,
        found: &Found,
        top: &Stat,
        wanted: Option<Group>,
    ) -> Result<Option<Self>, StoreError> {
        let Mark { gid, owner } = match (mark(&found.fd), &wanted) {
            (Ok(Some(mark)), _) => mark,
            (Ok(None), None) => return Ok(None),
            (Ok(None), Some(wanted)) => return Err(Wrong::NotShared(wanted).at(path)),
            (Err(Errno::ACCESS), _) => {
                return outside(path, found, top, wanted.as_ref()).map_or(Ok(None), Err);
            }
            (Err(Errno::INVAL), _) => return Err(Wrong::BadMark.at(path)),
            (Err(errno), _) => return Err(failed(path, "look at", errno)),
        };
        if cfg!(not(any(target_os = "linux", target_os = "android"))) {
            let message = "the directory of a group can be checked on Linux only";
            return Err(StoreError::new(ErrorKind::Unsupported, message));
        }
        let group = Group::of(gid);
        if let Some(wanted) = wanted.filter(|wanted| wanted.gid != gid) {
            return Err(Wrong::OfAnother(&group, &wanted).at(path));
        }
        check_way(path, found, top)?;
        // Whoever has made it was a member then.
        let known = [0, geteuid().as_raw()].contains(&top.st_uid);
        if owner != top.st_uid || !known && group.has(top.st_uid) == Some(false) {
            return Err(Wrong::OfStranger(top.st_uid, &group).at(path));
        }
        check(path, top, OF_TOP, &group)?;
        if !group.has_us() {
            return Err(group.not_ours(path));
        }
        let parts = PARTS.map(|name| part(path, &found.fd, top, name, &group));
        let parts = parts.into_iter().collect::<Result<_, _>>()?;
        Ok(Some(Self { group, parts }))
    }

    /// The open part in which that is, and its name there.
    pub(super) fn part<'a>(&'a self, name: &'a str) -> Option<(BorrowedFd<'a>, &'a str)> {
        let (part, name) = name.split_once('/').unwrap_or((name, "."));
        let number = PARTS.iter().position(|one| *one == part)?;
        Some((self.parts[number].as_fd(), name))
    }

    /// What is wrong with a file that could not be opened; `None`: nothing that can be seen.
    pub(super) fn complaint(&self, directory: &Directory, name: &str) -> Option<StoreError> {
        let path = &directory.path().join(name);
        let (at, there) = directory.at(name);
        match statat(at, there, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if !is_regular(&stat) => Some(refused(
                format!("{} is no file", path.display()),
                "a member of the group has put it there: look at it, and remove it",
            )),
            // Any member could put something else there before somebody runs a command on it.
            Ok(stat) if self.part(name).is_some() => {
                let (message, _) = complaint(path, &stat, OF_FILES, &self.group)?;
                let group = &self.group;
                let hint = format!(
                    "user {}, its owner, can give it the mode 660 and the group {group}; or remove \
                     it when nobody uses it",
                    stat.st_uid
                );
                Some(refused(message, hint))
            }
            Ok(stat) => check(path, &stat, OF_FILES, &self.group).err(),
            Err(Errno::NOENT) => Some(Wrong::Missing(path, &self.group).at(directory.path())),
            Err(_) => None,
        }
    }
}

/// Makes a file as it has to be, under another name, before it gets its own: another member could
/// not open what a process has left that was killed in between. One that is there stays.
pub(super) fn make_file(
    at: BorrowedFd<'_>,
    name: &str,
    mode: RawMode,
    group: &Group,
    content: &[u8],
) -> Result<(), Errno> {
    let new = format!("{UNFINISHED}{:016x}", random_u64());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = retry_on_intr(|| openat(at, &new, flags, Mode::from_raw_mode(0o600)))?;
    let named = fchown(&made, None, Some(Gid::from_raw(group.gid)))
        // Whatever the umask.
        .and_then(|()| fchmod(&made, Mode::from_raw_mode(mode)))
        .and_then(|()| file::write(&made, content, 0))
        .and_then(|()| give_name(at, &new, name));
    if named.is_err() {
        unlinkat(at, &new, AtFlags::empty()).ok();
    }
    match named {
        Err(Errno::EXIST) => Ok(()),
        named => named,
    }
}

/// Renames a file to a name that nothing has.
pub(super) fn give_name(at: BorrowedFd<'_>, new: &str, name: &str) -> Result<(), Errno> {
    match renameat_with(at, new, at, name, RenameFlags::NOREPLACE) {
        // Not on every file system.
        Err(Errno::INVAL | Errno::NOSYS) => {
            linkat(at, new, at, name, AtFlags::empty())?;
            unlinkat(at, new, AtFlags::empty())
        }
        renamed => renamed,
    }
}

/// For which group a directory was made, and by whom.
pub(super) struct Mark {
    pub(super) gid: u32,
    pub(super) owner: u32,
}

/// The mark of a directory that was made for a group. `INVAL`: what says so is no number, or
/// others can write to it.
pub(super) fn mark(directory: impl AsFd) -> Result<Option<Mark>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let open = match open_at(directory.as_fd(), MARK, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        open => open?,
    };
    let stat = fstat(&open)?;
    if !is_regular(&stat) || stat.st_mode & 0o22 != 0 {
        return Err(Errno::INVAL);
    }
    let text = String::from_utf8(file::read(&open, 0, LONGEST_MARK)?).unwrap_or_default();
    let gid = Group::number(text.trim_end());
    let owner = stat.st_uid;
    gid.map(|gid| Some(Mark { gid, owner })).ok_or(Errno::INVAL)
}

/// Opens a part of the directory, and looks whether it is as it has to be.
fn part(
    path: &Path,
    directory: &OwnedFd,
    top: &Stat,
    name: &str,
    group: &Group,
) -> Result<OwnedFd, StoreError> {
    let whole = path.join(name);
    let opened = match open_at(directory.as_fd(), name, PART, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Err(Wrong::Missing(&whole, group).at(path)),
        Err(Errno::LOOP | Errno::NOTDIR) => {
            let message = format!("{} is no directory", whole.display());
            let hint = "only root and the owner can have put it there: look at it, and remove it";
            return Err(refused(message, hint));
        }
        Err(errno) => {
            // What is wrong with its mode says more.
            if let (Errno::ACCESS, Ok(stat)) =
                (errno, statat(directory, name, AtFlags::SYMLINK_NOFOLLOW))
            {
                check(&whole, &stat, OF_PARTS, group)?;
            }
            return Err(failed(path, "open", errno));
        }
    };
    let stat = fstat(&opened).map_err(|errno| failed(path, "look at", errno))?;
    if ![0, top.st_uid].contains(&stat.st_uid) {
        return Err(Wrong::ForeignPart(&whole, stat.st_uid, group).at(path));
    }
    check(&whole, &stat, OF_PARTS, group).map(|()| opened)
}

fn mode_of(stat: &Stat) -> RawMode {
    stat.st_mode & 0o7777
}

/// Whether it belongs to the group, and has those rights for it and for others.
pub(super) fn is_right(stat: &Stat, mode: RawMode, group: &Group) -> bool {
    stat.st_gid == group.gid && mode_of(stat) & LOOKED_AT == mode & LOOKED_AT
}

/// What is wrong with something that does not belong to the group, or has other rights for it and
/// for others; and the command that mends it.
fn complaint(path: &Path, stat: &Stat, mode: RawMode, group: &Group) -> Option<(String, String)> {
    if is_right(stat, mode, group) {
        return None;
    }
    let (shown, found, safe) = (path.display(), mode_of(stat), path.to_string_lossy());
    let chmod = command("chmod", &[&format!("{mode:o}"), &safe]);
    if stat.st_gid == group.gid {
        let message =
            format!("{shown} has mode {found:o}, and {mode:o} is what the group {group} needs");
        return Some((message, chmod));
    }
    let message = format!(
        "{shown} belongs to the group {}, not to {group}",
        Group::of(stat.st_gid)
    );
    let chgrp = command("chgrp", &[&group.text(), &safe]);
    Some((message, format!("{chgrp} && {chmod}")))
}

/// Refuses such a thing that nobody but its owner and that of the directory could replace.
fn check(path: &Path, stat: &Stat, mode: RawMode, group: &Group) -> Result<(), StoreError> {
    let Some((message, command)) = complaint(path, stat, mode, group) else {
        return Ok(());
    };
    let hint = format!("{command}, as its owner, user {}", stat.st_uid);
    Err(refused(message, hint))
}

/// Refuses a directory in whose place others could put something.
pub(super) fn check_way(path: &Path, found: &Found, top: &Stat) -> Result<(), StoreError> {
    let (me, shown) = (geteuid().as_raw(), path.display());
    for (passed, stat) in &found.through {
        let (on_the_way, owner, mode) = (passed.display(), stat.st_uid, mode_of(stat));
        let message = if ![0, me, top.st_uid].contains(&owner) {
            format!("user {owner} could replace the directory {shown}: {on_the_way} is that user's")
        } else if mode & 0o22 != 0 && mode & 0o1000 == 0 {
            format!("others could replace the directory {shown}: {on_the_way} has mode {mode:o}")
        } else {
            continue;
        };
        let hint = "name a directory below directories of root, with local:/some/dir?group=NAME";
        return Err(refused(message, hint));
    }
    Ok(())
}

/// What to tell who cannot look into the directory, if it seems to be a group's.
fn outside(path: &Path, found: &Found, top: &Stat, wanted: Option<&Group>) -> Option<StoreError> {
    let of_group = Group::of(top.st_gid);
    let checked = check(path, top, OF_TOP, &of_group);
    match wanted {
        Some(wanted) if wanted.gid != of_group.gid => {
            return Some(Wrong::NotShared(wanted).at(path));
        }
        None if checked.is_err() => return None,
        _ => {}
    }
    Some(match checked {
        Err(error) => check_way(path, found, top).err().unwrap_or(error),
        Ok(()) if of_group.has_us() => Wrong::BadMark.at(path),
        Ok(()) => of_group.not_ours(path),
    })
}

#[cfg(test)]
mod tests;
