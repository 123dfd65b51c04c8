//! Random numbers for inbox names, ids and jitter.

/// Returns an unguessable random number of 64 bits.
#[must_use]
pub fn random_u64() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1
}

/// Returns an unguessable and unique random number of 128 bits.
#[must_use]
pub fn random_u128() -> u128 {
    uuid::Uuid::new_v4().as_u128()
}
