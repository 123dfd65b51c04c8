//! Doors to what parses and is private, for `leasehold-fuzz`. Not an interface: it
//! changes with what lies behind it.

#[cfg(feature = "redis")]
pub use crate::store::redis::fuzzing as redis;
#[cfg(feature = "local")]
pub use leasehold_local::fuzzing as local;

/// Whether a name matches a pattern of `list`.
pub fn glob(pattern: &str, name: &str) -> bool {
    leasehold_store::glob::matches(pattern, name)
}
