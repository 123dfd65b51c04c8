//! Where the files are, and which of them are trusted.
//!
//! Whoever writes such a file decides where the locks are, and to which server the password goes
//! that a file holds. So a file that is found is used only if nobody but root and the user of this
//! process can write to it.

use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::setting::Setting;
use crate::env;
use crate::failure::Failure;
use crate::user_file::{Links, Owner, Rights, UserFile};

const SYSTEM: &str = "/etc/leasehold/leasehold.toml";
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
        if is_null(path) {
            return Ok(Content::Text {
                text: String::new(),
                is_public: false,
            });
        }
        let file = match UserFile::open(path, Links::Follow) {
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
        let owner = match self.whose {
            Whose::Named => Owner::Anybody,
            _ => Owner::Trusted("change its owner, or name it with --config if you trust it"),
        };
        Rights::of(&file.metadata).check(path, owner)?;
        Ok(Content::Text {
            text: file.text().map_err(|error| self.cannot_read(&error))?,
            is_public: file.metadata.mode() & READ_BY_OTHERS != 0,
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

/// Whether it is the file that has nothing in it, whoever made the link to it.
fn is_null(path: &Path) -> bool {
    let device = |path: &Path| {
        let seen = path.metadata().ok()?;
        seen.file_type().is_char_device().then_some(seen.rdev())
    };
    device(path).is_some_and(|it| device(Path::new("/dev/null")) == Some(it))
}
