//! A directory of PostgreSQL's user, which is removed also if the test is killed.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::process::spawn_free;

/// A scratch directory with the data of a server, and the process that cleans up after it.
#[derive(Debug)]
pub(super) struct Scratch {
    directory: TempDir,
    cleaner: Child,
}

impl Scratch {
    pub(super) fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("leasehold-postgres-")
            .tempdir()
            .expect("a temporary directory can be made");
        if let Some((user, group)) = user() {
            chown(directory.path(), Some(user), Some(group)).expect("root can give it away");
        }
        let mut cleaner = command(&directory, "sh");
        cleaner
            .args(["-c", include_str!("clean_up.sh"), "clean_up.sh"])
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0);
        let cleaner = spawn_free(cleaner).expect("the user `postgres` can enter TMPDIR");
        Self { directory, cleaner }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file that only that user can read.
    pub(super) fn write_secret(&self, name: &str, text: &str) {
        let path = self.path(name);
        let written = fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o600)));
        written.expect("a file can be written");
        if let Some((user, group)) = user() {
            chown(path, Some(user), Some(group)).expect("root can give it away");
        }
    }

    /// A command that runs in the directory, as the user that owns it.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        command(&self.directory, program)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.cleaner.stdin.take());
        let _ = self.cleaner.wait();
    }
}

fn command(directory: &TempDir, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).stdin(Stdio::null());
    if let Some((user, group)) = user() {
        command.uid(user).gid(group);
    }
    command
}

/// The user and group of the servers, if the tests run as root, which PostgreSQL refuses to be.
fn user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let mut users = users.lines().map(|line| line.split(':'));
    let mut found = users
        .find_map(|mut fields| (fields.next() == Some("postgres")).then(|| fields.skip(1)))
        .expect("root needs a user `postgres` to start PostgreSQL as");
    let mut number = || found.next()?.parse().ok();
    Some((number()?, number()?))
}
