//! The stores of this build, and what a client's store can do.
//!
//! A [`LockStore`] that is opened here is handed to
//! [`ClientBuilder::with_store`](crate::ClientBuilder::with_store). The port itself, for who
//! writes a store of their own, is the crate `leasehold-store`.

#[doc(inline)]
pub use leasehold_store::{
    Acknowledged, Acknowledges, AuditLimit, AuditRecord, Capabilities, LockStore,
};
// For the command, which compares names as stores do.
#[doc(hidden)]
pub use leasehold_store::glob;
// For the tests of the stores beside this crate.
#[doc(hidden)]
pub use leasehold_store::{
    AllAnswer, Answer, AuditLog, ListPage, Listening, Listing, OnePage, Push, PushSink, Records,
    Step, Taken, Transacted, Verbs,
};
pub(crate) use leasehold_store::{report, scheme};

/// `local:` — many processes on one machine, and no server.
#[cfg(feature = "local")]
pub mod local {
    #[doc(inline)]
    pub use leasehold_local::{LocalOptions, LocalStore};
}

/// `memory:` — the core behind a mutex, for tests and for one process.
pub mod memory {
    #[doc(inline)]
    pub use leasehold_store::memory::{ManualClock, MemoryStore};
}

/// Redis and Valkey: a server, the primary that Sentinels watch, a cluster, servers that vote.
#[cfg(feature = "redis")]
pub mod redis {
    #[doc(inline)]
    pub use leasehold_redis::{
        Acknowledge, AcknowledgedBy, ClassicStore, Quarantine, RedisAddress, RedisClusterOptions,
        RedisLayout, RedisOptions, RedisStore, RedlockOptions, RedlockStore, Restart, Sentinels,
    };
    // What `leasehold bench` compares with.
    #[doc(hidden)]
    pub use leasehold_redis::{Baseline, ServerCost};
}
