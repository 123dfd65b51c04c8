//! Readers and writers.

use crate::kinds::cast::*;

/// Two of three clients read.
fn wants(who: usize) -> Claim {
    claim(who, id(0), lock_mode(who.is_multiple_of(3)))
}

fn they_do_not_overlap(seen: &Snapshot) {
    let writers = seen
        .holders
        .iter()
        .filter(|h| h.claim.mode == Mode::EXCLUSIVE);
    assert!(writers.count() == 0 || seen.holders.len() == 1, "{seen:?}");
}

/// Nobody holds who came after one who waits, and no reader waits behind readers only.
fn they_come_in_turn(seen: &Snapshot) {
    let Some(first) = seen.waiters.first().map(|w| &w.claim) else {
        return;
    };
    let last = seen.holders.iter().map(|h| h.claim.arrival).max();
    assert!(last.is_some_and(|last| last < first.arrival), "{seen:?}");
    let read = seen.holders.iter().all(|h| h.claim.mode == Mode::SHARED);
    assert!(!read || first.mode == Mode::EXCLUSIVE, "{seen:?}");
}

const ALL: &[Verb] =
    verbs![Join Join Join Renew Release Release Die Downgrade Rotate GiveAway Break];

proptest! {
    #![proptest_config(config())]

    /// Also while clients die, lapse, downgrade, and give their claims away.
    #[test]
    fn readers_and_writers_never_overlap(script in script(ALL)) {
        let mut cast = Cast::new(wants);
        for step in &script {
            cast.play(step);
            they_do_not_overlap(&cast.look());
        }
    }

    /// Everybody renews, and whoever holds leaves some time: then each is granted,
    /// in the order of arrival, and neighbouring readers together.
    #[test]
    fn whoever_stays_is_granted_in_turn(
        writers in prop::collection::vec(any::<bool>(), 1..12),
        leaves in prop::collection::vec(any::<prop::sample::Index>(), 24),
    ) {
        let mut cast = Cast::new(wants);
        let (mut joined, mut inside, mut granted) = (0, Vec::new(), 0);
        for pick in leaves {
            if let Some(writes) = writers.get(joined) {
                cast.apply(&Command::Claim(claim(joined, id(joined), lock_mode(*writes))));
                inside.push(joined);
                joined += 1;
            }
            for who in &inside {
                cast.apply(&renew(id(*who)));
            }
            they_do_not_overlap(&cast.look());
            they_come_in_turn(&cast.look());
            let held = |who: &usize| cast.is_held(&id(*who));
            let holders: Vec<_> = inside.iter().copied().filter(held).collect();
            if !holders.is_empty() {
                let who = *pick.get(&holders);
                cast.apply(&release(id(who)));
                inside.retain(|other| *other != who);
                granted += 1;
            }
            they_come_in_turn(&cast.look());
            cast.pass(LEASE / 3);
        }
        // One leaves at each turn, and only holders do.
        prop_assert_eq!(granted, writers.len());
    }

    /// The writer holds on under its token, the readers right behind it come in
    /// at once, and the writer behind them waits for all.
    #[test]
    fn a_downgrade_lets_no_writer_between(
        line in prop::collection::vec(any::<bool>(), 0..8),
        repeats in 1_usize..3,
    ) {
        let mut cast = Cast::new(wants);
        cast.apply(&Command::Claim(claim(0, id(0), Mode::EXCLUSIVE)));
        for (who, writes) in (1..).zip(&line) {
            cast.apply(&Command::Claim(claim(who, id(who), lock_mode(*writes))));
        }
        let before = cast.look().holders[0].clone();
        let downgrade = Command::Renew(but(Renew::new(id(0), LEASE), |it| it.downgrade = true));
        for _ in 0..repeats {
            cast.apply(&downgrade);
        }
        let seen = cast.look();
        let readers = line.iter().take_while(|writes| !**writes).count();
        prop_assert_eq!(seen.holders.len(), 1 + readers);
        prop_assert_eq!(seen.holders[0].token, before.token);
        prop_assert_eq!(seen.holders[0].claim.arrival, before.claim.arrival);
        they_do_not_overlap(&seen);
        they_come_in_turn(&seen);
        // It weighs as one reader, not as none: all that came in are readers, and
        // a writer comes when all have left.
        prop_assert!(!cast.is_free());
        for who in (0..=readers).rev() {
            they_do_not_overlap(&cast.look());
            let last = cast.look().holders.len() == 1;
            cast.apply(&release(id(who)));
            prop_assert_eq!(last, who == 0);
        }
        let now = cast.look();
        let next = now.holders.first().map(|h| h.claim.mode);
        prop_assert_eq!(next, line.get(readers).map(|_| Mode::EXCLUSIVE));
        prop_assert!(now.capacity.is_none_or(|capacity| capacity == Capacity::Lock));
    }
}
