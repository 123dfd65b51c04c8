//! Doors to what parses and is private, for `leasehold-fuzz`. Not an interface: it
//! changes with what lies behind it.

#[cfg(feature = "local")]
pub use leasehold_local::fuzzing as local;
#[cfg(feature = "redis")]
pub use leasehold_redis::fuzzing as redis;

/// Whether a name matches a pattern of `list`.
pub fn glob(pattern: &str, name: &str) -> bool {
    leasehold_store::glob::matches(pattern, name)
}
