//! What every store must do: each case is a bullet of the contract in
//! `leasehold::store::LockStore`, and each bullet a case.
//!
//! A store's whole test file is a [`Fixture`] and one line:
//!
//! ```text
//! leasehold_testkit::conformance!(MyFixture::start());
//! ```

mod actor;
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
use leasehold::store::LockStore;
use tokio::runtime::Builder;

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

/// A store under test, fresh for each case.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Another client of the same store.
    async fn client(&self) -> Arc<dyn LockStore>;

    /// Lets the store's time pass: by hand where that is possible, else by waiting.
    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// How many lives of each kind of lock are cut short at random.
    fn cancellations(&self) -> usize {
        cancellations()
    }

    /// How many clients have their inbox open now, where that can be seen.
    fn open_inboxes(&self) -> Option<usize> {
        None
    }
}

/// A case as it is mounted.
pub type Case = for<'a> fn(&'a dyn Fixture) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs a case on a store of its own: on one thread, or with so many workers. It is one
/// function for all, since thousands of tests are mounted, and each would be compiled with a
/// runtime of its own.
///
/// # Panics
/// As the case does.
pub fn run(workers: Option<usize>, fixture: &dyn Fn() -> Box<dyn Fixture>, case: Case) {
    let mut builder = match workers {
        None => Builder::new_current_thread(),
        Some(_) => Builder::new_multi_thread(),
    };
    workers.map(|workers| builder.worker_threads(workers));
    let runtime = builder.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let fixture = fixture();
        case(&*fixture).await;
    });
}

/// How many lives of each kind of lock are cut short at random where that is quick: as
/// `LEASEHOLD_CANCELLATIONS` says, else 1,000.
#[must_use]
pub fn cancellations() -> usize {
    let said = std::env::var("LEASEHOLD_CANCELLATIONS");
    said.map_or(1_000, |count| {
        count
            .parse()
            .expect("LEASEHOLD_CANCELLATIONS is no number of lives")
    })
}

/// How long a push may take on a busy machine before a case fails.
const PUSH_LIMIT: Duration = Duration::from_secs(10);

/// Long enough to outlive any case.
const LONG: Duration = Duration::from_secs(60);

/// Short enough to be waited for.
const SHORT: Duration = Duration::from_millis(300);

/// Mounts every case as a test of the store that the expression makes a
/// [`Fixture`] of.
#[macro_export]
macro_rules! conformance {
    ($fixture:expr) => {
        $crate::conformance! { @each @test $fixture }
    };
    (@each $($then:tt)+) => {
        $crate::conformance! { $($then)+;
            claim_free_key_is_granted, claim_held_key_waits_or_is_busy, claim_again_finds_itself,
            claim_after_release_is_gone, claims_are_granted_in_order,
            claim_of_other_capacity_is_mismatch, claim_ahead_passes_waiters,
            lapsed_holder_is_passed, tokens_strictly_increase, claim_id_of_another_client_is_taken,
            readers_share_and_writers_exclude, permits_are_counted_by_weight,
            owner_enters_again_with_the_same_token, owner_leaves_with_its_last_claim,
            waiting_claims_of_an_owner_are_granted_together, note_is_shown,
            claim_all_is_all_or_nothing, claim_all_again_finds_itself,
            claim_all_of_one_key_twice_is_invalid,
            renew_raises_never_lowers, renew_unknown_is_gone, renew_keeps_place_and_token,
            downgrade_lets_readers_in_and_no_writer_between, rotation_replaces_the_id,
            rotation_again_finds_itself, concurrent_rotations_have_one_winner,
            adoption_raises_the_token_and_tells_the_former,
            adoption_raises_the_token_of_all_claims_of_the_owner,
            release_hands_on_to_next, release_twice_is_absent, release_unknown_is_absent,
            withdrawn_waiter_is_passed, minimum_hold_outlives_its_release,
            unused_grant_keeps_nothing, silent_holder_is_told_from_its_minimum_hold,
            resize_compares_and_sets, growing_promotes_at_once, shrinking_revokes_nothing,
            waiter_too_heavy_is_told, resize_idle_key_is_absent,
            watcher_hears_of_holders_and_notes, watch_ends,
            break_fences_holders, break_tells_holders, inspect_shows_holders_and_waiters,
            inspect_idle_key_is_empty, list_finds_live_keys_by_pattern,
            listing_finds_each_live_key_once,
            grant_is_pushed_to_its_inbox_only, next_in_line_is_told, closed_inbox_hears_nothing
        }
    };
    (@test $fixture:expr; $($case:ident),+) => {
        $(#[test]
        fn $case() {
            $crate::conformance::run(None, &|| Box::new($fixture), |fixture| {
                Box::pin($crate::conformance::$case(fixture))
            });
        })+
    };
    (@names; $($case:ident),+) => { [$(stringify!($case)),+] };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The port, as it is written.
    const PORT: &str = include_str!("../../../crates/leasehold-store/src/port.rs");

    #[test]
    fn bullets_and_cases_are_the_same() {
        let bullets: BTreeSet<_> = PORT
            .lines()
            .filter_map(|line| line.trim().strip_prefix("/// - `"))
            .filter_map(|bullet| bullet.split_once('`'))
            .map(|(name, _)| name)
            .collect();
        let cases = BTreeSet::from(crate::conformance! { @each @names });
        assert_eq!(bullets, cases);
    }
}
