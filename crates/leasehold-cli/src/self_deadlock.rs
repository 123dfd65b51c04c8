//! Waiting for a key that the command's own outer leasehold holds: that one waits for us to end, so
//! the wait would never end.

use std::collections::BTreeSet;

use leasehold::{Capacity, ClaimContext, HolderInfo, Inspection, Mode};

use crate::exit;
use crate::failure::Failure;
use crate::sys;

/// Who keeps the key from ever being granted in that mode, if somebody does: holders in whose context
/// `outer` lies. They hold until what runs within them has ended, and leave too little of the key.
fn in_the_way<'a>(
    seen: &'a Inspection,
    mode: Mode,
    outer: &ClaimContext,
) -> Option<&'a HolderInfo> {
    let waits_for_us = |holder: &&HolderInfo| {
        let context = holder.owner.context.as_ref();
        !holder.kept && context.is_some_and(|context| context.covers(outer))
    };
    // Those with one token weigh once.
    let mut counted = BTreeSet::new();
    let weights = seen.holders.iter().filter(waits_for_us).map(|holder| {
        let counts = holder.token.some().is_none_or(|it| counted.insert(it));
        if counts { holder.mode.weight() } else { 0 }
    });
    let held: u64 = weights.sum();
    let capacity = seen.permits.map_or(Capacity::Lock, Capacity::Permits);
    let is_full = held.saturating_add(mode.weight()) > capacity.units();
    seen.holders.iter().find(waits_for_us).filter(|_| is_full)
}

/// Why waiting for the key in that mode would never end, if it would not. `reentrant`: whether it
/// could be asked for with --reentrant.
pub(crate) fn endless_wait(
    seen: &Inspection,
    mode: Mode,
    outer: &ClaimContext,
    reentrant: bool,
) -> Option<Failure> {
    let holder = in_the_way(seen, mode, outer)?;
    let key = &seen.key;
    let owner = &holder.owner;
    let place = (owner.host != sys::host()).then(|| format!(" on {}", owner.host));
    let place = place.unwrap_or_default();
    let message = format!(
        "{key} is held by this command's own outer leasehold (pid {}{place}): waiting for it would \
         never end",
        owner.pid
    );
    let both = [mode, holder.mode];
    let hint = match mode.capacity() {
        Capacity::Permits(_) => "use a higher --limit, or another key",
        Capacity::Lock if reentrant && both == [Mode::EXCLUSIVE; 2] => {
            "use --reentrant on both, or another key"
        }
        Capacity::Lock => "use another key",
    };
    Some(Failure::new(exit::CONFLICT, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use leasehold::Client;

    use super::*;

    struct Nested {
        client: Client,
        outer: ClaimContext,
    }

    impl Nested {
        async fn new() -> Self {
            let client = leasehold::connect("memory:").await.unwrap();
            let outer = client.context();
            Self { client, outer }
        }

        /// Whether a run in that mode, within one that holds the key as `holds`, waits for ever.
        async fn is_endless(&self, key: &str, holds: &[Mode], mode: Mode) -> bool {
            let mut held = Vec::new();
            for holds in holds {
                let lock = self.client.lock_of(key, *holds).unwrap();
                let lock = lock.with_context(&self.outer);
                held.push(lock.try_lock().await.unwrap().unwrap());
            }
            let seen = self.client.inspect(key).await.unwrap();
            in_the_way(&seen, mode, &self.outer).is_some()
        }
    }

    #[tokio::test]
    async fn only_what_leaves_too_little_is_in_the_way() {
        let nested = Nested::new().await;
        let (alone, shared) = (Mode::EXCLUSIVE, Mode::SHARED);
        let permits = |take| Mode::permits(3, take);
        for (key, holds, mode, endless) in [
            ("free", &[][..], alone, false),
            ("alone in alone", &[alone], alone, true),
            ("shared in alone", &[alone], shared, true),
            ("alone in shared", &[shared], alone, true),
            ("shared in shared", &[shared], shared, false),
            ("1 in 1 of 3", &[permits(1)], permits(1), false),
            ("2 in 1 of 3", &[permits(1)], permits(2), false),
            ("3 in 1 of 3", &[permits(1)], permits(3), true),
            (
                "1 in 1 and 2 of 3",
                &[permits(1), permits(2)],
                permits(1),
                true,
            ),
        ] {
            assert_eq!(nested.is_endless(key, holds, mode).await, endless, "{key}");
        }
    }

    #[tokio::test]
    async fn entries_of_one_owner_weigh_once_and_strangers_not_at_all() {
        let nested = Nested::new().await;
        let of_two = Mode::permits(2, 1);
        let stranger = nested.client.context();
        let lock = nested
            .client
            .lock_of("k", of_two)
            .unwrap()
            .with_context(&stranger);
        let _held = lock.try_lock().await.unwrap().unwrap();
        assert!(!nested.is_endless("k", &[of_two], of_two).await);

        let owner = leasehold::Owner::new();
        let lock = nested.client.lock_of("again", Mode::EXCLUSIVE).unwrap();
        let lock = lock.with_context(&nested.outer).with_owner(&owner).unwrap();
        let _first = lock.try_lock().await.unwrap().unwrap();
        let _second = lock.try_lock().await.unwrap().unwrap();
        let seen = nested.client.inspect("again").await.unwrap();
        assert_eq!(seen.holders.len(), 2);
        let holder = in_the_way(&seen, Mode::SHARED, &nested.outer).unwrap();
        assert_eq!(holder.id_hint, seen.holders[0].id_hint);
    }

    #[tokio::test]
    async fn a_run_beside_or_around_the_holder_is_not_within_it() {
        let nested = Nested::new().await;
        let within = nested.client.context_within(&nested.outer);
        let lock = nested.client.mutex("k").unwrap().with_context(&within);
        let _held = lock.lock().await.unwrap();
        let seen = nested.client.inspect("k").await.unwrap();
        let beside = nested.client.context_within(&nested.outer);
        let deeper = nested.client.context_within(&within);
        for (outer, endless) in [(&nested.outer, false), (&beside, false), (&deeper, true)] {
            let found = endless_wait(&seen, Mode::EXCLUSIVE, outer, true);
            assert_eq!(found.is_some(), endless);
        }
        let failure = endless_wait(&seen, Mode::EXCLUSIVE, &deeper, true).unwrap();
        let message = format!(
            "k is held by this command's own outer leasehold (pid {}): waiting for it would never \
             end",
            std::process::id()
        );
        assert_eq!(failure.message, message);
        assert_eq!(failure.status, 75);
        let hints = [true, false].map(|reentrant| {
            let failure = endless_wait(&seen, Mode::EXCLUSIVE, &deeper, reentrant);
            failure.and_then(|failure| failure.hint).unwrap()
        });
        assert_eq!(
            hints,
            ["use --reentrant on both, or another key", "use another key"]
        );
    }
}
