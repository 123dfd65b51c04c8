//! Python with packages that `scripts/test --install` gets.

use std::env;
use std::process::Command;

use crate::server::in_servers;

/// A command of Python that finds this set of packages, unpacked in `servers/<packages>` of the target
/// directory.
///
/// Python is `python3` from the `PATH`, or what `LEASEHOLD_PYTHON` names.
///
/// # Panics
///
/// If the packages are not there: no test passes because it could not be run.
pub fn python(packages: &str) -> Command {
    let found = in_servers(packages).unwrap_or_else(|| {
        panic!(
            "{packages} is in no `servers` directory above this test: \
             scripts/test --install gets it"
        )
    });
    let mut command =
        Command::new(env::var_os("LEASEHOLD_PYTHON").unwrap_or_else(|| "python3".into()));
    command
        .env("PYTHONPATH", found)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // Lines come as they are printed.
        .env("PYTHONUNBUFFERED", "1");
    command
}
