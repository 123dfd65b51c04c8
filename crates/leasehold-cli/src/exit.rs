//! Exit statuses, as `sysexits.h` and shells have them.

use leasehold::ErrorKind;

/// Done.
pub(crate) const OK: u8 = 0;
/// Asked, and the answer was no.
pub(crate) const DECLINED: u8 = 1;
/// `show --exit-code`: somebody holds the key.
pub(crate) const HELD: u8 = 1;
/// `deadlocks`: there are some.
pub(crate) const DEADLOCKED: u8 = 1;
/// `doctor`: locks work, and something endangers them.
pub(crate) const ENDANGERED: u8 = 1;
/// `doctor`: locks do not work, or exclude nobody.
pub(crate) const UNSAFE: u8 = 2;
/// Wrong usage (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// What stands at the key is not leasehold's, or is damaged (`EX_DATAERR`).
pub(crate) const CORRUPT: u8 = 65;
/// The store cannot be reached, or refuses (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// The operating system refused what every machine should do (`EX_OSERR`).
pub(crate) const SYSTEM: u8 = 71;
/// The output cannot be written (`EX_IOERR`).
pub(crate) const OUTPUT: u8 = 74;
/// The lock was not obtained in time (`EX_TEMPFAIL`).
pub(crate) const CONFLICT: u8 = 75;
/// The lease was lost while the command ran.
pub(crate) const LOST: u8 = 79;
/// The command was found and cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// The status of a process that a signal ended.
pub(crate) fn signalled(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// The status for an error of the library.
pub(crate) fn of_error(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Timeout | ErrorKind::Deadlock => CONFLICT,
        ErrorKind::Lost => LOST,
        ErrorKind::Invalid => USAGE,
        ErrorKind::Corrupt => CORRUPT,
        // Unavailable, Refused, Unsupported: the store did not do it.
        _ => UNAVAILABLE,
    }
}

/// The table for the help and the manual: a status, two spaces, what it means.
pub(crate) const TABLE: &str = "\
the command's own  it ran to its end under the lock
128+n              signal n ended the command, or the waiting (Ctrl-C: 130)
1                  show --exit-code: held; break: not confirmed, or not held with --token; \
                   doctor: warnings; deadlocks: some were found
2                  doctor: the store is not safe for locks
64                 wrong usage: options, key, duration, URL, configuration
65                 the key holds data that is damaged, or is not leasehold's
69                 the store is unavailable, or refuses; with -w or --retry-for, until the time \
                   was over
71                 the operating system refused (processes, signals, state file)
74                 the output cannot be written
75                 the lock was not obtained in time, an outer leasehold of this command holds \
                   it, or --deadlock-timeout gave up; -E chooses another (--every: 0)
79                 the lease was lost while the command ran, or --max-hold was over
126                the command cannot be run
127                the command was not found";
