//! The directory of a local store, and what its file system answers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_store::{ErrorKind, StoreError};
use rustix::fs::{
    AtFlags, Dir, DirEntry, FileType, FlockOperation, Mode, OFlags, Stat, chmod, flock, fstat,
    openat, stat, statat,
};
use rustix::io::{Errno, retry_on_intr};

use super::group::Group;
use super::inbox::by_descriptor;
use super::shared::{self, PARTS, Shared, UNFINISHED};
use super::{file, walk};

/// One file for each key.
pub(super) const RECORDS: &str = "records";
/// One locked file for each living client.
pub(super) const SESSIONS: &str = "sessions";
/// One socket for each client that listens.
pub(super) const INBOXES: &str = "inbox";
/// The audit log.
pub(super) const AUDIT: &str = "audit";
/// A file in the way of the first versions.
pub(super) const KEYS: &str = "keys";

/// Only the user may see claim ids: whoever knows one can release its claim.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// How a socket is opened, which cannot be read or written.
#[cfg(any(target_os = "linux", target_os = "android"))]
const SOCKET: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const SOCKET: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// How old a file is that was not finished, when it is removed: nobody is at it any more.
const UNFINISHED_FOR: Duration = Duration::from_secs(3600);

/// The open directory. Everything in it is reached through the descriptor, so
/// that paths stay short and a renamed directory stays the same one.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    /// The device and the number of its inode.
    inode: (u64, u64),
    /// `None`: it is one user's.
    shared: Option<Shared>,
}

impl Directory {
    /// Opens it, making it if it is missing.
    #[cfg(test)]
    pub(super) fn open(path: PathBuf) -> Result<Self, StoreError> {
        Self::open_for(path, None)
    }

    /// Opens it: that of a group, if one is named, else that of this user, which is made if it is
    /// missing, unless it was made for a group.
    pub(super) fn open_for(path: PathBuf, group: Option<&str>) -> Result<Self, StoreError> {
        let group = group.map(Group::find).transpose()?;
        let found = walk::find(&path, group.is_none()).map_err(|error| match &group {
            Some(group) if is_absent(&path) => shared::refusal::absent(&path, group),
            _ => error,
        })?;
        let look = |errno| failed(&path, "look at", errno);
        let opened = fstat(&found.fd).map_err(look)?;
        let shared = Shared::of(&path, &found, &opened, group)?;
        if shared.is_none() {
            check_owner(&path, &opened)?;
        }
        #[cfg(target_os = "linux")]
        check_local(&path, &found.fd)?;
        let directory = Self {
            fd: found.open().map_err(|errno| failed(&path, "open", errno))?,
            inode: inode_of(&opened),
            path,
            shared,
        };
        for sub in [RECORDS, SESSIONS, INBOXES] {
            let made = directory.make_part(sub);
            made.map_err(|errno| directory.failed("write to", errno))?;
        }
        // Where the first versions made a directory for their records, and saw none of these.
        match directory.file(KEYS, OFlags::WRONLY | OFlags::CREATE) {
            Ok(_) => Ok(directory),
            Err(Errno::ISDIR) => {
                let shown = directory.path.display();
                Err(refused(
                    format!("the directory {shown} is of an earlier version of leasehold"),
                    "stop what uses it and remove it, or name another directory with local:/some/dir",
                ))
            }
            Err(errno) => Err(directory.failed_at(KEYS, "write to", errno)),
        }
    }

    /// Makes a part of it that is missing. All parts of a group's are there.
    pub(super) fn make_part(&self, name: &str) -> Result<(), Errno> {
        match &self.shared {
            None => walk::make(&self.fd, name),
            Some(_) => Ok(()),
        }
    }

