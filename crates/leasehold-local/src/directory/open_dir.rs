//! Opens a directory by its path, one component after the other: makes those that are
//! missing, and follows no symbolic link of another user.
//!
//! In a directory that everybody may write to, such a link leads wherever its owner
//! likes, and to somewhere else for the next process. Systems protect from that by
//! `fs.protected_symlinks`, if it is on.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use leasehold_store::StoreError;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, Stat, mkdirat, openat};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::geteuid;

use crate::errors::{command, failed, refused};

/// What is at the end of a path.
pub(super) struct Found {
    /// The directory. What it is can be looked at, and no more.
    pub(super) fd: OwnedFd,
    /// The directories on the way. (Not known but on Linux.)
    pub(super) through: Vec<(PathBuf, Stat)>,
}

/// What is made if it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Makes {
    Nothing,
    /// The directory, and not those on the way: where one is missing, the path may be mistyped.
    Last,
    All,
}

/// Why a walk does not come to its end.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "not known there"))]
enum Stop {
    Absent(PathBuf),
    /// This user may not pass there.
    Barred(PathBuf),
    LinkOf(u32, PathBuf),
    Failed(Errno),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

/// Finds the directory, and makes what is missing of that.
pub(super) fn find(path: &Path, makes: Makes) -> Result<Found, StoreError> {
    walk(path, makes).map_err(|stop| {
        let shown = path.display();
        match stop {
            Stop::Absent(missing) => {
                let parent = path.parent().unwrap_or(path).to_string_lossy();
                let make = command("mkdir -p", &[&parent]);
                let message = match missing == path {
                    true => format!("there is no directory {shown}"),
                    false => format!(
                        "cannot make the directory {shown}: there is no directory {}",
                        missing.display()
                    ),
                };
                refused(
                    message,
                    format!("if the path is right, make it first: {make}"),
                )
            }
            Stop::Barred(at) => refused(
                format!(
                    "cannot open the directory {shown}: user {} may not pass {}",
                    geteuid().as_raw(),
                    at.display()
                ),
                "name a directory that this user can reach with local:/some/dir",
            ),
            Stop::LinkOf(owner, link) => refused(
                format!(
                    "cannot open the directory {shown}: {} is a symbolic link of user {owner}",
                    link.display()
                ),
                "name the directory that it should be with local:/some/dir",
            ),
            Stop::Failed(Errno::NOTDIR) => refused(
                format!("{shown} is not a directory"),
                "name a directory with local:/some/dir",
            ),
            // As below /proc: it is there, and nothing can be made in it.
            Stop::Failed(errno @ (Errno::NOENT | Errno::LOOP | Errno::NAMETOOLONG)) => {
                let cause = std::io::Error::from(errno);
                let doing = match makes {
                    Makes::Nothing => "open",
                    Makes::Last | Makes::All => "make",
                };
                let message = format!("cannot {doing} the directory {shown}: {cause}");
                let hint = "name a directory on a local disk with local:/some/dir";
                refused(message, hint).with_source(cause)
            }
            Stop::Failed(errno) => failed(path, "open or make", errno),
        }
    })
}

/// Makes a directory, if there is none.
pub(super) fn make(at: impl AsFd, name: impl Arg) -> Result<(), Errno> {
    match mkdirat(at, name, Mode::RWXU) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// How many links are followed: as many as the system follows.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LINKS: usize = 40;

#[cfg(any(target_os = "linux", target_os = "android"))]
fn walk(path: &Path, makes: Makes) -> Result<Found, Stop> {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use rustix::fs::{FileType, fstat, readlinkat};

    let components = |path: &Path| -> Vec<OsString> {
        let components = path.components().rev();
        components.map(|c| c.as_os_str().to_owned()).collect()
    };
    // The last is the next.
    let (mut left, mut links) = (components(path), 0);
    let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::open("/", look, Mode::empty())?;
    let (mut reached, mut through) = (PathBuf::from("/"), Vec::new());
    while let Some(name) = left.pop() {
        let open = || openat(&at, &name, look, Mode::empty());
        let next = match open() {
            Err(Errno::NOENT) if makes == Makes::All || makes == Makes::Last && left.is_empty() => {
                make(&at, &name).and_then(|()| open())?
            }
            Err(Errno::NOENT) => return Err(Stop::Absent(reached.join(&name))),
            Err(Errno::ACCESS) => return Err(Stop::Barred(reached)),
            opened => opened?,
        };
        let (above, stat) = (fstat(&at)?, fstat(&next)?);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                through.push((reached.clone(), above));
                at = next;
                reached.push(&name);
            }
            FileType::Symlink if ![geteuid().as_raw(), 0, above.st_uid].contains(&stat.st_uid) => {
                return Err(Stop::LinkOf(stat.st_uid, reached.join(&name)));
            }
            FileType::Symlink if links == LINKS => return Err(Errno::LOOP.into()),
            FileType::Symlink => {
                links += 1;
                let to = readlinkat(&next, "", Vec::new())?.into_bytes();
                left.extend(components(Path::new(&OsString::from_vec(to))));
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(Found { fd: at, through })
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn walk(path: &Path, makes: Makes) -> Result<Found, Stop> {
    use std::os::unix::fs::DirBuilderExt;

    let mut all = std::fs::DirBuilder::new();
    if makes != Makes::Nothing {
        all.recursive(makes == Makes::All || path.is_dir())
            .mode(0o700)
            .create(path)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOTDIR))?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let through = Vec::new();
    Ok(Found { fd, through })
}
