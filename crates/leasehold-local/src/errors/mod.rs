//! What callers are told of a directory that cannot be used: what the system answered, and commands
//! that are safe whatever the path is.

use std::path::{Component, Path};

use leasehold_store::StoreError;
pub(super) use leasehold_store::{refused, unavailable};
use rustix::io::Errno;

/// What to tell a caller when `doing` something in the directory failed.
pub(super) fn failed(path: &Path, doing: &str, errno: Errno) -> StoreError {
    let cause = std::io::Error::from(errno);
    let message = format!("cannot {doing} the directory {}", path.display());
    let error = match answer(errno) {
        Some((why, hint)) => refused(format!("{message}: {why}"), hint),
        // It may pass.
        None => unavailable(format!("{message}: {cause}")),
    };
    error.with_source(cause)
}

/// What the system means by that, and what to do; nothing where it may pass by itself.
fn answer(errno: Errno) -> Option<(&'static str, &'static str)> {
    const ELSEWHERE: &str = "name a directory of your own with local:/some/dir";
    Some(match errno {
        Errno::NOSPC => (
            "the disk is full, or has no inodes left",
            "make room there, or name another directory with local:/some/dir",
        ),
        Errno::DQUOT => (
            "the disk quota is used up",
            "make room within the quota, or name another directory with local:/some/dir",
        ),
        Errno::FBIG => (
            "a file would become larger than allowed",
            "raise the limit (ulimit -f), or name another directory with local:/some/dir",
        ),
        Errno::ACCESS => ("permission denied", ELSEWHERE),
        Errno::PERM => ("the system does not permit it", ELSEWHERE),
        Errno::ROFS => ("its file system is read-only", ELSEWHERE),
        Errno::MFILE => (
            "this process has too many open files",
            "raise the limit (ulimit -n)",
        ),
        Errno::NFILE => (
            "the machine has too many open files",
            "close some, or raise the limit of the machine (fs.file-max)",
        ),
        Errno::NOENT | Errno::STALE => (
            "it was removed while in use",
            "start again: it is created again",
        ),
        _ => return None,
    })
}

/// A command of a hint, with arguments that mean to a shell what they are.
pub(super) fn command(program: &str, arguments: &[&str]) -> String {
    let mut command = program.to_owned();
    for argument in arguments {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=,".contains(c);
        command.push(' ');
        match !argument.is_empty() && argument.chars().all(plain) {
            true => command.push_str(argument),
            false => command.push_str(&format!("'{}'", argument.replace('\'', r"'\''"))),
        }
    }
    command
}

/// The hint for a directory that is no place for locks, and must stay as it is.
pub(super) fn below(path: &Path) -> String {
    let shown = path.display().to_string();
    let shown = shown.trim_end_matches('/');
    format!("name a directory of your own below it: local:{shown}/some/dir")
}

/// Whether it is one of those in which the system keeps its directories.
pub(super) fn is_of_system(path: &Path) -> bool {
    const WITH_PARTS: [&str; 8] = ["boot", "dev", "etc", "lib", "proc", "sys", "usr", "var"];
    let mut names = path.components().filter_map(|one| match one {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    match (names.next(), names.next(), names.next()) {
        (_, None, _) => true,
        (Some(first), Some(_), None) => WITH_PARTS.iter().any(|name| first == *name),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
