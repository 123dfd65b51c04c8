//! A server's directory, which is removed also if the test is killed.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::process::spawn_free;

/// A scratch directory with the data of a server, and the process that cleans up after it.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: TempDir,
    owner: Option<Owner>,
    cleaner: Child,
}

/// A user and its group, to whom root gives a directory.
pub(crate) type Owner = (u32, u32);

impl Scratch {
    /// A directory for a server of that name, which may run as another user.
    pub(crate) fn new(server: &str, owner: Option<Owner>) -> Self {
        let name = format!("leasehold-{server}-");
        let directory = tempfile::Builder::new().prefix(&name).tempdir();
        let directory = directory.expect("a temporary directory can be made");
        give(directory.path(), owner);
        let mut cleaner = command(&directory, owner, "sh");
        cleaner.args(["-c", include_str!("scratch/clean_up.sh"), "clean_up.sh"]);
        cleaner.arg(directory.path()).stdin(Stdio::piped());
        cleaner.stdout(Stdio::null()).process_group(0);
        let cleaner = spawn_free(cleaner).expect("the server's user can enter TMPDIR");
        Self {
            directory,
            owner,
            cleaner,
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file that only the owner can read.
    pub(crate) fn write_secret(&self, name: &str, text: &str) {
        let path = self.path(name);
        let written = fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o600)));
        written.expect("a file can be written");
        give(&path, self.owner);
    }

    /// A command that runs in the directory, as its owner.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        command(&self.directory, self.owner, program)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.cleaner.stdin.take());
        let _ = self.cleaner.wait();
    }
}

fn give(path: &Path, owner: Option<Owner>) {
    if let Some((user, group)) = owner {
        chown(path, Some(user), Some(group)).expect("root can give it away");
    }
}

fn command(directory: &TempDir, owner: Option<Owner>, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).stdin(Stdio::null());
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
    command
}
