//! Opens a directory by its path, one component after the other: makes those that are
//! missing, and follows no symbolic link of another user.
//!
//! In a directory that everybody may write to, such a link leads wherever its owner
//! likes, and to somewhere else for the next process. Systems protect from that by
//! `fs.protected_symlinks`, if it is on.

use std::path::{Path, PathBuf};

use leasehold_store::StoreError;
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::directory::{failed, refused};

/// Why a path does not lead to a directory.
#[derive(Debug)]
enum Astray {
    Failed(Errno),
    /// A symbolic link of that user.
    Foreign(PathBuf, u32),
}

impl From<Errno> for Astray {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

/// Opens the directory, to be looked into and locked.
pub(super) fn open(path: &Path) -> Result<OwnedFd, StoreError> {
    let shown = path.display();
    walk(path).map_err(|astray| match astray {
        Astray::Foreign(link, owner) => refused(
            format!(
                "cannot open the directory {shown}: {} is a symbolic link of user {owner}",
                link.display()
            ),
            "name the directory that it should be with local:/some/dir",
        ),
        Astray::Failed(Errno::NOTDIR) => refused(
            format!("{shown} is not a directory"),
            "name a directory with local:/some/dir",
        ),
        // As below /proc: it is there, and nothing can be made in it.
        Astray::Failed(errno @ (Errno::NOENT | Errno::LOOP | Errno::NAMETOOLONG)) => {
            let cause = std::io::Error::from(errno);
            let message = format!("cannot make the directory {shown}: {cause}");
            refused(
                message,
                "name a directory on a local disk with local:/some/dir",
            )
            .with_source(cause)
        }
        Astray::Failed(errno) => failed(path, "open or make", errno),
    })
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn walk(path: &Path) -> Result<OwnedFd, Astray> {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use rustix::fs::{FileType, Mode, OFlags, fstat, mkdirat, openat, readlinkat};

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
    while let Some(name) = left.pop() {
        let next = match openat(&at, &name, look, Mode::empty()) {
            Ok(next) => next,
            Err(Errno::NOENT) => {
                match mkdirat(&at, &name, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
                openat(&at, &name, look, Mode::empty())?
            }
            Err(errno) => return Err(errno.into()),
        };
        let stat = fstat(&next)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                at = next;
                reached.push(&name);
            }
            FileType::Symlink => {
                let trusted = [rustix::process::geteuid().as_raw(), 0, fstat(&at)?.st_uid];
                if !trusted.contains(&stat.st_uid) {
                    return Err(Astray::Foreign(reached.join(&name), stat.st_uid));
                }
                links += 1;
                if links > LINKS {
                    return Err(Errno::LOOP.into());
                }
                let to = readlinkat(&next, "", Vec::new())?.into_bytes();
                left.extend(components(Path::new(&OsString::from_vec(to))));
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(&at, ".", flags, Mode::empty())?)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn walk(path: &Path) -> Result<OwnedFd, Astray> {
    use std::os::unix::fs::DirBuilderExt;

    use rustix::fs::{Mode, OFlags};

    let mut all = std::fs::DirBuilder::new();
    all.recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| {
            let errno = error.raw_os_error().map(Errno::from_raw_os_error);
            errno.unwrap_or(Errno::NOTDIR)
        })?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}
