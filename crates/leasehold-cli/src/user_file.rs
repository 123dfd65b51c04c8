//! Every file that a user names is opened and written here.
//!
//! A path can name a FIFO, a device, a symbolic link or another user's file. So a file is opened
//! without waiting for anybody, and what was opened is judged, not the path. A file is written
//! under a new name in the same directory and then renamed, so that it is there whole or not at
//! all, and nothing is written through a link.

use std::fs::{self, File, FileType, Metadata};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::failure::Failure;

/// More than any of these files has.
const LONGEST: u64 = 1024 * 1024;
/// What is said of a path that names nothing.
const GONE: [ErrorKind; 2] = [ErrorKind::NotFound, ErrorKind::NotADirectory];
const BY_GROUP: u32 = 0o020;
const BY_OTHERS: u32 = 0o002;

/// A regular file that is open for reading.
#[derive(Debug)]
pub(crate) struct UserFile {
    pub(crate) file: File,
    path: PathBuf,
    pub(crate) metadata: Metadata,
}

/// Whether a symbolic link may stand at the end of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    Follow,
    Refuse,
}

impl UserFile {
    pub(crate) fn open(path: &Path, links: Links) -> io::Result<Self> {
        // To open some devices is to start something, so the path is judged before that.
        let (seen, no_link) = match links {
            Links::Follow => (path.metadata()?, OFlags::empty()),
            Links::Refuse => (path.symlink_metadata()?, OFlags::NOFOLLOW),
        };
        regular(seen.file_type())?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags | no_link, Mode::empty())?;
        Self::judge(file.into(), path)
    }

    /// One of leasehold's own, for reading and writing; made for this user if it is not there.
    pub(crate) fn open_or_make(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        Self::judge(file.into(), path)
    }

    fn judge(file: File, path: &Path) -> io::Result<Self> {
        let metadata = file.metadata()?;
        regular(metadata.file_type())?;
        Ok(Self {
            file,
            path: path.to_owned(),
            metadata,
        })
    }

    /// All of it.
    pub(crate) fn bytes(&self) -> io::Result<Vec<u8>> {
        let bytes = self.start(LONGEST + 1)?;
        not_longer(&bytes)?;
        Ok(bytes)
    }

    /// The beginning of it, of so many bytes at most.
    pub(crate) fn start(&self, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&self.file).take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn text(&self) -> io::Result<String> {
        String::from_utf8(self.bytes()?)
            .map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
    }

    /// Refuses it if others than its user may have written it.
    pub(crate) fn check(&self, expected: Owner) -> Result<(), Failure> {
        let (seen, user) = (&self.metadata, rustix::process::geteuid().as_raw());
        let rights = (seen.uid(), seen.gid(), seen.mode() & 0o7777);
        check_rights(rights, user, &self.path, expected)
    }

    /// Whether its path still names this file; an error where that cannot be told now.
    pub(crate) fn is_there(&self) -> io::Result<bool> {
        let ours = (self.metadata.dev(), self.metadata.ino());
        let now = self.path.symlink_metadata();
        match now.map(|now| (now.dev(), now.ino()) == ours) {
            Err(error) if GONE.contains(&error.kind()) => Ok(false),
            is_there => is_there,
        }
    }

    /// Removes it, unless its path names another file by now.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match self.is_there()? {
            true => fs::remove_file(&self.path),
            false => Ok(()),
        }
    }

    /// Locks it for this process, and those that inherit the descriptor. Answers whether it is.
    pub(crate) fn try_lock(&self) -> io::Result<bool> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            locked => Ok(locked.map(|()| true)?),
        }
    }
}

/// Refuses what is longer than any file that is read: it is not written, either.
fn not_longer(content: &[u8]) -> io::Result<()> {
    match u64::try_from(content.len()) {
        Ok(0..=LONGEST) => Ok(()),
        _ => Err(io::Error::new(
            ErrorKind::FileTooLarge,
            "it has more than 1 MiB",
        )),
    }
}

/// Refuses what cannot be read to its end, or does more than to be read.
fn regular(found: FileType) -> io::Result<()> {
    let kind = match found {
        found if found.is_file() => return Ok(()),
        found if found.is_dir() => "directory",
        found if found.is_symlink() => "symbolic link",
        found if found.is_fifo() => "FIFO",
        found if found.is_socket() => "socket",
        _ => "device",
    };
    let message = format!("it is a {kind}, not a regular file");
    Err(io::Error::new(ErrorKind::InvalidInput, message))
}

/// Whose file is used.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner {
    Anybody,
    /// Root's, and that of the user of this process. The text says what to do about another's.
    Trusted(&'static str),
}

/// Refuses a file of this owner and group with this mode, if others than its user may write to it.
fn check_rights(
    (owner, group, mode): (u32, u32, u32),
    user: u32,
    path: &Path,
    expected: Owner,
) -> Result<(), Failure> {
    let shown = path.display();
    if let Owner::Trusted(hint) = expected
        && owner != 0
        && owner != user
    {
        return Err(Failure::usage(format!(
            "cannot use {shown}: user {owner} owns it, and neither root nor user {user}, who \
             runs this"
        ))
        .hint(hint));
    }
    // Many systems give each user a group of its own, with the same number, that may write.
    let forbidden = match expected {
        Owner::Trusted(_) if group != owner => BY_OTHERS | BY_GROUP,
        _ => BY_OTHERS,
    };
    if mode & forbidden == 0 {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "cannot use {shown}: others than its owner can write to it (mode {mode:04o})"
    ))
    .hint(format!("chmod go-w {}", quoted(path))))
}

