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

#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::errors::command;
use crate::errors::{failed, refused};

/// What is at the end of a path.
pub(super) struct Found {
    /// The directory. What it is can be looked at; see [`Found::open`].
    pub(super) fd: OwnedFd,
    /// The directories on the way. (Not known but on Linux.)
    pub(super) through: Vec<(PathBuf, Stat)>,
}

impl Found {
    /// Opens the directory, to be looked into and locked.
    pub(super) fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.fd, ".", flags, Mode::empty())
    }
}

/// What is made if it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Makes {
    Nothing,
    /// The directory, and not those on the way: where one is missing, the path may be mistyped.
    Last,
    All,
}

/// Finds the directory, and makes what is missing of that.
pub(super) fn find(path: &Path, makes: Makes) -> Result<Found, StoreError> {
    walk(path, makes).unwrap_or_else(|errno| {
        let shown = path.display();
        Err(match errno {
            Errno::NOTDIR => refused(
                format!("{shown} is not a directory"),
                "name a directory with local:/some/dir",
            ),
            // As below /proc: it is there, and nothing can be made in it.
            Errno::NOENT | Errno::LOOP | Errno::NAMETOOLONG => {
                let cause = std::io::Error::from(errno);
                let doing = match makes {
                    Makes::Nothing => "open",
                    _ => "make",
                };
                refused(
                    format!("cannot {doing} the directory {shown}: {cause}"),
                    "name a directory on a local disk with local:/some/dir",
                )
                .with_source(cause)
            }
            errno => failed(path, "open or make", errno),
        })
    })
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn absent(path: &Path, missing: &Path) -> StoreError {
    let message = match missing == path {
        true => format!("there is no directory {}", path.display()),
        false => format!(
            "cannot make the directory {}: there is no directory {}",
            path.display(),
            missing.display()
        ),
    };
    let parent = path.parent().unwrap_or(path).to_string_lossy();
    let make = command("mkdir -p", &[&parent]);
    refused(
        message,
        format!("if the path is right, make it first: {make}"),
    )
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn barred(path: &Path, at: &Path) -> StoreError {
    let (path, at) = (path.display(), at.display());
    let me = rustix::process::geteuid().as_raw();
    refused(
        format!("cannot open the directory {path}: user {me} may not pass {at}"),
        "name a directory that this user can reach with local:/some/dir",
    )
}

/// Makes a directory, if there is none.
pub(super) fn make(at: impl AsFd, name: impl Arg) -> Result<(), Errno> {
    match mkdirat(at, name, Mode::RWXU) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn walk(path: &Path, makes: Makes) -> Result<Result<Found, StoreError>, Errno> {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use rustix::fs::{FileType, fstat, readlinkat};

    /// As many as the system follows.
    const LINKS: usize = 40;

    let components = |path: &Path| -> Vec<OsString> {
        let components = path.components().rev();
        components.map(|c| c.as_os_str().to_owned()).collect()
    };
    // The last is the next.
    let mut left = components(path);
    let mut links = 0;
    let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::open("/", look, Mode::empty())?;
    let mut reached = PathBuf::from("/");
    let mut through = Vec::new();
    while let Some(name) = left.pop() {
        let open = || openat(&at, &name, look, Mode::empty());
        let next = match open() {
            Err(Errno::NOENT) if makes == Makes::All || makes == Makes::Last && left.is_empty() => {
                make(&at, &name).and_then(|()| open())?
            }
            Err(Errno::NOENT) => return Ok(Err(absent(path, &reached.join(&name)))),
            Err(Errno::ACCESS) => return Ok(Err(barred(path, &reached))),
            opened => opened?,
        };
        let stat = fstat(&next)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                through.push((reached.clone(), fstat(&at)?));
                at = next;
                reached.push(&name);
            }
            FileType::Symlink => {
                let trusted = [rustix::process::geteuid().as_raw(), 0, fstat(&at)?.st_uid];
                if !trusted.contains(&stat.st_uid) {
                    let (shown, link, owner) = (path.display(), reached.join(&name), stat.st_uid);
                    let link = link.display();
                    return Ok(Err(refused(
                        format!(
                            "cannot open the directory {shown}: {link} is a symbolic link of user \
                             {owner}"
                        ),
                        "name the directory that it should be with local:/some/dir",
                    )));
                }
                links += 1;
                if links > LINKS {
                    return Err(Errno::LOOP);
                }
                let to = readlinkat(&next, "", Vec::new())?.into_bytes();
                left.extend(components(Path::new(&OsString::from_vec(to))));
            }
            _ => return Err(Errno::NOTDIR),
        }
    }
    Ok(Ok(Found { fd: at, through }))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn walk(path: &Path, makes: Makes) -> Result<Result<Found, StoreError>, Errno> {
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
    Ok(Ok(Found { fd, through }))
}
