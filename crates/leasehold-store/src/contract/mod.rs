//! The contract test suite of stores: one test case for each bullet in the documentation of
//! [`LockStore`].
//!
//! To test a store, implement a [`Fixture`], which makes clients of a fresh store, and add all
//! cases with [`contract!`](crate::contract!). A case for a capability that the store does not
//! have ([`Capabilities`]) passes without using the store:
//!
//! ```
//! # use std::sync::Arc;
//! use leasehold_store::contract::Fixture;
//! use leasehold_store::{LockStore, memory::MemoryStore};
//!
//! struct Memory(MemoryStore);
//!
//! #[async_trait::async_trait]
//! impl Fixture for Memory {
//!     async fn client(&self) -> Arc<dyn LockStore> {
//!         Arc::new(self.0.client())
//!     }
//! }
//!
//! leasehold_store::contract!(Memory(MemoryStore::new()));
//! ```
//!
//! It needs the feature `contract`; enable it under `[dev-dependencies]`. If [`Fixture::pass`]
//! waits for real time, the cases take a few seconds in total, running in parallel.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a case fails the test that runs it, with a message, and does nothing else"
)]

mod actor;
mod audit;
mod claim;
mod identity;
mod leave;
mod look;
mod multi;
mod owner;
mod push;
mod renew;
mod semaphore;
mod watch;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Builder;

pub use self::audit::*;
pub use self::claim::*;
pub use self::identity::*;
pub use self::leave::*;
pub use self::look::*;
pub use self::multi::*;
pub use self::owner::*;
pub use self::push::*;
pub use self::renew::*;
pub use self::semaphore::*;
pub use self::watch::*;
use crate::{Capabilities, LockStore};

/// A store under test, fresh for each case.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Makes another client of the same store, with its own inbox.
    async fn client(&self) -> Arc<dyn LockStore>;

    /// Makes another client with an audit log, if the store can keep one.
    async fn audited(&self) -> Arc<dyn LockStore> {
        self.client().await
    }

    /// Lets the store's time pass: with a manual clock if there is one, otherwise by waiting.
    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// A short TTL that cases wait for. It must be longer than a request takes on a busy machine,
    /// and longer still if a request goes to several servers.
    fn short(&self) -> Duration {
        Duration::from_millis(300)
    }
}

/// A test case.
#[doc(hidden)]
pub type Case = for<'a> fn(&'a dyn Fixture) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Whether a store can do what a case is about.
#[doc(hidden)]
pub type Needs = fn(&Capabilities) -> bool;

/// Runs a case on a fresh store, if it can do what the case is about. It is one function for all
/// cases, so that the runtime is compiled only once.
#[doc(hidden)]
pub fn run(fixture: &dyn Fn() -> Box<dyn Fixture>, needs: Needs, case: Case) {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let fixture = fixture();
        if needs(&fixture.client().await.capabilities()) {
            case(&*fixture).await;
        }
    });
}

/// How long a push may take on a busy machine before a case fails.
const PUSH_LIMIT: Duration = Duration::from_secs(10);

/// Long enough to outlive any case.
const LONG: Duration = Duration::from_secs(60);

/// Adds every case of the contract as a test. The expression makes the
/// [fixture](crate::contract::Fixture): see [`mod@crate::contract`].
#[macro_export]
macro_rules! contract {
    ($fixture:expr) => {
        $crate::contract! { @each @test $fixture }
    };
    (@each $($then:tt)+) => {
        $crate::contract! { $($then)+;
            |_| true => {
                claim_free_key_is_granted, claim_held_key_waits_or_is_busy,
                claim_again_finds_itself, claim_after_release_is_gone, lapsed_holder_is_passed,
                tokens_strictly_increase, claim_id_of_another_client_is_taken,
                claim_all_again_finds_itself,
                renew_raises_never_lowers, renew_unknown_is_gone, renew_keeps_place_and_token,
                release_twice_is_absent, release_unknown_is_absent,
                break_fences_holders, break_of_one_grant_takes_no_other, break_tells_holders,
                inspect_idle_key_is_empty, list_finds_live_keys_by_pattern,
                listing_finds_each_live_key_once,
                audit_says_who_held_and_how_it_ended, audit_log_is_followed
            }
            |can| can.multi => { claim_all_of_one_key_twice_is_invalid }
            |can| can.owners => { note_is_shown }
            |can| can.queueing => {
                claims_are_granted_in_order, claim_ahead_passes_waiters,
                release_hands_on_to_next, withdrawn_waiter_is_passed, closed_inbox_hears_nothing
            }
            |can| can.queueing && can.push => {
                grant_is_pushed_to_its_inbox_only, next_in_line_is_told,
                watcher_hears_of_holders_and_notes, watch_ends
            }
            |can| !can.exclusive_only => {
                claim_of_other_capacity_is_mismatch, readers_share_and_writers_exclude,
                permits_are_counted_by_weight,
                owner_enters_again_with_the_same_token, owner_leaves_with_its_last_claim,
                waiting_claims_of_an_owner_are_granted_together,
                claim_all_is_all_or_nothing,
                downgrade_lets_readers_in_and_no_writer_between, rotation_replaces_the_id,
                rotation_again_finds_itself, concurrent_rotations_have_one_winner,
                adoption_raises_the_token_and_tells_the_former,
                adoption_raises_the_token_of_all_claims_of_the_owner,
                minimum_hold_outlives_its_release, unused_grant_keeps_nothing,
                silent_holder_is_told_from_its_minimum_hold,
                resize_compares_and_sets, growing_promotes_at_once, shrinking_revokes_nothing,
                waiter_too_heavy_is_told, resize_idle_key_is_absent,
                inspect_shows_holders_and_waiters
            }
        }
    };
    (@test $fixture:expr; $($needs:expr => { $($case:ident),+ })+) => {
        $($(#[test]
        fn $case() {
            $crate::contract::run(&|| Box::new($fixture), $needs, |fixture| {
                Box::pin($crate::contract::$case(fixture))
            });
        })+)+
    };
    (@names; $($needs:expr => { $($case:ident),+ })+) => { [$($(stringify!($case)),+),+] };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The port, as it is written.
    const PORT: &str = include_str!("../port.rs");

    #[test]
    fn bullets_and_cases_are_the_same() {
        let bullets: BTreeSet<_> = PORT
            .lines()
            .filter_map(|line| line.trim().strip_prefix("/// - `"))
            .filter_map(|bullet| bullet.split_once('`'))
            .map(|(name, _)| name)
            .collect();
        let cases = BTreeSet::from(crate::contract! { @each @names });
        assert_eq!(bullets, cases);
    }
}
