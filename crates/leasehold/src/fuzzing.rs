//! Access to private parsers, for `leasehold-fuzz`. Not a public interface: it changes without
//! notice.

#[cfg(feature = "local")]
pub use leasehold_local::fuzzing as local;
#[cfg(feature = "postgres")]
pub use leasehold_postgres::fuzzing as postgres;
#[cfg(feature = "redis")]
pub use leasehold_redis::fuzzing as redis;
pub use leasehold_store::journal::fuzzing as journal;
#[cfg(feature = "zookeeper")]
pub use leasehold_zookeeper::fuzzing as zookeeper;

/// Whether a name matches a pattern of `list`.
pub fn glob(pattern: &str, name: &str) -> bool {
    leasehold_store::glob::matches(pattern, name)
}
