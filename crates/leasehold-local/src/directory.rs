//! The directory of a local store, and what its file system answers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use leasehold_store::{ErrorKind, StoreError};
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, stat, statat,
};
use rustix::io::{Errno, retry_on_intr};

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
const KEYS: &str = "keys";

/// Only the user may see claim ids: whoever knows one can release its claim.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The open directory. Everything in it is reached through the descriptor, so
/// that paths stay short and a renamed directory stays the same one.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    /// The device and the number of its inode.
    inode: (u64, u64),
}

impl Directory {
    /// Opens it, making it if it is missing.
    pub(super) fn open(path: PathBuf) -> Result<Self, StoreError> {
        let fd = walk::open(&path)?;
        let opened = fstat(&fd).map_err(|errno| failed(&path, "look at", errno))?;
        let inode = inode_of(&opened);
        let directory = Self { path, fd, inode };
        directory.check_owner(&opened)?;
        #[cfg(target_os = "linux")]
        directory.check_local()?;
        for sub in [RECORDS, SESSIONS, INBOXES] {
            walk::make(&directory.fd, sub).map_err(|errno| directory.failed("write to", errno))?;
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
            Err(errno) => Err(directory.failed("write to", errno)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file in it that is neither followed nor inherited.
    pub(super) fn file(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = |flags| retry_on_intr(|| openat(&self.fd, name, flags, PRIVATE));
        // Else each read would write when it was. Not allowed for the file of another user.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        match open(flags | OFlags::NOATIME) {
            Err(Errno::PERM) => {}
            opened => return opened,
        }
        open(flags)
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
        let mut names = Vec::new();
        let opened = self.file(sub, OFlags::RDONLY | OFlags::DIRECTORY)?;
        for entry in Dir::new(opened)?.take(most) {
            let entry = entry?;
            let name = entry.file_name().to_str().unwrap_or_default();
            let name = name.strip_suffix(ending);
            let shown = name.filter(|name| !name.is_empty() && !name.starts_with('.'));
            names.extend(shown.map(str::to_owned));
        }
        Ok(names)
    }

    /// What to tell a caller when `doing` something in it failed.
    pub(super) fn failed(&self, doing: &str, errno: Errno) -> StoreError {
        failed(&self.path, doing, errno)
    }

    fn check_owner(&self, stat: &Stat) -> Result<(), StoreError> {
        let shown = self.path.display();
        let me = rustix::process::geteuid().as_raw();
        if stat.st_uid != me {
            let owner = stat.st_uid;
            return Err(refused(
                format!("the directory {shown} belongs to user {owner}, not to {me}"),
                "local locks are among the processes of one user: run as that user, or name \
                 another directory with local:/some/dir",
            ));
        }
        if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
            return Err(refused(
                format!("others than its owner may write to the directory {shown}"),
                format!("chmod go-w {shown}, or name another directory with local:/some/dir"),
            ));
        }
        Ok(())
    }

    /// Another machine has another clock, and does not see who lives here.
    #[cfg(target_os = "linux")]
    fn check_local(&self) -> Result<(), StoreError> {
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
        let stat = rustix::fs::fstatfs(&self.fd).map_err(|errno| self.failed("look at", errno))?;
        // Magic numbers have 32 bits, whatever the width of the field.
        let Some(kind) = of_network(stat.f_type as u32) else {
            return Ok(());
        };
        let shown = self.path.display();
        Err(refused(
            format!("the directory {shown} is on a network file system ({kind})"),
            "a local store is among the processes of one machine: name a directory on its own \
             disk with local:/some/dir",
        ))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
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
            "start again: it is made anew",
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
