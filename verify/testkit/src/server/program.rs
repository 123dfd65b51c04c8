//! Which program a server is.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::process::spawn_tied;

/// Which program a server is.
///
/// | | named by | otherwise |
/// |---|---|---|
/// | [`Default`](Self::Default) | `LEASEHOLD_REDIS_SERVER` | `redis-server` from the `PATH` |
/// | [`Valkey`](Self::Valkey) | `LEASEHOLD_VALKEY_SERVER` | `target/servers/valkey-server` |
/// | [`OldestRedis`](Self::OldestRedis) | `LEASEHOLD_OLDEST_REDIS_SERVER` | `target/servers/oldest-redis-server` |
///
/// `scripts/test --install` puts them there. A program that is missing fails the test that needs
/// it: no test passes because it could not be run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Program {
    /// The Redis that is installed.
    #[default]
    Default,
    /// A current Valkey.
    Valkey,
    /// The oldest Redis that is supported: 6.2.
    OldestRedis,
    /// A program by its path, or by its name in the `PATH`.
    At(PathBuf),
}

impl Program {
    /// Those that everything is tested with.
    pub const ALL: [Self; 3] = [Self::Default, Self::Valkey, Self::OldestRedis];

    /// The environment variable that names it, if there is one.
    pub fn variable(&self) -> Option<&'static str> {
        match self {
            Self::Default => Some("LEASEHOLD_REDIS_SERVER"),
            Self::Valkey => Some("LEASEHOLD_VALKEY_SERVER"),
            Self::OldestRedis => Some("LEASEHOLD_OLDEST_REDIS_SERVER"),
            Self::At(_) => None,
        }
    }

    /// Where it is, or what it is called in the `PATH`.
    ///
    /// # Errors
    ///
    /// That it is in none of the places where it is looked for.
    pub fn path(&self) -> Result<PathBuf, String> {
        if let Some(named) = self.variable().and_then(env::var_os) {
            return Ok(named.into());
        }
        match self {
            Self::Default => Ok("redis-server".into()),
            Self::At(path) => Ok(path.clone()),
            Self::Valkey => installed("valkey-server"),
            Self::OldestRedis => installed("oldest-redis-server"),
        }
    }

    /// Whether it is a Redis 6; `false` if it does not say.
    pub(crate) fn is_before_7(&self) -> bool {
        let Ok(path) = self.path() else { return false };
        // `Redis server v=6.2.14 sha=…`
        let mut command = Command::new(path);
        command.arg("--version").stdout(Stdio::piped());
        let said = spawn_tied(command).and_then(Child::wait_with_output);
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(" v=6."))
    }
}

impl From<PathBuf> for Program {
    fn from(path: PathBuf) -> Self {
        Self::At(path)
    }
}

impl From<&str> for Program {
    fn from(path: &str) -> Self {
        Self::At(path.into())
    }
}

/// Where something is in `servers/` of the target directory, in which the running test is as well.
pub fn in_servers(name: &str) -> Option<PathBuf> {
    let test = env::current_exe().expect("a running program has a path");
    let mut paths = test.ancestors().map(|it| it.join("servers").join(name));
    paths.find(|path| path.exists())
}

fn installed(name: &str) -> Result<PathBuf, String> {
    let what = "is in no `servers` directory above this test";
    in_servers(name).ok_or_else(|| failure(Path::new(name), what, ""))
}

/// Why a server did not start, what to do, and its log.
pub(super) fn failure(program: &Path, what: &str, log: &str) -> String {
    let program = program.display();
    let variable = Program::Default.variable().unwrap_or_default();
    let is_plain = log.contains("tls-") && log.contains("Bad directive");
    let tls = is_plain.then_some("hint: this server was built without TLS\n");
    format!(
        "`{program}` {what}\n\
         hint: install Redis, or name its server in {variable}; \
         `scripts/test --install` gets every server that the tests need\n\
         {}--- its log\n{log}",
        tls.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_not_installed_says_how_to_get_it() {
        let missing = "`no-such-server` is in no `servers`";
        let error = installed("no-such-server").unwrap_err();
        crate::expect::says(error, [missing, "scripts/test --install"]);
    }
}
