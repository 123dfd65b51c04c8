//! The contract of a store and the guarantees of the library, on three independent servers, as
//! far as they apply without a queue.
#![cfg(feature = "redis")]

use std::iter::repeat_n;

use crate::redis_support::case::{Case, Program, suites};
use crate::redlock_support::Set;

type Shared = Set;

fn start(program: Program) -> Shared {
    Set::of(repeat_n(program, 3), "")
}

fn fresh(set: &'static Shared) -> Case {
    let case = Case::at(set.url().trim_end_matches('?'), &set.servers);
    case.marked().slow()
}

suites! {
    redis: Default { contract: [contract] fresh }
    valkey: Valkey { contract: [contract] fresh }
    oldest: OldestRedis { contract: [contract] fresh }
}

/// A Redis, a Valkey and the oldest Redis together.
mod mixed {
    use std::sync::LazyLock;

    use super::{Set, fresh};

    static SHARED: LazyLock<Set> = LazyLock::new(|| Set::unmarked(3, ""));

    leasehold_store::contract!(fresh(&SHARED));
    leasehold_testkit::facade!(fresh(&SHARED));
}
