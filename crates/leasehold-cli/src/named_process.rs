//! Processes of the command, as people know them.

use std::fmt;

use rustix::process::Pid;
use serde::Serialize;

/// A process, with what the system says of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NamedProcess {
    pid: i32,
    /// The program's name, as far as it may be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    /// The user whose rights it has, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
}

impl NamedProcess {
    pub(crate) fn of(pid: Pid) -> Self {
        let pid = pid.as_raw_nonzero().get();
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
        // Whoever wrote the program chose its name.
        let printed = |name: String| name.trim_end().escape_debug().to_string();
        Self {
            pid,
            program: read("comm").map(printed),
            user: read("status").and_then(|status| user(effective(&status)?)),
        }
    }

    /// Its program first, and no user.
    pub(crate) fn in_short(&self) -> String {
        match &self.program {
            Some(program) => format!("{program} (pid {})", self.pid),
            None => format!("pid {}", self.pid),
        }
    }
}

impl fmt::Display for NamedProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}", self.pid)?;
        match (&self.program, &self.user) {
            (Some(program), Some(user)) => write!(f, " ({program}, user {user})"),
            (Some(known), None) => write!(f, " ({known})"),
            (None, Some(user)) => write!(f, " (user {user})"),
            (None, None) => Ok(()),
        }
    }
}

/// The second of the numbers: real, effective, saved, of the file system.
fn effective(status: &str) -> Option<&str> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)
}

fn user(uid: &str) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1) == Some(uid)).then(|| name.to_owned())
    });
    Some(named.unwrap_or_else(|| uid.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_with_its_program_and_its_user() {
        let ours = NamedProcess::of(rustix::process::getpid());
        assert!(ours.program.is_some() && ours.user.is_some(), "{ours:?}");
        let status = "Name:\tsu\nUid:\t1000\t0\t0\t0\nGid:\t1\t1\t1\t1\n";
        assert_eq!(effective(status), Some("0"));
        assert_eq!(user("0").as_deref(), Some("root"));
        assert_eq!(user("4294900000").as_deref(), Some("4294900000"));
        let process = NamedProcess {
            pid: 7,
            program: Some("sleep".to_owned()),
            user: Some("root".to_owned()),
        };
        assert_eq!(process.to_string(), "pid 7 (sleep, user root)");
        assert_eq!(process.in_short(), "sleep (pid 7)");
    }
}
