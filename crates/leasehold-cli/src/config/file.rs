//! Where the files are, and which of them are trusted.
//!
//! Whoever writes such a file decides where the locks are, and to which server the password goes
//! that a file holds. So a file that is found is used only if nobody but root and the user of this
//! process can write to it.

use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::table::Setting;
use crate::env;
use crate::failure::Failure;
use crate::user_file::{Links, Owner, UserFile};

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

/// A file that is looked for.
#[derive(Debug, Serialize)]
pub(crate) struct LookedFor {
    pub(crate) path: Arc<Path>,
    pub(crate) whose: Whose,
    /// What became of it: read, absent, or in a directory that is closed to this user.
    pub(crate) state: &'static str,
}

/// The files to look for, the nearest first.
pub(super) fn files(named: Option<&Setting<PathBuf>>) -> Vec<LookedFor> {
    let file = |whose, path: PathBuf| LookedFor {
        path: path.into(),
        whose,
        state: "absent",
    };
    if let Some(named) = named {
        return vec![file(Whose::Named, named.value.clone())];
    }
    let absolute = |path: &PathBuf| path.is_absolute();
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.filter(absolute).or_else(|| {
        let home = std::env::home_dir().filter(absolute)?;
        Some(home.join(".config"))
    });
    let user = config.map(|config| file(Whose::User, config.join("leasehold/leasehold.toml")));
    let system = std::env::var_os(env::SYSTEM_CONFIG).filter(|path| !path.is_empty());
    let system = system.map_or_else(|| PathBuf::from(SYSTEM), PathBuf::from);
    user.into_iter()
        .chain([file(Whose::System, system)])
        .collect()
}

impl LookedFor {
    /// Reads it, if it is there: the text, and whether everybody may read that. One that was named has
    /// to be there.
    pub(super) fn read(&mut self) -> Result<Option<(String, bool)>, Failure> {
        let path = Arc::clone(&self.path);
        if is_null(&path) {
            self.state = "read";
            return Ok(Some((String::new(), false)));
        }
        let file = match UserFile::open(&path, Links::Follow) {
            Ok(file) => file,
            Err(error) if self.whose == Whose::Named => return Err(self.cannot_read(&error)),
            Err(error) => {
                self.state = match error.kind() {
                    ErrorKind::NotFound | ErrorKind::NotADirectory if !dangles(&path) => "absent",
                    // As where a service was started by root, and has the home of root.
                    ErrorKind::PermissionDenied if path.metadata().is_err() => "inaccessible",
                    _ => return Err(self.cannot_read(&error)),
                };
                return Ok(None);
            }
        };
        let owner = match self.whose {
            Whose::Named => Owner::Anybody,
            _ => Owner::Trusted("change its owner, or name it with --config if you trust it"),
        };
        file.check(owner)?;
        self.state = "read";
        let text = file.text().map_err(|error| self.cannot_read(&error))?;
        let is_public = file.metadata.mode() & READ_BY_OTHERS != 0;
        Ok(Some((text, is_public)))
    }

    fn cannot_read(&self, error: &io::Error) -> Failure {
        let failure = Failure::usage(format!("cannot read {}: {error}", self.path.display()));
        failure.hint(match (self.whose, error.kind()) {
            (Whose::Named, ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                "--config and LEASEHOLD_CONFIG name a file that is there"
            }
            (_, ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                "a symbolic link leads to nothing: correct or remove it"
            }
            (_, ErrorKind::PermissionDenied) => {
                "let its readers read it, or name another file with --config"
            }
            _ => "name another file with --config",
        })
    }
}

/// Whether it, or a directory above it, is a symbolic link to nothing, as where a disk is not
/// mounted yet. Without that file the locks could be in another store.
fn dangles(path: &Path) -> bool {
    let leads_nowhere = |link: &Path| link.symlink_metadata().is_ok() && link.metadata().is_err();
    path.ancestors().any(leads_nowhere)
}

/// Whether it is the file that has nothing in it, whoever made the link to it.
fn is_null(path: &Path) -> bool {
    let device = |path: &Path| {
        let seen = path.metadata().ok()?;
        seen.file_type().is_char_device().then_some(seen.rdev())
    };
    device(path).is_some_and(|it| device(Path::new("/dev/null")) == Some(it))
}