/// For a shell.
pub(crate) fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    match path.chars().all(plain) && !path.starts_with('-') {
        true => path,
        false => format!("-- '{}'", path.replace('\'', r"'\''")),
    }
}

/// A new file in the directory of another one, whose place it is to take. It is removed unless it
/// does.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) file: File,
    at: PathBuf,
    path: &'a Path,
}

impl<'a> Draft<'a> {
    /// Makes it, with these permissions at most.
    pub(crate) fn new(path: &'a Path, mode: u32, content: &[u8]) -> io::Result<Self> {
        if path.file_name().is_none() {
            return Err(ErrorKind::InvalidFilename.into());
        }
        not_longer(content)?;
        // The standard library seeds each with random keys.
        let random = RandomState::new().build_hasher().finish();
        let at = path.with_file_name(format!(".leasehold-{random:016x}.new"));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = rustix::fs::open(&at, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode))?;
        let file = File::from(file);
        let mut draft = Self { file, at, path };
        draft.file.write_all(content)?;
        Ok(draft)
    }

    /// Takes the place of what was judged there.
    pub(crate) fn replace(self) -> io::Result<UserFile> {
        fs::rename(&self.at, self.path)?;
        UserFile::judge(self.file.try_clone()?, self.path)
    }

    /// Takes the place, if nothing is there by now either.
    pub(crate) fn put(self) -> io::Result<UserFile> {
        give_name(&self.at, self.path)?;
        UserFile::judge(self.file.try_clone()?, self.path)
    }
}

/// Gives a file a name that nothing has; the one that it has had may stay.
fn give_name(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Not on every file system: NFS, for example.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            renamed => return Ok(renamed?),
        }
    }
    match fs::hard_link(from, to) {
        // Some have no links, either: there the last one stays.
        Err(error) if error.kind() != ErrorKind::AlreadyExists => fs::rename(from, to),
        linked => linked,
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // What was renamed is not found by its first name, and what has two names keeps the other.
        let _ = fs::remove_file(&self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// User 7 runs it.
    fn is_trusted(expected: Owner, owner: u32, group: u32, mode: u32) -> bool {
        check_rights((owner, group, mode), 7, Path::new("/x"), expected).is_ok()
    }

    #[test]
    fn a_trusted_file_is_written_by_root_and_its_user_only() {
        for (owner, group, mode, trusted) in [
            (0, 0, 0o644, true),
            (7, 100, 0o600, true),
            (7, 100, 0o644, true),
            (7, 100, 0o664, false),
            (7, 7, 0o664, true),
            (7, 7, 0o666, false),
            (0, 100, 0o664, false),
            (0, 0, 0o646, false),
            (8, 8, 0o600, false),
        ] {
            let is = is_trusted(Owner::Trusted("hint"), owner, group, mode);
            assert_eq!(is, trusted, "{owner}:{group} {mode:o}");
        }
    }

    #[test]
    fn a_file_that_is_named_may_belong_to_anybody() {
        assert!(is_trusted(Owner::Anybody, 8, 100, 0o664));
        assert!(!is_trusted(Owner::Anybody, 7, 7, 0o646));
    }

    #[test]
    fn a_path_in_a_hint_can_be_typed() {
        assert_eq!(quoted(Path::new("/etc/a.toml")), "/etc/a.toml");
        assert_eq!(quoted(Path::new("/a b/it's")), r"-- '/a b/it'\''s'");
        assert_eq!(quoted(Path::new("-R")), "-- '-R'");
    }

    /// As where a network does not answer: nobody has removed it.
    #[test]
    fn a_file_that_cannot_be_looked_at_is_not_gone() {
        let directory = tempfile::tempdir().unwrap();
        let [real, way] = ["real", "way"].map(|name| directory.path().join(name));
        fs::create_dir(&real).unwrap();
        fs::write(real.join("f"), "").unwrap();
        let leads = |to: &Path| std::os::unix::fs::symlink(to, &way).unwrap();
        leads(&real);
        let file = UserFile::open(&way.join("f"), Links::Refuse).unwrap();
        fs::remove_file(&way).unwrap();
        assert!(!file.is_there().unwrap());
        leads(&way);
        file.is_there().unwrap_err();
        file.remove().unwrap_err();
    }

    /// As of the leases of thousands of keys: nobody could renew or release them.
    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let longer = vec![b' '; 1024 * 1024 + 1];
        let refused = Draft::new(&path, 0o600, &longer).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::FileTooLarge);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let longest = Draft::new(&path, 0o600, &longer[1..]).unwrap();
        longest.put().unwrap();
        let read = UserFile::open(&path, Links::Refuse).unwrap();
        assert_eq!(read.bytes().unwrap(), longer[1..]);
    }

    #[test]
    fn a_draft_takes_a_free_place_or_one_that_was_judged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let first = Draft::new(&path, 0o600, b"first").unwrap();
        let first = first.put().unwrap();
        assert!(first.is_there().unwrap() && first.metadata.mode() & 0o777 == 0o600);
        let taken = Draft::new(&path, 0o600, b"").unwrap().put().unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        let second = Draft::new(&path, 0o600, b"").unwrap();
        second.replace().unwrap();
        first.remove().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"", "it is another one's");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
