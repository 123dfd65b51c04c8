//! Random numbers: for the names of inboxes, for ids, and to spread what would come together.

/// A number that nobody can guess.
#[must_use]
pub fn random_u64() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1
}

/// A number that nobody can guess, and that no other comes upon.
#[must_use]
pub fn random_u128() -> u128 {
    uuid::Uuid::new_v4().as_u128()
}