    /// The group that shares it.
    pub(super) fn group(&self) -> Option<&Group> {
        self.shared.as_ref().map(|shared| &shared.group)
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Where something in it is: an open directory, and its name there.
    pub(super) fn at<'a>(&'a self, name: &'a str) -> (BorrowedFd<'a>, &'a str) {
        let part = self.shared.as_ref().and_then(|shared| shared.part(name));
        part.unwrap_or_else(|| (self.fd.as_fd(), name))
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file in it that is neither followed nor inherited.
    pub(super) fn file(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let (at, name) = self.at(name);
        match &self.shared {
            None => open_at(at, name, flags, PRIVATE),
            Some(shared) => shared.file(at, name, flags),
        }
    }

    /// The socket of that name, if members of a group listen there: open, so that it is this one
    /// to which a datagram goes, and not what a link leads to.
    pub(super) fn shared_socket(&self, name: &str) -> Option<Result<OwnedFd, Errno>> {
        self.shared.as_ref()?;
        let (at, name) = self.at(name);
        Some(openat(at, name, SOCKET, Mode::empty()))
    }

    /// Lets the members of the group send to the socket of that name, which is new.
    pub(super) fn share_socket(&self, name: &str) -> Result<(), Errno> {
        let Some(socket) = self.shared_socket(name).transpose()? else {
            return Ok(());
        };
        if !shared::is_our_socket(&fstat(&socket)?) {
            return Err(Errno::ACCESS);
        }
        // A descriptor of this kind is not enough for `fchmod`.
        chmod(
            by_descriptor(&socket),
            Mode::from_raw_mode(shared::OF_FILES),
        )
    }

    /// Removes what nobody has finished, in a directory of a group.
    pub(super) fn remove_unfinished(&self, now: Duration, most: usize) {
        let Some(shared) = &self.shared else { return };
        let before = now.saturating_sub(UNFINISHED_FOR).as_secs();
        for part in PARTS {
            let names = self.all_names(part, most).unwrap_or_default();
            let unfinished = names.iter().filter(|name| name.starts_with(UNFINISHED));
            shared.remove_unfinished(unfinished, part, before);
        }
    }

    /// Opens the file `name`, made if need be, and locks it: `lock` says whether that may wait. The
    /// lock lasts as long as any descriptor of it.
    ///
    /// # Errors
    /// `WOULDBLOCK` if it may not wait, and another process has the lock.
    pub(super) fn lock_file(&self, name: &str, lock: FlockOperation) -> Result<OwnedFd, Errno> {
        loop {
            let file = self.file(name, OFlags::RDWR | OFlags::CREATE)?;
            retry_on_intr(|| flock(&file, lock))?;
            // Whoever sweeps may have come between.
            if file::stands_at(&file, self, name)? {
                return Ok(file);
            }
        }
    }

    /// Refuses a directory to which its path does not lead any more: others find
    /// another one there, or make one, and are granted what is held here.
    pub(super) fn check_stands(&self) -> Result<(), StoreError> {
        let gone = match stat(&self.path) {
            Ok(there) => self.inode != inode_of(&there),
            Err(errno) => matches!(errno, Errno::NOENT | Errno::NOTDIR),
        };
        if gone {
            return Err(self.failed("use", Errno::NOENT));
        }
        Ok(())
    }

    /// Whether no record of it counts any more.
    pub(super) fn has_gone(&self) -> bool {
        let records = statat(&self.fd, RECORDS, AtFlags::SYMLINK_NOFOLLOW);
        matches!(records, Err(Errno::NOENT)) || self.check_stands().is_err()
    }

    /// The names in a part of it that end so, without that ending: the first so many, in no order.
    pub(super) fn names(&self, sub: &str, ending: &str, most: usize) -> Result<Vec<String>, Errno> {
        let mut names = self.all_names(sub, most)?;
        names.retain_mut(|name| {
            let is_meant = name.ends_with(ending) && !name.starts_with('.');
            if is_meant {
                name.truncate(name.len() - ending.len());
            }
            is_meant && !name.is_empty()
        });
        Ok(names)
    }

    fn all_names(&self, sub: &str, most: usize) -> Result<Vec<String>, Errno> {
        let opened = self.file(sub, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let entries = Dir::new(opened)?.take(most);
        let name = |entry: Result<DirEntry, Errno>| {
            let name = entry?.file_name().to_string_lossy().into_owned();
            Ok(name)
        };
        entries.map(name).collect()
    }

    /// What to tell a caller when `doing` something in it failed.
    pub(super) fn failed(&self, doing: &str, errno: Errno) -> StoreError {
        failed(&self.path, doing, errno)
    }

    /// The same, with a word about what is wrong with a file of a group's directory.
    pub(super) fn failed_at(&self, name: &str, doing: &str, errno: Errno) -> StoreError {
        let complaint = match errno {
            Errno::ACCESS | Errno::PERM | Errno::NXIO | Errno::LOOP => {
                let shared = self.shared.as_ref();
                shared.and_then(|shared| shared.complaint(self, name))
            }
            _ => None,
        };
        complaint.unwrap_or_else(|| self.failed(doing, errno))
    }
}

/// Opens a file that is neither followed nor inherited.
pub(super) fn open_at(
    at: BorrowedFd<'_>,
    name: &str,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = |flags| retry_on_intr(|| openat(at, name, flags, mode));
    // Else each read would write when it was. Not allowed for the file of another user.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => {}
        opened => return opened,
    }
    open(flags)
}

/// Whether nothing is there.
fn is_absent(path: &Path) -> bool {
    matches!(stat(path), Err(Errno::NOENT))
}

fn check_owner(path: &Path, stat: &Stat) -> Result<(), StoreError> {
    let shown = path.display();
    let me = rustix::process::geteuid().as_raw();
    if stat.st_uid != me {
        let owner = stat.st_uid;
        return Err(refused(
            format!("the directory {shown} belongs to user {owner}, not to {me}"),
            "run as that user, use a directory of a group (leasehold init), or name another: local:/some/dir",
        ));
    }
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        return Err(refused(
            format!("other users can write to the directory {shown}"),
            format!("chmod go-w {shown}, or name another directory with local:/some/dir"),
        ));
    }
    Ok(())
}

