//! The directory of a local store, and what its file system answers.

pub(super) mod create_dir;
mod group_dir;
mod open_dir;
mod refusal;
mod user_dir;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_store::StoreError;
use leasehold_store::sync::{Mutex, lock};
use rustix::fs::{
    AtFlags, Dir, DirEntry, FileType, FlockOperation, Mode, OFlags, Stat, chmod, flock, fstat,
    openat, stat, statat, unlinkat,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec, retry_on_intr};
use rustix::path::Arg;
use rustix::process::geteuid;

use self::group_dir::{GroupDir, OF_FILES, give_name, is_right, make_file};
pub(crate) use self::open_dir::Makes;
use self::refusal::Wrong;
use super::errors::{failed, refused};
use super::group::Group;
use super::machine;

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
/// The clock of the boot, and the file that is locked while it is set.
pub(super) const CLOCK: &str = "clock";
pub(super) const CLOCK_LOCK: &str = "clock.lock";
/// The file that says for which group it was made.
pub(super) const MARK: &str = "group";

/// The directories in it.
const PARTS: [&str; 4] = [RECORDS, SESSIONS, INBOXES, AUDIT];

/// The files beside them.
const FILES: [&str; 3] = [KEYS, CLOCK, CLOCK_LOCK];

/// How the names of files begin that are not finished.
const UNFINISHED: &str = ".new-";

/// Only the user may see claim ids: whoever knows one can release its claim.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// How a part is opened.
const PART: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

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
    shared: Option<GroupDir>,
    /// Its parts, open and locked: see [`Directory::keep`].
    kept: Mutex<Vec<OwnedFd>>,
}

impl Directory {
    /// Opens it, making it if it is missing.
    #[cfg(test)]
    pub(super) fn open(path: PathBuf) -> Result<Self, StoreError> {
        Self::open_for(path, None, Makes::Last)
    }

