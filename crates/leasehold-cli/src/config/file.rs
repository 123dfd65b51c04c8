//! Where the files are, and which of them are trusted.
//!
//! Whoever writes such a file decides where the locks are, and to which server the password goes
//! that a file holds. So a file that is found is used only if nobody but root and the user of this
//! process can write to it.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::setting::Setting;
use crate::env;
use crate::failure::Failure;

const SYSTEM: &str = "/etc/leasehold/leasehold.toml";
/// Longer than any that people write.
const LONGEST: u64 = 1024 * 1024;
const BY_GROUP: u32 = 0o020;
const BY_OTHERS: u32 = 0o002;
const READ_BY_OTHERS: u32 = 0o004;

/// Who has made a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Whose {
    User,
    System,
    /// It was named, and is read instead of the other two.
    Named,
}

/// A file to look for.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) whose: Whose,
    pub(super) path: PathBuf,
}

/// What became of looking for it.
pub(super) enum Content {
    Text {
        text: String,
        /// Whether everybody may read it.
        is_public: bool,
    },
    Absent,
    /// A directory on the way is closed to this user.
    Inaccessible,
}

/// The files to look for, the nearest first.
pub(super) fn candidates(named: Option<&Setting<PathBuf>>) -> Vec<Candidate> {
    if let Some(named) = named {
        return vec![Candidate {
            whose: Whose::Named,
            path: named.value.clone(),
        }];
    }
    let absolute = |path: &PathBuf| path.is_absolute();
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.filter(absolute).or_else(|| {
        let home = std::env::home_dir().filter(absolute)?;
        Some(home.join(".config"))
    });
    let system = std::env::var_os(env::SYSTEM_CONFIG).filter(|path| !path.is_empty());
    let user = config.map(|config| Candidate {
        whose: Whose::User,
        path: config.join("leasehold/leasehold.toml"),
    });
    let system = Candidate {
        whose: Whose::System,
        path: system.map_or_else(|| PathBuf::from(SYSTEM), PathBuf::from),
    };
    user.into_iter().chain([system]).collect()
}

impl Candidate {
    /// Reads it. Only one that was named has to be there.
    pub(super) fn read(&self) -> Result<Content, Failure> {
        let path = &self.path;
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if self.whose == Whose::Named => return Err(self.cannot_read(&error)),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => return Ok(Content::Absent),
                // As where a service was started by root, and has the home of root.
                ErrorKind::PermissionDenied if path.metadata().is_err() => {
                    return Ok(Content::Inaccessible);
                }
                _ => return Err(self.cannot_read(&error)),
            },
        };
        let metadata = file.metadata().map_err(|error| self.cannot_read(&error))?;
        if metadata.is_file() {
            let user = rustix::process::geteuid().as_raw();
            Rights::of(&metadata).check(self, user)?;
        }
        let mut text = String::new();
        let read = file.take(LONGEST + 1).read_to_string(&mut text);
        let length = read.map_err(|error| self.cannot_read(&error))?;
        if u64::try_from(length).is_ok_and(|length| length > LONGEST) {
            let long = io::Error::new(ErrorKind::FileTooLarge, "it has more than 1 MiB");
            return Err(self.cannot_read(&long));
        }
        Ok(Content::Text {
            text,
            is_public: metadata.is_file() && metadata.mode() & READ_BY_OTHERS != 0,
        })
    }

    fn cannot_read(&self, error: &io::Error) -> Failure {
        let failure = Failure::usage(format!("cannot read {}: {error}", self.path.display()));
        failure.hint(match (self.whose, error.kind()) {
            (Whose::Named, ErrorKind::NotFound) => {
                "--config and LEASEHOLD_CONFIG name a file that is there"
            }
            (_, ErrorKind::PermissionDenied) => {
                "let its readers read it, or name another file with --config"
            }
            _ => "name another file with --config",
        })
    }
}

/// Who may write to a file.
#[derive(Debug, Clone, Copy)]
struct Rights {
    owner: u32,
    group: u32,
    mode: u32,
}

impl Rights {
    fn of(metadata: &Metadata) -> Self {
        Self {
            owner: metadata.uid(),
            group: metadata.gid(),
            mode: metadata.mode() & 0o7777,
        }
    }

    /// Refuses a file that others may have written than root and `user`, who runs this.
    fn check(self, file: &Candidate, user: u32) -> Result<(), Failure> {
        let Self { owner, group, mode } = self;
        let shown = file.path.display();
        let is_named = file.whose == Whose::Named;
        if !is_named && owner != 0 && owner != user {
            return Err(Failure::usage(format!(
                "cannot use {shown}: user {owner} owns it, and neither root nor user {user}, who \
                 runs this"
            ))
            .hint("change its owner, or name it with --config if it is to be trusted"));
        }
        // Many systems give each user a group of its own, with the same number, that may write.
        let forbidden = match is_named || group == owner {
            true => BY_OTHERS,
            false => BY_OTHERS | BY_GROUP,
        };
        if mode & forbidden == 0 {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "cannot use {shown}: others than its owner can write to it (mode {mode:04o})"
        ))
        .hint(format!("chmod go-w {}", quoted(&file.path))))
    }
}

/// For a shell.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    match path.chars().all(plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// User 7 runs it.
    fn is_trusted(whose: Whose, owner: u32, group: u32, mode: u32) -> bool {
        let path = PathBuf::from("/x/leasehold.toml");
        let rights = Rights { owner, group, mode };
        rights.check(&Candidate { whose, path }, 7).is_ok()
    }

    #[test]
    fn a_file_that_is_found_is_written_by_root_and_its_user_only() {
        for whose in [Whose::System, Whose::User] {
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
                let is = is_trusted(whose, owner, group, mode);
                assert_eq!(is, trusted, "{owner}:{group} {mode:o}");
            }
        }
    }

    #[test]
    fn a_file_that_is_named_may_belong_to_anybody() {
        assert!(is_trusted(Whose::Named, 8, 100, 0o664));
        assert!(!is_trusted(Whose::Named, 7, 7, 0o646));
    }

    #[test]
    fn a_path_in_a_hint_can_be_typed() {
        assert_eq!(quoted(Path::new("/etc/a.toml")), "/etc/a.toml");
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
