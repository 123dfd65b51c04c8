//! The port between leasehold and whatever keeps its queues, and the stores of this build.
//!
//! For who writes a store of their own: the crate `leasehold-store` has all of this and
//! more, without the client.

#[doc(inline)]
pub use leasehold_store::{
    Acknowledged, Acknowledges, AllAnswer, Answer, Capabilities, ListPage, Listening, Listing,
    LockStore, OnePage, Push, PushSink, Records, Step, Taken, Transacted, Verbs,
};
pub(crate) use leasehold_store::{report, scheme};

/// `local:` — many processes on one machine, and no server.
#[cfg(feature = "local")]
pub mod local {
    #[doc(inline)]
    pub use leasehold_local::{LocalOptions, LocalStore, NamedBy};
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
        Acknowledge, AcknowledgedBy, Baseline, ClassicStore, Quarantine, RedisAddress,
        RedisClusterOptions, RedisLayout, RedisOptions, RedisStore, RedlockOptions, RedlockStore,
        Restart, Sentinels, ServerCost,
    };
}