/// Another machine has another clock, and does not see who lives here.
#[cfg(target_os = "linux")]
pub(super) fn check_local(path: &Path, fd: impl AsFd) -> Result<(), StoreError> {
    let of_network = |magic: u32| {
        Some(match magic {
            0x6969 => "nfs",
            0x517b | 0xff53_4d42 | 0xfe53_4d42 => "smb",
            0x5346_414f | 0x6b41_4653 => "afs",
            0x00c3_6400 => "ceph",
            0x0bd0_0bd0 => "lustre",
            0x4750_4653 => "gpfs",
            0x0102_1997 => "9p",
            _ => return None,
        })
    };
    let stat = rustix::fs::fstatfs(fd).map_err(|errno| failed(path, "look at", errno))?;
    // Magic numbers have 32 bits, whatever the width of the field.
    let Some(kind) = of_network(stat.f_type as u32) else {
        return Ok(());
    };
    let shown = path.display();
    Err(refused(
        format!("the directory {shown} is on a network file system ({kind})"),
        "name a directory on a disk of this machine: local:/some/dir",
    ))
}

#[allow(clippy::useless_conversion, reason = "narrower on other systems")]
pub(super) fn inode_of(stat: &Stat) -> (u64, u64) {
    (u64::from(stat.st_dev), u64::from(stat.st_ino))
}

pub(super) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// A store that cannot be here.
pub(super) fn refused(message: String, hint: impl Into<String>) -> StoreError {
    StoreError::new(ErrorKind::Refused, message).with_hint(hint)
}

pub(super) fn failed(path: &Path, doing: &str, errno: Errno) -> StoreError {
    let (why, hint) = match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => (
            ": the disk is full, or has no inodes left",
            "make room there, or name another directory with local:/some/dir",
        ),
        Errno::ACCESS | Errno::PERM | Errno::ROFS => (
            ": not allowed",
            "name a directory of your own with local:/some/dir",
        ),
        Errno::MFILE | Errno::NFILE => (": too many open files", "raise the limit (ulimit -n)"),
        Errno::NOENT | Errno::STALE => (
            ": it was removed while in use",
            "start again: it is created again",
        ),
        _ => ("", ""),
    };
    let kind = match why {
        "" => ErrorKind::Unavailable,
        _ => ErrorKind::Refused,
    };
    let message = format!("cannot {doing} the directory {}{why}", path.display());
    let error = StoreError::new(kind, message).with_source(std::io::Error::from(errno));
    match hint {
        "" => error,
        hint => error.with_hint(hint),
    }
}
