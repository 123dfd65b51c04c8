//! Semaphores.

use crate::kinds::cast::*;

const PERMITS: u32 = 4;

fn permits(take: u32) -> Mode {
    Mode::permits(PERMITS, take)
}

fn wants(who: usize) -> Claim {
    let take = 1 + u32::try_from(who).unwrap() % PERMITS;
    claim(who, id(0), permits(take))
}

fn used(seen: &Snapshot) -> u64 {
    seen.holders.iter().map(|h| h.claim.mode.weight()).sum()
}

fn units(seen: &Snapshot) -> u64 {
    seen.capacity.map_or(0, Capacity::units)
}

const ALL: &[Verb] =
    verbs![Join Join Join Renew Release Die Rotate Resize(PERMITS) Resize(2) Resize(7)];

proptest! {
    #![proptest_config(config())]

    /// More may be held for a while after the semaphore shrank: what was granted
    /// before, and nothing new.
    #[test]
    fn no_more_is_granted_than_there_is(script in script(ALL)) {
        let mut cast = Cast::new(wants);
        for step in &script {
            let Some(command) = cast.command(step) else { continue };
            let before = cast.look();
            let outcome = cast.apply(&command);
            cast.learn(step, &command, &outcome.reply);
            let after = cast.look();
            let allowed = if outcome.reply == Reply::Resized {
                units(&before).max(units(&after))
            } else {
                units(&after)
            };
            let arrivals = |seen: &Snapshot| -> BTreeSet<_> {
                seen.holders.iter().map(|h| h.claim.arrival).collect()
            };
            let nothing_new = arrivals(&after).is_subset(&arrivals(&before));
            prop_assert!(used(&after) <= allowed || nothing_new, "{:?}", after);
            if outcome.reply == Reply::Resized {
                // Growing grants at once, to all that fit in turn.
                let first = after.waiters.first().map(|w| w.claim.mode.weight());
                prop_assert!(first.is_none_or(|w| used(&after) + w > units(&after)));
            }
        }
    }

    /// Whoever waits for more than there is now hears so: by a push when its turn
    /// comes, or when it asks. The others are granted in the end.
    #[test]
    fn who_is_too_heavy_is_told(
        takes in prop::collection::vec(1..=PERMITS, 1..8),
        to in 1_u32..PERMITS,
        asks in any::<bool>(),
    ) {
        let mut cast = Cast::new(wants);
        // One has everything, so that all the others wait.
        cast.apply(&Command::Claim(claim(0, id(0), permits(PERMITS))));
        for (who, take) in (1..).zip(&takes) {
            cast.apply(&Command::Claim(claim(who, id(who), permits(*take))));
        }
        let mut told = BTreeSet::new();
        let hear = |told: &mut BTreeSet<_>, events: &[Event]| {
            for event in events {
                if let Event::Unfit { inbox, in_use, .. } = event {
                    assert_eq!(*in_use, Capacity::Permits(to));
                    assert!(told.insert(inbox.clone()), "told twice");
                }
            }
        };
        let shrunk = cast.apply(&Command::Resize { from: PERMITS, to });
        prop_assert_eq!(shrunk.reply, Reply::Resized);
        hear(&mut told, &shrunk.events);
        let in_use = Capacity::Permits(to);
        for (who, take) in (1..).zip(&takes).filter(|_| asks) {
            let outcome = cast.apply(&renew(id(who)));
            hear(&mut told, &outcome.events);
            let heavy = *take > to;
            let heard = told.contains(&inbox(who));
            match outcome.reply {
                Reply::Mismatch { in_use: seen } => {
                    prop_assert!(heavy && !heard && seen == in_use);
                    told.insert(inbox(who));
                }
                Reply::Gone => prop_assert!(heavy && heard),
                reply => prop_assert!(!heavy, "{:?} for {}", reply, take),
            }
        }
        // Those who hold leave, until nobody is left.
        let mut granted = BTreeSet::new();
        for _ in 0..=takes.len() {
            for who in 0..=takes.len() {
                if cast.is_held(&id(who)) {
                    granted.insert(who);
                    hear(&mut told, &cast.apply(&release(id(who))).events);
                }
            }
        }
        prop_assert!(cast.queue.is_empty(), "{:?}", cast.look());
        for (who, take) in (1..).zip(&takes) {
            prop_assert_eq!(*take > to, told.contains(&inbox(who)));
            prop_assert_eq!(*take <= to, granted.contains(&who));
        }
    }
}

/// The number of permits is changed from what it is taken for, or not at all.
#[test]
fn a_resize_of_another_size_changes_nothing() {
    let mut cast = Cast::new(wants);
    let resize = |from, to| Command::Resize { from, to };
    assert_eq!(cast.apply(&resize(PERMITS, 2)).reply, Reply::Absent);
    cast.apply(&Command::Claim(claim(0, id(0), permits(1))));
    let in_use = Capacity::Permits(PERMITS);
    let refused = cast.apply(&resize(PERMITS + 1, 2));
    assert_eq!(refused.reply, Reply::Mismatch { in_use });
    assert_eq!(cast.look().capacity, Some(in_use));
    for _ in 0..2 {
        assert_eq!(cast.apply(&resize(PERMITS, 2)).reply, Reply::Resized);
    }
    assert_eq!(cast.look().capacity, Some(Capacity::Permits(2)));
}

/// Somebody else's request by the same id does not drop it in silence.
#[test]
fn another_clients_request_does_not_silence_one_that_is_too_heavy() {
    let mut cast = Cast::new(wants);
    for (who, take) in [(0, PERMITS), (1, 1), (2, PERMITS)] {
        cast.apply(&Command::Claim(claim(who, id(who), permits(take))));
    }
    cast.apply(&Command::Resize {
        from: PERMITS,
        to: 2,
    });
    let stranger = claim(5, id(2), permits(PERMITS));
    assert_eq!(cast.apply(&Command::Claim(stranger)).reply, Reply::Taken);
    let in_use = Capacity::Permits(2);
    assert_eq!(cast.apply(&renew(id(2))).reply, Reply::Mismatch { in_use });
}
