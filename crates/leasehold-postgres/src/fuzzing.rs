//! What a row has, for `leasehold-fuzz`.

use leasehold_store::journal::Entry;

use super::PostgresOptions;

/// The entries of a tail, if they are whole.
#[must_use]
pub fn frames(tail: &[u8]) -> Option<Vec<Entry>> {
    super::journal::frames(tail)
}

/// Whether that is a part of the password.
#[must_use]
pub fn holds(options: &PostgresOptions, secret: &str) -> bool {
    let password = options.config.get_password().map(String::from_utf8_lossy);
    password.is_some_and(|password| password.contains(secret))
}
