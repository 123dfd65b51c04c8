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
pub(crate) const READ: &str = "\
LEASEHOLD_STORE          the store, if -S does not name one; an empty value is an error then
LEASEHOLD_STORE_FILE     set by an outer leasehold: how to open its store; used if -S or \
                         LEASEHOLD_STORE name the same store
LEASEHOLD_USER           the user name for the store. This and the five variables below are used \
                         only if -S or LEASEHOLD_STORE name the store
LEASEHOLD_PASSWORD       the password for the store; not passed to the guarded command
LEASEHOLD_PASSWORD_FILE  a file whose first line is the password
LEASEHOLD_TLS_CA         PEM file of the certificates to trust
LEASEHOLD_TLS_CERT       PEM file of the client certificate
LEASEHOLD_TLS_KEY        PEM file of the key of the client certificate
LEASEHOLD_TTL            how long the lock stays taken after a crash, without --ttl
LEASEHOLD_WAIT           how long to wait, without -w and -n; or `forever`
LEASEHOLD_RETRY_FOR      how long to retry an unavailable store, without --retry-for
LEASEHOLD_GRACE          how long before the end of the lease the command is asked to stop
LEASEHOLD_LABEL          a name that others see, without --label
LEASEHOLD_CONFIG         the leasehold.toml to read, instead of the user's and the system's
LEASEHOLD_PROFILE        the profile of leasehold.toml to use, without --profile
LEASEHOLD_SYSTEM_CONFIG  where the system's file is, instead of /etc/leasehold/leasehold.toml
LEASEHOLD_OWNER          set by an outer leasehold: the owner for --reentrant, a secret
LEASEHOLD_CONTEXT        set by an outer leasehold: the work that it belongs to, for deadlocks
LEASEHOLD_SERVE_TOKEN    serve: the token that clients must send, without --token-file
LEASEHOLD_LOG            which log lines to print, e.g. info or leasehold=trace
NO_COLOR                 if set, no colours in help texts and in top";

/// What the guarded command is given, for the help and the manual.
pub(crate) const GIVEN: &str = "\
LEASEHOLD_KEY         the key; with several keys, the first
LEASEHOLD_TOKEN       the fencing token: pass it to the resource, which refuses lower tokens; \
                      with -s or --limit the number of the grant, which cannot fence; not set if \
                      the store has no tokens (layout=classic)
LEASEHOLD_TOKENS      all keys with their tokens, as a JSON object on one line: \
                      {\"account/1\":17}
LEASEHOLD_TERM        elect: the term, which is the fencing token
LEASEHOLD_OWNER       with --reentrant: the owner, a secret that lets an inner leasehold get the \
                      lock too
LEASEHOLD_CONTEXT     the work that an inner leasehold belongs to, for deadlocks
LEASEHOLD_STORE       the store, without password
LEASEHOLD_STORE_FILE  how an inner leasehold opens that store, with secrets: a file in memory \
                      that only this user can read while leasehold runs (on Linux)
LISTEN_PID            the command's process id, where systemd has named leasehold's, so that a \
                      service gets its sockets
WATCHDOG_PID          the same, so that the command can answer the watchdog";

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