    /// Opens it: that of a group, if one is named, else that of this user, which is made if it is
    /// missing, unless it was made for a group.
    pub(super) fn open_for(
        path: PathBuf,
        group: Option<&str>,
        makes: Makes,
    ) -> Result<Self, StoreError> {
        let group = group.map(Group::find).transpose()?;
        let makes = group.as_ref().map_or(makes, |_| Makes::Nothing);
        let found = open_dir::find(&path, makes).map_err(|error| match &group {
            Some(group) if matches!(stat(&path), Err(Errno::NOENT)) => {
                Wrong::Absent(group).at(&path)
            }
            _ => error,
        })?;
        let opened = fstat(&found.fd).map_err(|errno| failed(&path, "look at", errno))?;
        let shared = GroupDir::of(&path, &found, &opened, group)?;
        if shared.is_none() {
            user_dir::check_owner(&path, &found.fd, &opened)?;
        }
        machine::check_file_system(&path, &found.fd)?;
        // To be looked into, and locked.
        let fd = open_at(found.fd.as_fd(), ".", PART, Mode::empty());
        let directory = Self {
            fd: fd.map_err(|errno| failed(&path, "open", errno))?,
            inode: inode_of(&opened),
            path,
            shared,
            kept: Mutex::default(),
        };
        for part in [RECORDS, SESSIONS, INBOXES] {
            directory.make_part(part)?;
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

    /// Makes a part of it that is missing, and refuses one in which another user could do something.
    /// All parts of a group's are there, and were looked at.
    pub(super) fn make_part(&self, name: &str) -> Result<(), StoreError> {
        if self.shared.is_some() {
            return Ok(());
        }
        open_dir::make(&self.fd, name).map_err(|errno| self.failed("write to", errno))?;
        let part = open_at(self.fd.as_fd(), name, PART, Mode::empty());
        match part.and_then(|part| fstat(&part)) {
            Ok(stat) if is_of_user(&stat) && !user_dir::is_open_to_others(&stat) => Ok(()),
            Ok(_) | Err(Errno::LOOP | Errno::NOTDIR) => {
                Err(self.failed_at(name, "open", Errno::LOOP))
            }
            Err(errno) => Err(self.failed("open", errno)),
        }
    }

    /// Holds a shared lock on the directory and on its parts, as they are now: systemd-tmpfiles
    /// removes nothing below a directory of which it cannot have an exclusive one. Where it is just
    /// about to look, or another user has locked it, a later call will do.
    pub(super) fn keep(&self) {
        let shared = FlockOperation::NonBlockingLockShared;
        let locked = |open: &OwnedFd| retry_on_intr(|| flock(open, shared));
        locked(&self.fd).ok();
        let parts = PARTS.iter().filter_map(|part| self.file(part, PART).ok());
        let parts = parts.filter(|part| locked(part).is_ok()).collect();
        // The former ones are let go only now.
        *lock(&self.kept) = parts;
    }

    /// The group that shares it.
    pub(super) fn group(&self) -> Option<&Group> {
        self.shared.as_ref().map(|shared| &shared.group)
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

    /// Opens a file in it that is neither followed nor inherited, and is as this store makes them:
    /// others may have put something else there. It is not waited for, if it is a pipe.
    pub(super) fn file(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let (at, name) = self.at(name);
        let (mut open, group) = (flags | OFlags::NONBLOCK, self.group());
        let creates = flags.contains(OFlags::CREATE);
        open.set(OFlags::CREATE, creates && group.is_none());
        let opened = loop {
            match (open_at(at, name, open, PRIVATE), group) {
                (Err(Errno::NOENT), Some(group)) if creates => {
                    make_file(at, name, OF_FILES, group, b"")?;
                }
                (opened, _) => break opened?,
            }
        };
        let (stat, is_part) = (fstat(&opened)?, flags.contains(OFlags::DIRECTORY));
        let is_right = match &self.shared {
            None => is_of_user(&stat),
            // Root can open it whatever its mode is.
            Some(shared) => is_part || is_right(&stat, OF_FILES, &shared.group),
        };
        match is_part || is_regular(&stat) {
            false => Err(Errno::NXIO),
            true if !is_right => Err(Errno::ACCESS),
            true => Ok(opened),
        }
    }

    /// Whether an open file still stands at `name`: it may have been swept and made
    /// anew between opening and locking, or its part been moved away.
    pub(super) fn has(&self, file: &OwnedFd, name: &str) -> Result<bool, Errno> {
        let look = |at: BorrowedFd<'_>, name: &str| statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
        let there = match look(self.fd.as_fd(), name) {
            // Its owner lets nobody in any more: who is in goes on.
            Err(Errno::ACCESS) => {
                let (at, name) = self.at(name);
                look(at, name)
            }
            there => there,
        };
        match there {
            Ok(there) => Ok(inode_of(&fstat(file)?) == inode_of(&there)),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// When a file was last written, by the wall clock; `None` if it is not there.
    pub(super) fn last_written(&self, name: &str) -> Option<Duration> {
        let (at, name) = self.at(name);
        let stat = statat(at, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(last_written(&stat))
    }

    /// Renames a file of a part to a name there that nothing has.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        let ((at, from), (_, to)) = (self.at(from), self.at(to));
        give_name(at, from, to)
    }

    /// Removes a file; one that is not there needs no removal.
    pub(super) fn remove(&self, name: &str) {
        let (at, name) = self.at(name);
        unlinkat(at, name, AtFlags::empty()).ok();
    }

    /// The socket of that name, if members of a group listen there: open, so that it is this one
    /// to which a datagram goes, and not what a link leads to.
    pub(super) fn shared_socket(&self, name: &str) -> Option<Result<OwnedFd, Errno>> {
        let shared = self.shared.as_ref()?;
        let (at, name) = self.at(name);
        let opened = openat(at, name, SOCKET, Mode::empty()).and_then(|socket| {
            let stat = fstat(&socket)?;
            // A link to the socket of another program is not sent to: its group is another.
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Socket if stat.st_gid == shared.group.gid => Ok(socket),
                _ => Err(Errno::ACCESS),
            }
        });
        Some(opened)
    }

    /// Lets the members of the group send to the socket of that name, which is new.
    pub(super) fn share_socket(&self, name: &str) -> Result<(), Errno> {
        let Some(socket) = self.shared_socket(name).transpose()? else {
            return Ok(());
        };
        if !is_of_user(&fstat(&socket)?) {
            return Err(Errno::ACCESS);
        }
        // A descriptor of this kind is not enough for `fchmod`.
        chmod(by_descriptor(&socket), Mode::from_raw_mode(OF_FILES))
    }

    /// Removes what nobody has finished, in a directory of a group.
    pub(super) fn remove_unfinished(&self, now: Duration, most: usize) {
        for part in PARTS.iter().filter(|_| self.shared.is_some()) {
            let mut names = self.all_names(part, most).unwrap_or_default();
            names.retain(|name| name.starts_with(UNFINISHED));
            for name in names.iter().map(|name| format!("{part}/{name}")) {
                let written = self.last_written(&name);
                if written.is_some_and(|written| written + UNFINISHED_FOR < now) {
                    self.remove(&name);
                }
            }
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
            if self.has(&file, name)? {
                return Ok(file);
            }
            // What is made in a part that was moved away is never found.
            self.check_stands().map_err(|_| Errno::NOENT)?;
        }
    }

    /// Refuses a directory to which its path does not lead any more, or from which the records or
    /// the lives of a group were moved away: others find another one there, or make one, and are
    /// granted what is held here.
    pub(super) fn check_stands(&self) -> Result<(), StoreError> {
        // What cannot be looked at counts as standing: else whoever holds would stop.
        let is_another = |there: Result<Stat, Errno>, inode: (u64, u64)| match there {
            Ok(there) => inode_of(&there) != inode,
            Err(errno) => matches!(errno, Errno::NOENT | Errno::NOTDIR),
        };
        let moved = |part: &str| {
            let there = statat(&self.fd, part, AtFlags::SYMLINK_NOFOLLOW);
            fstat(self.at(part).0).is_ok_and(|open| is_another(there, inode_of(&open)))
        };
        let parts_moved = || self.shared.is_some() && [RECORDS, SESSIONS].into_iter().any(moved);
        if is_another(stat(&self.path), self.inode) || parts_moved() {
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
        let entries = Dir::new(self.file(sub, PART)?)?.take(most);
        let name = |entry: DirEntry| entry.file_name().to_string_lossy().into_owned();
        entries.map(|entry| entry.map(name)).collect()
    }

    /// What to tell a caller when `doing` something in it failed.
    pub(super) fn failed(&self, doing: &str, errno: Errno) -> StoreError {
        failed(&self.path, doing, errno)
    }

    /// The same, with a word about what is wrong with the file.
    pub(super) fn failed_at(&self, name: &str, doing: &str, errno: Errno) -> StoreError {
        let complaint = match (errno, &self.shared) {
            (Errno::ACCESS | Errno::PERM | Errno::NXIO | Errno::LOOP, Some(shared)) => {
                shared.complaint(self, name)
            }
            (Errno::ACCESS | Errno::NXIO | Errno::LOOP, None) => self.foreign(name),
            _ => None,
        };
        complaint.unwrap_or_else(|| self.failed(doing, errno))
    }

    /// What to tell a caller of something in the directory of one user that is not as it was made.
    /// What cannot be looked at is not to blame: the directory was closed to this user.
    fn foreign(&self, name: &str) -> Option<StoreError> {
        let shown = self.path.join(name);
        let shown = shown.display();
        let stat = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let message = if !is_of_user(&stat) {
            format!("{shown} belongs to user {}", stat.st_uid)
        } else if is_directory && user_dir::is_open_to_others(&stat) {
            format!("other users can write to {shown}")
        } else {
            format!("{shown} is not what leasehold has made there")
        };
        Some(refused(
            message,
            format!(
                "stop what uses that directory, look at {name} there and remove it; or name \
                 another directory with local:/some/dir"
            ),
        ))
    }
}

/// Opens a file that is neither followed nor inherited.
fn open_at(
    at: BorrowedFd<'_>,
    name: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = |flags| {
        let opened = retry_on_intr(|| openat(at, name, flags, mode))?;
        // What a program that has closed a standard stream says there must not go into the file.
        match opened.as_raw_fd() {
            ..=2 => fcntl_dupfd_cloexec(&opened, 3),
            _ => Ok(opened),
        }
    };
    // Else each read would write when it was. Not allowed for the file of another user.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => {}
        opened => return opened,
    }
    open(flags)
}

#[allow(clippy::useless_conversion, reason = "narrower on other systems")]
pub(super) fn inode_of(stat: &Stat) -> (u64, u64) {
    (u64::from(stat.st_dev), u64::from(stat.st_ino))
}

/// When that was last written, by the wall clock.
pub(super) fn last_written(stat: &Stat) -> Duration {
    Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0))
}

/// What is open, as a path.
pub(super) fn by_descriptor(open: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

fn is_of_user(stat: &Stat) -> bool {
    stat.st_uid == geteuid().as_raw()
}

pub(super) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

#[cfg(test)]
mod tests;
