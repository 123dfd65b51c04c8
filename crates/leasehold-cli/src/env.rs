//! Every environment variable of the command.

/// The store, when `-S` does not name one; for the guarded command, without password.
pub(crate) const STORE: &str = "LEASEHOLD_STORE";
/// How the store is opened, for a leasehold that the guarded command starts.
pub(crate) const STORE_FILE: &str = "LEASEHOLD_STORE_FILE";
/// The password at the store.
pub(crate) const PASSWORD: &str = "LEASEHOLD_PASSWORD";
/// Those that belong to the store of the environment: a part of the table of settings.
pub(crate) const CREDENTIALS: [&str; 6] = [
    "LEASEHOLD_USER",
    PASSWORD,
    "LEASEHOLD_PASSWORD_FILE",
    "LEASEHOLD_TLS_CA",
    "LEASEHOLD_TLS_CERT",
    "LEASEHOLD_TLS_KEY",
];
/// What the names of ours begin with. The names of settings are in their table.
pub(crate) const PREFIX: &str = "LEASEHOLD_";
/// The file of settings, instead of the user's and the system's.
pub(crate) const CONFIG: &str = "LEASEHOLD_CONFIG";
/// The profile of that file.
pub(crate) const PROFILE: &str = "LEASEHOLD_PROFILE";
/// The system's file of settings, where it is elsewhere.
pub(crate) const SYSTEM_CONFIG: &str = "LEASEHOLD_SYSTEM_CONFIG";
/// The token that `serve` asks for.
#[cfg(feature = "console")]
pub(crate) const SERVE_TOKEN: &str = "LEASEHOLD_SERVE_TOKEN";
/// Which log lines to show.
pub(crate) const LOG: &str = "LEASEHOLD_LOG";
/// The key, for the guarded command.
pub(crate) const KEY: &str = "LEASEHOLD_KEY";
/// The fencing token, for the guarded command.
pub(crate) const TOKEN: &str = "LEASEHOLD_TOKEN";
/// All keys with their tokens, for the guarded command.
pub(crate) const TOKENS: &str = "LEASEHOLD_TOKENS";
/// The owner's secret, with `--reentrant`.
pub(crate) const OWNER: &str = "LEASEHOLD_OWNER";
/// The context of the claims, for a leasehold that the guarded command starts.
pub(crate) const CONTEXT: &str = "LEASEHOLD_CONTEXT";
/// The term, for the command of a leader.
pub(crate) const TERM: &str = "LEASEHOLD_TERM";

/// The process that systemd means, by its id: the one that takes its sockets, and answers its watchdog.
const OF_PROCESS: [&str; 2] = ["LISTEN_PID", "WATCHDOG_PID"];

/// Those by which systemd means the parent of this process.
pub(crate) fn of_parent() -> impl Iterator<Item = &'static str> {
    let id = std::os::unix::process::parent_id().to_string();
    OF_PROCESS
        .into_iter()
        .filter(move |name| std::env::var_os(name).is_some_and(|value| *value == *id))
}

/// What is read, for the help and the manual: a variable, two spaces, what it means.
pub(crate) const READ: &str = include_str!("env_read.txt").trim_ascii_end();

/// What the guarded command is given, for the help and the manual.
pub(crate) const GIVEN: &str = include_str!("env_given.txt").trim_ascii_end();

/// The names of all variables.
pub(crate) fn known() -> impl Iterator<Item = &'static str> {
    let lines = READ.lines().chain(GIVEN.lines());
    lines.filter_map(|line| Some(line.split_once("  ")?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_in_the_help() {
        let names: Vec<_> = known().collect();
        for name in [
            STORE,
            STORE_FILE,
            PASSWORD,
            CONFIG,
            PROFILE,
            SYSTEM_CONFIG,
            LOG,
            #[cfg(feature = "console")]
            SERVE_TOKEN,
            KEY,
            TOKEN,
            TOKENS,
            OWNER,
            CONTEXT,
            TERM,
        ] {
            assert!(names.contains(&name), "{name}");
        }
    }
}
